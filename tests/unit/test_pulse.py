import asyncio

import pytest

from hps.pulse import Pulse


def test_what_never_beat_is_not_fresh() -> None:
    assert not Pulse().is_fresh(1e9)


def test_a_beat_is_fresh_for_a_while() -> None:
    pulse = Pulse()
    pulse.beat()
    assert pulse.is_fresh(60)
    assert not pulse.is_fresh(0)


async def test_all_who_wait_are_told_of_the_next_beat() -> None:
    pulse = Pulse()
    pulse.beat()  # not this one
    waiting = [asyncio.create_task(pulse.next()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    pulse.beat()
    await asyncio.gather(*waiting)


async def test_who_no_longer_waits_is_forgotten() -> None:
    pulse = Pulse()
    gone = asyncio.create_task(pulse.next())
    stays = asyncio.create_task(pulse.next())
    await asyncio.sleep(0)
    gone.cancel()
    pulse.beat()  # before the cancellation has run its course
    await stays
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert not pulse._waiting
