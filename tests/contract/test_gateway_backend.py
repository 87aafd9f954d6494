"""gRPC status codes become our errors, by code and never by text; the channel comes back by itself."""

import asyncio
import struct
import time

import grpc
import pytest

from gateway.backend import TritonBackend
from hps.errors import BackendError, DeadlineExceeded, HpsError, Unavailable
from tests.contract.gateway_stack import assert_error, stack
from tests.fakes.triton import Call, FakeTriton

Code = grpc.StatusCode


async def infer(backend: TritonBackend, timeout_s: float = 5) -> bytes:
    return bytes(await backend.infer("layout-parsing", b"{}", request_id="r", timeout_s=timeout_s))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.DEADLINE_EXCEEDED, DeadlineExceeded),
        (Code.UNAVAILABLE, Unavailable),
        (Code.NOT_FOUND, Unavailable),
        (Code.CANCELLED, BackendError),
        (Code.INTERNAL, BackendError),
        (Code.INVALID_ARGUMENT, BackendError),
        (Code.RESOURCE_EXHAUSTED, BackendError),
        (Code.UNKNOWN, BackendError),
    ],
)
async def test_status_codes(code: grpc.StatusCode, error: type[HpsError]) -> None:
    async with FakeTriton(error=code) as triton:
        backend = TritonBackend(triton.address)
        with pytest.raises(error):
            await infer(backend)
        await backend.close()


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        (Code.DEADLINE_EXCEEDED, 504, "Gateway timeout"),
        (Code.UNAVAILABLE, 503, "Service unavailable"),
        (Code.NOT_FOUND, 503, "Service unavailable"),
        (Code.INTERNAL, 500, "Internal server error"),
        (Code.CANCELLED, 500, "Internal server error"),
    ],
)
async def test_status_codes_over_http(code: grpc.StatusCode, status: int, message: str) -> None:
    async with stack(http=False) as gateway:
        gateway.triton.error = code
        assert_error(await gateway.post({"file": "QUJD", "logId": "mine"}), status, message, "mine")


async def test_an_answer_that_does_not_come_is_a_deadline() -> None:
    async with FakeTriton(gate=asyncio.Event()) as triton:
        backend = TritonBackend(triton.address)
        with pytest.raises(DeadlineExceeded):
            await infer(backend, 0.2)
        await triton.until(lambda triton: triton.cancelled == 1)
        await backend.close()


@pytest.mark.parametrize("raw", [b"", b"\x01", struct.pack("<I", 9) + b"short", struct.pack("<I", 1) + b"long"])
async def test_an_output_that_is_no_single_element(raw: bytes) -> None:
    async with FakeTriton(raw=raw) as triton:
        backend = TritonBackend(triton.address)
        with pytest.raises(BackendError):
            await infer(backend)
        await backend.close()


async def test_bodies_over_grpc_s_default_limit_pass_both_ways() -> None:
    async def echo(call: Call) -> bytes:
        return call.body

    body = bytes(16 * 2**20)
    async with FakeTriton(answer=echo) as triton:
        backend = TritonBackend(triton.address)
        assert await backend.infer("layout-parsing", body, request_id="r", timeout_s=20) == body
        await backend.close()


async def test_without_triton_calls_fail_at_once_and_after_its_restart_they_work() -> None:
    async with FakeTriton() as triton:
        backend = TritonBackend(triton.address)
        await infer(backend)
        port = triton.port
    started = time.monotonic()
    for _ in range(20):
        with pytest.raises(Unavailable):
            await infer(backend)
    assert not await backend.server_ready(5)
    assert time.monotonic() - started < 2
    async with FakeTriton(port=port), asyncio.timeout(3):
        while not await backend.server_ready(1):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await infer(backend)
    await backend.close()


async def test_triton_going_away_fails_the_calls_in_flight_at_once() -> None:
    async with stack(http=False) as gateway:
        gateway.triton.gate = asyncio.Event()
        request = gateway.send({"file": "QUJD", "logId": "mine"})
        await gateway.triton.until(lambda triton: triton.in_flight == 1)
        await gateway.triton.stop()
        assert_error(await asyncio.wait_for(request, 5), 503, "Service unavailable", "mine")


# --- Triton that comes back ---


async def test_a_request_waits_through_a_restart() -> None:
    async with stack(http=False, triton_outage=10) as gateway:
        port = gateway.triton.port
        await gateway.triton.stop()
        request = gateway.send({"file": "QUJD", "logId": "mine"})
        await asyncio.sleep(0.5)
        assert not request.done()
        async with FakeTriton(port=port) as again:
            response = await asyncio.wait_for(request, 10)
            assert (response.status_code, response.json()["logId"]) == (200, "mine")
            assert len(again.documents) == 1


async def test_what_was_in_work_is_begun_again() -> None:
    async with stack(http=False, triton_outage=10) as gateway:
        gateway.triton.gate = asyncio.Event()
        port = gateway.triton.port
        requests = [gateway.send({"file": "QUJD", "logId": str(number)}) for number in range(5)]
        await gateway.triton.until(lambda triton: triton.in_flight == 5)
        await gateway.triton.stop()
        async with FakeTriton(port=port):
            responses = await asyncio.wait_for(asyncio.gather(*requests), 10)
        assert [response.status_code for response in responses] == [200] * 5
        assert [response.json()["logId"] for response in responses] == list("01234")


async def test_an_envelope_that_says_unavailable_is_asked_again() -> None:
    async def stopping(call: Call) -> bytes:
        if len(gateway.triton.documents) < 3:
            return b'{"logId":"x","errorCode":503,"errorMsg":"The service is stopping"}'
        return b'{"logId":"x","errorCode":0,"errorMsg":"Success","result":{}}'

    async with stack(http=False, triton_outage=10) as gateway:
        gateway.triton.answer = stopping
        assert (await gateway.post()).status_code == 200
        assert len(gateway.triton.documents) == 3


async def test_triton_that_stays_away_is_503_after_the_outage() -> None:
    async with stack(http=False, triton_outage=1) as gateway:
        await gateway.triton.stop()
        started = time.monotonic()
        assert_error(await gateway.post({"file": "QUJD", "logId": "mine"}), 503, "Service unavailable", "mine")
        assert 0.4 < time.monotonic() - started < 3


async def test_the_deadline_comes_before_the_outage() -> None:
    async with stack(http=False, triton_outage=60, inference_timeout=0.8) as gateway:
        await gateway.triton.stop()
        started = time.monotonic()
        assert (await gateway.post()).status_code in (503, 504)
        assert time.monotonic() - started < 3


async def test_a_request_that_takes_the_models_away_is_not_begun_for_ever() -> None:
    async def poison(call: Call) -> bytes:
        await asyncio.sleep(0.3)
        return b"no envelope"

    async with stack(http=False, triton_outage=60) as gateway:
        gateway.triton.answer = poison
        assert (await gateway.post()).status_code == 500
        assert len(gateway.triton.documents) == 3


@pytest.mark.parametrize("status", [400, 422, 500, 504])
async def test_other_envelopes_are_answers(status: int) -> None:
    async def failing(call: Call) -> bytes:
        return b'{"logId":"x","errorCode":%d,"errorMsg":"no"}' % status

    async with stack(http=False, triton_outage=10) as gateway:
        gateway.triton.answer = failing
        assert (await gateway.post()).status_code == status
        assert len(gateway.triton.documents) == 1


async def test_a_client_that_leaves_ends_the_waiting() -> None:
    async with stack(triton_outage=60) as gateway:
        await gateway.triton.stop()
        request = gateway.send()
        async with asyncio.timeout(10):
            while gateway.parts.inference.in_work == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            request.cancel()
            while gateway.parts.inference.places:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
