"""The transport against little servers that answer byte for byte what a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from hps.vlm_connections import ConnectionStack

Send = Callable[[], Awaitable[httpx.Response]]


class Peer:
    """What the server has seen. connections: opened so far; closed: of these, ended by the client."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()


@asynccontextmanager
async def stack(*answers: bytes, idle_s: float = 5.0) -> AsyncIterator[tuple[Send, Peer]]:
    """A function that sends one request, and its server, which gives the answers in turn. An empty answer is none; one
    that ends with a zero byte is the last of its connection."""
    peer = Peer()
    left = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                peer.requests.append(head + await reader.readexactly(length))
                peer.asked.set()
                answer = next(left)
                writer.write(answer.rstrip(b"\0"))
                if answer.endswith(b"\0"):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            peer.closed.set()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = httpx.URL(f"http://127.0.0.1:{port}/v1/chat?x=1")
    transport = ConnectionStack(url, idle_s=idle_s)

    async def send() -> httpx.Response:
        request = httpx.Request("POST", url, headers={"Content-Type": "application/json"}, content=b'{"a": 1}')
        return await transport.handle_async_request(request)

    try:
        yield send, peer
    finally:
        await transport.aclose()
        server.close()


def ok(body: bytes, *headers: bytes) -> bytes:
    head = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


async def test_a_request_goes_out_whole_and_its_response_comes_back() -> None:
    async with stack(ok(b"hello", b"X-Name: value")) as (send, peer):
        response = await send()
    assert (response.status_code, response.content, response.headers["x-name"]) == (200, b"hello", "value")
    head, _, body = peer.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat?x=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nContent-Type: application/json" in head
    assert body == b'{"a": 1}'


async def test_connections_are_used_again_and_as_many_as_are_needed() -> None:
    async with stack(*[ok(b"x")] * 5) as (send, peer):
        await send()
        await send()
        assert peer.connections == 1
        await asyncio.gather(send(), send(), send())
        assert peer.connections == 3


async def test_one_that_lay_idle_for_long_is_not_used() -> None:
    async with stack(ok(b"x"), ok(b"y"), idle_s=0.0) as (send, peer):
        await send()
        await send()
        await asyncio.wait_for(peer.closed.wait(), 5)
        assert peer.connections == 2


@pytest.mark.parametrize("last", [ok(b"x", b"Connection: close"), ok(b"x") + b"\0"], ids=["announced", "silent"])
async def test_a_connection_that_the_server_closes_is_not_used_again(last: bytes) -> None:
    async with stack(last, ok(b"y")) as (send, peer):
        await send()
        await asyncio.sleep(0.05)  # for the end to arrive, where it is not announced
        assert (await send()).content == b"y"
        assert peer.connections == 2


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + ok(b"abcde"), b"abcde"),
        (b"HTTP/1.0 200 OK\r\n\r\nabcde\0", b"abcde"),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", b""),
    ],
    ids=["chunked", "continue", "until the end", "empty"],
)
async def test_the_ways_in_which_a_response_ends(answer: bytes, body: bytes) -> None:
    async with stack(answer) as (send, _):
        assert (await asyncio.wait_for(send(), 5)).content == body


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"\0", httpx.ReadError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort\0", httpx.ReadError),
        (b"HTTP/1.1 200 OK\r\nContent-Le\0", httpx.ReadError),
        (b"SMTP ready\r\n\r\n", httpx.RemoteProtocolError),
    ],
    ids=["nothing", "cut body", "cut head", "another protocol"],
)
async def test_a_broken_response_is_an_error_of_httpx(answer: bytes, error: type[Exception]) -> None:
    async with stack(answer, ok(b"next")) as (send, _):
        with pytest.raises(error):
            await asyncio.wait_for(send(), 5)
        assert (await send()).content == b"next"


async def test_nobody_there() -> None:
    url = httpx.URL("http://127.0.0.1:1/")
    with pytest.raises(httpx.ConnectError):
        await ConnectionStack(url, idle_s=1).handle_async_request(httpx.Request("POST", url, content=b""))


async def test_a_caller_that_is_cancelled_closes_its_connection() -> None:
    async with stack(b"") as (send, peer):
        task = asyncio.ensure_future(send())
        await asyncio.wait_for(peer.asked.wait(), 5)
        task.cancel()
        await asyncio.wait_for(peer.closed.wait(), 5)
        with pytest.raises(asyncio.CancelledError):
            await task
