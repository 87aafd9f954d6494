"""Whether requests wait for each other: 64 at once, each of which the VLM stub lets sleep on its own.

Small images (64 x 64 pixels, one block), one coordinator, fixed layout; the stub sleeps 0.1 to 2 s. Three bursts after
one to warm up. "Total minus slowest" is the time from the first request to the last answer, less the longest sleep.
"""

import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np

from benchmarks import cpu_times, sample_page
from benchmarks.http_load import Client
from hps.ports import free_port
from tests.e2e import chain as chains
from tests.fakes.vlm import FakeVlm

LIMITS = {"total minus slowest, median s": 0.4}

REQUESTS, BURSTS = 64, 3
SHORTEST_MS, LONGEST_MS = 100, 2000


def run() -> dict[str, float]:
    return asyncio.run(_run())


async def _run() -> dict[str, float]:
    vlm_port = free_port()
    with tempfile.TemporaryDirectory(prefix="hps-bench-") as name:
        folder = Path(name)
        # Unguarded: the stub is to see the number of tokens that the request allows, as it is.
        settings = chains.fixed_layout(folder) | {
            "HPS_MAX_CONCURRENT_INFERENCE_REQUESTS": str(2 * REQUESTS),
            "HPS_VLM_GUARD": "off",
        }
        with chains.running(folder, settings, vlm=vlm_port) as chain:
            # The stub sleeps a millisecond for each token that a request allows.
            async with FakeVlm(port=vlm_port, delay=lambda body: body["max_completion_tokens"] / 1000):
                clients = await asyncio.gather(*(Client.connected(chain.url) for _ in range(REQUESTS)))
                await _burst(clients, [1] * REQUESTS)
                before = cpu_times.by_process(chain)
                totals = [await _burst(clients, _naps(number)) for number in range(BURSTS)]
                spent = cpu_times.milliseconds_each(before, cpu_times.by_process(chain), BURSTS * REQUESTS)
                for client in clients:
                    client.close()
    extra = [total - LONGEST_MS / 1000 for total in totals]
    return {
        "total minus slowest, median s": statistics.median(extra),
        "total minus slowest, worst s": max(extra),
        **{f"  CPU ms a request, {name}": ms for name, ms in spent.items()},
    }


def _naps(seed: int) -> list[int]:
    """Milliseconds; one is the longest."""
    random_naps = random.Random(seed)
    return [random_naps.randint(SHORTEST_MS, LONGEST_MS) for _ in range(REQUESTS - 1)] + [LONGEST_MS]


async def _burst(clients: list[Client], naps_ms: list[int]) -> float:
    """Seconds from the first request to the last answer."""
    page = np.full((64, 64, 3), 255, np.uint8)
    cv2.rectangle(page, (12, 12), (50, 50), (0, 0, 0), 2)
    file = cv2.imencode(".png", page)[1].tobytes()
    bodies = [sample_page.request_body(file, maxNewTokens=nap) for nap in naps_ms]
    started = time.perf_counter()
    await asyncio.gather(*(client.parse(body) for client, body in zip(clients, bodies, strict=True)))
    return time.perf_counter() - started
