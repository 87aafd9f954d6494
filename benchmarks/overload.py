"""Five times more requests than the service can do, for five minutes: what it serves, how fast, and how it refuses.

Small images (one block), fixed layout, a VLM stub that takes 0.4 s a block and may work on 16 at a time: that is the
capacity, found first with the line just full. Then requests come at random moments (Poisson), five times as many,
through one gateway with HPS_MAX_QUEUE_WAIT. "Memory" is the growth of gateway and pipeline over the last four minutes.
"""

import asyncio
import base64
import math
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import cv2
import numpy as np

from hps.ports import free_port
from tests.e2e import chain as chains
from tests.e2e.chain import Chain
from tests.fakes.vlm import FakeVlm

LIMITS = {
    "served a second, of the best": 0.9,
    "p95 of those served, times that at capacity": 3.0,
    "p95 of a refusal, ms": 100.0,
    "refusals that are not 503 with Retry-After": 0.0,
    "memory of gateway and pipeline, growth": 1.05,
}
AT_LEAST = ("served a second, of the best",)

AT_ONCE, BLOCK_S = 16, 0.4
CAPACITY_S, OVERLOAD_S, SETTLED_S = 30.0, 300.0, 60.0
TIMES = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """ended: seconds since the load began."""

    status: int
    seconds: float
    ended: float
    has_retry_after: bool


def run() -> dict[str, float]:
    return asyncio.run(_run())


async def _run() -> dict[str, float]:
    vlm_port = free_port()
    with tempfile.TemporaryDirectory(prefix="hps-bench-") as name:
        folder = Path(name)
        limits = {"HPS_MAX_CONCURRENT_INFERENCE_REQUESTS": str(AT_ONCE), "HPS_MAX_QUEUE_WAIT": str(BLOCK_S)}
        with chains.running(folder, chains.fixed_layout(folder) | limits, vlm=vlm_port) as chain:
            async with FakeVlm(port=vlm_port, delay_s=BLOCK_S), _session() as http:
                body = _body()
                at_capacity = await _closed(http, chain.url, body)
                best = len(at_capacity) / max(answer.ended for answer in at_capacity)
                overloaded, sizes = await _open(http, chain, body, TIMES * best)
    return _figures(best, at_capacity, overloaded, sizes)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), headers={"Content-Type": "application/json"}, trust_env=False
    )


def _body() -> bytes:
    page = np.full((64, 64, 3), 255, np.uint8)
    cv2.rectangle(page, (12, 12), (50, 50), (0, 0, 0), 2)
    file = base64.b64encode(cv2.imencode(".png", page)[1].tobytes())
    return b'{"file":"%s","fileType":1,"visualize":false}' % file


async def _asked(http: aiohttp.ClientSession, url: str, body: bytes, zero: float) -> Answer:
    began = time.perf_counter()
    async with http.post(f"{url}/layout-parsing", data=body) as response:
        await response.read()
        ended = time.perf_counter()
        return Answer(response.status, ended - began, ended - zero, "Retry-After" in response.headers)


async def _closed(http: aiohttp.ClientSession, url: str, body: bytes) -> list[Answer]:
    """As many in flight as are worked on: the best it can do."""
    zero = time.perf_counter()
    answers: list[Answer] = []

    async def client() -> None:
        while time.perf_counter() - zero < CAPACITY_S:
            answers.append(await _asked(http, url, body, zero))

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return answers


async def _open(
    http: aiohttp.ClientSession, chain: Chain, body: bytes, rate: float
) -> tuple[list[Answer], tuple[int, int]]:
    """Answers, and the chain's memory (bytes) once it is settled and at the end."""
    zero = time.perf_counter()
    chance = random.Random(1)
    running: list[asyncio.Task[Answer]] = []
    due, settled = 0.0, 0
    while due < OVERLOAD_S:
        due += chance.expovariate(rate)
        await asyncio.sleep(max(0.0, due - (time.perf_counter() - zero)))
        if not settled and due > SETTLED_S:
            settled = await asyncio.to_thread(chain.rss_bytes)
        running.append(asyncio.create_task(_asked(http, chain.url, body, zero)))
    at_end = await asyncio.to_thread(chain.rss_bytes)
    return list(await asyncio.gather(*running)), (settled, at_end)


def _figures(
    best: float, at_capacity: Sequence[Answer], overloaded: Sequence[Answer], sizes: tuple[int, int]
) -> dict[str, float]:
    served = [answer for answer in overloaded if answer.status == 200]
    refused = [answer for answer in overloaded if answer.status != 200]
    rate = len(served) / max(answer.ended for answer in served)
    capacity_p95, p95 = (_p95([answer.seconds for answer in answers]) for answers in (at_capacity, served))
    return {
        "at capacity: served a second": best,
        "  p95 s": capacity_p95,
        "sent a second": len(overloaded) / OVERLOAD_S,
        "served a second, of the best": rate / best,
        "p95 of those served, times that at capacity": p95 / capacity_p95,
        "refused": float(len(refused)),
        "refusals that are not 503 with Retry-After": float(
            sum(answer.status != 503 or not answer.has_retry_after for answer in refused)
        ),
        "p50 of a refusal, ms": statistics.median(answer.seconds for answer in refused) * 1000,
        "p95 of a refusal, ms": _p95([answer.seconds for answer in refused]) * 1000,
        "memory of gateway and pipeline, growth": sizes[1] / sizes[0],
    }


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]
