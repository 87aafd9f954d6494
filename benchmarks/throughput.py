"""Pages a second of the whole chain, of what the same VLM servers do by themselves, and beside PaddleX's own pipeline.

Four simulated VLM servers of one H200 with MPS, ten times slower. The page mix (11.9 blocks a page) as image files, 192
one-page requests in flight; then as a PDF of 200 pages, one request; then PaddleX 3.7.2's pipeline, arranged as the
official kit arranges it, with the same boxes and 32 requests waiting. All pages of a run over all its time.
"""

import asyncio
from pathlib import Path

from benchmarks import simulated_vlm
from hps.bench import measure, page_mix
from hps.bench.measure import Plan
from hps.bench.report import PEER, SERVICE, Report, Run

LIMITS = {
    "efficiency, one-page requests": 0.95,
    "efficiency, a PDF of 200 pages": 0.95,
    "a single page: ms more than its blocks sent directly": 100.0,
    "times the pages/s of PaddleX's pipeline": 2.0,
}
AT_LEAST = tuple(name for name in LIMITS if "ms more" not in name)
# What `make bench-compare` compares.
RECORDED = ("efficiency, one-page requests", "CPU s a page, 192 in flight")

SLOWDOWN = 10.0
PADDLEX = Path(__file__).parents[1] / ".venv-paddlex" / "bin" / "python"
MODEL = "PaddleOCR-VL-1.6-0.9B"


def run() -> dict[str, float]:
    if not PADDLEX.exists():
        raise RuntimeError("PaddleX's environment is missing: make setup-paddlex")
    mix = page_mix.pages(200)
    with simulated_vlm.running(mix, slowdown=SLOWDOWN) as urls:
        pages = measured(
            Plan(
                urls,
                MODEL,
                environ=settings(len(urls)),
                mix_pages=96,
                concurrencies=(192,),
                requests=288,
                direct=(384, 768),
                latency_pages=5,
                paddlex=PADDLEX,
                paddlex_concurrencies=(1, 32),
                paddlex_requests=48,
            )
        )
        document = measured(
            Plan(
                urls,
                MODEL,
                environ=settings(len(urls)),
                mix_pages=200,
                pdf_pages=200,
                concurrencies=(1,),
                requests=1,
                direct=(pages.direct[-1].in_flight,),
            )
        )
    return figures(pages) | {
        "efficiency, a PDF of 200 pages": efficiency(document),
        "  PDF: pages/s": _best(document, SERVICE).pages_per_s,
    }


def figures(pages: Report) -> dict[str, float]:
    """Of one-page requests, ours and PaddleX's."""
    ours, direct = _best(pages, SERVICE), pages.direct[-1]
    found = {
        "VLM servers by themselves: pages/s": direct.pages_per_s,
        "  with so many blocks in flight": float(direct.in_flight),
        f"{ours.load}: pages/s": ours.pages_per_s,
        "efficiency, one-page requests": efficiency(pages),
        **_waits(ours),
        f"CPU s a page, {ours.load}": sum(ours.cpu_s_a_page.values()),
        **{f"  CPU s, {name}": seconds for name, seconds in ours.cpu_s_a_page.items()},
        **{f"  seconds a page, {stage}": seconds for stage, seconds in ours.stages.items()},
    }
    if pages.added_page_s is not None:
        found["a single page: ms more than its blocks sent directly"] = pages.added_page_s * 1000
    theirs = [run for run in pages.runs if run.name == PEER]
    for run in theirs:
        found[f"PaddleX, {run.load}: pages/s"] = run.pages_per_s
        found |= {f"  PaddleX{name}": value for name, value in _waits(run).items()}
    if theirs:
        found["times the pages/s of PaddleX's pipeline"] = ours.pages_per_s / _best(pages, PEER).pages_per_s
    return found


def settings(servers: int) -> dict[str, str]:
    """Of the chain: every VLM server used, as many blocks in flight as they take."""
    return {"HPS_VLM_REPLICAS": str(servers), "HPS_VLM_MAX_CONCURRENCY": "2048", "HPS_LOG_LEVEL": "WARNING"}


def efficiency(found: Report) -> float:
    if found.efficiency is None:
        raise ValueError("the VLM servers were not measured by themselves")
    return found.efficiency


def measured(plan: Plan) -> Report:
    """Raises RuntimeError when a request failed: its pages would be missing."""
    found = asyncio.run(measure.measured(plan, lambda line: print(f"   {line}", flush=True)))
    failed = [f"{run.name}, {run.load}: {run.statuses}" for run in found.runs if run.statuses]
    failed += [f"directly, {run.in_flight} in flight: {run.errors}" for run in found.direct if run.errors]
    if failed:
        raise RuntimeError(f"requests failed: {failed}")
    return found


def _best(found: Report, name: str) -> Run:
    best = found.best(name)
    assert best is not None
    return best


def _waits(run: Run) -> dict[str, float]:
    assert run.latencies is not None
    return {f"  {run.load}: {name} s": value for name, value in zip(("p50", "p95", "p99"), run.latencies, strict=True)}
