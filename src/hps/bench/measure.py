"""A benchmark from beginning to end: what is asked for, measured in one run against the same VLM servers."""

import asyncio
import contextlib
import os
import platform
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

from hps.bench import chain, counters, direct, documents, load, page_mix, peer, report, usage
from hps.bench.direct import PageCrops, VlmTier
from hps.bench.documents import Document
from hps.bench.load import Outcome, Service
from hps.bench.page_mix import MixPage
from hps.bench.report import PEER, SERVICE, Report, Run

WARM_UP = 8  # documents
MIN_IN_WORK = 256  # also of open loops, which ask for no certain number

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured.

    url: a running service; None starts one here, with the boxes of the page mix, in front of `vlm_urls`, of which it
    is told the first. metrics: addresses of the metrics of a running service. environ: settings of a started one.
    folder: documents; None for the page mix. pdf_pages: pages of a document of the mix; None for image files.
    concurrencies, rates (pages/s): of closed and open loops. requests: of a closed loop at least, and twice those in
    flight. direct: concurrencies at which the VLM tier is tried by itself; empty to leave that out. latency_pages:
    pages that are sent one by one, through the service and directly. paddlex: Python of its environment, to measure
    PaddleX's pipeline too; with nothing else asked for, it alone.
    """

    vlm_urls: tuple[str, ...]
    model: str
    url: str | None = None
    metrics: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    api_key: str | None = None
    vlm_api_key: str | None = None
    folder: Path | None = None
    mix_pages: int = 64
    pdf_pages: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    concurrencies: tuple[int, ...] = (1, 16, 64, 192)
    rates: tuple[float, ...] = ()
    rate_seconds: float = 60.0
    requests: int = 64
    direct: tuple[int, ...] = (64, 128, 256, 512)
    latency_pages: int = 0
    paddlex: Path | None = None
    paddlex_concurrencies: tuple[int, ...] = (1, 64)
    paddlex_requests: int = 32


@dataclass(frozen=True, slots=True)
class Target:
    """A service under load. pids: of its parts where they run on this machine. log_tail: what they last said."""

    name: str
    service: Service
    metrics: tuple[str, ...] = ()
    pids: Mapping[str, int] = field(default_factory=dict)
    log_tail: Callable[[], str] = str


async def measured(plan: Plan, say: Say = print) -> Report:
    """Raises StartFailed, ValueError or an httpx error when something that is needed does not work."""
    mix = page_mix.pages(plan.mix_pages) if plan.folder is None else []
    with tempfile.TemporaryDirectory(prefix="hps-bench-") as temporary:
        table = Path(temporary) / "mix.json"
        page_mix.write_table(mix, table)
        sent = await asyncio.to_thread(documents_of, plan, mix)
        found = Report(_machine(), {"documents": len(sent), "pages": sum(document.pages for document in sent)})
        if plan.concurrencies or plan.rates or plan.direct or plan.latency_pages:
            await _measure_service(plan, table, mix, sent, found, say)
        if plan.paddlex is not None:
            await _measure_peer(plan, table, mix, found, say)
    for line in report.summary(found):
        say(line)
    return found


def documents_of(plan: Plan, mix: Sequence[MixPage]) -> list[Document]:
    """Seconds of work for a large mix."""
    if plan.folder is not None:
        return documents.of_folder(plan.folder, plan.options)
    return documents.of_mix(mix, plan.options, pdf_pages=plan.pdf_pages)


@contextlib.asynccontextmanager
async def service(plan: Plan, boxes: Path) -> AsyncIterator[Target]:
    """The running service of the plan, or one that is started for as long as the block lasts."""
    if plan.url is not None:
        async with Service(plan.url, api_key=plan.api_key) as service:
            yield Target(SERVICE, service, plan.metrics)
        return
    # Limits as the load needs them: what is measured is not how requests wait in line.
    in_work = max((MIN_IN_WORK, *plan.concurrencies))
    limits = dict.fromkeys(("HPS_MAX_CONCURRENT_INFERENCE_REQUESTS", "HPS_MAX_PIPELINE_REQUESTS"), str(in_work))
    environ = {"HPS_VLM_MODEL_NAME": plan.model, "HPS_INFERENCE_TIMEOUT": "3600", **limits, **plan.environ}
    async with (
        chain.running(plan.vlm_urls[0], boxes, environ) as started,
        Service(started.url, api_key=plan.api_key) as service,
    ):
        yield Target(SERVICE, service, started.metrics, started.pids, started.log_tail)


async def warm_up(target: Target, sent: Sequence[Document]) -> None:
    """Processes and connections as they are in a service that has been running: the shortest documents."""
    shortest = sorted(sent, key=lambda document: document.pages)[:WARM_UP]
    outcomes = await load.closed_loop(target.service, shortest, in_flight=4, requests=len(shortest))
    if not any(outcome.is_success for outcome in outcomes):
        raise ValueError(f"the service answers {outcomes[0].status or 'nothing'}\n{target.log_tail()}".rstrip())


# --- runs ---


def loads(plan: Plan, target: Target, sent: Sequence[Document]) -> list["Load"]:
    """Closed loops, then open ones."""
    found = []
    for in_flight in plan.concurrencies:
        found.append(Load(target, sent, in_flight, _requests(plan, in_flight)))
    found += [Load(target, sent, None, 0, rate, plan.rate_seconds) for rate in plan.rates]
    return found


def _requests(plan: Plan, in_flight: int) -> int:
    """So many that a run is not all filling and draining; one after the other there is no such thing."""
    return max(plan.requests, 2 * in_flight if in_flight > 1 else 1)


@dataclass(frozen=True, slots=True)
class Load:
    """One load on a service: `requests` requests, `in_flight` at once; or, with None, `rate` pages/s for `seconds`."""

    target: Target
    sent: Sequence[Document]
    in_flight: int | None
    requests: int
    rate: float = 0.0
    seconds: float = 0.0

    async def outcomes(self) -> list[Outcome]:
        service = self.target.service
        if self.in_flight is not None:
            return await load.closed_loop(service, self.sent, in_flight=self.in_flight, requests=self.requests)
        return await load.open_loop(service, self.sent, pages_per_s=self.rate, seconds=self.seconds, seed=page_mix.SEED)

    async def run(self) -> Run:
        target = self.target
        before = await counters.scraped(target.metrics)
        async with usage.measured(target.pids) as spent:
            outcomes = await self.outcomes()
        after = await counters.scraped(target.metrics)
        return report.run_of(
            target.name,
            f"{self.rate:g} pages/s" if self.in_flight is None else f"{self.in_flight} in flight",
            outcomes,
            spent,
            in_flight=self.in_flight,
            tokens=counters.grown(before, after, "hps_vlm_tokens_total") if target.metrics else None,
            stages=counters.stage_seconds(before, after),
            layout_batch=counters.layout_batch(before, after),
        )


async def _measure_service(
    plan: Plan, table: Path, mix: Sequence[MixPage], sent: Sequence[Document], found: Report, say: Say
) -> None:
    async with service(plan, table) as target:
        await warm_up(target, sent if plan.folder else await asyncio.to_thread(documents.of_mix, mix[:8], {}))
        async with VlmTier(plan.vlm_urls, api_key=plan.vlm_api_key) as tier:
            await _measure_tier(plan, mix, sent, target, tier, found, say)
        for run in loads(plan, target, sent):
            await _add(found, run, say)


async def _add(found: Report, wanted: Load, say: Say) -> Run:
    run = await wanted.run()
    found.runs.append(run)
    for line in report.lines(run):
        say(line)
    return run


async def _measure_tier(
    plan: Plan,
    mix: Sequence[MixPage],
    sent: Sequence[Document],
    target: Target,
    tier: VlmTier,
    found: Report,
    say: Say,
) -> None:
    if not plan.direct and not plan.latency_pages:
        return
    crops = await (
        asyncio.to_thread(direct.of_mix, mix, plan.model)
        if plan.folder is None
        else direct.of_documents(target.service, sent, plan.model)
    )
    if plan.direct:
        # As many as the largest run of the service has.
        requests = max(map(_requests, repeat(plan), plan.concurrencies), default=plan.requests)
        pages = _repeated(crops, round(requests * len(crops) / len(sent)))
        found.direct = await tier.best(pages, plan.direct)
        for run in found.direct:
            say(report.direct_line(run))
    if plan.latency_pages:
        found.added_page_s = await _added(target.service, sent[: plan.latency_pages], tier, crops)


def _repeated(crops: Sequence[PageCrops], pages: int) -> list[PageCrops]:
    return [crops[number % len(crops)] for number in range(pages)]


async def _added(service: Service, sent: Sequence[Document], tier: VlmTier, crops: Sequence[PageCrops]) -> float:
    """Median over the pages, each sent both ways right after each other. Documents of one page only."""
    differences = []
    for document, page in zip(sent, crops, strict=False):
        if document.pages != 1:
            raise ValueError("the latency of a page is measured with documents of one page")
        (alone,) = await tier.page_latencies([page])
        outcome = await service.parse(document, load.Clock())
        differences.append(outcome.seconds - alone)
    return statistics.median(differences)


async def _measure_peer(plan: Plan, table: Path, mix: Sequence[MixPage], found: Report, say: Say) -> None:
    if plan.paddlex is None or plan.folder is not None:
        raise ValueError("PaddleX's pipeline is measured with the page mix, whose boxes are known")
    sent = await asyncio.to_thread(documents.of_mix, mix, {})
    release = plan.environ.get("HPS_PIPELINE_NAME", "PaddleOCR-VL-1.6")
    async with peer.running(plan.paddlex, plan.vlm_urls, table, release) as (url, pid), Service(url) as service:
        target = Target(PEER, service, pids={"paddlex": pid})
        await warm_up(target, sent)
        for in_flight in plan.paddlex_concurrencies:
            requests = 4 if in_flight == 1 else max(plan.paddlex_requests, in_flight)
            await _add(found, Load(target, sent, in_flight, requests), say)


def _machine() -> dict[str, Any]:
    return {"cores": os.cpu_count(), "processor": platform.machine(), "python": platform.python_version()}
