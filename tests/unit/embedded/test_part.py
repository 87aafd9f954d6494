"""A part of `hps up`: started again when it dies, never when it could not start, and stopped for good."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest

from hps.embedded.part import Part

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"

Start = Callable[..., Part]


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a part that runs a line of Python; stops it at the end."""
    async with AsyncExitStack() as running:

        def started(code: str, **fields: object) -> Part:
            part = Part("part", [sys.executable, "-S", "-c", code], {}, tmp_path / "log", **fields)  # type: ignore[arg-type]
            part.start()
            running.push_async_callback(part.stop, 0)
            return part

        yield started


def pid(part: Part) -> int:
    assert part.process is not None
    return part.process.pid


async def test_one_that_dies_is_started_again_after_cleaning_up(start: Start) -> None:
    cleaned: list[int] = []
    part = start(SLEEP, has_started=True, clean_up=lambda: cleaned.append(first))
    await eventually(lambda: part.log_tail() == "up")
    first = pid(part)
    psutil.Process(first).kill()
    await eventually(lambda: part.log_tail() == "up\nup")
    assert pid(part) != first
    assert cleaned == [first]
    assert not part.start_failed


async def test_one_that_cannot_start_is_not_tried_again(start: Start) -> None:
    part = start("print('no such file'); raise SystemExit(3)")
    await eventually(lambda: part.start_failed)
    assert part.log_tail() == "no such file"


async def test_one_that_is_stopped_stays_so(start: Start) -> None:
    part = start(SLEEP, has_started=True)
    await eventually(lambda: part.log_tail() == "up")
    await part.stop(10)
    assert part.process is not None
    assert part.process.returncode == -signal.SIGTERM
    assert part.log_tail() == "up"


async def test_one_that_does_not_listen_is_killed(start: Start) -> None:
    part = start(DEAF, has_started=True)
    await eventually(lambda: part.log_tail() == "up")
    await part.stop(0.1)
    assert part.process is not None
    assert part.process.returncode == -signal.SIGKILL


async def test_one_that_just_died_is_not_started_again_when_stopped(start: Start) -> None:
    part = start("print('up')", has_started=True)
    await eventually(lambda: part.process is not None and part.process.returncode is not None)
    async with asyncio.timeout(2):  # it pauses before the next start
        await part.stop(10)
    assert part.log_tail() == "up"


async def test_one_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    part = Part("part", ["/nonexistent"], {}, tmp_path / "log")
    await part.stop(1)
    assert part.log_tail() == ""


async def test_a_program_that_is_not_there_is_a_failed_start(tmp_path: Path) -> None:
    part = Part("part", ["/nonexistent"], {}, tmp_path / "log")
    part.start()
    await eventually(lambda: part.start_failed)
    await part.stop(1)


async def test_only_the_end_of_a_log_is_shown(tmp_path: Path) -> None:
    part = Part("part", [], {}, tmp_path / "log")
    part.log_file.write_bytes(b"\n".join(b"line %d" % i for i in range(100)) + b"\xff")
    assert part.log_tail(2).startswith("line 98\nline 99")
