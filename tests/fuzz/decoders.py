"""Mutated files through the decoder processes: what became of each, and what they cost."""

import asyncio
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from hps.context import RequestContext
from hps.errors import InvalidInput
from hps.inputs.limits import DecodeLimits
from hps.inputs.pool import DecodePool
from tests.fuzz.memory import own_bytes
from tests.fuzz.mutations import Input, inputs

LIMITS = DecodeLimits(max_pixels=20_000_000, max_pages=200, max_document_pixels=200_000_000, memory_bytes=2 << 30)
PAGE_S = 10.0
HANGS_S = 60.0
PAGES = 2  # of each document that are decoded
SLICES = 20  # of a run; memory is looked at after each


@dataclass
class Outcome:
    """crashes: inputs that ended a decoder process (contained: others go on). unexpected, hung: faults of ours."""

    decoded: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    slow: list[Input] = field(default_factory=list)
    crashes: list[Input] = field(default_factory=list)
    unexpected: list[tuple[Input, str]] = field(default_factory=list)
    hung: list[Input] = field(default_factory=list)
    longest_s: float = 0.0
    memory: list[int] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        return self.decoded + self.refused.total() + len(self.unexpected) + len(self.hung)

    @property
    def growth(self) -> float:
        """Of memory from the second quarter of the run to the last: a decoder keeps a page's worth, now and then, and
        its heap gets its shape from the first ten thousand files."""
        quarter = SLICES // 4
        return statistics.median(self.memory[-quarter:]) / statistics.median(self.memory[quarter : 2 * quarter]) - 1


async def run(count: int, seed: int, *, workers: int = 2) -> Outcome:
    outcome = Outcome()
    pool = DecodePool(workers, limits=LIMITS, page_timeout_s=PAGE_S)
    await pool.start()
    try:
        source = inputs(count, seed)
        for slice_ in range(SLICES):
            most = count * (slice_ + 1) // SLICES - count * slice_ // SLICES
            await _all(pool, source, outcome, most, workers)
            outcome.memory.append(await _at_rest(pool))
    finally:
        await pool.close()
    return outcome


async def _all(pool: DecodePool, source: Iterable[Input], outcome: Outcome, most: int, workers: int) -> None:
    """Takes `most` inputs at most, so many at a time."""
    remaining = iter(source)
    taken = 0

    async def take() -> None:
        nonlocal taken
        while taken < most and (given := next(remaining, None)) is not None:
            taken += 1
            await _one(pool, given, outcome)

    await asyncio.gather(*(take() for _ in range(workers)))


async def _one(pool: DecodePool, given: Input, outcome: Outcome) -> None:
    started = time.monotonic()
    try:
        async with asyncio.timeout(HANGS_S):
            await _decode(pool, given)
        outcome.decoded += 1
    except InvalidInput as error:
        outcome.refused[error.message] += 1
        if "the decoder failed on it" in error.message:
            outcome.crashes.append(given)
        if "takes too long" in error.message:
            outcome.slow.append(given)
    except TimeoutError:
        outcome.hung.append(given)
    except Exception as error:  # the border of an experiment: whatever else there is, is what we look for
        outcome.unexpected.append((given, repr(error)))
    outcome.longest_s = max(outcome.longest_s, time.monotonic() - started)


async def _decode(pool: DecodePool, given: Input) -> None:
    context = RequestContext.within(f"input {given.number}", 2 * HANGS_S)
    async with await pool.open(given.data, given.file_type, context) as document:
        for index, (width, height) in enumerate(document.info.sizes[:PAGES]):
            page = await document.page(index)
            assert page.shape == (height, width, 3)


async def _at_rest(pool: DecodePool) -> int:
    """Bytes of this process and the decoders, each of which has just done the same."""
    for given in inputs(8, seed=0):  # a fresh decoder has all loaded too
        await _one(pool, given, Outcome())
    return own_bytes([os.getpid(), *pool.pids])
