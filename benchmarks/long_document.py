"""A long document and what it does to others.

A PDF of 300 pages of text (A4 and wider), visualize and Markdown images off, fixed layout (12 blocks), a VLM
stub that answers after 20 ms. Memory is the PSS of all processes but the stub's, sampled ten times a second, above what
they had when idle. A document of one such page is sent alone before, and again in the middle of the long document.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import sample_page
from benchmarks.http_load import Client
from tests.e2e import chain as chains
from tests.e2e.chain import Chain
from tests.e2e.test_long_document import document

LIMITS = {"peak memory above idle, MB": 700.0, "one page in the middle minus 2 x alone, s": 1.0}

PAGES, SOLO = 300, 5
VLM_DELAY_S = 0.02
NO_PICTURES = {"visualize": False, "returnMarkdownImages": False}


def run() -> dict[str, float]:
    return asyncio.run(_run())


async def _run() -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="hps-bench-") as name:
        folder = Path(name)
        long = sample_page.request_body(document(PAGES), file_type=0, **NO_PICTURES)
        short = sample_page.request_body(document(1), file_type=0, **NO_PICTURES)
        layout = chains.fixed_layout(folder, sample_page.TWELVE_BLOCKS)
        with chains.running(folder, layout, vlm=chains.stub_vlm(VLM_DELAY_S)) as chain:
            long_client, client = await Client.connected(chain.url), await Client.connected(chain.url)
            await client.parse(short)
            alone = statistics.median([await client.parse(short) for _ in range(SOLO)])
            idle = chain.rss_bytes()
            parsing = asyncio.create_task(long_client.parse(long))
            peak = asyncio.create_task(asyncio.to_thread(_peak_bytes, chain, parsing))
            await asyncio.sleep(max(2.0, 20 * alone))
            assert not parsing.done()
            in_the_middle = await client.parse(short)
            seconds = await parsing
            peak_bytes = await peak
            await asyncio.sleep(2)
            after = chain.rss_bytes()
            long_client.close()
            client.close()
    return {
        "pages/s": PAGES / seconds,
        "peak memory above idle, MB": (peak_bytes - idle) / 1e6,
        "memory above idle 2 s after, MB": (after - idle) / 1e6,
        "one page alone, s": alone,
        "one page in the middle, s": in_the_middle,
        "one page in the middle minus 2 x alone, s": in_the_middle - 2 * alone,
    }


def _peak_bytes(chain: Chain, parsing: "asyncio.Task[float]") -> int:
    peak = 0
    while not parsing.done():
        peak = max(peak, chain.rss_bytes())
        time.sleep(0.1)
    return peak
