"""Connections to one server, reused last in first out: the httpx transport of the VLM client.

httpx's own pool looks at every connection, and asks the system about each, at the start and the end of every request:
with a hundred open that costs more than the request. Here a request takes the one that was used last, so none is
searched for, and those that a quieter time does not need grow old and are closed.
"""

import time
from types import TracebackType
from typing import Self

import httpx


class ConnectionStack(httpx.AsyncBaseTransport):
    """As many connections as there are requests at once: who calls it bounds them. For one event loop.

    Responses are read to their end before they are handed out, or their connection could not be given back.
    """

    def __init__(self, idle_s: float) -> None:
        """idle_s: connections that lay idle for longer are closed, not used."""
        self._idle_s = idle_s
        self._idle: list[tuple[float, httpx.AsyncHTTPTransport]] = []
        self._certificates = httpx.create_ssl_context(trust_env=False)  # read once: it takes milliseconds

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        connection = await self._taken() or self._opened()
        try:
            response = await connection.handle_async_request(request)
            await response.aread()
        except BaseException:
            await connection.aclose()
            raise
        self._idle.append((time.monotonic(), connection))
        return response

    async def aclose(self) -> None:
        await self._close_idle(len(self._idle))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def _taken(self) -> httpx.AsyncHTTPTransport | None:
        """The connection used last; the oldest go while at it."""
        stale = time.monotonic() - self._idle_s
        await self._close_idle(next((n for n, (used, _) in enumerate(self._idle) if used >= stale), len(self._idle)))
        return self._idle.pop()[1] if self._idle else None

    def _opened(self) -> httpx.AsyncHTTPTransport:
        one = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=self._idle_s)
        return httpx.AsyncHTTPTransport(verify=self._certificates, trust_env=False, limits=one)

    async def _close_idle(self, count: int) -> None:
        closing, self._idle = self._idle[:count], self._idle[count:]
        for _, connection in closing:
            await connection.aclose()
