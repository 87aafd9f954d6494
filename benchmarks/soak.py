"""20,000 pages: does anything grow? `python -m benchmarks.soak [--pages N] [--vlm-slowdown F]`; outside CI.

The page mix, one-page requests and PDFs by turns, in front of simulated VLM servers at an H200's full speed. After a
tenth of the pages and at the end: resident memory, file descriptors and threads of every process, and shared memory.
Exit code 1 when a process' memory has grown by more than 5 %, or anything else at all.
"""

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks import simulated_vlm
from benchmarks.throughput import MODEL, settings
from hps.bench import chain, documents, load, page_mix, usage
from hps.bench.documents import Document
from hps.bench.load import Outcome, Service

MIX_PAGES, PDF_PAGES = 64, 4
GROWTH = 1.05
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class State:
    """Of one process: resident bytes, file descriptors, threads."""

    rss: int
    descriptors: int
    threads: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=48, help="requests")
    parser.add_argument("--vlm-slowdown", type=float, default=1.0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the states there")
    wanted = parser.parse_args()
    mix = page_mix.pages(MIX_PAGES)
    with simulated_vlm.running(mix, slowdown=wanted.vlm_slowdown) as urls, TemporaryDirectory() as name:
        table = Path(name) / "mix.json"
        page_mix.write_table(mix, table)
        early, late = asyncio.run(_states(urls, table, wanted))
    if wanted.json:
        states = [{name: asdict(state) for name, state in states.items()} for states in (early, late)]
        wanted.json.write_text(json.dumps(dict(zip(("early", "late"), states, strict=True)), indent=1) + "\n")
    problems = list(grown(early, late))
    print("\n".join(problems) or "nothing has grown")
    return 1 if problems else 0


async def _states(
    urls: Sequence[str], table: Path, wanted: argparse.Namespace
) -> tuple[dict[str, State], dict[str, State]]:
    mix = page_mix.pages(MIX_PAGES)
    singles, pdfs = documents.of_mix(mix, {}), documents.of_mix(mix, {}, pdf_pages=PDF_PAGES)
    sent = [document for four, pdf in zip(_by(PDF_PAGES, singles), pdfs, strict=True) for document in (*four, pdf)]
    requests = wanted.pages * len(sent) // sum(document.pages for document in sent)
    environ = {"HPS_VLM_MODEL_NAME": MODEL, "HPS_MAX_CONCURRENT_INFERENCE_REQUESTS": "64", **settings(len(urls))}
    async with chain.running(urls[0], table, environ) as started, Service(started.url) as service:
        found = []
        for part in (requests // 10, requests - requests // 10):
            outcomes = await load.closed_loop(service, sent, in_flight=wanted.in_flight, requests=part)
            _check(outcomes)
            await asyncio.sleep(10)  # connections that nobody uses are closed
            found.append(states(started.pids))
            _show(outcomes, found[-1])
    return found[0], found[1]


def _by(count: int, all_documents: Sequence[Document]) -> Iterator[Sequence[Document]]:
    for start in range(0, len(all_documents), count):
        yield all_documents[start : start + count]


def states(pids: Mapping[str, int]) -> dict[str, State]:
    """By process, told apart by number; and the shared memory of the machine, as if it were a process."""
    found = {}
    for part, pid in pids.items():
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
                name = f"{usage.process_name(part, process)} {process.pid}"
                found[name] = State(process.memory_info().rss, process.num_fds(), process.num_threads())
    entries = [entry.stat().st_size for entry in SHARED_MEMORY.iterdir() if entry.name.startswith("hps-")]
    return found | {"shared memory": State(sum(entries), len(entries), 0)}


def grown(early: Mapping[str, State], late: Mapping[str, State]) -> Iterator[str]:
    """What is wrong, a line each."""
    for name in early.keys() - late.keys():
        yield f"{name}: has ended"
    for name in late.keys() - early.keys():
        yield f"{name}: is new"
    for name in early.keys() & late.keys():
        before, after = early[name], late[name]
        if after.rss > GROWTH * before.rss:
            yield f"{name}: memory {before.rss / 2**20:.1f} MiB, then {after.rss / 2**20:.1f}"
        if after.descriptors > before.descriptors or after.threads > before.threads:
            yield (
                f"{name}: file descriptors {before.descriptors}, then {after.descriptors}; "
                f"threads {before.threads}, then {after.threads}"
            )


def _check(outcomes: Sequence[Outcome]) -> None:
    failed = [outcome.status for outcome in outcomes if not outcome.is_success]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(outcomes)} requests failed: {sorted(set(failed))}")


def _show(outcomes: Sequence[Outcome], now: Mapping[str, State]) -> None:
    pages = sum(outcome.pages for outcome in outcomes)
    print(f"{pages} pages in {max(outcome.ended for outcome in outcomes):.0f} s", flush=True)
    for name, state in sorted(now.items()):
        print(f"   {name:<32} {state.rss / 2**20:8.1f} MiB {state.descriptors:5} files {state.threads:4} threads")
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
