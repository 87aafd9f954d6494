"""How many requests may be in work, and how many may wait for it, in this process."""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from hps.errors import Overloaded
from hps.metrics import AdmissionMetrics

# Retry-After while nothing has been finished yet, and its bounds, in seconds.
RETRY_UNKNOWN_S = 5
RETRY_MIN_S = 1
RETRY_MAX_S = 60

# Weight of the newest request in the running mean of the time in work: about the last 16 requests count.
NEWEST_WEIGHT = 1 / 8


class Admission:
    """At most `limit` requests in work and `max_waiting` more in front of them, first come first served.

    A request takes a place before its body is read, so that one too many is refused at no cost, and a slot once it is
    known to be valid. Both come back however the request ends. One event loop only; nothing here blocks.

    max_wait_s: whoever would wait longer, at the speed of the last requests, is refused too.
    """

    def __init__(
        self,
        limit: int,
        max_waiting: int,
        *,
        max_wait_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        metrics: AdmissionMetrics | None = None,
    ) -> None:
        self.limit = limit
        self.max_waiting = max_waiting
        self.max_wait_s = max_wait_s
        self.places = 0
        self.in_work = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._clock = clock
        self._mean_s: float | None = None
        self._metrics = metrics

    @property
    def waiting(self) -> int:
        """Requests that hold a place and no slot: in line, or still sending their body."""
        return self.places - self.in_work

    @contextmanager
    def place(self) -> Iterator["Place"]:
        """A place in line. Raises Overloaded when all are taken; one raised inside, over a body, counts too."""
        try:
            if self.places >= self.limit + self.max_waiting or self._work_off_s(self.waiting) > self.max_wait_s:
                raise Overloaded(retry_after_s=self.retry_after_s())
            place = Place(self)
            try:
                yield place
            finally:
                place.leave()
        except Overloaded:
            if self._metrics is not None:
                self._metrics.refused()
            raise

    def retry_after_s(self, requests: int | None = None, at_once: int | None = None) -> int:
        """Seconds until the line as it is now will have been worked off, at the speed of the last requests.

        Or until so many `requests` will have been, of which `at_once` are in work at a time.
        """
        if self._mean_s is None:
            return RETRY_UNKNOWN_S
        seconds = self._work_off_s(self.waiting if requests is None else requests, at_once)
        return min(RETRY_MAX_S, max(RETRY_MIN_S, math.ceil(seconds)))

    def _work_off_s(self, requests: int, at_once: int | None = None) -> float:
        # While anyone waits all slots are busy, so requests finish at limit / mean a second.
        return requests * (self._mean_s or 0.0) / (at_once or self.limit)

    def _report(self) -> None:
        if self._metrics is not None:
            self._metrics.changed(self.in_work, self.waiting)

    async def _take(self) -> None:
        arrived = self._clock()
        await self._turn()
        if self._metrics is not None:
            self._metrics.waited(self._clock() - arrived)
        self._report()

    async def _turn(self) -> None:
        if self.in_work < self.limit:  # then nobody waits: a slot that comes free goes straight to the first in line
            self.in_work += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):  # already skipped by _give_back
                    self._line.remove(turn)
            else:  # the slot was handed over in the same moment as we were cancelled
                self._give_back()
            raise

    def _finished(self, took_s: float) -> None:
        self._mean_s = took_s if self._mean_s is None else self._mean_s + NEWEST_WEIGHT * (took_s - self._mean_s)
        self._give_back()

    def _give_back(self) -> None:
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.in_work -= 1
        self._report()


class Place:
    """Proof of a place in line; the only way to a slot."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._is_held = True
        admission.places += 1
        admission._report()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Waits for a slot and holds it; the place goes with it. The caller's deadline bounds the wait."""
        admission = self._admission
        await admission._take()
        started = admission._clock()
        try:
            yield
        finally:
            admission._finished(admission._clock() - started)
            self.leave()

    def leave(self) -> None:
        if self._is_held:
            self._is_held = False
            self._admission.places -= 1
            self._admission._report()
