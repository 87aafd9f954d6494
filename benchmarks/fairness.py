"""One-page requests beside a PDF of 500 pages: what they wait, and what the PDF loses.

Four simulated VLM servers of one H200 with MPS, five times slower. One-page requests of the page mix at random moments,
a sixth of what the servers can do: first with nothing else, then while the PDF is in work; the PDF's pages a second
before they come and while they do.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import simulated_vlm
from benchmarks.throughput import MODEL, settings
from hps.bench import chain, counters, documents, load, page_mix, report
from hps.bench.documents import Document
from hps.bench.load import Outcome, Service

LIMITS = {"one-page p95 beside the PDF, times its idle p95": 3.0, "the PDF's pages/s, of what the others leave": 0.95}
AT_LEAST = ("the PDF's pages/s, of what the others leave",)

SLOWDOWN, PDF_PAGES = 5.0, 500
RATE = 0.4  # one-page requests a second
IDLE_S, ALONE_S, BESIDE_S = 90.0, 60.0, 100.0
RAMP_S = 25.0


@dataclass(frozen=True, slots=True)
class _Beside:
    """pages/s of the PDF alone, and beside the one-page requests, whose outcomes these are."""

    alone: float
    beside: float
    outcomes: list[Outcome]


def run() -> dict[str, float]:
    mix = page_mix.pages(100)
    with simulated_vlm.running(mix, slowdown=SLOWDOWN) as urls, TemporaryDirectory(prefix="hps-bench-") as name:
        table = Path(name) / "mix.json"
        page_mix.write_table(mix, table)
        return asyncio.run(_measured(urls[0], table, settings(len(urls))))


async def _measured(vlm_url: str, table: Path, environ: dict[str, str]) -> dict[str, float]:
    mix = page_mix.pages(100)
    pages = documents.of_mix(mix[:32], {})
    (pdf,) = documents.of_mix([mix[number % len(mix)] for number in range(PDF_PAGES)], {}, pdf_pages=PDF_PAGES)
    environ = {"HPS_VLM_MODEL_NAME": MODEL, **environ}
    async with chain.running(vlm_url, table, environ) as started, Service(started.url) as service:
        await load.closed_loop(service, pages, in_flight=4, requests=8)
        idle = await load.open_loop(service, pages, pages_per_s=RATE, seconds=IDLE_S, seed=page_mix.SEED)
        found = await _beside(service, started.metrics, pages, pdf)
    return _figures(_p95(idle), found)


async def _beside(service: Service, metrics: Sequence[str], pages: Sequence[Document], pdf: Document) -> _Beside:
    async def rate(seconds: float) -> float:
        """Pages a second of everybody."""
        before = await counters.scraped(metrics)
        await asyncio.sleep(seconds)
        return counters.grown(before, await counters.scraped(metrics), "hps_pages_total") / seconds

    long = asyncio.create_task(service.parse(pdf, load.Clock()))
    try:
        await asyncio.sleep(RAMP_S)
        alone = await rate(ALONE_S)
        others = load.open_loop(service, pages, pages_per_s=RATE, seconds=BESIDE_S, seed=page_mix.SEED)
        outcomes, together = await asyncio.gather(others, rate(BESIDE_S))
        if long.done():
            raise RuntimeError(f"the PDF was done too soon: {long.result()}")
    finally:
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)
    answered = sum(outcome.ended <= BESIDE_S for outcome in outcomes)
    return _Beside(alone, together - answered / BESIDE_S, outcomes)


def _figures(idle_p95: float, found: _Beside) -> dict[str, float]:
    beside_p95 = _p95(found.outcomes)
    share = len(found.outcomes) / BESIDE_S
    return {
        "one-page requests: idle p95 s": idle_p95,
        "  beside the PDF: p95 s": beside_p95,
        "one-page p95 beside the PDF, times its idle p95": beside_p95 / idle_p95,
        "the PDF alone: pages/s": found.alone,
        "  beside one-page requests: pages/s": found.beside,
        "  one-page requests: pages/s": share,
        "the PDF's pages/s, of what the others leave": found.beside / (found.alone - share),
    }


def _p95(outcomes: Sequence[Outcome]) -> float:
    if not all(outcome.is_success for outcome in outcomes):
        raise RuntimeError(f"requests failed: {[outcome.status for outcome in outcomes]}")
    waits = report.percentiles([outcome.seconds for outcome in outcomes])
    assert waits is not None
    return waits[1]
