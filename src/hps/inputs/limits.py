"""What a decoder may spend on one document."""

from collections.abc import Iterable
from dataclasses import dataclass

from hps.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """max_pixels: of one page, counted before it is decoded (SPEC B.1). PDF pages are rendered at `pdf_scale` pixels a
    point (2 = 144 dpi), at less where max_pixels asks for it, never below `pdf_min_scale` (SPEC B.3).
    max_pages, max_document_pixels: of the pages of a document that are to be processed, all together.
    memory_bytes: address space of one worker process, so that a bomb takes down its own worker and nothing else.
    """

    max_pixels: int = 178_956_970
    pdf_scale: float = 2.0
    pdf_min_scale: float = 0.1
    max_pages: int = 2000
    max_document_pixels: int = 20_000_000_000
    memory_bytes: int = 4 << 30

    def check_pages(self, pages: int, what: str) -> None:
        """Raises InvalidInput. Before anything is done for each of them."""
        if pages > self.max_pages:
            raise InvalidInput(f"{what} has too many pages: {pages} exceeds the limit of {self.max_pages}")

    def checked_sizes(self, sizes: Iterable[tuple[int, int]], what: str) -> tuple[tuple[int, int], ...]:
        """The sizes of all pages. Raises InvalidInput as soon as they are too large together."""
        checked = []
        total = 0
        for width, height in sizes:
            total += width * height
            if total > self.max_document_pixels:
                limit = self.max_document_pixels
                raise InvalidInput(f"{what} has too many pixels on its pages together: more than {limit}")
            checked.append((width, height))
        return tuple(checked)
