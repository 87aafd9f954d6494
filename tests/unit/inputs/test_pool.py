"""The pool over real processes: real workers for documents, acting ones for the ways to die."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from hps.context import RequestContext
from hps.errors import BackendError, DeadlineExceeded, InvalidInput, Unavailable
from hps.inputs.limits import DecodeLimits
from hps.inputs.pool import DecodePool
from tests.unit.inputs import files

REPOSITORY = Path(__file__).parents[3]


def context(name: str = "request", timeout_s: float = 60) -> RequestContext:
    return RequestContext.within(name, timeout_s)


def descriptors() -> int:
    """Open here, without those of pages that a test still has in its hands."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            count += not os.readlink(f"/proc/self/fd/{number}").startswith("/memfd:page")
    return count


@contextlib.asynccontextmanager
async def running(pool: DecodePool) -> AsyncIterator[DecodePool]:
    """Starts the pool, and afterwards wants every trace of it gone."""
    held = descriptors()
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= children
    assert descriptors() == held


@pytest.fixture
def acting(tmp_path: Path) -> str:
    """An interpreter that runs the acting worker whatever it is asked to run."""
    interpreter = tmp_path / "python3"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.unit.inputs.acting_worker "$@"\n')
    interpreter.chmod(0o755)
    return str(interpreter)


@pytest.fixture(autouse=True)
def tests_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY))  # workers find what their parent finds


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  processes set no events
            await asyncio.sleep(0.005)


async def test_a_document_from_bytes_to_pages() -> None:
    pdf = files.pdf([(100, 200), (50, 60)], content="0 0 1 rg 0 0 50 50 re f")
    async with running(DecodePool(1)) as pool, await pool.open(pdf, "PDF", context()) as document:
        assert (document.info.type, document.info.total_pages) == ("pdf", 2)
        assert document.info.sizes == ((200, 400), (100, 120))
        second, first = await asyncio.gather(document.page(1), document.page(0))
        assert (first.shape, second.shape) == ((400, 200, 3), (120, 100, 3))
        assert first[399, 0].tolist() == [255, 0, 0]


async def test_pages_outlive_their_document_and_may_be_written_to() -> None:
    async with running(DecodePool(1)) as pool, await pool.open(files.jpeg(), "IMAGE", context()) as document:
        image = await document.page(0)
        other = await document.page(0)
    image[:] = 7
    assert image.dtype == np.uint8
    assert int(image.min()) == 7
    assert int(other.max()) > 7


async def test_twenty_documents_at_once_with_bad_ones_between() -> None:
    good = files.tiff([(n, 0, 0) for n in range(1, 5)])
    bad = files.encoded(files.noise(64, 64), "PNG")[:2000]

    async def parse(pool: DecodePool, number: int) -> list[int]:
        data = bad if number % 5 == 4 else good
        async with await pool.open(data, "IMAGE", context(f"r{number}")) as document:
            pages = await asyncio.gather(*(document.page(index) for index in range(len(document.info.sizes))))
            return [int(image[0, 0, 2]) for image in pages]

    async with running(DecodePool(2)) as pool:
        answers = await asyncio.gather(*(parse(pool, number) for number in range(20)), return_exceptions=True)
        before = pool.pids
        assert before == pool.pids
    for number, answer in enumerate(answers):
        if number % 5 == 4:
            assert isinstance(answer, InvalidInput)
            assert answer.message == "The image is damaged or incomplete"
        else:
            assert answer == [1, 2, 3, 4]


async def test_page_limit() -> None:
    async with (
        running(DecodePool(1)) as pool,
        await pool.open(files.tiff([(1, 0, 0)] * 3), "IMAGE", context(), max_pages=2) as document,
    ):
        assert (document.info.total_pages, len(document.info.sizes)) == (3, 2)


async def test_a_broken_exif_block_does_not_matter() -> None:
    data = files.jpeg(6, (16, 8)).replace(b"Exif\x00\x00MM\x00*", b"Exif\x00\x00garbag")
    async with running(DecodePool(1)) as pool, await pool.open(data, "IMAGE", context()) as document:
        assert document.info.sizes == ((16, 8),)


async def test_a_file_that_wants_too_much_memory_fails_alone() -> None:
    limits = DecodeLimits(memory_bytes=300 << 20)
    large = files.encoded(files.picture("1", 1, (10_000, 10_000)), "PNG")
    async with running(DecodePool(1, limits=limits)) as pool:
        with pytest.raises(InvalidInput, match="too much memory"):
            await pool.open(large, "IMAGE", context())
        async with await pool.open(files.jpeg(), "IMAGE", context()) as document:
            assert (await document.page(0)).shape == (6, 8, 3)


async def test_a_worker_killed_in_the_middle_of_a_job_is_replaced_and_the_job_done() -> None:
    two_pages = files.tiff([(255, 0, 0), (0, 255, 0)])
    async with running(DecodePool(1)) as pool, await pool.open(two_pages, "IMAGE", context()) as document:
        (victim,) = pool.pids
        os.kill(victim, signal.SIGSTOP)  # it will not answer before it dies
        job = asyncio.create_task(document.page(0))
        await asyncio.sleep(0)
        os.kill(victim, signal.SIGKILL)
        assert (await job).shape == (6, 8, 3)
        assert victim not in pool.pids


async def test_a_worker_killed_while_idle_is_replaced_at_once() -> None:
    async with running(DecodePool(2)) as pool:
        victim, other = pool.pids
        os.kill(victim, signal.SIGKILL)
        await until(lambda: victim not in pool.pids and len(pool.pids) == 2)
        assert other in pool.pids


async def test_a_job_whose_worker_crashed_once_is_done_by_the_next(acting: str, tmp_path: Path) -> None:
    async with (
        running(DecodePool(1, python=acting)) as pool,
        await pool.open(f"crash once {tmp_path / 'mark'}".encode(), "IMAGE", context()) as document,
    ):
        assert (await document.page(0)).tolist() == [[[255, 255, 255]]]


async def test_a_file_that_crashes_every_decoder_fails_alone(acting: str) -> None:
    async with running(DecodePool(2, python=acting)) as pool:
        bad = await pool.open(b"crash", "IMAGE", context("bad"))
        good = await pool.open(b"", "IMAGE", context("good"))
        answers = await asyncio.gather(bad.page(0), *(good.page(0) for _ in range(10)), return_exceptions=True)
        assert isinstance(answers[0], InvalidInput)
        assert answers[0].message == "Page 1 could not be decoded: the decoder failed on it"
        assert all(isinstance(answer, np.ndarray) for answer in answers[1:])
        bad.close()
        good.close()


async def test_a_file_that_crashes_on_opening(acting: str) -> None:
    async with running(DecodePool(1, python=acting)) as pool:
        with pytest.raises(InvalidInput, match="The file could not be decoded"):
            await pool.open(b"open crash", "IMAGE", context())


async def test_a_job_that_takes_too_long_is_ended(acting: str) -> None:
    async with running(DecodePool(1, python=acting, page_timeout_s=1.5)) as pool:
        async with await pool.open(b"hang", "IMAGE", context()) as document:
            (hanging,) = pool.pids
            with pytest.raises(InvalidInput, match=r"Page 1 takes too long: more than 1\.5 s"):
                await document.page(0)
            assert not psutil.pid_exists(hanging)
        assert len(pool.pids) == 1


async def test_the_deadline_ends_a_job(acting: str) -> None:
    async with (
        running(DecodePool(1, python=acting)) as pool,
        await pool.open(b"hang", "IMAGE", context(timeout_s=2)) as document,
    ):
        with pytest.raises(DeadlineExceeded):
            await document.page(0)


async def test_waiting_counts_against_the_deadline(acting: str) -> None:
    async with (
        running(DecodePool(1, python=acting, page_timeout_s=5)) as pool,
        await pool.open(b"hang", "IMAGE", context("slow")) as slow,
    ):
        hanging = asyncio.create_task(slow.page(0))
        await asyncio.sleep(0)
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await pool.open(b"", "IMAGE", context("fast", timeout_s=0.1))
        assert time.monotonic() - started < 2
        hanging.cancel()


async def test_a_cancelled_waiter_leaves_the_line(acting: str) -> None:
    async with (
        running(DecodePool(1, python=acting)) as pool,
        await pool.open(b"hang", "IMAGE", context("slow")) as slow,
    ):
        hanging = asyncio.create_task(slow.page(0))
        waiter = asyncio.create_task(pool.open(b"", "IMAGE", context("waiter")))
        await until(lambda: pool.waiting == 1)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert pool.waiting == 0
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging


async def test_a_cancelled_job_gives_its_place_back_although_the_decoder_hangs(acting: str) -> None:
    async with running(DecodePool(1, python=acting)) as pool:
        async with await pool.open(b"hang", "IMAGE", context("slow")) as slow:
            hanging = asyncio.create_task(slow.page(0))
            await asyncio.sleep(0)
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
        async with await pool.open(b"", "IMAGE", context("next")) as document:
            assert (await document.page(0)).shape == (1, 1, 3)


async def test_many_cancellations_leave_the_pool_whole() -> None:
    data = files.encoded(files.noise(300, 300), "PNG")
    async with running(DecodePool(2)) as pool:
        for delay in range(12):
            async with await pool.open(data, "IMAGE", context(f"r{delay}")) as document:
                jobs = [asyncio.create_task(document.page(0)) for _ in range(4)]
                await asyncio.sleep(delay / 2000)
                for job in jobs:
                    job.cancel()
        async with await pool.open(data, "IMAGE", context("last")) as document:
            pages = await asyncio.gather(*(document.page(0) for _ in range(4)))
            assert all(np.array_equal(image, pages[0]) for image in pages)


async def test_closing_ends_what_runs(acting: str) -> None:
    pool = DecodePool(1, python=acting)
    async with running(pool):
        document = await pool.open(b"hang", "IMAGE", context())
        hanging = asyncio.create_task(document.page(0))
        waiting = asyncio.create_task(document.page(0))
        await until(lambda: pool.waiting == 1)
        document.close()
        started = time.monotonic()
        await pool.close()
        assert time.monotonic() - started < 5
        for task in (hanging, waiting):
            with pytest.raises(Unavailable):
                await task
    with pytest.raises(Unavailable):
        await pool.open(b"", "IMAGE", context())


@pytest.mark.parametrize("python", ["/bin/false", "/nowhere/python3"])
async def test_workers_that_do_not_start_stop_the_start(python: str) -> None:
    with pytest.raises(BackendError):
        await DecodePool(2, python=python).start()


async def test_closed_documents_are_forgotten_by_the_workers() -> None:
    async with running(DecodePool(1)) as pool:
        process = psutil.Process(pool.pids[0])
        before = process.num_fds()
        for _ in range(6):
            async with await pool.open(files.tiff([(1, 0, 0)] * 2), "IMAGE", context()) as document:
                await document.page(1)
        async with await pool.open(files.jpeg(), "IMAGE", context()):
            pass  # its opening comes after the message that forgets the last one
        await until(lambda: process.num_fds() <= before + 2)  # bitmaps that are used again


async def test_a_worker_knows_no_secret_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPS_VLM_API_KEY", "secret")
    async with running(DecodePool(1)) as pool:
        assert "HPS_VLM_API_KEY" not in psutil.Process(pool.pids[0]).environ()


async def test_pages_and_files_have_no_name_that_a_killed_process_could_leave_behind() -> None:
    async with running(DecodePool(1)) as pool, await pool.open(files.pdf(), "PDF", context()) as document:
        image = await document.page(0)
        for process in (psutil.Process(pool.pids[0]), psutil.Process()):
            assert any("memfd:" in mapping.path for mapping in process.memory_maps())  # its file, our page
        worker_maps = [mapping.path for mapping in psutil.Process(pool.pids[0]).memory_maps()]
        assert not any(path.startswith("/dev/shm") for path in worker_maps)
        assert image.shape == (400, 200, 3)
