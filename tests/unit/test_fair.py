import asyncio
import random
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hps.fair import FairLimiter


class Crowd:
    """Waiters whose turns are recorded; each holds its slot until told to let go."""

    def __init__(self, limiter: FairLimiter) -> None:
        self.limiter = limiter
        self.turns: list[tuple[Hashable, Any]] = []
        self._release = asyncio.Semaphore(0)

    async def visit(self, key: Hashable, rank: Any = 0) -> None:
        async with self.limiter.slot(key, rank):
            self.turns.append((key, rank))
            await self._release.acquire()

    def join(self, key: Hashable, rank: Any = 0) -> asyncio.Task[None]:
        return asyncio.create_task(self.visit(key, rank))

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def let_go(self, count: int = 1) -> None:
        for _ in range(count):
            self._release.release()
            await self.settle()


async def test_keys_take_turns_however_many_waiters_one_has() -> None:
    crowd = Crowd(FairLimiter(1))
    tasks = [crowd.join("first")]
    await crowd.settle()
    tasks += [crowd.join("big", page) for page in range(4)] + [crowd.join("small")]
    await crowd.settle()
    await crowd.let_go(6)
    assert crowd.turns == [("first", 0), ("big", 0), ("small", 0), ("big", 1), ("big", 2), ("big", 3)]
    await asyncio.gather(*tasks)


async def test_within_a_key_the_lowest_rank_goes_first() -> None:
    crowd = Crowd(FairLimiter(1))
    tasks = [crowd.join("a", (0, 0))]
    await crowd.settle()
    tasks += [crowd.join("a", rank) for rank in [(1, -5), (0, -1), (1, -9), (0, -7)]]
    await crowd.settle()
    await crowd.let_go(5)
    assert [rank for _, rank in crowd.turns[1:]] == [(0, -7), (0, -1), (1, -9), (1, -5)]
    await asyncio.gather(*tasks)


async def test_a_waiter_cancelled_as_its_turn_comes_hands_it_on() -> None:
    crowd = Crowd(FairLimiter(1))
    holder = crowd.join("a")
    await crowd.settle()
    leaver, stayer = crowd.join("b"), crowd.join("c")
    await crowd.settle()
    crowd._release.release()
    await holder  # its release has granted `leaver` the slot, which has not run yet
    leaver.cancel()
    await crowd.let_go()
    await stayer
    assert crowd.limiter.held == 0 and crowd.limiter.waiting == 0


async def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError):
        FairLimiter(0)


@given(
    limit=st.integers(1, 4),
    visits=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=30),
    seed=st.integers(0, 2**32),
)
def test_slots_are_never_exceeded_and_never_lost(limit: int, visits: list[tuple[int, int, bool]], seed: int) -> None:
    chance = random.Random(seed)

    async def scenario() -> None:
        limiter = FairLimiter(limit)
        most = 0

        async def visit(key: int, rank: int) -> None:
            nonlocal most
            async with limiter.slot(key, rank):
                most = max(most, limiter.held)
                for _ in range(chance.randint(0, 3)):
                    await asyncio.sleep(0)

        tasks = []
        for key, rank, leaves in visits:
            task = asyncio.create_task(visit(key, rank))
            tasks.append(task)
            if chance.random() < 0.5:
                await asyncio.sleep(0)
            if leaves:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert most <= limit
        assert limiter.held == 0
        assert limiter.waiting == 0

    asyncio.run(scenario())


async def test_a_limit_that_rises_lets_in_who_waits_and_one_that_falls_sends_nobody_away() -> None:
    crowd = Crowd(FairLimiter(1))
    tasks = [crowd.join("a", n) for n in range(4)]
    await crowd.settle()
    crowd.limiter.resize(3)
    await crowd.settle()
    assert (crowd.limiter.held, crowd.limiter.waiting) == (3, 1)
    crowd.limiter.resize(1)
    await crowd.let_go(2)
    assert (crowd.limiter.held, crowd.limiter.waiting) == (1, 1)
    with pytest.raises(ValueError):
        crowd.limiter.resize(0)
    await crowd.let_go(2)
    await asyncio.gather(*tasks)
