"""Looks after the servers of `Replicas`: finds their addresses, probes those that are down, asks others for their load.

One task a server and one for the addresses, so that a server that hangs delays nobody else.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence
from time import monotonic
from typing import Final, Literal

from hps.vlm.calls import Calls, Endpoint, Lost, NotConnected
from hps.vlm.replicas import Address, Replica, Replicas, State

log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_SILENCE_S: Final = 6.0  # so a server that hangs is noticed at its second unanswered look, within 12 s
_ADDRESSES_S: Final = 15.0
_START_S: Final = 5.0
_MOST_REPLICAS: Final = 64
_LONGEST_PAUSE_IN_DEMAND_S: Final = 1.0


class Watch:
    """replicas: consecutive ports of each address, or "auto": as many as list `model`; that number only grows."""

    def __init__(
        self, endpoint: Endpoint, calls: Calls, replicas: Replicas, *, count: int | Literal["auto"], model: str | None
    ) -> None:
        self._endpoint = endpoint
        self._calls = calls
        self._replicas = replicas
        self._count = count
        self._model = model
        self._ports_of: dict[str, int] = {}
        self._tasks: dict[Replica, asyncio.Task[None]] = {}
        self._addresses: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the servers that answer have been found, or after a few seconds: the search goes on."""
        first = asyncio.create_task(self._find())
        await asyncio.wait({first}, timeout=_START_S)
        if not first.done() and not self._ports_of:
            self._take(self._endpoint.name, 1)
        self._addresses = asyncio.create_task(self._find_again(first))

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *([self._addresses] if self._addresses else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- addresses ---

    async def _find_again(self, first: "asyncio.Task[None]") -> None:
        try:
            await first
        finally:
            first.cancel()
        while True:
            await asyncio.sleep(_ADDRESSES_S)
            await self._find()

    async def _find(self) -> None:
        hosts = await self._hosts()
        if not hosts:  # the name server is away, or the name is not there yet
            if not self._ports_of:
                self._take(self._endpoint.name, 1)
            return
        await asyncio.gather(*(self._find_ports(host) for host in hosts))
        for host in self._ports_of.keys() - set(hosts):
            del self._ports_of[host]
        self._replicas.keep(
            Address(host, self._endpoint.port + n) for host, ports in self._ports_of.items() for n in range(ports)
        )

    async def _find_ports(self, host: str) -> None:
        count = self._ports_of.get(host, 0) or 1
        if self._count == "auto":
            while count < _MOST_REPLICAS and await self._is_ours(Address(host, self._endpoint.port + count)):
                count += 1
        else:
            count = self._count
        self._take(host, count)

    async def _is_ours(self, address: Address) -> bool:
        return self._model is not None and await self._calls.lists(address, self._model)

    def _take(self, host: str, ports: int) -> None:
        if ports > self._ports_of.get(host, 0):
            log.info("vlm servers at %s, ports %d to %d", host, self._endpoint.port, self._endpoint.port + ports - 1)
        self._ports_of[host] = ports
        for n in range(ports):
            replica = self._replicas.add(Address(host, self._endpoint.port + n))
            if replica not in self._tasks:
                self._tasks[replica] = asyncio.create_task(self._attend(replica))

    async def _hosts(self) -> Sequence[str]:
        """The name's addresses. Of one family, or a server that listens on both would count twice."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._endpoint.name, self._endpoint.port, type=socket.SOCK_STREAM
            )
        except OSError:
            return ()
        families: dict[int, list[str]] = {}
        for family, _, _, _, address in sorted(found):
            families.setdefault(family, []).append(str(address[0]))
        candidates = [families[family] for family in (socket.AF_INET, socket.AF_INET6) if family in families]
        for hosts in candidates if len(candidates) > 1 else ():
            answers = [self._calls.is_healthy(Address(host, self._endpoint.port)) for host in hosts]
            if any(await asyncio.gather(*answers)):
                return hosts
        return candidates[0] if candidates else ()

    # --- one server ---

    async def _attend(self, replica: Replica) -> None:
        while replica.state is not State.GONE:
            if replica.state is State.DOWN:
                await self._probe(replica)
            else:
                await self._look(replica)
        del self._tasks[replica]

    async def _probe(self, replica: Replica) -> None:
        """After a pause, which is cut short when blocks wait for a server."""
        await asyncio.sleep(min(replica.pause_s, _LONGEST_PAUSE_IN_DEMAND_S))
        await replica.woken(replica.pause_s)
        if await self._calls.is_healthy(replica.address):
            self._replicas.admit(replica)
        else:
            replica.pauses += 1

    async def _look(self, replica: Replica) -> None:
        await replica.woken(_LOOK_S)
        if replica.is_suspect:
            replica.is_suspect = False
            if not await self._calls.is_healthy(replica.address):
                self._replicas.eject(replica, "connections lost")
        if replica.state not in (State.UP, State.ON_TRIAL) or not replica.in_flight:
            return
        try:
            load = await self._calls.load(replica.address)
        except NotConnected:
            self._replicas.eject(replica, "does not accept connections")
        except Lost:
            silent_s = monotonic() - max(replica.answered_at, replica.heard_at)
            # The only server may as well be waited for.
            if silent_s > _SILENCE_S and self._replicas.up > 1:
                self._replicas.abandon(replica, f"silent for {silent_s:.0f} s")
        else:
            replica.heard_at = monotonic()
            self._replicas.loaded(replica, load)
