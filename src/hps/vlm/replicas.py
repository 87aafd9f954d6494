"""The VLM servers that this process knows, which of them work, and which gets the next block. No I/O."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from time import monotonic
from typing import Final

from hps.context import RequestContext
from hps.errors import Unavailable
from hps.vlm.flow import Flow, ServerLoad

log = logging.getLogger(__name__)

# Answers that fail one after another, with none in between that succeeds, before a server is taken out.
_FAILURES_TO_EJECT: Final = 5
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0


class State(Enum):
    """UP: gets blocks. ON_TRIAL: answered a probe after it had failed; gets one block. DOWN: gets none. GONE: its
    address is none of the name's any more; gets none, and finishes what it has."""

    UP = "up"
    ON_TRIAL = "on trial"
    DOWN = "down"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Address:
    """host: an IP address, or the name itself when it did not resolve."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Replica:
    """One server. Only `Replicas` changes its state."""

    def __init__(self, address: Address, most: int) -> None:
        self.address = address
        self.state = State.UP
        self.flow = Flow(most)
        self.in_flight: set[asyncio.Timeout] = set()
        self.load: ServerLoad | None = None  # as it said last
        self.others = 0  # blocks that other clients have there
        self.failures = 0
        self.is_suspect = False
        self.pauses = 0  # since a block succeeded
        self.answered_at = self.heard_at = monotonic()
        self.blocks, self.block_seconds = 0, 0.0  # since the last look
        self._wake = asyncio.Event()

    @property
    def has_room(self) -> bool:
        if self.state is State.UP:
            return len(self.in_flight) < self.flow.limit
        return self.state is State.ON_TRIAL and not self.in_flight

    @property
    def pause_s(self) -> float:
        """Before the next probe, with jitter so that the processes of a host do not probe together."""
        ceiling: float = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**self.pauses)
        return ceiling * random.uniform(0.5, 1.0)

    async def woken(self, within_s: float) -> None:
        """Returns when there is a reason to look after it at once, or when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._wake.wait()
        self._wake.clear()

    def wake(self) -> None:
        self._wake.set()


class Replicas:
    """Servers by address. `changed` is called when the number of blocks that they take may have changed."""

    def __init__(self, most: int, outage_s: float, changed: Callable[[], None]) -> None:
        """most: blocks in flight at all of them together. outage_s: for so long may none be up before blocks fail."""
        self._most = most
        self._outage_s = outage_s
        self._changed = changed
        self._by_address: dict[Address, Replica] = {}
        self._room = asyncio.Event()
        self._down_since: float | None = None

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._by_address.values())

    @property
    def limit(self) -> int:
        """Blocks that may be in flight; never 0, so that somebody finds out how long the outage lasts."""
        rooms = sum(
            replica.flow.limit if replica.state is State.UP else replica.state is State.ON_TRIAL for replica in self
        )
        return max(1, min(self._most, rooms))

    @property
    def up(self) -> int:
        return sum(replica.state in (State.UP, State.ON_TRIAL) for replica in self)

    def add(self, address: Address) -> Replica:
        """A server that is new, or back under its address. It counts as up until it fails."""
        replica = self._by_address.get(address)
        if replica is None or replica.state is State.GONE:
            replica = self._by_address[address] = Replica(address, self._most)
            self._announce()
        return replica

    def keep(self, addresses: Iterable[Address]) -> None:
        """Lets go of the servers whose address is none of these."""
        for address in self._by_address.keys() - set(addresses):
            replica = self._by_address.pop(address)
            replica.state = State.GONE
            replica.wake()
            log.info("vlm server %s is gone", address)
        self._announce()

    # --- which server ---

    async def available(self, context: RequestContext, avoid: Replica | None = None) -> Replica:
        """The least loaded server that has room; not `avoid` if there is another. Waits through a short outage.

        Raises Unavailable when none has been up for too long, DeadlineExceeded.
        """
        while (chosen := self._chosen(avoid)) is None:
            patience = context.remaining_s()
            if self._down_since is not None:
                patience = min(patience, self._down_since + self._outage_s - monotonic())
                if patience <= 0:
                    raise Unavailable("VLM server unavailable")
            for replica in self:
                if replica.state is State.DOWN:
                    replica.wake()
            self._room.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._room.wait()
            except TimeoutError:
                continue
        return chosen

    def _chosen(self, avoid: Replica | None) -> Replica | None:
        roomy = [replica for replica in self if replica.has_room]
        if len(roomy) > 1:
            roomy = [replica for replica in roomy if replica is not avoid]
        # Among equals the one that has waited longest for an answer of its own: they take turns.
        return min(roomy, key=lambda r: (len(r.in_flight) + r.others, r.answered_at), default=None)

    def released(self) -> None:
        """A block has left its server."""
        self._room.set()

    # --- what happened to it ---

    def succeeded(self, replica: Replica, seconds: float) -> None:
        """seconds: that the block took there."""
        replica.blocks += 1
        replica.block_seconds += seconds
        replica.failures = replica.pauses = 0
        replica.answered_at = monotonic()
        self._down_since = None
        if replica.state is State.ON_TRIAL:
            log.info("vlm server %s is back", replica.address)
            replica.state = State.UP
            self._announce()

    def failed(self, replica: Replica, reason: str) -> None:
        """It gave a bad answer."""
        replica.failures += 1
        if replica.state is State.ON_TRIAL or replica.failures >= _FAILURES_TO_EJECT:
            self.eject(replica, reason)

    def lost(self, replica: Replica) -> None:
        """A connection broke. Servers also close idle ones, just as one is used perhaps: so it is asked first."""
        replica.is_suspect = True
        replica.wake()
        if replica.state is State.ON_TRIAL:
            self.eject(replica, "connection lost")

    def eject(self, replica: Replica, reason: str) -> None:
        """No more blocks until it has answered a probe."""
        if replica.state not in (State.UP, State.ON_TRIAL):
            return
        if replica.state is State.UP:
            log.warning("vlm server %s is taken out: %s", replica.address, reason)
        replica.state = State.DOWN
        replica.wake()
        if not self.up and self._down_since is None:
            self._down_since = monotonic()
        self._changed()

    def abandon(self, replica: Replica, reason: str) -> None:
        """Takes out a server that has fallen silent, with all blocks that wait for it: they go elsewhere."""
        self.eject(replica, reason)
        now = asyncio.get_running_loop().time()
        for waiting in replica.in_flight:
            if not waiting.expired():
                waiting.reschedule(now)

    def admit(self, replica: Replica) -> None:
        """It has answered a probe."""
        if replica.state is State.DOWN:
            replica.state = State.ON_TRIAL
            replica.others = 0
            replica.flow = Flow(self._most)
            replica.pauses += 1  # until a block succeeds
            self._announce()

    def loaded(self, replica: Replica, load: ServerLoad | None) -> None:
        """What it said of itself; None if it answers but does not say."""
        ours = len(replica.in_flight)
        replica.load = load
        if load is not None:
            replica.others = max(0, load.running + load.waiting - ours)
            replica.flow.saw(load, ours)
        elif replica.blocks:
            replica.flow.took(replica.block_seconds / replica.blocks, ours)
        replica.blocks, replica.block_seconds = 0, 0.0
        self._changed()

    def _announce(self) -> None:
        self._changed()
        self._room.set()
