import asyncio

import pytest

from hps.window import BitmapRoom


class Holders:
    """Pages that take room and give it back when told; `order` is that in which they got it."""

    def __init__(self, room: BitmapRoom) -> None:
        self._room = room
        self._gates: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.order: list[str] = []

    def come(self, name: str, nbytes: int) -> None:
        self._gates[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._hold(name, nbytes))

    async def leave(self, name: str) -> None:
        self._gates[name].set()
        await self._tasks[name]
        await settled()

    async def give_up(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)
        await settled()

    async def _hold(self, name: str, nbytes: int) -> None:
        async with self._room.held(nbytes):
            self.order.append(name)
            await self._gates[name].wait()


async def settled() -> None:
    """Returns when every task that could run has done so: each step takes one turn of the loop, and none waits for
    anything outside it."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_pages_and_their_bytes_are_limited() -> None:
    holders = Holders(BitmapRoom(pages=2, nbytes=100))
    for name, nbytes in (("a", 40), ("b", 40), ("c", 10), ("d", 80)):
        holders.come(name, nbytes)
    await settled()
    assert holders.order == ["a", "b"]
    await holders.leave("b")
    assert holders.order == ["a", "b", "c"]
    await holders.leave("a")
    assert holders.order == ["a", "b", "c", "d"]


async def test_a_page_larger_than_the_room_has_it_alone() -> None:
    holders = Holders(BitmapRoom(pages=9, nbytes=100))
    for name, nbytes in (("a", 10), ("huge", 500), ("b", 10)):
        holders.come(name, nbytes)
    await settled()
    assert holders.order == ["a"]
    await holders.leave("a")
    assert holders.order == ["a", "huge"]
    await holders.leave("huge")
    assert holders.order == ["a", "huge", "b"]


@pytest.mark.parametrize("who", ["holder", "first in line", "second in line"])
async def test_one_that_is_cancelled_leaves_room_and_line(who: str) -> None:
    holders = Holders(BitmapRoom(pages=1, nbytes=100))
    names = ("holder", "first in line", "second in line", "last")
    for name in names:
        holders.come(name, 10)
    await settled()
    await holders.give_up(who)
    others = [name for name in names if name != who]
    for name in others:
        await holders.leave(name)
    assert [name for name in holders.order if name != who] == others
