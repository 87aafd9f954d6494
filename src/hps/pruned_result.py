"""`prunedResult`, the wire form of a parsed page (SPEC E.4), written, and read back for /restructure-pages."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from hps.crops import picture_path
from hps.document import Block, IntBox, ModelSettings, ParsedPage, Polygon, Region, Spotting
from hps.errors import InvalidInput
from hps.markdown import block_contents

# Labels that take no part in the reading order; the page's markdown_ignore_labels join them.
UNORDERED_LABELS = frozenset(
    {
        "figure_title",
        "vision_footnote",
        "image",
        "chart",
        "table",
        "header",
        "header_image",
        "footer",
        "footer_image",
        "footnote",
        "aside_text",
    }
)

_LEADING_HEADING_MARK = re.compile(r"\A#+\s+")
_PIXEL_LIMIT = 2**31  # no page is larger, and sums and squares of what is smaller fit a float
_CARRIED_KEYS = ("model_settings", "spotting_res", "doc_preprocessor_res", "layout_det_res")


def to_dict(page: ParsedPage) -> dict[str, Any]:
    """The page as JSON values; parts that a client sent (`page.carried`) go back as they came."""
    result: dict[str, Any] = {
        "page_count": page.page_count,
        "width": page.width,
        "height": page.height,
        "model_settings": page.carried.get("model_settings", _settings_dict(page.settings)),
        "parsing_res_list": _blocks_list(page),
    }
    return result | optional_parts(page)


def optional_parts(page: ParsedPage) -> dict[str, Any]:
    """The parts that only some pages have: spotting_res, doc_preprocessor_res, layout_det_res."""
    parts: dict[str, Any] = {}
    if page.spotting is not None:
        parts["spotting_res"] = _spotting_dict(page.spotting)
    if page.doc_preprocessor is not None:
        parts["doc_preprocessor_res"] = page.doc_preprocessor
    if page.regions is not None:
        parts["layout_det_res"] = {"boxes": [_region_dict(region) for region in page.regions]}
    for key in _CARRIED_KEYS[1:]:
        if key in page.carried:
            parts[key] = page.carried[key]
    return parts


def parsed_page(pruned: Mapping[str, Any], *, position: int = 0) -> ParsedPage:
    """The page that a client sent back, ready for restructuring.

    Heading marks at the start of contents are removed, as they come back with the rendering; the pictures of images,
    seals and charts get their names again (SPEC E.5). `position` counts the client's pages from 0, for messages.
    Raises InvalidInput that names the page and the key if something is missing or has the wrong type.
    """
    where = f"pages[{position}].prunedResult"
    settings_json = _required(pruned, "model_settings", Mapping, where)
    settings = _settings(settings_json, where, has_layout="layout_det_res" in pruned)
    if settings.use_layout_detection:
        _required(pruned, "layout_det_res", Mapping | list, where)
    items = _required(pruned, "parsing_res_list", list, where)
    return ParsedPage(
        width=_pixels(pruned, "width", where),
        height=_pixels(pruned, "height", where),
        blocks=tuple(_block(item, settings, f"{where}.parsing_res_list[{i}]") for i, item in enumerate(items)),
        settings=settings,
        page_count=_required(pruned, "page_count", int | None, where),
        carried={key: pruned[key] for key in _CARRIED_KEYS if pruned.get(key) is not None},
    )


def _settings_dict(settings: ModelSettings) -> dict[str, Any]:
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return values | {"markdown_ignore_labels": list(settings.markdown_ignore_labels)}


def _blocks_list(page: ParsedPage) -> list[dict[str, Any]]:
    unordered = UNORDERED_LABELS.union(page.settings.markdown_ignore_labels)
    order = 0
    items = []
    for position, (block, content) in enumerate(zip(page.blocks, block_contents(page), strict=True)):
        is_ordered = block.label not in unordered
        order += is_ordered
        item: dict[str, Any] = {
            "block_label": block.label,
            "block_content": content,
            "block_bbox": list(block.box),
            "block_id": position,
            "block_order": order if is_ordered else None,
            "group_id": position if block.group_id is None else block.group_id,
        }
        if block.global_block_id is not None:
            item["global_block_id"] = block.global_block_id
            item["global_group_id"] = block.global_group_id
        if block.polygon is not None:
            item["block_polygon_points"] = _points(block.polygon)
        items.append(item)
    return items


def _spotting_dict(spotting: Spotting) -> dict[str, Any]:
    return {
        "rec_polys": [_points(polygon) for polygon in spotting.rec_polys],
        "rec_texts": list(spotting.rec_texts),
    }


def _region_dict(region: Region) -> dict[str, Any]:
    item: dict[str, Any] = {
        "cls_id": region.cls_id,
        "label": region.label,
        "score": region.score,
        "coordinate": list(region.box),
        "order": region.order,
    }
    if region.polygon is not None:
        item["polygon_points"] = _points(region.polygon)
    return item


def _points(polygon: Polygon) -> list[list[float]]:
    return [list(point) for point in polygon]


def _settings(given: Mapping[str, Any], where: str, *, has_layout: bool) -> ModelSettings:
    """Settings that are absent (older releases had fewer) keep their defaults."""
    values: dict[str, Any] = {"use_layout_detection": has_layout}
    for name in (field.name for field in fields(ModelSettings)):
        value = given.get(name)
        if value is None:
            continue
        if name == "markdown_ignore_labels":
            labels = _required(given, name, list, f"{where}.model_settings")
            if not all(isinstance(label, str) for label in labels):
                raise InvalidInput(f"{where}.model_settings: 'markdown_ignore_labels' must be a list of strings")
            value = tuple(labels)
        elif not isinstance(value, bool):
            raise InvalidInput(f"{where}.model_settings: {name!r} must be a boolean")
        values[name] = value
    return ModelSettings(**values)


def _block(item: Any, settings: ModelSettings, where: str) -> Block:
    if not isinstance(item, Mapping):
        raise InvalidInput(f"{where} must be an object")
    label = _required(item, "block_label", str, where)
    box = _box(_required(item, "block_bbox", list, where), where)
    has_picture = label in ("image", "seal") or (label == "chart" and not settings.use_chart_recognition)
    group_id = item.get("group_id")
    if group_id is not None and (not isinstance(group_id, int) or isinstance(group_id, bool)):
        raise InvalidInput(f"{where}: 'group_id' must be an integer")
    return Block(
        label=label,
        box=box,
        content=_LEADING_HEADING_MARK.sub("", _required(item, "block_content", str, where)),
        group_id=group_id,
        polygon=_polygon(item.get("block_polygon_points"), where),
        image_path=picture_path(label, box) if has_picture else None,
    )


def _pixels(pruned: Mapping[str, Any], key: str, where: str) -> int:
    value: int = _required(pruned, key, int, where)
    if abs(value) >= _PIXEL_LIMIT:
        raise InvalidInput(f"{where}: {key!r} is not a number of pixels")
    return value


def _box(values: list[Any], where: str) -> IntBox:
    if len(values) != 4 or not all(_is_number(value) and abs(value) < _PIXEL_LIMIT for value in values):
        raise InvalidInput(f"{where}: 'block_bbox' must be four numbers of pixels")
    x1, y1, x2, y2 = map(int, values)
    return x1, y1, x2, y2


def _polygon(points: Any, where: str) -> Polygon | None:
    if points is None:
        return None
    is_polygon = isinstance(points, list) and all(
        isinstance(point, list) and len(point) == 2 and all(map(_is_number, point)) for point in points
    )
    if not is_polygon:
        raise InvalidInput(f"{where}: 'block_polygon_points' must be a list of [x, y]")
    return tuple((x, y) for x, y in points)


def _is_number(value: Any) -> bool:
    # Not NaN, not infinite: those have no place in JSON, but Python's reader lets them in.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _required(values: Mapping[str, Any], key: str, kind: Any, where: str) -> Any:
    if key not in values:
        raise InvalidInput(f"{where}: the key {key!r} is missing")
    value = values[key]
    if not isinstance(value, kind) or isinstance(value, bool):  # to Python a boolean is an integer
        raise InvalidInput(f"{where}: the key {key!r} has the wrong type ({type(value).__name__})")
    return value
