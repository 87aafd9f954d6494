"""A limit that is fair between requests: the one scheduling primitive of a coordinator."""

import asyncio
import heapq
import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Any


class FairLimiter:
    """At most `limit` holders at once; who waits is served round robin over keys, within a key lowest rank first.

    A key stands for a request. A 500-page document and a one-page request so get turns alternately, however many
    waiters the document has. Ranks are compared with `<`: tuples such as (page, -area) put the oldest page first and
    its largest block before the others. For one event loop; holders must be released on the same loop.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError("limit must be at least 1")
        self.limit = limit
        self.held = 0
        self._count = itertools.count()
        # One heap of (rank, arrival, future) a key; the order of the dict is the order of turns.
        self._waiting: OrderedDict[Hashable, list[tuple[Any, int, asyncio.Future[None]]]] = OrderedDict()

    def resize(self, limit: int) -> None:
        """Waiters are let in at once if there is more room now; holders above a lower limit stay."""
        if limit < 1:
            raise ValueError("limit must be at least 1")
        self.limit = limit
        self._let_in()

    @property
    def waiting(self) -> int:
        return sum(not future.done() for heap in self._waiting.values() for _, _, future in heap)

    @asynccontextmanager
    async def slot(self, key: Hashable, rank: Any = 0) -> AsyncIterator[None]:
        """Waits for a turn and holds it for the duration of the block."""
        await self._acquire(key, rank)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, key: Hashable, rank: Any) -> None:
        if self.held < self.limit and not self._waiting:
            self.held += 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting.setdefault(key, []), (rank, next(self._count), future))
        try:
            await future
        except asyncio.CancelledError:
            # Cancelled after its turn had come but before it ran: hand the turn on, or it would be lost for ever.
            if future.done() and not future.cancelled():
                self._release()
            else:
                self._forget(key, future)
            raise

    def _forget(self, key: Hashable, future: asyncio.Future[None]) -> None:
        heap = self._waiting.get(key)
        if heap is None:
            return
        heap[:] = [entry for entry in heap if entry[2] is not future]
        if heap:
            heapq.heapify(heap)
        else:
            del self._waiting[key]

    def _release(self) -> None:
        self.held -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self.held < self.limit:
            key, heap = next(iter(self._waiting.items()))
            _, _, future = heapq.heappop(heap)
            if heap:
                self._waiting.move_to_end(key)
            else:
                del self._waiting[key]
            if not future.done():
                self.held += 1
                future.set_result(None)
