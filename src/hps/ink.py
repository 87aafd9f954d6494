"""Whether a page has anything on it. Pure.

Archives are full of empty backs. Such a page needs no VLM; but a page with one number on it is not such a page, so the
rule errs on the side of ink.
"""

import cv2
import numpy as np

from hps.document import Image

# A sampled row that differs so much within itself is print; nearly every page is decided here.
_PLAIN_CONTRAST = 96
_SAMPLE_STEP = 16
# Ink differs by so many grey levels from the paper around it. Show-through of the other side stays below.
_INK_CONTRAST = 32
_PAPER_WINDOW = 51
# A full stop of 6 points at 144 dpi has about 6 pixels once the median has shaved it; grain and dust leave fewer.
_INK_PIXELS = 6


def is_blank(page: Image) -> bool:
    """True when the page (BGR) carries no mark larger than a speck, whatever the colour and shading of the paper."""
    sample = page[::_SAMPLE_STEP, :, 1]
    if np.ptp(sample, axis=1).max() > _PLAIN_CONTRAST and _has_ink(sample):
        return False
    return not _has_ink(page)


def _has_ink(page: Image) -> bool:
    """A median drops single specks; what is left is compared with the paper around it, not with white."""
    grey = page if page.ndim == 2 else cv2.cvtColor(page, cv2.COLOR_BGR2GRAY)
    grey = cv2.medianBlur(np.ascontiguousarray(grey), 3)
    paper = cv2.blur(grey, (_PAPER_WINDOW, _PAPER_WINDOW))
    return int(np.count_nonzero(cv2.absdiff(grey, paper) > _INK_CONTRAST)) >= _INK_PIXELS
