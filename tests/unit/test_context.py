import time
from dataclasses import FrozenInstanceError

import pytest

from hps.context import RequestContext, StageTimes, Stopwatch
from hps.errors import DeadlineExceeded


def test_time_left_counts_down_from_the_start() -> None:
    context = RequestContext.within("r", 60)
    assert 59 < context.remaining_s() <= 60
    assert context.deadline - time.monotonic() == pytest.approx(60, abs=1)


@pytest.mark.parametrize("timeout_s", [0, -5])
def test_no_time_left_is_an_error(timeout_s: float) -> None:
    with pytest.raises(DeadlineExceeded):
        RequestContext.within("r", timeout_s).remaining_s()


def test_a_context_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        RequestContext.within("r", 1).deadline = 0  # type: ignore[misc]


def test_times_of_pages_add_up() -> None:
    total = StageTimes(decode=1, vlm=2) + StageTimes(vlm=0.5, render=0.25)
    assert total == StageTimes(decode=1, vlm=2.5, render=0.25)
    assert total.milliseconds() == {
        "decode_ms": 1000,
        "layout_ms": 0,
        "crop_ms": 0,
        "vlm_ms": 2500,
        "assembly_ms": 0,
        "render_ms": 250,
    }


def test_a_stopwatch_sums_a_stage_and_counts_it_even_when_it_fails() -> None:
    watch = Stopwatch()
    with watch.stage("decode"):
        time.sleep(0.002)
    once = watch.times().decode
    with pytest.raises(ValueError), watch.stage("decode"):
        time.sleep(0.002)
        raise ValueError
    assert once >= 0.002
    assert watch.times().decode >= once + 0.002
    assert watch.times().vlm == 0
