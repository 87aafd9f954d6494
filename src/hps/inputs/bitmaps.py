"""The memory files in which bitmaps travel from a worker process, used again page after page.

The kernel clears fresh memory piece by piece, in the worker that fills it and again in the process that maps it: for a
page at 150 dpi that takes half as long as decoding it. So both ends keep the files mapped. The receiving end says with
its next message which ones nobody looks at any more; the worker then fills them again, or lets them go.
"""

import errno
import fcntl
import itertools
import mmap
import os
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from hps.document import Image
from hps.errors import BackendError

_LARGEST_KEPT: Final = 32 << 20  # a page of A4 at 300 dpi takes 26 MB; larger ones are not used again
_IDLE_BYTES: Final = 32 << 20  # kept for each worker while nothing is in work
_ROUNDING: Final = 1 << 20  # so that pages of nearly the same size use the same files
_FIXED_SIZE: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


# --- in the worker ---


@dataclass(slots=True, eq=False)
class Bitmap:
    """memory: to be filled from its start. number: names the file in messages; None: it is used only once.
    file: its descriptor, to be sent along; None when the receiver has it already."""

    memory: mmap.mmap
    number: int | None
    file: int | None

    def close_file(self) -> None:
        """The memory stays."""
        if self.file is not None:
            os.close(self.file)
            self.file = None


class BitmapFiles:
    """The files of one worker process."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._in_use: dict[int, Bitmap] = {}
        self._idle: list[Bitmap] = []

    def take(self, size: int) -> Bitmap:
        """At least `size` bytes, with whatever they held before. Raises MemoryError."""
        fitting = [each for each in self._idle if size <= len(each.memory) <= max(2 * size, _ROUNDING)]
        if fitting:
            bitmap = min(fitting, key=lambda each: len(each.memory))
            self._idle.remove(bitmap)
        elif size > _LARGEST_KEPT:
            return self._new(size, None)
        else:
            bitmap = self._new(-(-size // _ROUNDING) * _ROUNDING, next(self._numbers))
        assert bitmap.number is not None
        self._in_use[bitmap.number] = bitmap
        return bitmap

    def put_back(self, bitmap: Bitmap) -> None:
        """A bitmap that is not sent after all. The receiver keeps those that it has."""
        if bitmap.number is not None:
            self.returned([bitmap.number], keep=bitmap.file is None)
        bitmap.close_file()

    def returned(self, numbers: list[int], *, keep: bool) -> None:
        """Nobody looks at these bitmaps any more. keep: for the pages to come."""
        done = [self._in_use.pop(number) for number in numbers]
        if keep:
            self._idle += done

    def _new(self, size: int, number: int | None) -> Bitmap:
        file = os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(file, size)
            # It can no longer change its size, so that whoever maps it is safe from this process.
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _FIXED_SIZE)
            memory = mmap.mmap(file, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        except BaseException as error:
            os.close(file)
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise MemoryError from error
            raise
        return Bitmap(memory, number, file)


# --- at the receiving end ---


class ReceivedBitmaps:
    """What one worker process has sent. Images may be dropped on any thread; the methods are called one at a time."""

    def __init__(self) -> None:
        self._memory: dict[int, mmap.mmap] = {}
        self._idle: set[int] = set()
        self._dropped: deque[int] = deque()

    def image(self, number: int | None, file: int | None, size: tuple[int, int]) -> Image:
        """The page of (width, height) as BGR uint8 (height, width, 3), a writable array over the file itself, whose
        memory is used again when no view of it is left. Consumes `file`.

        Raises BackendError when that is not a bitmap of the size, or one that is still looked at.
        """
        width, height = size
        length = width * height * 3
        if file is None:
            if number not in self._idle or len(self._memory[number]) < length:
                raise BackendError("a decoder answered without a page")
            memory = self._memory[number]
            self._idle.remove(number)
        else:
            memory = _mapped(file, length)
            if number in self._memory:
                raise BackendError("a decoder answered with a file of another page")
            if number is not None:
                self._memory[number] = memory
        pixels = np.frombuffer(memory, np.uint8, length)
        if number is not None:
            # Every view refers to this array, so it lives as long as any of them.
            weakref.finalize(pixels, self._dropped.append, number).atexit = False
        return pixels.reshape(height, width, 3)

    def returned(self) -> dict[str, list[int]]:
        """For the next message to the worker: what nobody looks at any more, to be kept or let go."""
        answer: dict[str, list[int]] = {"keep": [], "drop": []}
        room = _IDLE_BYTES - sum(len(self._memory[number]) for number in self._idle)
        while self._dropped:
            number = self._dropped.popleft()
            room -= len(self._memory[number])
            if room >= 0:
                self._idle.add(number)
                answer["keep"].append(number)
            else:
                del self._memory[number]
                answer["drop"].append(number)
        return answer


def _mapped(file: int, length: int) -> mmap.mmap:
    try:
        # A file that could shrink would let a captured decoder crash us with SIGBUS.
        is_sealed = fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
        size = os.fstat(file).st_size
        if size < length or not is_sealed:
            raise BackendError("a decoder answered with something else than the page")
        # Shared: a private writable mapping would copy every page on populate.
        return mmap.mmap(file, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    finally:
        os.close(file)
