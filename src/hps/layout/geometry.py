"""Areas and overlaps of boxes and polygons; pure, in whatever unit the coordinates have.

Boxes are rows (x1, y1, x2, y2); polygons are sequences of (x, y), closed by themselves, in either direction.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]
Points = Sequence[Point]
Boxes = NDArray[np.float64]


def box_areas(boxes: Boxes) -> NDArray[np.float64]:
    """Areas (n,) of boxes (n, 4); 0 for an inverted box."""
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    areas: NDArray[np.float64] = sides[:, 0] * sides[:, 1]
    return areas


def intersections(boxes: Boxes, *, inclusive: bool = False) -> NDArray[np.float64]:
    """Pairwise intersection areas (n, n) of boxes (n, 4).

    inclusive: the last pixel belongs to the box, so each side counts one more (the convention of the NMS).
    """
    extra = 1 if inclusive else 0
    x1, y1, x2, y2 = np.ascontiguousarray(boxes.T)
    # Axis by axis: broadcasting over a last axis of two is several times slower.
    widths = np.minimum(x2[:, None], x2) - np.maximum(x1[:, None], x1) + extra
    heights = np.minimum(y2[:, None], y2) - np.maximum(y1[:, None], y1) + extra
    areas: NDArray[np.float64] = np.maximum(widths, 0) * np.maximum(heights, 0)
    return areas


def smaller_area_ratios(boxes: Boxes) -> NDArray[np.float64]:
    """Pairwise intersection / smaller area (n, n); 0 where a box has no area."""
    areas = box_areas(boxes)
    smaller = np.minimum(areas[:, None], areas[None, :])
    shared = intersections(boxes)
    return np.divide(shared, smaller, out=np.zeros_like(shared), where=smaller > 0)


def box_corners(box: Sequence[float]) -> tuple[Point, Point, Point, Point]:
    """The box as a polygon: top left, top right, bottom right, bottom left."""
    x1, y1, x2, y2 = (float(value) for value in box)
    return (x1, y1), (x2, y1), (x2, y2), (x1, y2)


def signed_area(polygon: Points) -> float:
    """Shoelace area: positive when the points run clockwise on the screen (y grows downwards)."""
    if len(polygon) < 3:
        return 0.0
    total = 0.0
    x0, y0 = polygon[-1]
    for x1, y1 in polygon:
        total += x0 * y1 - x1 * y0
        x0, y0 = x1, y1
    return total / 2


def polygon_area(polygon: Points) -> float:
    return abs(signed_area(polygon))


def _cut(polygon: Points, start: Point, end: Point) -> list[Point]:
    """The part of the polygon on the right of the line start → end as seen on the screen (Sutherland-Hodgman)."""
    edge_x, edge_y = end[0] - start[0], end[1] - start[1]
    kept: list[Point] = []
    last = polygon[-1]
    last_side = edge_x * (last[1] - start[1]) - edge_y * (last[0] - start[0])
    for point in polygon:
        side = edge_x * (point[1] - start[1]) - edge_y * (point[0] - start[0])
        if (side >= 0) != (last_side >= 0):
            share = last_side / (last_side - side)
            kept.append((last[0] + share * (point[0] - last[0]), last[1] + share * (point[1] - last[1])))
        if side >= 0:
            kept.append(point)
        last, last_side = point, side
    return kept


def _clipped_area(polygon: Points, convex: Points) -> float:
    """Area of a simple polygon inside a convex one. Bridges that clipping leaves have no area, so concave is fine."""
    window = convex if signed_area(convex) >= 0 else convex[::-1]
    start = window[-1]
    for end in window:
        if len(polygon) < 3:
            return 0.0
        polygon = _cut(polygon, start, end)
        start = end
    return polygon_area(polygon)


def box_overlap(polygon: Points, box: Sequence[float]) -> float:
    """Area of a simple polygon inside a box; quicker than `polygon_intersection`."""
    for axis in (0, 1):
        for limit, sign in ((box[axis], 1), (box[axis + 2], -1)):
            polygon = _cut_at(polygon, axis, limit, sign)
            if len(polygon) < 3:
                return 0.0
    return polygon_area(polygon)


def _cut_at(polygon: Points, axis: int, limit: float, sign: int) -> Points:
    """The part of the polygon on one side of a line across an axis: beyond `limit` for sign 1, before it for -1."""
    sides = [(point[axis] - limit) * sign for point in polygon]
    if min(sides) >= 0:
        return polygon
    kept: list[Point] = []
    last, last_side = polygon[-1], sides[-1]
    for point, side in zip(polygon, sides, strict=True):
        if (side >= 0) != (last_side >= 0):
            share = last_side / (last_side - side)
            kept.append((last[0] + share * (point[0] - last[0]), last[1] + share * (point[1] - last[1])))
        if side >= 0:
            kept.append(point)
        last, last_side = point, side
    return kept


def is_convex(polygon: Points) -> bool:
    """True when every turn has the same direction; collinear points do not matter."""
    turns = set()
    for (x0, y0), (x1, y1), (x2, y2) in zip(
        polygon, [*polygon[1:], polygon[0]], [*polygon[2:], *polygon[:2]], strict=True
    ):
        cross = (x1 - x0) * (y2 - y1) - (y1 - y0) * (x2 - x1)
        if cross:
            turns.add(cross > 0)
    return len(turns) < 2


def _bounds(polygon: Points) -> tuple[float, float, float, float]:
    xs, ys = [point[0] for point in polygon], [point[1] for point in polygon]
    return min(xs), min(ys), max(xs), max(ys)


def polygon_intersection(first: Points, second: Points) -> float:
    """Area shared by two simple polygons, convex or not."""
    if len(first) < 3 or len(second) < 3:
        return 0.0
    ax1, ay1, ax2, ay2 = _bounds(first)
    bx1, by1, bx2, by2 = _bounds(second)
    if min(ax2, bx2) <= max(ax1, bx1) or min(ay2, by2) <= max(ay1, by1):
        return 0.0
    if is_convex(second):
        shared = _clipped_area(first, second)
    elif is_convex(first):
        shared = _clipped_area(second, first)
    else:
        shared = _fan_clipped_area(first, second)
    return min(shared, polygon_area(first), polygon_area(second))


def _fan_clipped_area(first: Points, second: Points) -> float:
    """Both concave: the second is the signed sum of the triangles over its first point, and each triangle is convex."""
    total = 0.0
    for left, right in pairwise(second[1:]):
        triangle = (second[0], left, right)
        direction = signed_area(triangle)
        if direction:
            total += _clipped_area(first, triangle) * (1 if direction > 0 else -1)
    return abs(total)


def polygon_smaller_area_ratio(first: Points, second: Points) -> float:
    """Intersection over the smaller area of two simple polygons; 0 when one has no area."""
    smaller = min(polygon_area(first), polygon_area(second))
    return polygon_intersection(first, second) / smaller if smaller > 0 else 0.0
