import asyncio
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admission import RETRY_UNKNOWN_S, Admission
from hps.errors import Overloaded
from hps.metrics import GatewayMetrics


class Visitors:
    """Requests at one Admission, each ended from outside."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.inside: dict[int, asyncio.Event] = {}
        self.entered: list[int] = []
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def arrive(self, number: int) -> None:
        self.tasks[number] = asyncio.create_task(self._visit(number))
        await settle()

    async def finish(self, number: int) -> None:
        self.inside[number].set()
        await settle()

    async def cancel(self, number: int, *, settled: bool = True) -> None:
        self.tasks[number].cancel()
        if settled:
            await settle()

    async def end(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def _visit(self, number: int) -> None:
        with self.admission.place() as place:
            async with place.slot():
                leave = self.inside[number] = asyncio.Event()
                self.entered.append(number)
                try:
                    await leave.wait()
                finally:
                    del self.inside[number]


async def settle() -> None:
    """Lets every task run until it waits for something outside."""
    for _ in range(8):
        await asyncio.sleep(0)


async def test_at_most_the_limit_is_in_work_and_the_rest_enters_in_order() -> None:
    visitors = Visitors(Admission(2, 10))
    for number in range(6):
        await visitors.arrive(number)
    assert sorted(visitors.inside) == [0, 1]
    assert visitors.admission.waiting == 4
    for number in range(6):
        await visitors.finish(number)
    assert visitors.entered == [0, 1, 2, 3, 4, 5]
    assert (visitors.admission.places, visitors.admission.in_work) == (0, 0)


async def test_one_more_than_limit_and_line_is_refused() -> None:
    visitors = Visitors(Admission(1, 2))
    for number in range(4):
        await visitors.arrive(number)
    with pytest.raises(Overloaded):
        await visitors.tasks[3]
    await visitors.finish(0)
    await visitors.arrive(4)
    assert not visitors.tasks[4].done()
    await visitors.end()


async def test_no_line_at_all_still_admits_up_to_the_limit() -> None:
    admission = Admission(2, 0)
    with admission.place(), admission.place(), pytest.raises(Overloaded), admission.place():
        pass


async def test_a_place_without_a_slot_counts_as_waiting() -> None:
    admission = Admission(4, 4)
    with admission.place():
        assert (admission.waiting, admission.in_work) == (1, 0)
    assert admission.places == 0


async def test_who_leaves_the_line_is_passed_over() -> None:
    visitors = Visitors(Admission(1, 5))
    for number in range(3):
        await visitors.arrive(number)
    await visitors.cancel(1)
    await visitors.finish(0)
    assert list(visitors.inside) == [2]
    await visitors.end()


async def test_a_slot_handed_to_someone_cancelled_in_the_same_moment_goes_on_to_the_next() -> None:
    visitors = Visitors(Admission(1, 5))
    for number in range(3):
        await visitors.arrive(number)
    visitors.inside[0].set()
    while not visitors.tasks[0].done():  # one step at a time, until the slot has just been handed over
        await asyncio.sleep(0)
        if visitors.admission._line and len(visitors.admission._line) == 1:
            break
    await visitors.cancel(1)
    assert list(visitors.inside) == [2]
    await visitors.end()
    assert visitors.admission.in_work == 0


async def test_an_error_gives_slot_and_place_back() -> None:
    admission = Admission(1, 0)
    with suppress(ValueError), admission.place() as place:
        async with place.slot():
            raise ValueError
    assert (admission.places, admission.in_work) == (0, 0)


steps = st.lists(st.tuples(st.sampled_from(["arrive", "finish", "cancel", "burst"]), st.integers(0, 30)), max_size=60)


@given(limit=st.integers(1, 4), line=st.integers(0, 5), schedule=steps)
@settings(max_examples=150, deadline=None)
def test_whatever_happens_slots_are_all_used_while_anyone_waits_and_all_come_back(
    limit: int, line: int, schedule: list[tuple[str, int]]
) -> None:
    asyncio.run(run(limit, line, schedule))


async def run(limit: int, line: int, schedule: list[tuple[str, int]]) -> None:
    admission = Admission(limit, line)
    visitors = Visitors(admission)
    for count, (step, choice) in enumerate(schedule):
        alive = [number for number, task in visitors.tasks.items() if not task.done()]
        if step == "arrive":
            expect_refusal = len(alive) >= limit + line
            await visitors.arrive(count)
            assert visitors.tasks[count].done() == expect_refusal
        elif step == "finish" and visitors.inside:
            await visitors.finish(sorted(visitors.inside)[choice % len(visitors.inside)])
        elif step == "cancel" and alive:
            await visitors.cancel(alive[choice % len(alive)])
        elif step == "burst" and visitors.inside and alive:  # an end and a cancellation in one turn of the loop
            visitors.inside[min(visitors.inside)].set()
            for _ in range(choice % 4):
                await asyncio.sleep(0)
            await visitors.cancel(alive[choice % len(alive)])
        alive = [number for number, task in visitors.tasks.items() if not task.done()]
        assert admission.in_work == len(visitors.inside) <= limit
        assert admission.places == len(alive)
        assert len(visitors.inside) == min(limit, len(alive))
        assert visitors.entered == sorted(visitors.entered)
    await visitors.end()
    assert (admission.places, admission.in_work) == (0, 0)


async def after_work(seconds: float, limit: int, waiting: int) -> int:
    """Retry-After once requests take `seconds`, with `waiting` requests in front."""
    now = 0.0
    admission = Admission(limit, waiting, clock=lambda: now)
    with admission.place() as place:
        async with place.slot():
            now += seconds
    admission.places = waiting
    return admission.retry_after_s()


@pytest.mark.parametrize(
    ("seconds", "limit", "waiting", "expected"),
    [(2.0, 4, 20, 10), (0.001, 16, 512, 1), (30.0, 1, 512, 60), (2.0, 3, 2, 2)],
)
async def test_retry_after_is_the_line_over_the_speed(seconds: float, limit: int, waiting: int, expected: int) -> None:
    assert await after_work(seconds, limit, waiting) == expected


async def test_retry_after_before_anything_was_finished() -> None:
    assert Admission(1, 1).retry_after_s() == RETRY_UNKNOWN_S


async def test_who_would_wait_too_long_is_refused_though_there_is_a_place() -> None:
    now = 0.0
    visitors = Visitors(Admission(1, 100, max_wait_s=30, clock=lambda: now))
    for number in range(5):
        await visitors.arrive(number)
    now = 10.0  # the first took 10 s, so the four others will take 40
    await visitors.finish(0)
    await visitors.arrive(5)
    assert visitors.tasks[5].done() is False  # three wait: 30 s
    await visitors.arrive(6)
    with pytest.raises(Overloaded) as refused:
        await visitors.tasks[6]
    assert refused.value.retry_after_s == 40
    await visitors.end()


async def test_an_idle_service_admits_after_whatever_it_took_last() -> None:
    now = 0.0
    visitors = Visitors(Admission(1, 100, max_wait_s=30, clock=lambda: now))
    await visitors.arrive(0)
    now = 1000.0
    await visitors.finish(0)
    for number in (1, 2):
        await visitors.arrive(number)
    assert sorted(visitors.inside) == [1]
    assert visitors.admission.waiting == 1
    await visitors.end()


async def test_refusals_are_counted_once_each_whether_for_a_place_or_inside_for_memory() -> None:
    metrics = GatewayMetrics()
    admission = Admission(1, 0, metrics=metrics.admission("/layout-parsing"))
    with admission.place(), pytest.raises(Overloaded), admission.place():
        pass
    with pytest.raises(Overloaded), admission.place():
        raise Overloaded("no memory for the body", retry_after_s=1)
    with pytest.raises(ValueError), admission.place():
        raise ValueError
    assert metrics.registry.get_sample_value("hps_gateway_requests_refused_total", {"route": "/layout-parsing"}) == 2
    assert admission.places == 0
