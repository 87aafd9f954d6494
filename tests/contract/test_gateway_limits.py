"""Limits, the waiting line, deadlines and clients that leave."""

import asyncio
import json

import httpx
import pytest

from tests.contract.gateway_stack import DOCUMENT, assert_error, eventually, stack
from tests.fakes.triton import Call


async def test_200_clients_against_a_limit_of_16() -> None:
    async with stack(max_queued_requests=512) as gateway:
        admission = gateway.parts.inference
        full_while_waiting: list[bool] = []

        async def answer(call: Call) -> bytes:
            await asyncio.sleep(0.005)
            if admission.waiting:
                full_while_waiting.append(admission.in_work == 16)
            return b'{"errorCode":0}'

        gateway.triton.answer = answer
        gateway.triton.gate = asyncio.Event()
        requests = [gateway.send() for _ in range(200)]
        await eventually(lambda: admission.waiting == 184)
        await gateway.triton.until(lambda triton: triton.in_flight == 16)
        gateway.triton.gate.set()
        responses = await asyncio.gather(*requests)
        assert {response.status_code for response in responses} == {200}
        assert gateway.triton.peak == 16
        assert len(full_while_waiting) > 100
        assert all(full_while_waiting)
        assert (admission.places, admission.in_work) == (0, 0)


async def test_nobody_is_refused_before_the_line_is_full_and_everybody_after() -> None:
    async with stack(max_concurrent_inference_requests=2, max_queued_requests=3) as gateway:
        gateway.triton.gate = asyncio.Event()
        held = [gateway.send() for _ in range(5)]
        await eventually(lambda: gateway.parts.inference.places == 5)
        await gateway.triton.until(lambda triton: triton.in_flight == 2)
        refused = await gateway.post(DOCUMENT | {"logId": "one-too-many"})
        assert_error(refused, 503, "Too many requests are waiting; try again later", "one-too-many")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        large = await gateway.post({"file": "A" * 2**20, "logId": "not-read"})
        assert_error(large, 503)
        gateway.triton.gate.set()
        assert {response.status_code for response in await asyncio.gather(*held)} == {200}
        assert (await gateway.post()).status_code == 200
        assert len(gateway.triton.calls) == 6


async def test_the_two_routes_have_limits_of_their_own() -> None:
    async with stack(
        max_concurrent_inference_requests=1, max_concurrent_non_inference_requests=2, max_queued_requests=0
    ) as gateway:
        gateway.triton.gate = asyncio.Event()
        pages = {"pages": []}
        held = [gateway.send(), gateway.send(pages, "/restructure-pages"), gateway.send(pages, "/restructure-pages")]
        await gateway.triton.until(lambda triton: triton.in_flight == 3)
        assert (await gateway.post()).status_code == 503
        assert (await gateway.post(pages, "/restructure-pages")).status_code == 503
        gateway.triton.gate.set()
        await asyncio.gather(*held)


async def test_an_invalid_request_never_takes_a_slot() -> None:
    async with stack(max_concurrent_inference_requests=1, max_queued_requests=1) as gateway:
        gateway.triton.gate = asyncio.Event()
        held = gateway.send()
        await gateway.triton.until(lambda triton: triton.in_flight == 1)
        assert_error(await asyncio.wait_for(gateway.post({"logId": "bad"}), 5), 422, log_id="bad")
        gateway.triton.gate.set()
        await held


async def test_a_client_that_leaves_cancels_the_call() -> None:
    async with stack(max_concurrent_inference_requests=1) as gateway:
        gateway.triton.gate = asyncio.Event()
        leaving = gateway.send()
        await gateway.triton.until(lambda triton: triton.in_flight == 1)
        leaving.cancel()
        await gateway.triton.until(lambda triton: triton.cancelled == 1)
        await eventually(lambda: gateway.parts.inference.places == 0)
        gateway.triton.gate.set()
        assert (await gateway.post()).status_code == 200


async def test_a_client_that_leaves_the_line_never_reaches_the_model() -> None:
    async with stack(max_concurrent_inference_requests=1) as gateway:
        gateway.triton.gate = asyncio.Event()
        held = gateway.send(DOCUMENT | {"logId": "first"})
        await gateway.triton.until(lambda triton: triton.in_flight == 1)
        leaving = gateway.send(DOCUMENT | {"logId": "leaves"})
        await eventually(lambda: gateway.parts.inference.waiting == 1)
        last = gateway.send(DOCUMENT | {"logId": "last"})
        await eventually(lambda: gateway.parts.inference.waiting == 2)
        leaving.cancel()
        await eventually(lambda: gateway.parts.inference.waiting == 1)
        gateway.triton.gate.set()
        assert (await held).status_code == (await last).status_code == 200
        assert [call.id for call in gateway.triton.calls] == ["first", "last"]


async def test_a_client_that_leaves_while_sending_gives_its_place_back() -> None:
    async with stack(max_queued_requests=0, max_concurrent_inference_requests=1) as gateway:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"POST /layout-parsing HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        await eventually(lambda: gateway.parts.inference.places == 1)
        writer.close()
        await eventually(lambda: gateway.parts.inference.places == 0)
        assert gateway.triton.calls == []


async def test_the_deadline_ends_work_with_504_and_gives_the_slot_back() -> None:
    async with stack(inference_timeout=0.3, max_concurrent_inference_requests=1) as gateway:
        gateway.triton.gate = asyncio.Event()
        assert_error(await gateway.post(DOCUMENT | {"logId": "late"}), 504, "Gateway timeout", "late")
        await gateway.triton.until(lambda triton: triton.cancelled == 1)
        gateway.triton.gate.set()
        assert (await gateway.post()).status_code == 200


async def test_waiting_counts_against_the_deadline() -> None:
    async with stack(inference_timeout=0.5, max_concurrent_inference_requests=1) as gateway:
        gateway.triton.gate = asyncio.Event()
        first = gateway.send()
        await gateway.triton.until(lambda triton: triton.in_flight == 1)
        second = await gateway.post(DOCUMENT | {"logId": "waits"})
        assert_error(second, 504, "Gateway timeout", "waits")
        assert (await first).status_code == 504
        assert (gateway.parts.inference.places, gateway.parts.inference.in_work) == (0, 0)


async def test_time_spent_in_line_is_gone_from_the_time_that_travels() -> None:
    async with stack(inference_timeout=5, max_concurrent_inference_requests=1) as gateway:
        gateway.triton.delay_s = 0.4
        responses = await asyncio.gather(gateway.post(), gateway.post())
        assert [response.status_code for response in responses] == [200, 200]
        first, second = (call.parameters["hps_timeout_us"] / 1e6 for call in gateway.triton.calls)
        assert first - second == pytest.approx(0.4, abs=0.2)


async def test_a_body_that_never_comes_ends_with_504() -> None:
    async with stack(inference_timeout=0.3) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"POST /layout-parsing HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert head.startswith(b"HTTP/1.1 504 ")
        assert gateway.parts.inference.places == 0
        writer.close()
        await writer.wait_closed()


async def test_a_mix_of_good_slow_bad_and_leaving_requests_gives_every_slot_back() -> None:
    async with stack(max_concurrent_inference_requests=3, inference_timeout=1.0) as gateway:

        async def answer(call: Call) -> bytes:
            await asyncio.sleep(json.loads(call.body)["topP"])
            return b'{"errorCode":0}'

        gateway.triton.answer = answer

        async def one(number: int) -> int | None:
            if number % 5 == 0:
                return (await gateway.post({"logId": "bad"})).status_code
            request = gateway.send(DOCUMENT | {"topP": 1 if number % 11 == 0 else 0.01})
            if number % 4 == 0:
                await asyncio.wait([request], timeout=0.003 * number)
                request.cancel()
            return None if (await asyncio.gather(request, return_exceptions=True))[0] is None else 0

        await asyncio.gather(*(one(number) for number in range(60)))
        await eventually(lambda: gateway.parts.inference.places == 0)
        assert gateway.parts.inference.in_work == 0
        assert gateway.triton.peak <= 3
        responses: list[httpx.Response] = await asyncio.gather(
            *(gateway.post(DOCUMENT | {"topP": 0.01}) for _ in range(9))
        )
        assert {response.status_code for response in responses} == {200}
