"""Reading order of boxes by recursive XY cut: columns before rows, but only where columns truly stand side by side."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hps.embedded.boxes import Boxes

# Boxes may overlap by this share of the page's extent and still be cut apart.
TOLERANCE = 0.004
# Two groups are columns when they share this much of the shorter one's height. A date on the right above an address
# on the left is not a pair of columns.
MIN_SIDE_BY_SIDE = 0.3
X, Y = 0, 1

Indices = NDArray[np.intp]


def reading_order(boxes: Boxes) -> list[int]:
    """Indices of the boxes in reading order, left to right and top to bottom. A permutation, whatever the input."""
    if not len(boxes):
        return []
    extent = boxes[:, 2:].max(0) - boxes[:, :2].min(0)
    return list(_ordered(boxes, np.arange(len(boxes)), np.maximum(extent * TOLERANCE, 1e-3)))


def _ordered(boxes: Boxes, group: Indices, tolerance: NDArray[np.float32]) -> Iterator[int]:
    if len(group) == 1:
        yield int(group[0])
        return
    columns = _columns(boxes, group, tolerance)
    if columns is not None:
        for part in columns:
            yield from _ordered(boxes, part, tolerance)
        return
    bands = _pieces(boxes, group, Y, tolerance)
    parts = _joined_bands(boxes, bands, tolerance) if len(bands) > 1 else _around_the_widest(boxes, group)
    for band in parts:
        yield from _ordered(boxes, band, tolerance)


def _pieces(boxes: Boxes, group: Indices, axis: int, tolerance: NDArray[np.float32]) -> list[Indices]:
    """The group cut at every gap of its projection on the axis."""
    by_start = group[np.argsort(boxes[group, axis], kind="stable")]
    reach = np.maximum.accumulate(boxes[by_start, axis + 2])
    cuts = np.flatnonzero(boxes[by_start[1:], axis] >= reach[:-1] - tolerance[axis]) + 1
    return np.split(by_start, cuts)


def _columns(boxes: Boxes, group: Indices, tolerance: NDArray[np.float32]) -> tuple[Indices, Indices] | None:
    """The group in two, left and right of its widest gutter between things that stand side by side."""
    pieces = _pieces(boxes, group, X, tolerance)
    best: tuple[float, Indices, Indices] | None = None
    for cut in range(1, len(pieces)):
        left, right = np.concatenate(pieces[:cut]), np.concatenate(pieces[cut:])
        gutter = float(boxes[right, 0].min() - boxes[left, 2].max())
        if (best is None or gutter > best[0]) and _are_side_by_side(boxes, left, right):
            best = (gutter, left, right)
    return (best[1], best[2]) if best else None


def _are_side_by_side(boxes: Boxes, left: Indices, right: Indices) -> bool:
    tops = boxes[left, 1].min(), boxes[right, 1].min()
    bottoms = boxes[left, 3].max(), boxes[right, 3].max()
    shorter = min(bottoms[0] - tops[0], bottoms[1] - tops[1])
    return bool(min(bottoms) - max(tops) > MIN_SIDE_BY_SIDE * shorter)


def _joined_bands(boxes: Boxes, bands: list[Indices], tolerance: NDArray[np.float32]) -> list[Indices]:
    """Neighbouring bands put together again while they share a gutter, so that a column is read to its end.

    Without this a chance gap at the same height in both columns would send the reader to the right too early.
    """
    joined: list[Indices] = []
    start = 0
    while start < len(bands):
        run, end = bands[start], start + 1
        for stop in range(start + 2, len(bands) + 1):
            longer = np.concatenate(bands[start:stop])
            if stop - start == len(bands) or len(_pieces(boxes, longer, X, tolerance)) == 1:
                break
            if _columns(boxes, longer, tolerance) is not None:
                run, end = longer, stop
        joined.append(run)
        start = end
    return joined


def _around_the_widest(boxes: Boxes, group: Indices) -> list[Indices]:
    """No cut is free: what lies above the middle of the widest box, that box, the rest."""
    middles = (boxes[group, 1] + boxes[group, 3]) / 2
    widest = int(np.argmax(boxes[group, 2] - boxes[group, 0]))
    others = np.arange(len(group)) != widest
    above, below = others & (middles < middles[widest]), others & (middles >= middles[widest])
    return [part for part in (group[above], group[[widest]], group[below]) if len(part)]
