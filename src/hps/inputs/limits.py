"""What a decoder may spend on one document."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """max_pixels: of one page, counted before it is decoded (SPEC B.1). PDF pages are rendered at `pdf_scale` pixels a
    point (2 = 144 dpi), at less where max_pixels asks for it, never below `pdf_min_scale` (SPEC B.3).
    memory_bytes: address space of one worker process, so that a bomb takes down its own worker and nothing else.
    """

    max_pixels: int = 178_956_970
    pdf_scale: float = 2.0
    pdf_min_scale: float = 0.1
    memory_bytes: int = 4 << 30
