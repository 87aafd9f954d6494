"""Connections to the VLM server, reused last in first out: an httpx transport for many small exchanges with one server.

A page makes a dozen requests at once, and a busy coordinator hundreds. httpx's own transport looks at every connection
of its pool, and asks the system about each, at the start and the end of every request, and parses in Python: 1 to 5 ms
of CPU a block, most of what a page costs outside its models. Here a request takes the connection that was used last,
and the parser is the one of our gateway: 0.2 ms. What is not needed is not there: no proxies, redirects, HTTP/2 or
compression, and bodies are held whole.
"""

import asyncio
import ssl
import time
from collections import deque
from typing import cast

import httptools
import httpx


class ConnectionStack(httpx.AsyncBaseTransport):
    """As many connections to `url`'s server as there are requests at once: who calls it bounds them, also in time.

    For one event loop. Raises httpx.ConnectError, httpx.ReadError and httpx.RemoteProtocolError.
    """

    def __init__(self, url: httpx.URL, *, idle_s: float) -> None:
        """idle_s: connections that lay idle for longer are closed, not used."""
        self._host = url.host
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._tls: ssl.SSLContext | None = httpx.create_ssl_context(trust_env=False) if url.scheme == "https" else None
        self._idle_s = idle_s
        self._idle: deque[_Connection] = deque()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The whole response. A caller that is cancelled, or whose exchange fails, closes its connection."""
        connection = self._taken() or await self._opened()
        try:
            response = await connection.exchange(_serialised(request))
        except BaseException:
            connection.abort()
            raise
        if connection.is_reusable:
            self._idle.append(connection)
        else:
            connection.abort()
        return response

    async def aclose(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    def _taken(self) -> "_Connection | None":
        """The connection used last; those that nobody used for long go while at it, from the other end."""
        stale = time.monotonic() - self._idle_s
        while self._idle and self._idle[0].used_at < stale:
            self._idle.popleft().abort()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable:  # or the server has closed it meanwhile
                return connection
        return None

    async def _opened(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return connection


class _Connection(asyncio.Protocol):
    """One exchange at a time. The methods named on_… are called by the parser."""

    def __init__(self) -> None:
        self.used_at = 0.0
        self._is_open = False
        self._response: asyncio.Future[httpx.Response] | None = None
        self._begin()

    @property
    def is_reusable(self) -> bool:
        return self._is_open and self._keeps_alive

    async def exchange(self, request: bytes) -> httpx.Response:
        if not self._is_open:
            raise httpx.ReadError("the server has closed the connection")
        self._response = asyncio.get_running_loop().create_future()
        self._begin()
        self._transport.write(request)
        try:
            return await self._response
        finally:
            self._response = None
            self.used_at = time.monotonic()

    def abort(self) -> None:
        self._is_open = False
        self._transport.abort()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._keeps_alive = True
        self._is_in_body = False

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._is_open = True

    def data_received(self, data: bytes) -> None:
        if self._response is None:  # nobody has asked: it must not pass for the answer to the next request
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(httpx.RemoteProtocolError(f"not a valid HTTP response: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._is_open = False
        is_framed = any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self._headers)
        if self._is_in_body and not is_framed and error is None:
            self.on_message_complete()  # a response without a length ends with its connection
        else:
            self._fail(httpx.ReadError("the server has closed the connection"))

    # --- the parser ---

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._is_in_body = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # "continue", "early hints": the response is still to come
            self._headers.clear()
            self._is_in_body = False
            return
        self._keeps_alive = self._parser.should_keep_alive()
        if self._response is not None and not self._response.done():
            self._response.set_result(httpx.Response(status, headers=self._headers, content=b"".join(self._body)))

    def _fail(self, error: httpx.TransportError) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)


def _serialised(request: httpx.Request) -> bytes:
    """The request as it goes over the wire. Its body must be bytes."""
    head = [f"{request.method} ".encode() + request.url.raw_path + b" HTTP/1.1"]
    head += [name + b": " + value for name, value in request.headers.raw]
    return b"\r\n".join(head) + b"\r\n\r\n" + request.content
