"""The VLM client by itself, in front of simulated servers: efficiency, fairness, and what watching for loops costs.

Four simulated VLM servers of one H200 with MPS, three times slower; the page mix (11.9 blocks a page). "directly" is a
plain loop over the same blocks at the best number in flight. Fairness: a document of 500 pages, 8 of them in work, and
one-page requests one after another beside it. Watching: CPU of this process, with blocks that loop among 50 where said.
"""

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import simulated_vlm
from hps import recognition
from hps.bench import direct, page_mix, report
from hps.context import RequestContext
from hps.document import Region
from hps.layout.labels import CLASS_IDS
from hps.recognition import RecognitionOptions
from hps.vlm.client import VlmAnswer, VlmClient, VlmOptions
from hps.vlm.requests import BlockRequest, encoded_requests, work_rank

LIMITS = {"efficiency, 200 one-page requests in work": 0.95, "efficiency, one document": 0.95}
AT_LEAST = tuple(LIMITS)
RECORDED = ("efficiency, 200 one-page requests in work", "CPU ms a page")

SLOWDOWN = 3.0
PAGES, WATCHED_PAGES, IN_WORK, IN_FLIGHT, DIRECT = 300, 150, 200, 1024, (512, 1024)
WINDOW, DOCUMENT_PAGES, SINGLES = 8, 500, 20
MODEL = "m"
# What is said of the blocks and servers → options of the simulator.
WATCHED: Mapping[str, tuple[str, ...]] = {
    "an event a token": (),
    "an event for 16 tokens": ("--stream-interval", "16"),
    "2 % of the blocks loop": ("--loops", "0.02"),
}
_FOR_EVER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Page:
    """Blocks with the ranks that the pipeline gives them within a page."""

    requests: tuple[BlockRequest, ...]
    ranks: tuple[tuple[int, ...], ...]


def run() -> dict[str, float]:
    mix = page_mix.pages(PAGES)
    pages = [_page(page) for page in mix]
    crops = [direct.PageCrops(tuple(request.body() for request in page.requests)) for page in pages]
    with simulated_vlm.running(mix, slowdown=SLOWDOWN, more=("--model", MODEL)) as urls:
        figures = asyncio.run(_efficiency(urls, pages, crops))
        figures |= asyncio.run(_fairness(urls, pages))
    for what, more in WATCHED.items():
        with simulated_vlm.running(mix, slowdown=SLOWDOWN, more=("--model", MODEL, *more)) as urls:
            figures |= asyncio.run(_watching(urls, pages[:WATCHED_PAGES], what))
    return figures


def _page(page: page_mix.MixPage) -> Page:
    image = np.ascontiguousarray(np.asarray(page_mix.picture(page))[:, :, ::-1])
    regions = [Region(CLASS_IDS.get(block.label, 0), block.label, 1.0, block.box) for block in page.blocks]
    plan = recognition.plan(image, regions, RecognitionOptions(merge_layout_blocks=False))
    tasks = sorted(plan.tasks, key=work_rank)
    return Page(tuple(encoded_requests(tasks, MODEL)), tuple(map(work_rank, tasks)))


def _client(urls: Sequence[str], **options: object) -> VlmClient:
    return VlmClient(VlmOptions(urls[0], MODEL, replicas=len(urls), max_concurrency=IN_FLIGHT, **options))  # type: ignore[arg-type]


async def _read(client: VlmClient, page: Page, number: int, request: str) -> list[VlmAnswer]:
    context = RequestContext.within(request, _FOR_EVER_S)
    reads = (
        client.read(block, context, (number, *rank)) for block, rank in zip(page.requests, page.ranks, strict=True)
    )
    return await asyncio.gather(*reads)


async def _singles(client: VlmClient, pages: Sequence[Page], in_work: int) -> float:
    """Pages a second as one-page requests."""
    turns = iter(enumerate(pages))

    async def worker() -> None:
        for number, page in turns:
            await _read(client, page, 0, f"single {number}")

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_work)))
    return len(pages) / (time.perf_counter() - started)


async def _document(client: VlmClient, pages: Sequence[Page], window: int, done: list[float]) -> None:
    """The pages as one request; `done` gets the time of each."""
    turns = iter(enumerate(pages))

    async def worker() -> None:
        for number, page in turns:
            await _read(client, page, number, "document")
            done.append(time.perf_counter())

    await asyncio.gather(*(worker() for _ in range(window)))


async def _efficiency(
    urls: Sequence[str], pages: Sequence[Page], crops: Sequence[direct.PageCrops]
) -> dict[str, float]:
    async with direct.VlmTier(urls) as tier:
        best = (await tier.best(crops, DIRECT))[-1]
        alone = await tier.page_latencies(crops[:SINGLES])
    async with _client(urls) as client:
        cpu = time.process_time()
        singles = await _singles(client, pages, IN_WORK)
        cpu = (time.process_time() - cpu) / len(pages)
        done: list[float] = []
        started = time.perf_counter()
        await _document(client, pages, IN_WORK, done)
        document = len(pages) / (time.perf_counter() - started)
        latencies = [await _latency(client, page) for page in pages[:SINGLES]]
    return {
        "directly: pages/s": best.pages_per_s,
        "  with so many blocks in flight": float(best.in_flight),
        "200 one-page requests in work: pages/s": singles,
        "efficiency, 200 one-page requests in work": singles / best.pages_per_s,
        "efficiency, one document": document / best.pages_per_s,
        "CPU ms a page": cpu * 1000,
        "a page by itself: ms more than directly": (sum(latencies) - sum(alone)) / SINGLES * 1000,
    }


async def _latency(client: VlmClient, page: Page) -> float:
    started = time.perf_counter()
    await _read(client, page, 0, f"alone {started}")
    return time.perf_counter() - started


async def _fairness(urls: Sequence[str], pages: Sequence[Page]) -> dict[str, float]:
    document = list(itertools.islice(itertools.cycle(pages), DOCUMENT_PAGES))
    async with _client(urls) as client:
        idle = [await _latency(client, page) for page in pages[:SINGLES]]
        done: list[float] = []
        long = asyncio.create_task(_document(client, document, WINDOW, done))
        started = time.perf_counter()
        await asyncio.sleep(12.0 * SLOWDOWN)
        alone, before, began = len(done) / (time.perf_counter() - started), len(done), time.perf_counter()
        beside = [await _latency(client, page) for page in pages[:SINGLES]]
        together = (len(done) - before) / (time.perf_counter() - began)
        share = SINGLES / (time.perf_counter() - began)
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)
    return {
        "one page: idle p95 s": _p95(idle),
        "  beside a document of 500 pages, p95 s": _p95(beside),
        "  times the idle p95": _p95(beside) / _p95(idle),
        "the document: pages/s alone": alone,
        "  beside one-page requests": together,
        "  of what those leave": together / (alone - share),
    }


def _p95(seconds: Sequence[float]) -> float:
    found = report.percentiles(list(seconds))
    assert found is not None
    return found[1]


async def _watching(urls: Sequence[str], pages: Sequence[Page], what: str) -> dict[str, float]:
    figures = {}
    for guard in ("off", "auto", "always"):
        async with _client(urls, guard=guard) as client:
            cpu = time.process_time()
            rate = await _singles(client, pages, IN_WORK)
            cpu = (time.process_time() - cpu) / len(pages)
        figures[f"{what}, watching {guard}: pages/s"] = rate
        figures[f"{what}, watching {guard}: CPU ms a page"] = cpu * 1000
    return figures
