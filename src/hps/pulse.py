"""Signs of life: remembers when something last worked, and lets others wait for the next time."""

import asyncio
import time


class Pulse:
    """For one event loop."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._waiting: set[asyncio.Future[None]] = set()

    def beat(self) -> None:
        self._last = time.monotonic()
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def is_fresh(self, within_s: float) -> bool:
        return time.monotonic() - self._last < within_s

    async def next(self) -> None:
        """Returns at the next beat."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
