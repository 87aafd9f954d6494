"""A document in an anonymous memory file to page bitmaps in others. Runs inside worker processes only."""

import mmap
import os
from typing import Literal, Protocol

from hps.errors import InvalidInput
from hps.inputs.bitmaps import Bitmap, BitmapFiles
from hps.inputs.limits import DecodeLimits
from hps.inputs.pdf import OpenedPdf
from hps.inputs.raster import open_image
from hps.inputs.sources import FileType, decodable_kind

Kind = Literal["image", "pdf", "tiff"]


class Opened(Protocol):
    """A document of which the headers are read. total_pages: of the whole document.
    sizes: (width, height) in pixels of the pages that may be rendered, after EXIF orientation and at render scale."""

    @property
    def kind(self) -> Kind: ...
    @property
    def total_pages(self) -> int: ...
    @property
    def sizes(self) -> tuple[tuple[int, int], ...]: ...

    def render(self, index: int, bitmap: memoryview) -> None:
        """Fills `bitmap`, width * height * 3 bytes, BGR, rows from the top. Raises InvalidInput."""
        ...

    def close(self) -> None: ...


class OpenedFile:
    """An Opened over a memory file, and what keeps that file alive. Closes `file` with itself."""

    def __init__(self, file: int, file_type: FileType, limits: DecodeLimits, max_pages: int | None) -> None:
        self._file = file
        try:
            self._opened = _open(file, file_type, limits, max_pages)
        except BaseException:
            os.close(file)
            raise
        self.kind, self.total_pages, self.sizes = self._opened.kind, self._opened.total_pages, self._opened.sizes

    def render(self, index: int, files: BitmapFiles) -> Bitmap:
        """Page `index` in one of `files`: height * width * 3 bytes, BGR, rows from the top."""
        width, height = self.sizes[index]
        bitmap = files.take(width * height * 3)
        try:
            self._opened.render(index, memoryview(bitmap.memory)[: width * height * 3])
        except BaseException:
            files.put_back(bitmap)
            raise
        return bitmap

    def close(self) -> None:
        self._opened.close()
        del self._opened  # and with it the mapping of the file
        os.close(self._file)


def _open(file: int, file_type: FileType, limits: DecodeLimits, max_pages: int | None) -> Opened:
    size = os.fstat(file).st_size
    if not size:
        raise InvalidInput("The file is empty")
    # Private and never written to: pdfium's wrapper wants a buffer that it could write, and the file is sealed.
    data = mmap.mmap(file, size, flags=mmap.MAP_PRIVATE)
    kind = decodable_kind(memoryview(data), file_type)
    if kind == "PDF":
        return OpenedPdf(data, limits, max_pages)
    # By name, for a position of its own: the descriptor's is shared with every process that holds it.
    return open_image(f"/proc/self/fd/{file}", data, kind, limits, max_pages)
