"""Outlines of regions: from instance masks (SPEC C.5), and the shape that is reported for them (SPEC C.6)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from hps.document import Polygon
from hps.layout.geometry import box_corners, box_overlap, polygon_area, signed_area

Coordinates = NDArray[np.floating[Any]]
ShapeMode = Literal["rect", "quad", "poly", "auto"]
SHAPE_MODES: Final[tuple[ShapeMode, ...]] = get_args(ShapeMode)

_SIMPLIFY_SHARE: Final = 0.004  # of the perimeter
_WIDE_SHARE: Final = 0.6  # of the widest box: from here on a box is measured by its own width
_GAP_SHARE: Final = 0.3  # of that width: the longest side that clean-up may create
_OPEN_ANGLE: Final = 120.0  # degrees; flatter concave corners are part of the outline
_SPIKE_ANGLE: Final = 45.0  # degrees, +-1

_RECT_LIKE: Final = 0.95
_QUAD_LIKE: Final = 0.8
_PREVIOUS_OVERLAP: Final = 0.01


# ---- masks → polygons (C.5) ----


def mask_polygons(
    boxes: Coordinates, masks: NDArray[np.generic], page_size: tuple[int, int]
) -> tuple[NDArray[np.float32], ...]:
    """One outline (k, 2) a box, page pixels.

    boxes: (n, 4) page pixels, rounded here half to even. masks: (n, rows, columns) over the whole page at the model's
    own resolution, non-zero inside. page_size: (w, h). A box whose mask is empty gets its rectangle.
    """
    if not len(boxes):
        return ()
    rounded = np.rint(np.asarray(boxes, dtype=np.float64)).astype(np.int64)
    widest = int((rounded[:, 2] - rounded[:, 0]).max())
    rows, columns = masks.shape[1:]
    in_mask = np.rint(rounded * np.array([columns, rows] * 2) / np.array(page_size * 2))
    in_mask = np.clip(in_mask, 0, [columns, rows, columns, rows]).astype(np.int64)
    outlines = []
    for box, (left, top, right, bottom), mask in zip(rounded.tolist(), in_mask.tolist(), masks, strict=True):
        width = box[2] - box[0]
        reference = width if width > widest * _WIDE_SHARE else widest
        outlines.append(_outline_in_box(box, mask[top:bottom, left:right], reference))
    return tuple(outlines)


def _outline_in_box(box: Sequence[int], part: NDArray[np.generic], max_distance: float) -> NDArray[np.float32]:
    """part: what of the mask lies in the box."""
    x1, y1, x2, y2 = box
    if x2 > x1 and y2 > y1 and part.any():
        inside = part if part.dtype == np.uint8 else (part != 0).astype(np.uint8)
        outline = mask_polygon(cv2.resize(inside, (x2 - x1, y2 - y1), interpolation=cv2.INTER_NEAREST), max_distance)
        if outline is not None:
            shifted: NDArray[np.float32] = (outline + np.array((x1, y1))).astype(np.float32)
            return shifted
    return np.asarray(box_corners(box), dtype=np.float32)


def mask_polygon(mask: NDArray[np.uint8], max_distance: float) -> NDArray[np.float64] | None:
    """Cleaned outline (k, 2) of the largest blob of a uint8 mask (h, w), in its pixels; None for an empty mask.

    max_distance: D of SPEC C.5, the width by which gaps between corners are judged.
    """
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    if not contours:
        return None
    contour = max(contours, key=cv2.contourArea)
    simple = cv2.approxPolyDP(contour, _SIMPLIFY_SHARE * cv2.arcLength(contour, True), True)
    return np.array(_without_dents(simple.reshape(-1, 2).tolist(), max_distance), dtype=np.float64).reshape(-1, 2)


def _without_dents(outline: list[list[int]], max_distance: float) -> list[tuple[float, float]]:
    """Drops single dents, keeps flat double ones, bridges long gaps, blunts spikes (the clean-up of SPEC C.5).

    In plain numbers: an outline has a handful of corners, for which arrays cost more than they save.
    """
    corners = [_corner(outline[i - 1], outline[i], outline[(i + 1) % len(outline)]) for i in range(len(outline))]
    convex = [corner.is_convex for corner in corners]
    count = len(outline)
    kept = []
    for i, corner in enumerate(corners):
        in_run = count > 1 and not (convex[i - 1] and convex[(i + 1) % count])
        if corner.is_convex or (in_run and corner.angle >= _OPEN_ANGLE):
            kept.append(i)
    points: list[tuple[float, float]] = []
    for i in sorted(_with_bridges(outline, kept, max_distance * _GAP_SHARE)):
        x, y = outline[i]
        shift_x, shift_y = corners[i].blunting() if convex[i] else (0.0, 0.0)
        points.append((x + shift_x, y + shift_y))
    return points


@dataclass(frozen=True, slots=True)
class _Corner:
    """A corner of an outline: the vectors from it to the corner before and the one after, their lengths and angle."""

    previous: tuple[int, int]
    following: tuple[int, int]
    lengths: tuple[float, float]
    angle: float

    @property
    def is_convex(self) -> bool:
        return -self.previous[0] * self.following[1] + self.previous[1] * self.following[0] < 0

    def blunting(self) -> tuple[float, float]:
        """How far a spike is pushed inward; nothing for other corners."""
        if abs(self.angle - _SPIKE_ANGLE) >= 1:
            return 0.0, 0.0
        inward = [p / self.lengths[0] + f / self.lengths[1] for p, f in zip(self.previous, self.following, strict=True)]
        depth = sum(self.lengths) / 2 / math.hypot(*inward)
        return inward[0] * depth, inward[1] * depth


def _corner(before: Sequence[int], corner: Sequence[int], after: Sequence[int]) -> _Corner:
    previous = (before[0] - corner[0], before[1] - corner[1])
    following = (after[0] - corner[0], after[1] - corner[1])
    lengths = (math.hypot(*previous), math.hypot(*following))
    span = lengths[0] * lengths[1]
    cosine = (previous[0] * following[0] + previous[1] * following[1]) / span if span > 0 else 1.0
    return _Corner(previous, following, lengths, math.degrees(math.acos(min(max(cosine, -1.0), 1.0))))


def _with_bridges(outline: list[list[int]], kept: list[int], longest: float) -> set[int]:
    """The kept corners and, where two neighbours are farther apart than `longest`, dropped ones between them."""
    chosen = set(kept)
    count = len(outline)
    if len(kept) == count or longest <= 0:
        return chosen
    for corner, following in zip(kept, kept[1:] + kept[:1], strict=True):
        distance = math.dist(outline[corner], outline[following])
        if distance <= longest:
            continue
        between = [(corner + step) % count for step in range(1, (following - corner) % count or count)]
        needed = math.ceil(distance / longest) - 1
        if len(between) > needed:
            stride = len(between) / needed
            between = [between[int(place * stride)] for place in range(needed)]
        chosen.update(between)
    return chosen


# ---- the reported shape (C.6) ----


def shaped_polygons(
    boxes: Sequence[Sequence[float]], polygons: Sequence[Coordinates | None], mode: ShapeMode
) -> list[Polygon | None]:
    """The polygon to report for each box; Nones in rect mode.

    boxes: (n, 4) in reading order, for `auto` looks at the box before. polygons: the model's outline of each box; one
    that is missing or has fewer than four points counts as the rectangle.
    """
    if mode == "rect":
        return [None] * len(boxes)
    shapes: list[Polygon | None] = []
    previous: Polygon | None = None
    for box, outline in zip(boxes, polygons, strict=True):
        previous = _shape(box, outline, mode, previous)
        shapes.append(previous)
    return shapes


def _shape(box: Sequence[float], outline: Coordinates | None, mode: ShapeMode, previous: Polygon | None) -> Polygon:
    rectangle = box_corners(box)
    if outline is None or len(outline) < 4:
        return rectangle
    polygon: Polygon = tuple(map(tuple, np.asarray(outline, dtype=np.float64).tolist()))
    if mode == "poly":
        return polygon
    if mode == "auto" and polygon == rectangle:  # the common case, decided without any geometry
        return rectangle
    quad = quadrilateral(outline)
    if mode == "quad":
        return quad
    box_area, quad_area = polygon_area(rectangle), polygon_area(quad)
    shared = box_overlap(quad, box)
    if shared >= _RECT_LIKE * (box_area + quad_area - shared):
        return rectangle
    # The quadrilateral contains the polygon, so that their IoU is the ratio of their areas.
    if polygon_area(polygon) >= _QUAD_LIKE * quad_area and _is_clear(previous, box, box_area):
        return quad
    return polygon


def _is_clear(previous: Polygon | None, box: Sequence[float], box_area: float) -> bool:
    """Whether the polygon before leaves the box alone."""
    if previous is None:
        return True
    smaller = min(polygon_area(previous), box_area)
    return smaller <= 0 or box_overlap(previous, box) < _PREVIOUS_OVERLAP * smaller


def quadrilateral(outline: Coordinates) -> Polygon:
    """Minimum-area rectangle of the points: ordered by angle about its centre, the corner nearest the origin first."""
    corners = cv2.boxPoints(cv2.minAreaRect(np.ascontiguousarray(outline, dtype=np.float32)))
    points: list[tuple[float, float]] = [(x, y) for x, y in corners.tolist()]
    if signed_area(points) < 0:
        points.reverse()
        corners = corners[::-1]
    sums: list[float] = corners.sum(axis=1).tolist()
    nearest = min(sums)
    first = sums.index(nearest)
    if sums.count(nearest) > 1:  # an edge at 45 degrees: the angle about the centre decides
        x0, y0 = sum(x for x, _ in points) / 4, sum(y for _, y in points) / 4
        tied = [place for place in range(4) if sums[place] == nearest]
        first = min(tied, key=lambda place: math.atan2(points[place][1] - y0, points[place][0] - x0))
    return tuple(points[first:] + points[:first])
