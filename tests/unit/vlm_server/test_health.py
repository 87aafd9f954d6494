import pytest

from hps.vlm_server.health import verdict
from hps.vlm_server.watch import END, START_S, Watch

PORTS = [8080, 8081, 8082]


@pytest.mark.parametrize(
    ("well", "all_were_well", "expected"),
    [
        ([True] * 3, False, (True, "3 of 3 servers")),
        ([True, True, False], False, (False, "starting: 2 of 3 servers, not 8082")),
        ([True, False, True], True, (True, "degraded: 2 of 3 servers, not 8081")),
        ([False] * 3, True, (False, "0 of 3 servers, not 8080, 8081, 8082")),
    ],
)
def test_a_container_is_healthy_while_one_server_is_once_all_were(
    well: list[bool], all_were_well: bool, expected: tuple[bool, str]
) -> None:
    assert verdict(PORTS, well, all_were_well) == expected


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_server_that_was_well_and_hangs_is_ended_once() -> None:
    clock = Clock()
    watch = Watch(15, clock)
    assert watch.look(7, False) is None
    assert watch.look(7, True) == "answers"
    clock.now = 14
    assert watch.look(7, False) == "does not answer"
    clock.now = 15
    assert watch.look(7, False) == END
    clock.now = 100
    assert watch.look(7, False) is None


def test_one_that_is_loading_may_take_long_but_not_for_ever() -> None:
    clock = Clock()
    watch = Watch(15, clock)
    watch.look(7, True)
    clock.now = 1000
    assert watch.look(8, False) is None  # started again meanwhile
    clock.now = 1000 + START_S
    assert watch.look(8, False) == END
    assert watch.look(0, False) is None
