"""/health/ready tells the truth (SPEC A.8): every part, every way it can fail, and no false alarm under load."""

import asyncio
import json
import time

import grpc
import httpx
import pytest

from gateway.health import CACHE_S
from tests.contract.gateway_stack import DOCUMENT, Stack, assert_error, eventually, stack
from tests.fakes.triton import Call, FakeTriton, success


async def ready(gateway: Stack) -> httpx.Response:
    return await gateway.client.get("/health/ready")


async def test_ready() -> None:
    async with stack(http=False, vlm=True) as gateway:
        response = await ready(gateway)
        assert response.status_code == 200
        body = response.json()
        assert (list(body), body["errorCode"], body["errorMsg"]) == (["logId", "errorCode", "errorMsg"], 0, "Ready")
        assert sorted(call.model for call in gateway.triton.calls) == ["layout-parsing", "restructure-pages"]
        for call in gateway.triton.calls:
            assert (call.body, call.parameters["hps_probe"], call.is_probe) == (b"{}", True, True)


async def test_triton_not_ready() -> None:
    async with stack(http=False, vlm=True) as gateway:
        gateway.triton.ready = False
        assert_error(await ready(gateway), 503, "Triton server not ready")


async def test_triton_away() -> None:
    async with stack(http=False, vlm=True, health_check_timeout=2) as gateway:
        await gateway.triton.stop()
        assert_error(await ready(gateway), 503, "Triton server not ready")


@pytest.mark.parametrize("model", ["layout-parsing", "restructure-pages"])
async def test_a_model_that_is_not_loaded(model: str) -> None:
    async with stack(http=False, vlm=True) as gateway:
        gateway.triton.not_loaded = frozenset({model})
        assert_error(await ready(gateway), 503, f"Model '{model}' not ready")


@pytest.mark.parametrize("model", ["layout-parsing", "restructure-pages"])
async def test_a_model_that_is_loaded_and_does_not_work(model: str) -> None:
    async def answer(call: Call) -> bytes:
        return b'{"errorCode":500,"errorMsg":"no"}' if call.model == model else await success(call)

    async with stack(http=False, vlm=True) as gateway:
        gateway.triton.answer = answer
        assert_error(await ready(gateway), 503, f"Model '{model}' not ready")


async def test_a_model_that_knows_no_probe_and_answers() -> None:
    async def answer(call: Call) -> bytes:  # as the official pipeline
        return b'{"errorCode":422,"errorMsg":"file: Field required"}'

    async with stack(http=False, vlm=True) as gateway:
        gateway.triton.answer = answer
        assert (await ready(gateway)).status_code == 200


async def test_a_dead_model_process() -> None:
    async with stack(http=False, vlm=True) as gateway:
        gateway.triton.error = grpc.StatusCode.INTERNAL
        assert_error(await ready(gateway), 503, "Model 'layout-parsing' not ready")


async def test_a_model_that_does_not_answer() -> None:
    async with stack(http=False, vlm=True, health_check_timeout=0.3) as gateway:
        gateway.triton.gate = asyncio.Event()
        gateway.triton.probes_pass_gate = False
        assert_error(await ready(gateway), 503, "Health check timed out: Model 'layout-parsing'")
        await gateway.triton.until(lambda triton: triton.in_flight == 0)
        assert gateway.triton.cancelled == 2


async def test_vlm_server_away() -> None:
    async with stack(http=False) as gateway:
        assert_error(await ready(gateway), 503, "VLM server not ready")


async def test_vlm_server_unhealthy() -> None:
    async with stack(http=False, vlm=True) as gateway:
        gateway.vlm.health_status = 503
        assert_error(await ready(gateway), 503, "VLM server not ready")


async def test_vlm_server_that_does_not_answer() -> None:
    async with stack(http=False, vlm=True, health_check_timeout=0.3) as gateway:
        gateway.vlm.health_delay_s = 5
        assert_error(await ready(gateway), 503, "Health check timed out: VLM server")


async def test_vlm_server_with_another_model() -> None:
    async with stack(http=False, vlm=True) as gateway:
        gateway.vlm.model = "another"
        message = "VLM server not ready: it does not serve the model 'PaddleOCR-VL-1.6-0.9B'"
        assert_error(await ready(gateway), 503, message)


@pytest.mark.parametrize(
    ("options", "model"),
    [
        ({"pipeline_name": "PaddleOCR-VL"}, "PaddleOCR-VL-0.9B"),
        ({"pipeline_name": "PaddleOCR-VL-1.5"}, "PaddleOCR-VL-1.5-0.9B"),
        ({"vlm_model_name": "mine"}, "mine"),
    ],
)
async def test_the_model_asked_for_is_the_release_s_or_the_setting_s(options: dict[str, str], model: str) -> None:
    async with stack(http=False, vlm=True, **options) as gateway:
        gateway.vlm.model = model
        assert (await ready(gateway)).status_code == 200


async def test_the_first_failing_part_in_order_is_named() -> None:
    async with stack(http=False) as gateway:
        gateway.triton.not_loaded = frozenset({"layout-parsing", "restructure-pages"})
        assert_error(await ready(gateway), 503, "Model 'layout-parsing' not ready")


async def test_many_probers_share_one_check() -> None:
    async with stack(http=False, vlm=True) as gateway:
        responses = await asyncio.gather(*(ready(gateway) for _ in range(100)))
        assert {response.status_code for response in responses} == {200}
        assert len(gateway.triton.calls) == 2
        assert len({response.json()["logId"] for response in responses}) == 100


async def test_a_result_is_kept_for_a_second_at_most() -> None:
    async with stack(http=False, vlm=True) as gateway:
        checked = time.monotonic()
        assert (await ready(gateway)).status_code == 200
        gateway.triton.ready = False
        async with asyncio.timeout(CACHE_S + 2):
            while (await ready(gateway)).status_code == 200:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert time.monotonic() - checked < CACHE_S + 1


async def test_a_prober_that_leaves_does_not_end_the_check_of_the_others() -> None:
    async with stack(http=False, vlm=True) as gateway:
        gateway.triton.gate = asyncio.Event()
        gateway.triton.probes_pass_gate = False
        first, second = asyncio.create_task(ready(gateway)), asyncio.create_task(ready(gateway))
        await gateway.triton.until(lambda triton: triton.in_flight == 2)
        first.cancel()
        gateway.triton.gate.set()
        assert (await second).status_code == 200


async def succeed(gateway: Stack) -> None:
    """A real success of both models."""
    assert (await gateway.post()).status_code == 200
    assert (await gateway.post({"pages": []}, "/restructure-pages")).status_code == 200


def probes(triton: FakeTriton) -> int:
    return sum(call.is_probe for call in triton.calls)


async def test_a_recent_success_is_its_own_probe() -> None:
    async with stack(http=False, vlm=True) as gateway:
        await succeed(gateway)
        assert (await ready(gateway)).status_code == 200
        assert probes(gateway.triton) == 0


async def test_an_old_success_is_not() -> None:
    async with stack(http=False, vlm=True, health_check_timeout=0.2) as gateway:
        await succeed(gateway)
        await asyncio.sleep(0.25)
        assert (await ready(gateway)).status_code == 200
        assert probes(gateway.triton) == 2


@pytest.mark.parametrize("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE])
async def test_a_failure_after_the_success_asks_the_model_again(code: grpc.StatusCode) -> None:
    async with stack(http=False, vlm=True) as gateway:
        await succeed(gateway)
        gateway.triton.error = code
        assert (await gateway.post()).status_code >= 500
        assert_error(await ready(gateway), 503, "Model 'layout-parsing' not ready")
        assert probes(gateway.triton) == 1


async def test_a_document_that_fails_is_not_a_failure_of_the_model() -> None:
    async def answer(call: Call) -> bytes:
        bad = json.loads(call.body).get("logId") == "bad"
        return b'{"logId":"bad","errorCode":422,"errorMsg":"no"}' if bad else await success(call)

    async with stack(http=False, vlm=True) as gateway:
        await succeed(gateway)
        gateway.triton.answer = answer
        assert (await gateway.post(DOCUMENT | {"logId": "bad"})).status_code == 422
        assert (await ready(gateway)).status_code == 200
        assert probes(gateway.triton) == 0


async def test_a_success_while_the_probe_runs_settles_it() -> None:
    async with stack(http=False, vlm=True) as gateway:
        release = asyncio.Event()

        async def answer(call: Call) -> bytes:
            if call.is_probe:
                await release.wait()  # never: the model is too busy for the probe
            return await success(call)

        gateway.triton.answer = answer
        check = asyncio.create_task(ready(gateway))
        await gateway.triton.until(lambda triton: probes(triton) == 2)
        await succeed(gateway)
        assert (await check).status_code == 200
        await gateway.triton.until(lambda triton: triton.cancelled == 2)


async def test_a_busy_service_with_every_slot_taken_is_ready() -> None:
    async with stack(vlm=True, max_concurrent_inference_requests=2) as gateway:
        gateway.triton.gate = asyncio.Event()
        held = [gateway.send() for _ in range(6)]
        await gateway.triton.until(lambda triton: triton.in_flight == 2)
        await eventually(lambda: gateway.parts.inference.waiting == 4)
        assert (await ready(gateway)).status_code == 200
        assert gateway.parts.inference.in_work == 2
        gateway.triton.gate.set()
        await asyncio.gather(*held)
