"""Memory files that are used again: what both ends agree on, and that no page is ever written over."""

import os
import random
import weakref

import numpy as np
import pytest

from hps.document import Image
from hps.errors import BackendError
from hps.inputs import channel
from hps.inputs.bitmaps import Bitmap, BitmapFiles, ReceivedBitmaps


class Link:
    """A worker's files and their receiver, with messages passed by hand."""

    def __init__(self) -> None:
        self.files = BitmapFiles()
        self.received = ReceivedBitmaps()

    def page(self, value: int, side: int = 100) -> Image:
        self.pass_on(self.received.returned())
        bitmap = self.files.take(side * side * 3)
        bitmap.memory[: side * side * 3] = bytes([value]) * (side * side * 3)
        return self.image(bitmap, side)

    def image(self, bitmap: Bitmap, side: int) -> Image:
        file = None if bitmap.file is None else os.dup(bitmap.file)
        bitmap.close_file()
        return self.received.image(bitmap.number, file, (side, side))

    def pass_on(self, returned: dict[str, list[int]]) -> None:
        for fate, numbers in returned.items():
            self.files.returned(numbers, keep=fate == "keep")


def address(image: Image) -> int:
    return int(image.__array_interface__["data"][0])


def test_memory_is_used_again_when_nobody_looks_at_it() -> None:
    link = Link()
    first = link.page(1)
    place = address(first)
    del first
    again = link.page(2, side=98)
    assert address(again) == place
    assert again.shape == (98, 98, 3) and (again == 2).all()


def test_a_page_is_never_written_over_while_any_view_of_it_lives() -> None:
    link = Link()
    view = link.page(1)[10:20, ::2, 1]
    others = [link.page(value) for value in range(2, 6)]
    assert (view == 1).all()
    assert [int(page[0, 0, 0]) for page in others] == [2, 3, 4, 5]


def test_any_order_of_pages_and_sizes_keeps_every_page_whole() -> None:
    chance, link = random.Random(7), Link()
    held: list[tuple[int, Image]] = []
    for step in range(300):
        held.append((step % 251, link.page(step % 251, side=chance.choice([10, 300, 600, 650, 1200]))))
        while held and chance.random() < 0.55:
            held.pop(chance.randrange(len(held)))
        assert all((page == value).all() for value, page in held)


def test_what_is_kept_while_idle_is_bounded() -> None:
    link = Link()
    pages = [link.page(value, side=1500) for value in range(12)]  # 6.75 MB each
    del pages
    returned = link.received.returned()
    assert len(returned["keep"]) == 4 and len(returned["drop"]) == 8


def test_a_large_bitmap_is_used_once() -> None:
    link = Link()
    bitmap = link.files.take(33 << 20)
    assert bitmap.number is None
    gone = weakref.ref(link.image(bitmap, 3000))
    assert gone() is None and link.received.returned() == {"keep": [], "drop": []}


def test_a_bitmap_that_was_not_sent_is_not_missed() -> None:
    link = Link()
    link.files.put_back(link.files.take(100))
    place = address(link.page(1))
    bitmap = link.files.take(100 * 100 * 3)  # the receiver has it, and is not told now
    link.files.put_back(bitmap)
    assert address(link.page(2)) == place


def test_a_worker_cannot_pass_off_a_page_in_use_or_a_file_too_short() -> None:
    link = Link()
    page = link.page(1)
    for number in (0, 99, None):
        with pytest.raises(BackendError, match="without a page"):
            link.received.image(number, None, (100, 100))
    with pytest.raises(BackendError, match="of another page"):
        link.received.image(0, link.files.take(50_000).file, (100, 100))
    with pytest.raises(BackendError, match="something else"):
        link.received.image(7, channel.memory_file(b"short"), (100, 100))
    unsealed = os.memfd_create("page")
    os.truncate(unsealed, 30_000)
    with pytest.raises(BackendError, match="something else"):
        link.received.image(7, unsealed, (100, 100))
    assert (np.asarray(page) == 1).all()
