"""Requests through the real Triton into a handler of hps.triton.serving."""

import asyncio
import base64
import json
import random
import time
import uuid

import httpx
import pytest
from tritonclient.utils import InferenceServerException

from hps.contract import PROBE_PARAMETER, TIMEOUT_PARAMETER
from tests.e2e.conftest import Client, RunningTriton

pytestmark = pytest.mark.e2e


async def test_64_requests_at_once_take_as_long_as_the_slowest(echo: Client) -> None:
    naps = [round(random.Random(7).uniform(0.1, 2), 3) for _ in range(64)]
    started = time.monotonic()
    envelopes = await asyncio.gather(*(echo.call({"sleep": nap, "echo": i}) for i, nap in enumerate(naps)))
    seconds = time.monotonic() - started
    assert [envelope["result"]["echo"] for envelope in envelopes] == list(range(64))
    assert seconds < 2 * max(naps)  # one after the other they take a minute


async def test_a_fast_request_returns_at_once_beside_a_slow_one(echo: Client) -> None:
    slow = asyncio.create_task(echo.call({"sleep": 1.5}))
    await asyncio.sleep(0.2)
    await echo.call({})
    assert not slow.done()
    await slow


async def test_a_bad_request_fails_alone(echo: Client) -> None:
    good, bad, other = await asyncio.gather(echo.call({"echo": 1}), echo.call({"fail": True}), echo.call({"echo": 3}))
    assert (good["errorCode"], good["result"]["echo"]) == (0, 1)
    assert (bad["errorCode"], bad["errorMsg"]) == (422, "Input file is invalid: asked to fail")
    assert "result" not in bad
    assert (other["errorCode"], other["result"]["echo"]) == (0, 3)


async def test_an_unexpected_exception_is_a_500_envelope_that_tells_nothing(
    echo: Client, echo_triton: RunningTriton
) -> None:
    envelope = await echo.call({"raise": "secret text", "logId": "surprise"})
    assert envelope == {"logId": "surprise", "errorCode": 500, "errorMsg": "Internal server error"}
    log = echo_triton.log.read_text()
    assert "request surprise: status 500, unexpected: ValueError" in log
    assert "secret text" not in log


async def test_the_triton_request_id_is_the_log_id_unless_the_body_has_one(echo: Client) -> None:
    assert (await echo.call({}, request_id="mine"))["logId"] == "mine"
    assert (await echo.call({"logId": "the body's", "fail": True}, request_id="mine"))["logId"] == "the body's"
    assert uuid.UUID((await echo.call({}))["logId"]).version == 4


async def test_the_timeout_parameter_ends_a_request_with_504(echo: Client) -> None:
    started = time.monotonic()
    envelope = await echo.call({"sleep": 5}, parameters={TIMEOUT_PARAMETER: 300_000})
    assert (envelope["errorCode"], envelope["errorMsg"]) == (504, "Gateway timeout")
    assert 0.25 < time.monotonic() - started < 4


async def test_a_cancelled_grpc_call_reaches_the_handler(echo: Client) -> None:
    before = (await echo.call({}))["result"]["cancelled"]
    call = asyncio.create_task(echo.call({"sleep": 20}))
    await asyncio.sleep(0.3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(InferenceServerException, match="DEADLINE_EXCEEDED"):
        await echo.call({"sleep": 20}, client_timeout=0.3)
    await asyncio.sleep(0.3)
    after = (await echo.call({}))["result"]
    assert after["cancelled"] == before + 2
    assert after["in_work"] == 0


async def test_more_requests_than_the_limit_get_503_and_probes_do_not_count(echo: Client) -> None:
    held = [asyncio.create_task(echo.call({"sleep": 1})) for _ in range(100)]
    await asyncio.sleep(0.4)
    refused, probe = await asyncio.gather(
        echo.call({"logId": "late"}), echo.call(b"", parameters={PROBE_PARAMETER: True})
    )
    assert refused == {
        "logId": "late",
        "errorCode": 503,
        "errorMsg": "Too many requests are waiting; try again later",
    }
    assert probe["errorCode"] == 0
    assert {envelope["errorCode"] for envelope in await asyncio.gather(*held)} == {0}
    assert (await echo.call({}))["errorCode"] == 0


async def test_another_shape_than_one_by_one_is_a_triton_error(echo: Client) -> None:
    for elements in ([[b"{}", b"{}"]], [[b"{}"], [b"{}"]]):
        with pytest.raises(InferenceServerException, match="shape \\[1, 1\\]"):
            await echo.infer(elements)


async def test_a_large_body_and_answer_pass(echo: Client) -> None:
    text = base64.b64encode(random.Random(1).randbytes(6_000_000)).decode()
    assert (await echo.call({"echo": text}))["result"]["echo"] == text


async def test_http_infer_works(echo_triton: RunningTriton) -> None:
    body = json.dumps({"echo": "größe"}, ensure_ascii=False)
    request = {"inputs": [{"name": "input", "shape": [1, 1], "datatype": "BYTES", "data": [[body]]}]}
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{echo_triton.http}/v2/models/echo/infer", json=request)
    output = answer.json()["outputs"][0]
    assert (output["name"], output["shape"], output["datatype"]) == ("output", [1, 1], "BYTES")
    assert json.loads(output["data"][0])["result"]["echo"] == "größe"
