"""What becomes of checks in a row; the ends of containers themselves are tested by tests/compose."""

import asyncio
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hps.liveness import LIMIT, checked, http_problem
from hps.ports import free_port
from tests.fakes.server import Server


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


@pytest.mark.parametrize(("status", "problem"), [(200, None), (503, "status 503")])
async def test_an_http_service_is_asked_for_its_health(status: int, problem: str | None) -> None:
    async def health(_: Request) -> Response:
        return Response(status_code=status)

    async with Server(Starlette(routes=[Route("/health", health)])) as server:
        assert await asyncio.to_thread(http_problem, server.port) == problem


def test_an_http_service_that_is_gone() -> None:
    assert http_problem(free_port()) == "ConnectionRefusedError"
