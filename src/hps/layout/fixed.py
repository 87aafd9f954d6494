"""The layout backend `fixed`: boxes read from a file, the same on every page or on pages of a size; for tests and
benchmarks."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hps.document import Detections
from hps.layout.detector import Finish, finished
from hps.layout.page_inputs import Bounded, Grid, LayoutInput, PageInputs

# The side of the official layout models' input, so that benchmarks move as many bytes as production does.
MAX_SIDE = 800
INPUTS = PageInputs(Bounded(MAX_SIDE))
COLUMNS = 7


@dataclass(frozen=True, slots=True, eq=False)
class FixedLayout:
    """rows: float32 (n, 7), `[class, score, x1, y1, x2, y2, order]` with coordinates as fractions of the page.

    delay_s: time that each page takes, in the place of a model's. by_size: rows for pages of this width and height in
    pixels, in the place of `rows`.
    """

    rows: NDArray[np.float32]
    delay_s: float = 0.0
    by_size: Mapping[tuple[int, int], NDArray[np.float32]] = field(default_factory=dict)
    inputs: PageInputs = INPUTS

    def detect(self, pages: Sequence[LayoutInput]) -> list[Finish]:
        if self.delay_s:
            time.sleep(self.delay_s * len(pages))
        return finished([Detections(self._scaled(page.width, page.height)) for page in pages])

    def orientations(self, pages: Sequence[LayoutInput]) -> list[int]:
        raise NotImplementedError("the same boxes lie on every page, whichever way up")

    def grids(self, pages: Sequence[LayoutInput]) -> list[Grid]:
        raise NotImplementedError("the same boxes lie on every page, flat or not")

    def _scaled(self, width: int, height: int) -> NDArray[np.float32]:
        rows = self.by_size.get((width, height), self.rows).copy()
        rows[:, 2:6] *= np.array([width, height, width, height], np.float32)
        return rows


def load_fixed(path: Path) -> FixedLayout:
    """Reads `{"boxes": [[class, score, x1, y1, x2, y2, order], …], "delay_s": 0.01}`, or the list of boxes alone.

    `"pages": {"1600x2200": [box, …]}` gives pages of that size in pixels boxes of their own; `"tokens"` is for VLM
    stand-ins, which are given the same file. Raises ValueError with the file's name when it is not of that form,
    OSError when it cannot be read.
    """
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    if isinstance(content, list):
        content = {"boxes": content}
    if not isinstance(content, dict) or not {"boxes"} <= set(content) <= {"boxes", "delay_s", "pages", "tokens"}:
        raise ValueError(f'{path}: expected a list of boxes or {{"boxes": […], "delay_s": seconds}}')
    delay_s = content.get("delay_s", 0.0)
    if not _is_number(delay_s) or delay_s < 0:
        raise ValueError(f"{path}: delay_s must be a number of seconds, 0 or more")
    pages = content.get("pages", {})
    if not isinstance(pages, dict):
        raise ValueError(f'{path}: pages must be of the form {{"WIDTHxHEIGHT": [box, …]}}')
    by_size = {_size(name, path): _checked(boxes, path) for name, boxes in pages.items()}
    return FixedLayout(_checked(content["boxes"], path), float(delay_s), by_size)


def _size(name: str, path: Path) -> tuple[int, int]:
    width, _, height = name.partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise ValueError(f"{path}: {name[:20]!r} is not a page's size WIDTHxHEIGHT")
    return int(width), int(height)


def _checked(boxes: object, path: Path) -> NDArray[np.float32]:
    if not isinstance(boxes, list):
        raise ValueError(f"{path}: boxes must be a list")
    for number, row in enumerate(boxes, 1):
        if not isinstance(row, list) or len(row) != COLUMNS or not all(map(_is_number, row)):
            raise ValueError(f"{path}: box {number} must be [class, score, x1, y1, x2, y2, order]")
        x1, y1, x2, y2 = row[2:6]
        if not (0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1):
            raise ValueError(f"{path}: box {number} must lie within the page: fractions with x1 < x2 and y1 < y2")
    return np.array(boxes, np.float32).reshape(-1, COLUMNS)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
