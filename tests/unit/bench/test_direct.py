import base64
import json
from typing import Any

import cv2
import numpy as np
import pytest

from hps.bench import direct, page_mix
from hps.bench.direct import PageCrops, VlmTier
from hps.bench.documents import Document
from hps.bench.load import Service
from tests.fakes.server import Server
from tests.fakes.vlm import FakeVlm

MIX = page_mix.pages(3)


def size_of(body: bytes) -> tuple[int, int, str]:
    image, text = json.loads(body)["messages"][0]["content"]
    data = base64.b64decode(image["image_url"]["url"].partition(",")[2])
    height, width = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).shape[:2]
    return width, height, text["text"]


def test_crops_of_the_mix_are_its_blocks() -> None:
    for page, crops in zip(MIX, direct.of_mix(MIX, "m"), strict=True):
        expected = {(*block.size, page_mix.PROMPTS[block.label]) for block in page.blocks}
        assert {size_of(body) for body in crops.bodies} == expected


async def test_crops_of_documents_are_those_of_the_answer() -> None:
    page = MIX[0]
    picture = base64.b64encode(page_mix.jpeg(page_mix.picture(page))).decode()
    blocks = [{"block_label": block.label, "block_bbox": block.box} for block in page.blocks]
    result = {"layoutParsingResults": [{"inputImage": picture, "prunedResult": {"parsing_res_list": blocks}}]}
    asked: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(json.loads((await receive())["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps({"errorCode": 0, "result": result}).encode()})

    document = Document("d", 1, b'{"file": "AA==", "visualize": false}')
    async with Server(app) as server, Service(server.url) as service:
        (crops,) = await direct.of_documents(service, [document], "m")
    assert asked == [{"file": "AA==", "visualize": True}]
    assert sorted(map(size_of, crops.bodies)) == sorted(
        (*block.size, page_mix.PROMPTS[block.label]) for block in page.blocks
    )


async def test_the_tier_is_kept_busy_evenly() -> None:
    pages = [PageCrops((b"{}",) * 10)] * 4
    one, other = FakeVlm(delay_s=0.05, text="x"), FakeVlm(delay_s=0.05, text="x")
    async with one, other, VlmTier([one.url, other.url]) as tier:
        run = await tier.run(pages, in_flight=8)
    assert (run.in_flight, run.pages, run.blocks, run.tokens, run.errors) == (8, 4, 40, 40, {})
    assert one.counters.peak == other.counters.peak == 4
    assert one.counters.finished + other.counters.finished == 40


async def test_failed_blocks_are_counted() -> None:
    async with FakeVlm(status=500) as vlm, VlmTier([vlm.url]) as tier:
        run = await tier.run([PageCrops((b"{}",) * 3)], in_flight=2)
    assert (run.errors, run.blocks, run.tokens) == ({"status 500": 3}, 0, 0)


async def test_all_pages_are_sent_at_the_concurrency_that_did_best() -> None:
    pages = [PageCrops((b"{}",) * 2)] * 70
    async with FakeVlm(delay_s=0.05) as vlm, VlmTier([vlm.url]) as tier:
        *tries, whole = await tier.best(pages, [8, 32])
    assert [(run.in_flight, run.pages) for run in tries] == [(8, 64), (32, 64)]
    assert (whole.in_flight, whole.pages) == (32, 70)


async def test_the_search_ends_when_more_in_flight_does_not_help() -> None:
    pages = [PageCrops((b"{}",))] * 64
    async with FakeVlm(delay_s=0.05) as vlm, VlmTier([vlm.url]) as tier:
        found = await tier.best(pages, [64, 80, 96, 112, 128])
    assert len(found) < 6


async def test_a_single_concurrency_needs_no_tries() -> None:
    async with FakeVlm() as vlm, VlmTier([vlm.url]) as tier:
        (run,) = await tier.best([PageCrops((b"{}",))] * 3, [4])
    assert (run.pages, run.in_flight) == (3, 4)


@pytest.mark.parametrize("blocks", [1, 5])
async def test_a_page_by_itself_takes_as_long_as_its_slowest_block(blocks: int) -> None:
    async with FakeVlm(delay_s=0.1) as vlm, VlmTier([vlm.url]) as tier:
        (seconds,) = await tier.page_latencies([PageCrops((b"{}",) * blocks)])
    assert seconds >= 0.1
    assert vlm.counters.peak == blocks
