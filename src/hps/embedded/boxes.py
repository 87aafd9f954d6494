"""Plain geometry of axis-parallel boxes: float arrays (n, 4) of x1, y1, x2, y2."""

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.float32]


def as_boxes(rows: object) -> Boxes:
    """Anything box-like as float32 (n, 4), also when there is none."""
    return np.asarray(rows, np.float32).reshape(-1, 4)


def areas(boxes: Boxes) -> NDArray[np.float32]:
    sides = np.clip(boxes[:, 2:] - boxes[:, :2], 0, None)
    return np.asarray(sides[:, 0] * sides[:, 1], np.float32)


def intersections(a: Boxes, b: Boxes) -> NDArray[np.float32]:
    """Common area of each pair: (len(a), len(b))."""
    top_left = np.maximum(a[:, None, :2], b[None, :, :2])
    bottom_right = np.minimum(a[:, None, 2:], b[None, :, 2:])
    sides = np.clip(bottom_right - top_left, 0, None)
    return np.asarray(sides[..., 0] * sides[..., 1], np.float32)


def coverage(a: Boxes, b: Boxes) -> NDArray[np.float32]:
    """Share of each a that each b covers: (len(a), len(b)), 0 to 1."""
    return np.asarray(intersections(a, b) / np.maximum(areas(a), 1e-6)[:, None], np.float32)


def union(boxes: Boxes) -> Boxes:
    """The smallest box around all of them, shape (4,). `boxes` must not be empty."""
    return np.concatenate([boxes[:, :2].min(0), boxes[:, 2:].max(0)])
