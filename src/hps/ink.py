"""Whether a page has anything on it. Pure.

Archives are full of empty backs. Such a page needs no VLM; but a page with one number on it is not such a page, so the
rule errs on the side of ink.
"""

import cv2
import numpy as np

from hps.document import Image

# A sampled row that differs so much within itself is print.
_PLAIN_CONTRAST = 96
_SAMPLE_STEP = 16
# Ink differs by so many grey levels from the paper around it. Show-through of the other side stays below.
_INK_CONTRAST = 32
_PAPER_WINDOW = 51
# A full stop of 6 points at 144 dpi has about 6 pixels once the median has shaved it; grain and dust leave fewer.
_INK_PIXELS = 6
_STRIP_PIXELS = 4 << 20


def is_printed(page: Image) -> bool:
    """True when a few rows of the page (BGR) show print: so it is with nearly every page, and quickly told. False says
    nothing yet."""
    sample = np.ascontiguousarray(page[::_SAMPLE_STEP, :, 1])
    return bool(np.ptp(sample, axis=1).max() > _PLAIN_CONTRAST) and _ink_pixels(sample) >= _INK_PIXELS


def is_blank(page: Image) -> bool:
    """True when the page (BGR) carries no mark larger than a speck, whatever the colour and shading of the paper."""
    if is_printed(page):
        return False
    # In strips, so that the greys of a huge page are never there at once; each with its surroundings.
    height, width = page.shape[:2]
    rows = max(_PAPER_WINDOW, _STRIP_PIXELS // width)
    found = 0
    for top in range(0, height, rows):
        first, last = max(0, top - _PAPER_WINDOW), min(height, top + rows + _PAPER_WINDOW)
        found += _ink_pixels(page[first:last], slice(top - first, top - first + rows))
        if found >= _INK_PIXELS:
            return False
    return True


def _ink_pixels(part: Image, rows: slice = slice(None)) -> int:
    """How many pixels of these rows are ink. A median drops single specks; what is left is compared with the paper
    around it, not with white."""
    if np.ptp(part) <= _INK_CONTRAST:  # an empty page, as printed to a file, takes no more than this
        return 0
    grey = part if part.ndim == 2 else cv2.cvtColor(part, cv2.COLOR_BGR2GRAY)
    grey = cv2.medianBlur(np.ascontiguousarray(grey), 3)
    paper = cv2.blur(grey, (_PAPER_WINDOW, _PAPER_WINDOW))
    return int(np.count_nonzero(cv2.absdiff(grey, paper)[rows] > _INK_CONTRAST))
