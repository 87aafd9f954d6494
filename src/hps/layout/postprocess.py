"""From a layout model's rows to the regions of a page (SPEC C.4), step by step as the reference does it.

Scores and coordinates stay float32, as the models give them: 0.3 must not pass a threshold of 0.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hps.document import Detections, Polygon, Region
from hps.layout.geometry import box_areas, intersections
from hps.layout.labels import CLASS_IDS, DEFAULT_MERGE_MODES, DEFAULT_THRESHOLD, LABELS, UNORDERED_LABELS
from hps.layout.polygons import ShapeMode, shaped_polygons

Rows = NDArray[np.float32]
Indices = NDArray[np.intp]
UnclipRatio = float | Sequence[float]

_CLASS, _SCORE, _BOX, _ORDER, _TIE_BREAK = 0, 1, slice(2, 6), 6, 7

_UNLISTED_THRESHOLD: Final = 0.5  # of a class that a table of thresholds leaves out
_SAME_CLASS_IOU: Final = 0.6
_OTHER_CLASS_IOU: Final = 0.98
_CONTAINED: Final = 0.9
_MAX_UNCLIP: Final = 1e6  # grows any box beyond any page already; more would overflow
_PAGE_SHARE_LANDSCAPE: Final = 0.82
_PAGE_SHARE_PORTRAIT: Final = 0.93


@dataclass(frozen=True, slots=True)
class LayoutRules:
    """How detections become regions; the defaults are those of releases 1.5 and 1.6.

    threshold: a score must be above it; by class id, 0.5 for a class that is not listed.
    nms: whether overlapping boxes are thinned out.
    unclip: factor or (width factor, height factor) by which boxes grow about their centre, or such by class id.
    merge_modes: what happens to a box inside another ("large" keeps the outer, "small" the inner, "union" both), by
        class id or one for all; None or an empty table leaves both.
    shape_mode: which polygon a region carries (SPEC C.6).
    """

    threshold: float | Mapping[int, float] = DEFAULT_THRESHOLD
    nms: bool = True
    unclip: UnclipRatio | Mapping[int, UnclipRatio] = (1.0, 1.0)
    merge_modes: str | Mapping[int, str] | None = field(default_factory=lambda: DEFAULT_MERGE_MODES)
    shape_mode: ShapeMode = "auto"


def regions(detections: Detections, page_size: tuple[int, int], rules: LayoutRules) -> tuple[Region, ...]:
    """The regions of a page of `page_size` (w, h) pixels, in reading order.

    detections.rows may have an eighth column that breaks ties of the order, higher first. Every box lies inside the
    page and has an area; its polygon may reach beyond it.
    """
    kept = kept_rows(detections.rows, page_size, rules)
    rows = detections.rows[kept]
    boxes = np.rint(rows[:, _BOX])
    polygons: list[Polygon | None] = [None] * len(kept)
    if detections.polygons and rules.shape_mode != "rect":
        outlines = [detections.polygons[index] for index in kept.tolist()]
        polygons = shaped_polygons(boxes.tolist(), outlines, rules.shape_mode)
    return _numbered(rows, _within_page(_unclipped(boxes, rows[:, _CLASS], rules.unclip), page_size), polygons)


def kept_rows(rows: Rows, page_size: tuple[int, int], rules: LayoutRules) -> Indices:
    """Indices of the rows that become regions, in reading order (steps 1 to 6 of SPEC C.4)."""
    if not len(rows):
        return np.zeros(0, dtype=np.intp)
    classes = rows[:, _CLASS]
    boxes = np.rint(rows[:, _BOX]).astype(np.float64)
    kept = np.flatnonzero(np.isfinite(rows).all(axis=1) & (classes >= 0) & (classes < len(LABELS)))
    kept = _above_threshold(rows, kept, rules.threshold)
    if rules.nms:
        kept = kept[_not_suppressed(classes[kept], rows[kept, _SCORE], boxes[kept])]
    kept = kept[_not_page_sized(classes[kept], boxes[kept], page_size)]
    if rules.merge_modes:
        kept = kept[_not_merged(classes[kept], boxes[kept], rules.merge_modes)]
    tie_breaks = -rows[kept, _TIE_BREAK] if rows.shape[1] > _TIE_BREAK else np.zeros(len(kept), np.float32)
    in_order: Indices = kept[np.lexsort((tie_breaks, rows[kept, _ORDER]))]
    return in_order


def _above_threshold(rows: Rows, kept: Indices, threshold: float | Mapping[int, float]) -> Indices:
    if not isinstance(threshold, Mapping):
        above: Indices = kept[rows[kept, _SCORE] > np.float32(threshold)]
        return above
    table = np.array([threshold.get(class_id, _UNLISTED_THRESHOLD) for class_id in range(len(LABELS))], np.float32)
    classes = rows[kept, _CLASS].astype(np.intp)
    passed = rows[kept, _SCORE] > table[classes]
    # Class by class, as the reference goes: it decides between equal scores and equal orders.
    by_class: Indices = kept[passed][np.argsort(classes[passed], kind="stable")]
    return by_class


def _not_suppressed(classes: Rows, scores: Rows, boxes: NDArray[np.float64]) -> Indices:
    """Greedy NMS; positions in descending score, of equal scores the later first."""
    order = np.argsort(scores, kind="stable")[::-1]
    boxes, classes = boxes[order], classes[order]
    sides = boxes[:, 2:] - boxes[:, :2] + 1
    areas = sides[:, 0] * sides[:, 1]
    shared = intersections(boxes, inclusive=True)
    unions = areas[:, None] + areas[None, :] - shared
    ious = np.divide(shared, unions, out=np.zeros_like(shared), where=unions > 0)
    clashes = ious >= np.where(classes[:, None] == classes[None, :], _SAME_CLASS_IOU, _OTHER_CLASS_IOU)
    alive = np.ones(len(order), dtype=bool)
    for place in np.flatnonzero(np.triu(clashes, k=1).any(axis=1)).tolist():
        if alive[place]:
            alive[place + 1 :] &= ~clashes[place, place + 1 :]
    selected: Indices = order[alive]
    return selected


def _not_page_sized(classes: Rows, boxes: NDArray[np.float64], page_size: tuple[int, int]) -> Indices:
    """Leaves out images that are the page itself, unless nothing else would be left."""
    everything = np.arange(len(boxes))
    if len(boxes) < 2:
        return everything
    width, height = page_size
    limit = (_PAGE_SHARE_LANDSCAPE if width > height else _PAGE_SHARE_PORTRAIT) * (width * height)
    low = np.maximum(boxes[:, :2], 0)
    sides = np.minimum(boxes[:, 2:], page_size) - low
    kept = np.flatnonzero((classes != CLASS_IDS["image"]) | (sides[:, 0] * sides[:, 1] <= limit))
    return kept if len(kept) else everything


def _not_merged(classes: Rows, boxes: NDArray[np.float64], modes: str | Mapping[int, str]) -> NDArray[np.bool_]:
    """Mask of the boxes that survive the containment filter."""
    areas = box_areas(boxes)
    shares = np.divide(intersections(boxes), areas[:, None], out=np.zeros((len(boxes),) * 2), where=areas[:, None] > 0)
    inside = shares >= _CONTAINED  # [inner, outer]
    np.fill_diagonal(inside, False)
    if isinstance(modes, str):
        contained, contains = inside.any(axis=1), inside.any(axis=0)
        survivors: dict[str, NDArray[np.bool_]] = {"large": ~contained, "small": ~contains | contained}
        return survivors.get(modes, np.ones(len(boxes), dtype=bool))
    large = np.isin(classes, [class_id for class_id, mode in modes.items() if mode == "large"])
    kept: NDArray[np.bool_] = ~inside[:, large].any(axis=1)
    for class_id in (class_id for class_id, mode in modes.items() if mode == "small"):
        inner = (classes == class_id) & inside.any(axis=1)
        kept &= ~inside[inner].any(axis=0) | inner
    return kept


def _unclipped(boxes: Rows, classes: Rows, unclip: UnclipRatio | Mapping[int, UnclipRatio]) -> Rows:
    """Boxes (n, 4) grown about their centres."""
    if isinstance(unclip, Mapping):
        ratios = np.array([_pair(unclip.get(int(class_id), 1.0)) for class_id in classes], np.float32).reshape(-1, 2)
    else:
        ratios = np.array([_pair(unclip)], np.float32)
    if (ratios == 1).all():
        return boxes
    sides = boxes[:, 2:] - boxes[:, :2]
    centres = boxes[:, :2] + sides / 2
    grown = sides * ratios
    return np.concatenate([centres - grown / 2, centres + grown / 2], axis=1)


def _pair(ratio: UnclipRatio) -> tuple[float, float]:
    width_ratio, height_ratio = ratio if isinstance(ratio, Sequence) else (ratio, ratio)
    return min(float(width_ratio), _MAX_UNCLIP), min(float(height_ratio), _MAX_UNCLIP)


def _within_page(boxes: Rows, page_size: tuple[int, int]) -> NDArray[np.int64]:
    """Boxes cut at the page's edges, then truncated to whole pixels."""
    width, height = page_size
    edges = np.array([width, height, width, height], np.float32)
    return np.clip(boxes, 0, edges).astype(np.int64)


def _numbered(rows: Rows, boxes: NDArray[np.int64], polygons: list[Polygon | None]) -> tuple[Region, ...]:
    found: list[Region] = []
    number = 0
    for row, (x1, y1, x2, y2), polygon in zip(rows[:, :2].tolist(), boxes.tolist(), polygons, strict=True):
        if x2 <= x1 or y2 <= y1:
            continue
        class_id = int(row[_CLASS])
        label = LABELS[class_id]
        is_numbered = label not in UNORDERED_LABELS
        number += is_numbered
        found.append(Region(class_id, label, row[_SCORE], (x1, y1, x2, y2), number if is_numbered else None, polygon))
    return tuple(found)
