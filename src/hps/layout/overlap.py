"""The second overlap filter, between layout and recognition (SPEC C.7)."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from hps.document import Region
from hps.layout.geometry import box_areas, polygon_smaller_area_ratio, smaller_area_ratios
from hps.layout.polygons import ShapeMode

_SMALLEST_SIDE: Final = 6  # px
_FORMULA_OVERLAP: Final = 0.5
_OVERLAP: Final = 0.7
_NEVER_READ: Final = "reference"  # its content comes region by region as reference_content
_FORMULA: Final = "inline_formula"  # is read as part of the text around it
_PICTURE_LIKE: Final = frozenset({"image", "table", "seal", "chart"})


def kept_regions(regions: Sequence[Region], shape_mode: ShapeMode = "auto") -> tuple[int, ...]:
    """Positions of the regions that are recognised, ascending; the answer still lists all of them.

    regions: in reading order. shape_mode: outside `rect`, polygons get a say where boxes overlap.
    """
    candidates = [index for index, region in enumerate(regions) if region.label != _NEVER_READ]
    if not candidates:
        return ()
    boxes = np.array([regions[index].box for index in candidates], dtype=np.float64)
    ratios = smaller_area_ratios(boxes)
    areas = box_areas(boxes)
    too_small = ((boxes[:, 2:] - boxes[:, :2]) < _SMALLEST_SIDE).any(axis=1)
    rivals = np.triu(ratios > _FORMULA_OVERLAP, k=1)
    dropped: set[int] = set()
    # Row by row: a tiny box is dropped when its own turn comes, so it still counts against the boxes before it.
    for first in np.flatnonzero(too_small | rivals.any(axis=1)).tolist():
        if too_small[first]:
            dropped.add(first)
        for second in np.flatnonzero(rivals[first]).tolist():
            if first in dropped:
                break
            if second not in dropped:
                pair = regions[candidates[first]], regions[candidates[second]]
                loses = _losers(*pair, float(ratios[first, second]), bool(areas[first] >= areas[second]), shape_mode)
                dropped.update(place for place, lost in zip((first, second), loses, strict=True) if lost)
    return tuple(index for place, index in enumerate(candidates) if place not in dropped)


def _losers(
    first: Region, second: Region, ratio: float, first_is_larger: bool, shape_mode: ShapeMode
) -> tuple[bool, bool]:
    """Which of the two goes, for a pair whose boxes share `ratio` > 0.5 of the smaller one."""
    formulas = first.label == _FORMULA, second.label == _FORMULA
    if any(formulas):
        return formulas
    if ratio <= _OVERLAP or _both_are_wanted(first.label, second.label):
        return False, False
    if (
        shape_mode != "rect"
        and first.polygon is not None
        and second.polygon is not None
        and polygon_smaller_area_ratio(first.polygon, second.polygon) < _OVERLAP
    ):
        return False, False
    return not first_is_larger, first_is_larger


def _both_are_wanted(first: str, second: str) -> bool:
    """A picture and something else stay both, except that a table has read what is not picture-like inside it."""
    labels = {first, second}
    if len(labels) == 1 or not labels & _PICTURE_LIKE:
        return False
    return "table" not in labels or labels <= _PICTURE_LIKE
