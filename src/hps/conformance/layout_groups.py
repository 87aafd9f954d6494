"""Golden groups of the layout stage (SPEC C.4 to C.7)."""

import ast
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from hps.document import Detections, Region
from hps.layout.labels import DEFAULT_MERGE_MODES
from hps.layout.overlap import kept_regions
from hps.layout.polygons import mask_polygon, mask_polygons
from hps.layout.postprocess import LayoutRules, kept_rows, regions

GroupCheck = Callable[[Any], Any]

_MASK_SIDE = 200


def layout_postprocess(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    rules = LayoutRules(
        threshold=_by_class(case.get("th", 0.3)),
        nms=case.get("nms", True),
        unclip=_by_class(case.get("unclip", [1.0, 1.0])),
        merge_modes=_by_class(case.get("mode", DEFAULT_MERGE_MODES)),
        shape_mode=case.get("shape", "auto"),
    )
    return _wire_regions(regions(_detections(case, rules), tuple(case["image_size"]), rules))


def wire_dict_options(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Keys are Python representations: 22 came as an integer, '22' as text. Ours takes both alike (quirk Q2)."""
    names = {"th": "threshold", "mode": "merge_modes", "unclip": "unclip"}
    tables: dict[str, Any] = {
        names[option]: {int(ast.literal_eval(key)): value for key, value in table.items()}
        for option, table in case["options"].items()
    }
    return _wire_regions(regions(_detections(case, LayoutRules()), tuple(case["image_size"]), LayoutRules(**tables)))


def mask_to_polygon(case: Mapping[str, Any]) -> list[list[float]] | None:
    width, height = case["size"]
    mask = np.zeros((height, width), dtype=np.uint8)
    _paint(mask, case["rects"])
    outline = mask_polygon(mask, case["max_allowed_dist"])
    return None if outline is None else outline.tolist()


def filter_overlap(case: Mapping[str, Any]) -> list[int]:
    found = [_region(box["label"], box["coordinate"], box.get("polygon_points")) for box in case["boxes"]]
    return list(kept_regions(found, case["layout_shape_mode"]))


def _by_class(option: Any) -> Any:
    return {int(key): value for key, value in option.items()} if isinstance(option, Mapping) else option


def _region(label: str, box: list[int], points: list[list[float]] | None) -> Region:
    x1, y1, x2, y2 = box
    polygon = None if points is None else tuple((float(x), float(y)) for x, y in points)
    return Region(0, label, 1.0, (x1, y1, x2, y2), polygon=polygon)


def _detections(case: Mapping[str, Any], rules: LayoutRules) -> Detections:
    rows = np.array(case["boxes"], dtype=np.float32)
    if "polys" in case:
        return Detections(rows, tuple(np.array(points, dtype=np.float32) for points in case["polys"]))
    if "mask_rects" not in case:
        return Detections(rows)
    masks = np.zeros((len(rows), _MASK_SIDE, _MASK_SIDE), dtype=np.uint8)
    for mask, rectangles in zip(masks, case["mask_rects"], strict=True):
        _paint(mask, rectangles)
    # The widest box among those that are left is the yardstick of the clean-up, so the rules come first.
    page_size = tuple(case["image_size"])
    kept = kept_rows(rows, page_size, rules)
    polygons = [np.zeros((0, 2), dtype=np.float32)] * len(rows)
    for index, polygon in zip(kept.tolist(), mask_polygons(rows[kept, 2:6], masks[kept], page_size), strict=True):
        polygons[index] = polygon
    return Detections(rows, tuple(polygons))


def _paint(mask: np.ndarray[Any, np.dtype[np.uint8]], rectangles: list[list[int]]) -> None:
    for x1, y1, x2, y2 in rectangles:
        mask[y1:y2, x1:x2] = 1


def _wire_regions(found: tuple[Region, ...]) -> list[dict[str, Any]]:
    items = []
    for region in found:
        item: dict[str, Any] = {
            "cls_id": region.cls_id,
            "label": region.label,
            "score": region.score,
            "coordinate": list(region.box),
            "order": region.order,
        }
        if region.polygon is not None:
            item["polygon_points"] = [list(point) for point in region.polygon]
        items.append(item)
    return items


GROUPS: Final[Mapping[str, GroupCheck]] = {
    "layout_postprocess": layout_postprocess,
    "wire_dict_options": wire_dict_options,
    "mask_to_polygon": mask_to_polygon,
    "filter_overlap": filter_overlap,
}
