"""How many pages of one document may have their bitmaps in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class BitmapRoom:
    """Room for the bitmaps of at most `pages` pages, and of `nbytes` together; a page that is larger than that has it
    alone. First come, first served, so that pages get it in their order. For one event loop."""

    def __init__(self, pages: int, nbytes: int) -> None:
        self._pages = pages
        self._nbytes = nbytes
        self._held: list[int] = []
        self._first_in_line = asyncio.Lock()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def held(self, nbytes: int) -> AsyncIterator[None]:
        """Waits for room and holds it for the duration of the block."""
        async with self._first_in_line:
            while not self._has_room(nbytes):
                self._freed.clear()
                await self._freed.wait()
            self._held.append(nbytes)
        try:
            yield
        finally:
            self._held.remove(nbytes)
            self._freed.set()

    def _has_room(self, nbytes: int) -> bool:
        return not self._held or (len(self._held) < self._pages and sum(self._held) + nbytes <= self._nbytes)
