"""PDF pages to BGR bitmaps by pdfium (SPEC B.3). Runs inside worker processes only: pdfium is one lock a process."""

import ctypes
import math
import mmap
from typing import Final

import pypdfium2
import pypdfium2.raw as pdfium

from hps.errors import InvalidInput
from hps.inputs.limits import DecodeLimits

_WHITE: Final = 0xFFFFFFFF
_BISECTION_STEPS: Final = 32
# A PDF ends in "startxref NUMBER %%EOF"; some writers pad what follows.
_TAIL_BYTES: Final = 4096


def pdf_scale(width: float, height: float, limits: DecodeLimits, page_number: int = 1) -> float:
    """Pixels a point at which a page of that many points is rendered: the wanted scale, or the largest that fits."""
    if not (width > 0 and height > 0 and math.isfinite(width) and math.isfinite(height)):
        raise InvalidInput(f"Page {page_number} of the PDF has no valid size")

    def fits(scale: float) -> bool:
        return math.ceil(width * scale) * math.ceil(height * scale) <= limits.max_pixels

    if fits(limits.pdf_scale):
        return limits.pdf_scale
    # Rounding apart, the area alone meets the limit at the square root: no larger scale fits.
    low = min(limits.pdf_min_scale, limits.pdf_scale)
    high = min(math.sqrt(limits.max_pixels / (width * height)), limits.pdf_scale)
    if not fits(low):
        raise InvalidInput(f"Page {page_number} of the PDF is too large: it exceeds {limits.max_pixels} pixels")
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


class OpenedPdf:
    """`data` is a mapping of the whole file; pdfium reads from it until `close`."""

    kind: Final = "pdf"

    def __init__(self, data: mmap.mmap, limits: DecodeLimits, max_pages: int | None) -> None:
        self._data = data  # pdfium holds a bare pointer to it
        self._document = _open(data)
        try:
            self._document.init_forms()
            self.total_pages = len(self._document)
            processed = self.total_pages if max_pages is None else min(self.total_pages, max_pages)
            limits.check_pages(processed, "The PDF")
            self.sizes = limits.checked_sizes((self._size(index, limits) for index in range(processed)), "The PDF")
        except BaseException:
            self.close()
            raise

    def _size(self, index: int, limits: DecodeLimits) -> tuple[int, int]:
        try:
            width, height = self._document.get_page_size(index)
        except pypdfium2.PdfiumError as error:
            raise _cannot_render(index) from error
        scale = pdf_scale(width, height, limits, index + 1)
        return math.ceil(width * scale), math.ceil(height * scale)

    def render(self, index: int, bitmap: memoryview) -> None:
        """Draws page `index`, annotations and forms too, into `bitmap`, which has width * height * 3 bytes."""
        width, height = self.sizes[index]
        try:
            page = self._document[index]
        except pypdfium2.PdfiumError as error:
            raise _cannot_render(index) from error
        pixels = (ctypes.c_ubyte * len(bitmap)).from_buffer(bitmap)
        target = pdfium.FPDFBitmap_CreateEx(width, height, pdfium.FPDFBitmap_BGR, pixels, width * 3)
        if not target:
            page.close()
            raise _cannot_render(index)
        try:
            pdfium.FPDFBitmap_FillRect(target, 0, 0, width, height, _WHITE)
            position = (target, page.raw, 0, 0, width, height, 0, pdfium.FPDF_ANNOT)
            pdfium.FPDF_RenderPageBitmap(*position)
            if self._document.formenv:
                pdfium.FPDF_FFLDraw(self._document.formenv.raw, *position)
        finally:
            pdfium.FPDFBitmap_Destroy(target)
            page.close()

    def close(self) -> None:
        """Of the mapping, the last reference goes with this object."""
        self._document.close()


def _open(data: mmap.mmap) -> pypdfium2.PdfDocument:
    view = (ctypes.c_char * len(data)).from_buffer(data)
    handle = pdfium.FPDF_LoadMemDocument64(view, len(data), None)
    if not handle:
        raise _cannot_open(pdfium.FPDF_GetLastError())
    document = pypdfium2.PdfDocument(handle)
    if not pdfium.FPDF_DocumentHasValidCrossReferenceTable(handle):
        # pdfium then makes up a page index from whatever objects it finds. Where the end is missing as well, pages and
        # their contents are gone, and what is left would pass for the whole.
        if not len(document) or data.rfind(b"%%EOF", -_TAIL_BYTES) < 0:
            document.close()
            raise InvalidInput("The PDF is damaged: its end is missing or its pages cannot be found")
    elif not len(document):
        document.close()
        raise InvalidInput("The PDF has no pages")
    return document


def _cannot_open(code: int) -> InvalidInput:
    if code == pdfium.FPDF_ERR_PASSWORD:
        return InvalidInput("The PDF is encrypted: a password is required")
    if code == pdfium.FPDF_ERR_SECURITY:
        return InvalidInput("The PDF is encrypted in a way that is not supported")
    return InvalidInput("The PDF is damaged and cannot be opened")


def _cannot_render(index: int) -> InvalidInput:
    return InvalidInput(f"Page {index + 1} of the PDF is damaged and cannot be rendered")
