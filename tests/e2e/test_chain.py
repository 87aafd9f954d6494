"""One coordinator behind the gateway, with fixed boxes and a VLM stub that sleeps: nobody waits for anybody else."""

import asyncio
import base64
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
import tritonclient.grpc.aio as grpcclient

from hps.ports import free_port
from tests.e2e import chain as chains
from tests.e2e.chain import Chain
from tests.fakes.vlm import FakeVlm

pytestmark = pytest.mark.e2e

PAGE = np.full((64, 64, 3), 255, np.uint8)
cv2.rectangle(PAGE, (12, 12), (50, 50), (0, 0, 0), 2)
FILE = base64.b64encode(cv2.imencode(".png", PAGE)[1].tobytes()).decode()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("chain")
    # Unguarded: the stub is to see the number of tokens that the request allows, as it is.
    limits = {"HPS_MAX_CONCURRENT_INFERENCE_REQUESTS": "128", "HPS_COORDINATORS": "1", "HPS_VLM_GUARD": "off"}
    with chains.running(folder, chains.fixed_layout(folder) | limits, vlm=free_port()) as running:
        yield running


@pytest.fixture
async def vlm(chain: Chain) -> AsyncIterator[FakeVlm]:
    """Sleeps a millisecond for each token that a request allows."""
    port = httpx.URL(chain.vlm_url).port
    assert port is not None
    async with FakeVlm(port=port, delay=lambda body: body["max_completion_tokens"] / 1000) as server:
        yield server


@pytest.fixture
async def http(chain: Chain) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=chain.url, timeout=60, limits=limits, trust_env=False) as client:
        yield client


def body(naps_ms: int = 1, **fields: Any) -> dict[str, Any]:
    return {"file": FILE, "fileType": 1, "visualize": False, "maxNewTokens": naps_ms} | fields


async def timed(http: httpx.AsyncClient, request: dict[str, Any]) -> tuple[httpx.Response, float]:
    started = time.monotonic()
    response = await http.post("/layout-parsing", json=request)
    return response, time.monotonic() - started


async def test_64_requests_take_as_long_as_the_slowest(vlm: FakeVlm, http: httpx.AsyncClient) -> None:
    await asyncio.gather(*(timed(http, body()) for _ in range(64)))  # connections, threads and shared memory grow once
    naps = [round(random.Random(7).uniform(100, 2000)) for _ in range(63)] + [2000]
    started = time.monotonic()
    answers = await asyncio.gather(*(timed(http, body(nap, logId=str(nap))) for nap in naps))
    total = time.monotonic() - started
    assert [response.status_code for response, _ in answers] == [200] * 64
    assert [response.json()["logId"] for response, _ in answers] == [str(nap) for nap in naps]
    print(f"64 requests: {total:.2f} s in all, the slowest alone {max(naps) / 1000:.2f} s")
    # A batch barrier of eight would take five times the slowest; the exact figure is benchmarks/overhead's business.
    assert total <= max(naps) / 1000 + 2


async def test_a_fast_request_returns_beside_a_slow_one(vlm: FakeVlm, http: httpx.AsyncClient) -> None:
    slow = asyncio.create_task(timed(http, body(3000)))
    await vlm.until(lambda counters: counters.in_flight == 1)
    _, seconds = await timed(http, body())
    assert seconds < 1.0
    assert not slow.done()
    assert (await slow)[0].status_code == 200


async def test_a_bad_request_fails_alone(vlm: FakeVlm, http: httpx.AsyncClient) -> None:
    bad = body(file=base64.b64encode(b"no image").decode())
    answers = await asyncio.gather(*(timed(http, request) for request in (body(300), bad, body(300))))
    assert [response.status_code for response, _ in answers] == [200, 422, 200]
    assert answers[1][1] < 0.3


async def test_every_way_in_gives_the_same_answer(chain: Chain, vlm: FakeVlm, http: httpx.AsyncClient) -> None:
    for request in (body(logId="same"), body(logId="same", file="!"), {"logId": "same"}, body(logId="same", topP=2)):
        raw = json.dumps(request).encode()
        by_gateway = (await http.post("/layout-parsing", content=raw)).json()
        assert by_gateway == await _grpc(chain, raw)
        tensor = {"name": "input", "shape": [1, 1], "datatype": "BYTES", "data": [[raw.decode()]]}
        reply = await http.post(f"{chain.triton_http}/v2/models/layout-parsing/infer", json={"inputs": [tensor]})
        assert by_gateway == json.loads(reply.json()["outputs"][0]["data"][0])


async def _grpc(chain: Chain, raw: bytes) -> Any:
    async with grpcclient.InferenceServerClient(chain.triton_grpc) as client:
        tensor = grpcclient.InferInput("input", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[raw]], dtype=np.object_))
        result = await client.infer("layout-parsing", [tensor])
    return json.loads(result.as_numpy("output")[0, 0])


async def test_a_client_that_leaves_cancels_its_block_at_the_vlm(vlm: FakeVlm, http: httpx.AsyncClient) -> None:
    request = asyncio.create_task(timed(http, body(60_000)))
    await vlm.until(lambda counters: counters.in_flight == 1)
    request.cancel()
    await vlm.until(lambda counters: counters.disconnected == 1 and counters.in_flight == 0, timeout_s=2)


async def test_restructuring_goes_through_too(vlm: FakeVlm, http: httpx.AsyncClient) -> None:
    page = (await timed(http, body()))[0].json()["result"]["layoutParsingResults"][0]
    pages = [{"prunedResult": page["prunedResult"], "markdownImages": page["markdown"]["images"]}] * 2
    response = await http.post("/restructure-pages", json={"pages": pages, "concatenatePages": True})
    assert response.status_code == 200
    (joined,) = response.json()["result"]["layoutParsingResults"]
    assert joined["prunedResult"]["page_count"] == 2
    assert joined["markdown"]["text"] == "text\n\ntext"
