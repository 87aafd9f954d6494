"""Worker processes that decode documents, and the one queue in front of them.

A decoder may crash, hang or run out of memory over a hostile file, and pdfium has one lock a process; so decoding
happens in processes of its own, a page at a time, fair between requests. What goes wrong there ends one job.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Literal, TypeVar

from hps.context import RequestContext
from hps.document import Image
from hps.errors import BackendError, DeadlineExceeded, InvalidInput, Unavailable
from hps.fair import FairLimiter
from hps.inputs import channel
from hps.inputs.decoder_process import DecoderProcess, Job, WorkerLost, default_python
from hps.inputs.limits import DecodeLimits
from hps.inputs.sources import FileType

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Result = Callable[[dict[str, Any], Image | None], _T]
_START_TIMEOUT_S: Final = 60.0  # on a machine under load; a tenth of a second else
_ATTEMPTS: Final = 2  # a worker may have been killed from outside; twice in a row, the file did it
_ABANDONED_S: Final = 2.0  # how long a job may go on when nobody waits for it any more
_COPY_IN_THREAD_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """total_pages: of the whole document. sizes: (width, height) in pixels of the pages to process (max_pages)."""

    type: Literal["image", "pdf", "tiff"]
    total_pages: int
    sizes: tuple[tuple[int, int], ...]


class SourceDocument:
    """An opened document; `async with` it, or `close` it. Its pages may be asked for in any order, several at once."""

    def __init__(
        self, pool: "DecodePool", job: Job, info: DocumentInfo, context: RequestContext, only_page: Image | None
    ) -> None:
        """only_page: came with the answer to `open`."""
        self.info = info
        self._only_page = only_page
        self._pool = pool
        self._job = job
        self._context = context
        self._is_closed = False

    async def page(self, index: int) -> Image:
        """Page `index` (from 0) as BGR uint8 (height, width, 3), a writable array over memory of its own.

        Raises InvalidInput (this page cannot be decoded), DeadlineExceeded, BackendError.
        """
        if self._is_closed:
            raise RuntimeError("the document is closed")
        size = self.info.sizes[index]
        if self._only_page is not None:
            page, self._only_page = self._only_page, None
            return page
        job = replace(self._job, op="page", index=index)
        return await self._pool.run(job, self._context, lambda _, page: _checked(page, size))

    def close(self) -> None:
        """Frees the file, here and in the workers. Pages already handed out live on."""
        if not self._is_closed:
            self._is_closed = True
            self._pool.release(self._job)

    async def __aenter__(self) -> "SourceDocument":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class DecodePool:
    """`workers` processes. Every method is called on the one event loop that called `start`.

    python: interpreter for the workers (see `default_python`). page_timeout_s: longest time for one job; a process that
    needs longer is killed and replaced, and so is one whose request's deadline passes.
    """

    def __init__(
        self,
        workers: int,
        *,
        python: str | None = None,
        limits: DecodeLimits | None = None,
        page_timeout_s: float = 60.0,
    ) -> None:
        self._limits = limits or DecodeLimits()
        self._python = python or default_python()
        self._page_timeout_s = page_timeout_s
        self._limiter = FairLimiter(workers)
        # One thread a worker for its blocking socket; two more so that new files are copied meanwhile.
        self._threads = ThreadPoolExecutor(workers + 2, thread_name_prefix="decode")
        self._idle: list[DecoderProcess] = []
        self._busy: set[DecoderProcess] = set()
        self._released: set[str] = set()  # closed documents that a busy worker may still hold
        self._jobs: set[asyncio.Task[Any]] = set()
        self._numbers = itertools.count()
        self._is_open = False

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the processes there are now."""
        return tuple(worker.pid for worker in (*self._idle, *self._busy))

    @property
    def waiting(self) -> int:
        """Jobs that wait for a worker."""
        return self._limiter.waiting

    async def start(self) -> None:
        """Returns when every worker answers. Raises BackendError when one does not come up."""
        loop = asyncio.get_running_loop()
        workers: list[DecoderProcess] = []
        try:
            workers += [DecoderProcess(self._python, self._limits) for _ in range(self._limiter.limit)]
            starts = [loop.run_in_executor(self._threads, each.wait_until_ready, _START_TIMEOUT_S) for each in workers]
            await asyncio.gather(*starts)
        except BaseException as error:
            for worker in workers:
                worker.kill()
            self._threads.shutdown(wait=False)
            if isinstance(error, WorkerLost | TimeoutError | OSError):
                raise BackendError("a decoder process did not start") from error
            raise
        self._is_open = True
        for worker in workers:
            self._put_idle(worker)

    async def close(self) -> None:
        """Ends running jobs and all processes."""
        self._is_open = False
        for task in tuple(self._jobs):
            task.cancel()
        for worker in tuple(self._busy):
            worker.interrupt()
        if self._jobs:
            await asyncio.wait(tuple(self._jobs))
        loop = asyncio.get_running_loop()
        idle, self._idle = self._idle, []
        for worker in idle:
            loop.remove_reader(worker.connection)
        await asyncio.gather(*(loop.run_in_executor(self._threads, worker.close) for worker in idle))
        self._threads.shutdown(wait=False)

    async def open(
        self, data: bytes, file_type: FileType, context: RequestContext, max_pages: int | None = None
    ) -> SourceDocument:
        """Reads the document's headers. Raises InvalidInput that says what is wrong with the file.

        `data` is copied once: drop it afterwards. max_pages: pages beyond are left out (None: all are processed).
        """
        self._check_open()
        job = Job(
            op="open",
            document=f"{context.id}#{next(self._numbers)}",
            file=await self._memory_file(data),
            file_type=file_type,
            max_pages=max_pages,
            index=-1,  # before any page of the same request
        )
        try:
            info, only_page = await self.run(job, context, _opened)
        except BaseException:
            self.release(job)
            raise
        return SourceDocument(self, job, info, context, only_page)

    async def run(self, job: Job, context: RequestContext, result: _Result[_T]) -> _T:
        """For SourceDocument: one turn of a worker. `result` makes the answer of the reply, in the worker's thread."""
        self._check_open()
        # A task with a descriptor of its own: a caller that is cancelled leaves at once and may close the document,
        # while the worker still has to come back.
        file = os.dup(job.file)
        task = asyncio.create_task(self._turn(replace(job, file=file), context, result))
        self._jobs.add(task)
        task.add_done_callback(lambda _: os.close(file))
        task.add_done_callback(self._jobs.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done() and not self._is_open:  # cancelled by `close`, not the caller
                raise Unavailable("the decoders are being stopped") from None
            task.cancel()
            # Nobody asks the task any more: what it raises now must not be reported as forgotten.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    def release(self, job: Job) -> None:
        """For SourceDocument: the document's file is not needed any more."""
        os.close(job.file)
        for worker in self._idle:
            if job.document in worker.documents:
                worker.forget(job.document)
        if any(job.document in worker.documents for worker in self._busy):
            self._released.add(job.document)

    def _check_open(self) -> None:
        if not self._is_open:
            raise Unavailable("the decoders are not running")

    async def _memory_file(self, data: bytes) -> int:
        if len(data) < _COPY_IN_THREAD_BYTES:
            return channel.memory_file(data)
        copy = asyncio.get_running_loop().run_in_executor(self._threads, channel.memory_file, data)
        try:
            return await asyncio.shield(copy)
        except asyncio.CancelledError:
            copy.add_done_callback(lambda done: os.close(done.result()))
            raise

    async def _turn(self, job: Job, context: RequestContext, result: _Result[_T]) -> _T:
        async with AsyncExitStack() as turn:
            try:
                async with asyncio.timeout(context.remaining_s()):
                    await turn.enter_async_context(self._limiter.slot(context.id, job.index))
            except TimeoutError:
                raise DeadlineExceeded from None
            for attempt in range(_ATTEMPTS):
                try:
                    return await self._attempt(job, min(context.remaining_s(), self._page_timeout_s), result)
                except TimeoutError as error:
                    context.remaining_s()
                    raise InvalidInput(f"{_what(job)} takes too long: more than {self._page_timeout_s:g} s") from error
                except WorkerLost as error:
                    if attempt + 1 < _ATTEMPTS:
                        continue
                    if not error.was_ready:
                        raise BackendError("a decoder process did not start") from error
                    raise InvalidInput(f"{_what(job)} could not be decoded: the decoder failed on it") from error
            raise AssertionError("unreachable")

    async def _attempt(self, job: Job, timeout_s: float, result: _Result[_T]) -> _T:
        """Has the caller's slot. Leaves as many workers as there were, whatever happens."""
        worker = self._take(job.document)
        work = asyncio.get_running_loop().run_in_executor(self._threads, lambda: result(*worker.run(job, timeout_s)))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await _settle(worker, work)
            raise
        finally:
            self._put_back(worker)

    def _take(self, document: str) -> DecoderProcess:
        """An idle worker, at best one that has the document open, else the newest: after a loss that is a fresh one."""
        if not self._idle:  # its replacement could not be started when it was lost
            self._put_idle(self._spawn())
        worker = next((each for each in self._idle if document in each.documents), self._idle[-1])
        self._idle.remove(worker)
        asyncio.get_running_loop().remove_reader(worker.connection)
        self._busy.add(worker)
        return worker

    def _put_back(self, worker: DecoderProcess) -> None:
        self._busy.discard(worker)
        if worker.is_lost:
            self._replace(worker)
        else:
            for document in worker.documents & self._released:
                worker.forget(document)
            self._put_idle(worker)
        self._released = {name for name in self._released if any(name in busy.documents for busy in self._busy)}

    def _put_idle(self, worker: DecoderProcess) -> None:
        self._idle.append(worker)
        # An idle worker has nothing to say but that it is ready, or gone.
        asyncio.get_running_loop().add_reader(worker.connection, self._idle_worker_spoke, worker)

    def _idle_worker_spoke(self, worker: DecoderProcess) -> None:
        if not worker.is_ready:
            try:
                worker.wait_until_ready(_START_TIMEOUT_S)
            except WorkerLost:
                log.error("decoder process %d ended while starting", worker.pid)
            else:
                return
        was_ready = worker.is_ready
        self._idle.remove(worker)
        asyncio.get_running_loop().remove_reader(worker.connection)
        worker.kill()
        # One that never came up is not tried again until a job needs it, or this would be a loop.
        if was_ready:
            self._replace(worker)

    def _replace(self, worker: DecoderProcess) -> None:
        if not self._is_open:
            return
        log.warning("decoder process %d was lost and is replaced", worker.pid)
        try:
            self._put_idle(self._spawn())
        except BackendError:
            log.exception("no new decoder process; the next job tries again")

    def _spawn(self) -> DecoderProcess:
        try:
            return DecoderProcess(self._python, self._limits)
        except OSError as error:
            raise BackendError("a decoder process could not be started") from error


async def _settle(worker: DecoderProcess, work: "asyncio.Future[Any]") -> None:
    """Waits for the worker's thread, whatever cancellations come: a worker given back in mid-job would hand the next
    one the answer of this."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work], timeout=_ABANDONED_S)
        if not work.done():
            worker.interrupt()
    work.exception()  # seen: nobody is left to be told


def _opened(reply: dict[str, Any], page: Image | None) -> tuple[DocumentInfo, Image | None]:
    sizes = tuple((width, height) for width, height in reply["sizes"])
    info = DocumentInfo(reply["kind"], reply["total_pages"], sizes)
    return info, None if page is None else _checked(page, sizes[0])


def _checked(page: Image | None, size: tuple[int, int]) -> Image:
    if page is None or page.shape[1::-1] != size:
        raise BackendError("a decoder answered with something else than the page")
    return page


def _what(job: Job) -> str:
    return "The file" if job.op == "open" else f"Page {job.index + 1}"
