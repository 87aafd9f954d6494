"""What was measured: figures of runs, as records, as a table and as JSON."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hps.bench.direct import DirectRun
from hps.bench.load import Outcome
from hps.bench.usage import Usage


@dataclass(frozen=True, slots=True)
class Run:
    """One load on a service. name: what was under load. load: "64 in flight" or "2 pages/s".

    in_flight: requests at once; None in the open loop. seconds: from the first request to the last answer. latencies:
    seconds of requests at the 50th, 95th and 99th percentile, None without a success. statuses: HTTP status → failed
    requests. tokens_per_s, stages (mean seconds, see docs/metrics.md), layout_batch (mean pages) and usage.cpu_s: None
    or empty where the service's metrics, or its processes, are out of reach.
    """

    name: str
    load: str
    in_flight: int | None
    requests: int
    pages: int
    blocks: int
    seconds: float
    latencies: tuple[float, float, float] | None
    statuses: dict[int, int]
    tokens_per_s: float | None
    stages: dict[str, float]
    layout_batch: float | None
    usage: Usage

    @property
    def pages_per_s(self) -> float:
        return self.pages / self.seconds

    @property
    def cpu_s_a_page(self) -> dict[str, float]:
        return {name: spent / max(1, self.pages) for name, spent in self.usage.cpu_s.items()}


@dataclass(slots=True)
class Report:
    """direct: the VLM tier by itself, the best run last. added_page_s: what the service adds to the median page over
    its blocks sent directly."""

    machine: dict[str, Any]
    corpus: dict[str, Any]
    runs: list[Run] = field(default_factory=list)
    direct: list[DirectRun] = field(default_factory=list)
    added_page_s: float | None = None

    def best(self, name: str) -> Run | None:
        """The fastest run of a service."""
        return max((run for run in self.runs if run.name == name), key=lambda run: run.pages_per_s, default=None)

    @property
    def efficiency(self) -> float | None:
        """Pages/s of the service at its best, of what the VLM tier does at its best."""
        best = self.best(SERVICE)
        return best.pages_per_s / self.direct[-1].pages_per_s if best and self.direct else None


SERVICE, PEER = "service", "paddlex"


def run_of(
    name: str,
    load: str,
    outcomes: Sequence[Outcome],
    usage: Usage,
    *,
    in_flight: int | None = None,
    tokens: float | None = None,
    stages: dict[str, float] | None = None,
    layout_batch: float | None = None,
) -> Run:
    """tokens: that the VLM wrote meanwhile."""
    done = [outcome for outcome in outcomes if outcome.is_success]
    seconds = max(outcome.ended for outcome in outcomes) - min(outcome.started for outcome in outcomes)
    statuses: dict[int, int] = {}
    for outcome in outcomes:
        if not outcome.is_success:
            statuses[outcome.status] = statuses.get(outcome.status, 0) + 1
    return Run(
        name,
        load,
        in_flight,
        requests=len(outcomes),
        pages=sum(outcome.pages for outcome in done),
        blocks=sum(outcome.blocks for outcome in done),
        seconds=seconds,
        latencies=percentiles([outcome.seconds for outcome in done]),
        statuses=statuses,
        tokens_per_s=None if tokens is None else tokens / seconds,
        stages=stages or {},
        layout_batch=layout_batch,
        usage=usage,
    )


def percentiles(values: Iterable[float]) -> tuple[float, float, float] | None:
    """50th, 95th and 99th: the smallest value that so many do not exceed; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    p50, p95, p99 = (ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.95, 0.99))
    return p50, p95, p99


# --- for people ---


def lines(run: Run) -> list[str]:
    """A run in a few lines."""
    tokens = "" if run.tokens_per_s is None else f", {run.tokens_per_s:,.0f} tokens/s"
    waits = "no answers"
    if run.latencies is not None:
        waits = "request p50 {:.2f} s, p95 {:.2f} s, p99 {:.2f} s".format(*run.latencies)
    found = [
        f"{run.name}, {run.load}: {run.pages_per_s:.2f} pages/s, {run.blocks / run.seconds:.1f} blocks/s{tokens}",
        f"  {waits}; {run.pages} pages in {run.seconds:.1f} s; errors: {_counts(run.statuses)}",
    ]
    if run.stages:
        found.append("  seconds a page: " + ", ".join(f"{stage} {mean:.3f}" for stage, mean in run.stages.items()))
    if run.layout_batch is not None:
        found.append(f"  pages in a layout batch: {run.layout_batch:.1f}")
    if run.cpu_s_a_page:
        each = ", ".join(f"{name} {spent:.3f}" for name, spent in run.cpu_s_a_page.items() if spent >= 0.0005)
        found.append(f"  CPU seconds a page: {sum(run.cpu_s_a_page.values()):.3f} ({each})")
    gpu = ""
    if run.usage.gpu_busy is not None:
        gpu = f", GPU busy {run.usage.gpu_busy:.0%} at {run.usage.gpu_watts:.0f} W"
    found.append(f"  machine: CPU busy {run.usage.cpu_busy:.0%}{gpu}")
    return found


def direct_line(run: DirectRun) -> str:
    """A run of the VLM tier."""
    return (
        f"VLM tier directly, {run.in_flight} in flight: {run.pages_per_s:.2f} pages/s, "
        f"{run.blocks / run.seconds:.1f} blocks/s, {run.tokens / run.seconds:,.0f} tokens/s; "
        f"{run.pages} pages in {run.seconds:.1f} s; errors: {_counts(run.errors)}"
    )


def _counts(errors: Mapping[Any, int]) -> str:
    return ", ".join(f"{count} x {what}" for what, count in errors.items()) or "none"


def summary(report: Report) -> list[str]:
    """The figures that compare."""
    found = []
    if report.efficiency is not None:
        found.append(f"efficiency: {report.efficiency:.3f} of the VLM tier's best")
    if report.added_page_s is not None:
        found.append(f"a single page takes {report.added_page_s * 1000:.0f} ms more than its blocks sent directly")
    ours, peer = report.best(SERVICE), report.best(PEER)
    if ours and peer:
        found.append(f"against PaddleX's own pipeline: {ours.pages_per_s / peer.pages_per_s:.2f} times its pages/s")
    return found


# --- for programs ---


def as_json(report: Report) -> str:
    content = asdict(report)
    for record, run in zip(content["runs"], report.runs, strict=True):
        record |= {"pages_per_s": run.pages_per_s, "cpu_s_a_page": run.cpu_s_a_page}
    for record, direct in zip(content["direct"], report.direct, strict=True):
        record["pages_per_s"] = direct.pages_per_s
    return json.dumps(content | {"efficiency": report.efficiency}, indent=1, allow_nan=False, default=str) + "\n"
