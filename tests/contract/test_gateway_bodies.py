"""Bodies that are too large, too slow or too many, heads without end, and answers that nobody reads."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway import intake, lingering
from gateway.connection import Connection
from tests.contract.gateway_stack import DOCUMENT, Stack, assert_error, eventually, stack

MIB = 2**20


@contextlib.asynccontextmanager
async def connected(gateway: Stack) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def head(*lines: str, path: str = "/layout-parsing") -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: x", *lines, "", "")).encode()


async def answered(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (names in lower case) and body of what comes."""
    lines = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 15)).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-2])}
    return int(lines[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def is_closed(reader: asyncio.StreamReader, within_s: float) -> bool:
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), within_s) == b""
    return True


# --- size ---


async def test_a_gibibyte_is_refused_at_its_announcement() -> None:
    async with stack(max_body_bytes=MIB) as gateway, connected(gateway) as (reader, writer):
        writer.write(head(f"Content-Length: {2**30}"))
        started = time.monotonic()
        status, headers, body = await answered(reader)
        assert time.monotonic() - started < 5
        assert (status, headers["connection"]) == (413, "close")
        assert json.loads(body)["errorMsg"] == f"Request body is larger than {MIB} bytes"
        assert gateway.parts.bodies.held == 0


async def test_a_client_that_sends_all_the_same_gets_to_read_the_refusal() -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(256):
            yield bytes(MIB)

    async with stack(max_body_bytes=MIB) as gateway:
        for headers in ({}, {"Content-Length": str(256 * MIB)}):
            refused = await gateway.client.post("/layout-parsing", content=body(), headers=headers)
            assert_error(refused, 413, f"Request body is larger than {MIB} bytes")
        assert gateway.parts.bodies.held == 0


async def test_a_chunked_body_without_end_is_cut_off_at_the_limit() -> None:
    async with stack(max_body_bytes=MIB) as gateway, connected(gateway) as (reader, writer):
        writer.write(head("Transfer-Encoding: chunked"))
        sent = 0
        chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        answer = asyncio.create_task(answered(reader))
        while not answer.done():
            writer.write(chunk)
            await writer.drain()
            sent += 0x10000
            await asyncio.sleep(0)
        assert (await answer)[0] == 413
        assert sent < 32 * MIB


async def test_a_refused_sender_is_not_listened_to_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering, "LINGER_S", 0.5)
    async with stack(max_body_bytes=MIB) as gateway, connected(gateway) as (reader, writer):
        writer.write(head(f"Content-Length: {2**30}"))
        assert (await answered(reader))[0] == 413
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - started < 5 and not reader.at_eof():
                writer.write(bytes(1024))
                await writer.drain()
                await asyncio.sleep(0.02)
        assert 0.3 < time.monotonic() - started < 3


async def test_a_connection_is_kept_when_the_body_was_read() -> None:
    async with stack() as gateway:
        good = await gateway.post()
        bad = await gateway.post({"logId": "bad"})
        assert (good.status_code, bad.status_code) == (200, 422)
        assert "connection" not in good.headers
        assert "connection" not in bad.headers


# --- pace ---


async def test_a_body_that_drips_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stack(body_timeout=0.4) as gateway, connected(gateway) as (reader, writer):
        writer.write(head("Content-Length: 1000"))
        answer = asyncio.create_task(answered(reader))
        started = time.monotonic()
        while not answer.done():
            writer.write(b" ")
            await asyncio.sleep(0.01)
        assert 0.3 < time.monotonic() - started < 3
        status, _, body = await answer
        assert status == 408
        assert re.fullmatch(r"The request body did not come in time: \d+ bytes in \d+ s", json.loads(body)["errorMsg"])
        assert gateway.parts.inference.places == 0
        assert gateway.parts.bodies.held == 0


async def test_a_large_body_has_more_time_than_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "SLOWEST_BODY", 1000)
    content = json.dumps(DOCUMENT).encode().ljust(2000)  # 0.3 s, and 2 s more
    async with stack(body_timeout=0.3) as gateway, connected(gateway) as (reader, writer):
        writer.write(head("Content-Length: 2000"))
        for at in range(0, 2000, 200):
            writer.write(content[at : at + 200])
            await asyncio.sleep(0.08)
        assert (await answered(reader))[0] == 200


# --- memory ---


async def test_bodies_over_the_budget_are_refused_by_what_they_announce_and_by_what_comes() -> None:
    budget = {"max_body_bytes": 100_000, "body_memory_bytes": 250_000, "max_concurrent_inference_requests": 1}
    large = DOCUMENT | {"file": "A" * 90_000}
    message = "Too many large requests are waiting; try again later"

    async def chunked() -> AsyncIterator[bytes]:
        yield json.dumps(large).encode()

    async with stack(**budget) as gateway:
        gateway.triton.gate = asyncio.Event()
        held = [gateway.send(large), gateway.send(large)]
        await eventually(lambda: gateway.parts.bodies.held > 180_000)
        announced = await gateway.post(large)
        assert_error(announced, 503, message)
        assert int(announced.headers["retry-after"]) >= 1
        assert_error(await gateway.client.post("/layout-parsing", content=chunked()), 503, message)
        small = gateway.send()
        await eventually(lambda: gateway.parts.inference.places == 3)
        gateway.triton.gate.set()
        assert [response.status_code for response in await asyncio.gather(*held, small)] == [200] * 3
        await eventually(lambda: gateway.parts.bodies.held == 0)
        assert (await gateway.post(large)).status_code == 200


async def test_a_budget_below_the_largest_body_still_lets_that_body_in() -> None:
    async with stack(max_body_bytes=100_000, body_memory_bytes=1024) as gateway:
        assert (await gateway.post(DOCUMENT | {"file": "A" * 90_000})).status_code == 200


async def test_the_budget_comes_back_however_a_request_ends() -> None:
    async with stack(inference_timeout=0.5, max_body_bytes=100_000) as gateway:
        gateway.triton.gate = asyncio.Event()
        leaving = gateway.send()
        await eventually(lambda: gateway.parts.bodies.held > 0)
        leaving.cancel()
        assert (await gateway.post()).status_code == 504
        assert (await gateway.post(b"{")).status_code == 400
        assert (await gateway.post(b" " * 100_001)).status_code == 413
        await eventually(lambda: gateway.parts.bodies.held == 0)


# --- heads and readers ---


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(b"GET /health HTTP/1.1\r\nX: " + b"a" * 200_000, id="one header"),
        pytest.param(b"GET /health HTTP/1.1\r\n" + b"X: a\r\n" * 30_000, id="many headers"),
        pytest.param(b"GET /" + b"a" * 200_000, id="URL"),
        pytest.param(b"\r\n" * 100_000, id="nothing"),
    ],
)
async def test_a_head_without_end_is_cut_off(endless: bytes) -> None:
    async with stack() as gateway, connected(gateway) as (reader, writer):
        writer.write(endless)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            line = await asyncio.wait_for(reader.readline(), 5)
            assert line in (b"HTTP/1.1 431 Request Header Fields Too Large\r\n", b"HTTP/1.1 400 Bad Request\r\n")
            assert await is_closed(reader, 5)


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(b"2\r\n{}\r\n0\r\nX: " + b"a" * 200_000, id="trailer"),
        pytest.param(b"2;" + b"a" * 200_000, id="chunk extension"),
    ],
)
async def test_what_is_neither_head_nor_body_is_cut_off_too(endless: bytes) -> None:
    async with stack() as gateway, connected(gateway) as (reader, writer):
        writer.write(head("Transfer-Encoding: chunked") + endless)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        await eventually(lambda: gateway.parts.inference.places == 0)
        assert gateway.parts.bodies.held == 0
        assert gateway.triton.calls == []
        await is_closed(reader, 5)


@pytest.mark.parametrize("start", [b"", b"POST /layout-parsing HT", b"\r\n", b"GET /health HTTP/1.1\r\nX: y\r\n"])
async def test_a_head_that_does_not_come_ends_the_connection(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "head_timeout_s", 0.3)
    async with stack() as gateway, connected(gateway) as (reader, writer):
        writer.write(start)
        said = await asyncio.wait_for(reader.read(), 5)
        assert said.startswith(b"HTTP/1.1 408 ") if start else said == b""


async def test_a_long_answer_outlives_the_time_of_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "head_timeout_s", 0.2)
    async with stack() as gateway:
        gateway.triton.delay_s = 0.7
        responses = [await gateway.post() for _ in range(2)]
        assert [response.status_code for response in responses] == [200, 200]


async def test_an_answer_that_nobody_reads_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "stalled_s", 0.3)

    async def large(call: object) -> bytes:
        return b'{"errorCode":0,"result":"' + bytes(32 * MIB) + b'"}'

    async with stack() as gateway, connected(gateway) as (reader, writer):
        gateway.triton.answer = large
        content = json.dumps(DOCUMENT).encode()
        writer.transport.pause_reading()
        writer.write(head(f"Content-Length: {len(content)}") + content)
        await eventually(lambda: gateway.triton.finished == 1)
        await asyncio.sleep(1.0)
        writer.transport.resume_reading()
        with contextlib.suppress(ConnectionError):
            assert len(await asyncio.wait_for(reader.read(), 10)) < 32 * MIB


async def test_an_answer_that_is_read_slowly_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "stalled_s", 0.3)

    async def large(call: object) -> bytes:
        return b'{"errorCode":0,"result":"' + b"a" * (16 * MIB) + b'"}'

    async with stack() as gateway:
        gateway.triton.answer = large
        received = 0
        async with gateway.client.stream("POST", "/layout-parsing", json=DOCUMENT) as response:
            async for piece in response.aiter_raw(MIB):
                received += len(piece)
                await asyncio.sleep(0.1)
        assert received > 16 * MIB


# --- headers ---


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/nowhere", 404),
        ("GET", "/layout-parsing", 405),
        ("POST", "/layout-parsing", 200),
        ("GET", "/openapi.json", 200),
    ],
)
async def test_every_answer_has_the_security_headers(method: str, path: str, status: int) -> None:
    async with stack(http=False) as gateway:
        response = await gateway.client.request(method, path, json=DOCUMENT if method == "POST" else None)
        assert response.status_code == status
        _assert_security_headers(response)
        assert response.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"


async def test_the_interactive_pages_keep_their_scripts() -> None:
    async with stack(http=False) as gateway:
        response = await gateway.client.get("/docs")
        _assert_security_headers(response)
        assert "content-security-policy" not in response.headers


def _assert_security_headers(response: httpx.Response) -> None:
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["x-frame-options"] == "DENY"
    assert "server" not in response.headers
