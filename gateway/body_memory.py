"""How many bytes of request bodies are held at once in this process, waiting or in work."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hps.errors import Overloaded


class BodyMemory:
    """A budget. Nothing here waits: whoever does not fit is told so; two half-read bodies would wait for each other."""

    def __init__(self, limit: int) -> None:
        """limit: bytes; at least the largest body, which otherwise nobody could ever send."""
        self.limit = limit
        self.held = 0

    @contextmanager
    def account(self, retry_after_s: Callable[[], int]) -> Iterator["Account"]:
        """Gives everything back at the end of the block, in which the body must have been dropped.

        retry_after_s: what a request that does not fit is told.
        """
        account = Account(self, retry_after_s)
        try:
            yield account
        finally:
            self.held -= account.held


class Account:
    """The share of one request."""

    def __init__(self, memory: BodyMemory, retry_after_s: Callable[[], int]) -> None:
        self.held = 0
        self._memory = memory
        self._retry_after_s = retry_after_s

    def check(self, announced: int) -> None:
        """Raises Overloaded when a body of that size would not fit now. Reserves nothing: words are cheap."""
        if self._memory.held + announced > self._memory.limit:
            message = "Too many large requests are waiting; try again later"
            raise Overloaded(message, retry_after_s=self._retry_after_s())

    def take(self, size: int) -> None:
        """Raises Overloaded."""
        self.check(size)
        self._memory.held += size
        self.held += size
