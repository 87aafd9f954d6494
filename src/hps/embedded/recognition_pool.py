"""Recognition in a bounded number of threads; who leaves the line, or the running computation, costs nothing more."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from hps.document import Image
from hps.embedded.chat_wire import ChatError, decoded_picture
from hps.embedded.text_lines import RecognitionCancelled


class RecognisesPictures(Protocol):
    def recognise(self, image: Image, prompt: str, is_cancelled: Callable[[], bool]) -> str: ...


@dataclass(slots=True)
class Counters:
    """Since the start; `seconds` is the time that recognition took, waiting excluded."""

    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    seconds: float = 0.0


class ByteBudget:
    """Bounds the memory of all requests that are being read or wait."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    @contextmanager
    def lease(self) -> Iterator[Callable[[int], None]]:
        """Yields a function that sets how many bytes the request holds now; ChatError 503 beyond the limit."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if size - held > self._left:
                raise ChatError(503, "Too many requests are waiting; try again later", code="overloaded")
            self._left -= size - held
            held = size

        try:
            yield hold
        finally:
            self._left += held


class RecognitionPool:
    """Belongs to one event loop. First come, first served."""

    def __init__(self, recogniser: RecognisesPictures, threads: int) -> None:
        self._recogniser = recogniser
        self._slots = asyncio.Semaphore(threads)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="recognition")
        self._closing = threading.Event()
        self._work: set[Future[str]] = set()
        self.waiting = 0
        self.counters = Counters()

    @property
    def running(self) -> int:
        """Threads at work, also for callers who have left."""
        return len(self._work)

    async def recognise(self, picture: bytes, prompt: str) -> str:
        """The text of an encoded picture. Cancelling this gives the place up at once, in line or while computing.

        Raises ChatError 400 for a picture that cannot be decoded, 503 when the pool closes.
        """
        self.waiting += 1
        try:
            await self._slots.acquire()
        except asyncio.CancelledError:
            self.counters.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        left = threading.Event()
        work = self._start(picture, prompt, left)
        try:
            text = await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            left.set()
            self.counters.cancelled += 1
            raise
        except RecognitionCancelled as error:
            raise ChatError(503, "The recogniser is shutting down", code="closing") from error
        except Exception:
            self.counters.failed += 1
            raise
        self.counters.succeeded += 1
        return text

    def _start(self, picture: bytes, prompt: str, left: threading.Event) -> Future[str]:
        loop = asyncio.get_running_loop()

        def is_cancelled() -> bool:
            return left.is_set() or self._closing.is_set()

        def compute() -> str:
            if is_cancelled():
                raise RecognitionCancelled
            return self._recogniser.recognise(decoded_picture(picture), prompt, is_cancelled)

        def ended(started: float) -> None:
            self._work.discard(work)
            self.counters.seconds += time.perf_counter() - started
            self._slots.release()

        try:
            work = self._executor.submit(compute)
        except RuntimeError as error:
            self._slots.release()
            raise ChatError(503, "The recogniser is shutting down", code="closing") from error
        self._work.add(work)
        started = time.perf_counter()
        # The place is free when the thread is, which is later than when a caller who left stops waiting.
        work.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(ended, started))
        return work

    async def close(self, timeout_s: float) -> bool:
        """Stops all work between two lines; whether every thread was done in time."""
        self._closing.set()
        self._executor.shutdown(wait=False, cancel_futures=True)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*map(asyncio.wrap_future, self._work), return_exceptions=True)
        except TimeoutError:
            return False
        return True
