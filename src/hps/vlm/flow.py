"""How many blocks of ours one server can use, found from what it says of itself. Pure."""

from collections import deque
from dataclasses import dataclass
from typing import Final

# A server that has this many waiting will not run dry before the next look; more only makes others wait behind them.
_WAITING_MIN: Final = 4
_WAITING_SHARE: Final = 1 / 8
_LOOKS: Final = 3
_LIMIT_MIN: Final = 4
_GROWTH_SHARE: Final = 1 / 4
# Without its own word: a block that takes this long stands in a queue, or in a batch that is too large for the server.
_SLOW_BLOCK_S: Final = 20.0
_QUICK_BLOCK_S: Final = 10.0
_BACKING_OFF: Final = 0.8


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """What vLLM counts: requests of everybody that it works on, and that wait."""

    running: int
    waiting: int


class Flow:
    """The limit for one server. It falls when requests queue there, and rises while it is used up and none does.

    A queue that is seen once may be a burst that has just arrived and is about to be taken in, so several looks must.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._queues = deque([0] * _LOOKS, maxlen=_LOOKS)
        self.limit = most

    def saw(self, load: ServerLoad, ours: int) -> None:
        """ours: our blocks there at that moment."""
        wanted = max(_WAITING_MIN, int(load.running * _WAITING_SHARE))
        self._queues.append(load.waiting)
        queued = min(self._queues)
        if queued > wanted:
            share = min(1.0, ours / (load.running + load.waiting))
            self._limit_to(ours - int((queued - wanted) * share))
        elif load.waiting <= wanted:
            self._grow(ours)

    def took(self, seconds: float, ours: int) -> None:
        """In place of `saw` for a server that does not say: the mean time of the blocks answered since the last."""
        if seconds > _SLOW_BLOCK_S:
            self._limit_to(int(ours * _BACKING_OFF))
        elif seconds < _QUICK_BLOCK_S:
            self._grow(ours)

    def _grow(self, ours: int) -> None:
        """Only what is used up: a limit that nobody reaches says nothing."""
        if ours >= self.limit:
            self._limit_to(self.limit + max(_LIMIT_MIN, int(self.limit * _GROWTH_SHARE)))

    def _limit_to(self, limit: int) -> None:
        self.limit = max(min(_LIMIT_MIN, self._most), min(self._most, limit))
