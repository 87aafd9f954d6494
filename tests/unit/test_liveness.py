"""What becomes of checks in a row; the ends of containers themselves are tested by tests/compose."""

from pathlib import Path

import pytest

from hps.liveness import LIMIT, checked


class Killed(Exception):
    """As if the container had ended."""


def kill() -> None:
    raise Killed


def well() -> str | None:
    return None


def broken() -> str | None:
    return "no answer"


def too_slow() -> str | None:
    raise TimeoutError  # Docker ends the check


def test_a_service_that_is_still_starting_is_left_alone(tmp_path: Path) -> None:
    assert [checked(broken, tmp_path / "count", kill) for _ in range(3 * LIMIT)] == [1] * 3 * LIMIT


def test_the_last_of_so_many_failures_in_a_row_ends_the_container(tmp_path: Path) -> None:
    file = tmp_path / "count"
    assert checked(well, file, kill) == 0
    for _ in range(LIMIT - 1):
        assert checked(broken, file, kill) == 1
    with pytest.raises(Killed):
        checked(broken, file, kill)


def test_a_success_starts_the_count_anew(tmp_path: Path) -> None:
    file = tmp_path / "count"
    for check in [well, *[broken] * (LIMIT - 1), well, *[broken] * (LIMIT - 1)]:
        checked(check, file, kill)


def test_checks_that_docker_had_to_end_count_too(tmp_path: Path) -> None:
    file = tmp_path / "count"
    checked(well, file, kill)
    for _ in range(LIMIT):
        with pytest.raises(TimeoutError):
            checked(too_slow, file, kill)
    with pytest.raises(Killed):
        checked(too_slow, file, kill)


def test_outside_of_a_container_nothing_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "count"
    checked(well, file, None)
    assert [checked(broken, file, None) for _ in range(2 * LIMIT)] == [1] * 2 * LIMIT
