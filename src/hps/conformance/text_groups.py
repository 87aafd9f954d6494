"""Golden groups of the text stage: VLM answers, Markdown, prunedResult, restructuring (SPEC D.6 and E)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from hps import markdown, otsl, pruned_result, restructure, text_cleanup
from hps.document import Block, IntBox, ModelSettings, ParsedPage

PAGE_SIZE: Final = (1000, 1400)

# What the pipeline reads only if it is told to (SPEC D.3): label → option.
_READ_ON_REQUEST: Final = {
    "image": "use_ocr_for_image_block",
    "header_image": "use_ocr_for_image_block",
    "footer_image": "use_ocr_for_image_block",
    "chart": "use_chart_recognition",
    "seal": "use_seal_recognition",
}


def repetition(case: Mapping[str, Any]) -> str:
    return text_cleanup.without_repetition(case["text"], min_chars=case["min_count"])


def vlm_text_postprocess(case: Mapping[str, Any]) -> dict[str, Any]:
    option = _READ_ON_REQUEST.get(case["label"])
    is_read = option is None or case["options"].get(option, False)
    width, height = case["page_size"]
    cleaned = text_cleanup.clean(case["label"], case["raw"] if is_read else None, (width, height))
    page = ParsedPage(width, height, (), ModelSettings(), spotting=cleaned.spotting)
    spotting = pruned_result.optional_parts(page).get("spotting_res", {})
    return {"content": cleaned.content, "spotting_res": spotting}


def block_to_markdown(case: Mapping[str, Any]) -> dict[str, Any]:
    page = ParsedPage(
        width=case["page_width"],
        height=PAGE_SIZE[1],
        blocks=tuple(_block(item) for item in case["blocks"]),
        settings=_settings(case["settings"]),
        pictures={path: np.zeros((1, 1, 3), np.uint8) for path in case["imgs_in_doc"]},
    )
    rendered = markdown.render(page, pretty=case["pretty"], show_formula_number=case["show_formula_number"])
    return {"text": rendered.text, "image_keys": sorted(rendered.image_paths)}


def pruned(case: Mapping[str, Any]) -> dict[str, Any]:
    width, height = PAGE_SIZE
    blocks = tuple(_block(item) for item in case["blocks"])
    return pruned_result.to_dict(ParsedPage(width, height, blocks, _settings(case["settings"]), regions=()))


def restructure_pages(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    sent = [_as_sent(blocks, case["settings"]) for blocks in case["pages"]]
    parsed = [pruned_result.parsed_page(page, position=position) for position, page in enumerate(sent)]
    return [_restructured(page) for page in restructure.pages(parsed, **case["options"])]


def _as_sent(blocks: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A page as a client has it from /layout-parsing."""
    width, height = PAGE_SIZE
    page = pruned_result.to_dict(ParsedPage(width, height, (), _settings(settings), regions=()))
    page["parsing_res_list"] = [
        {
            "block_label": block["label"],
            "block_content": block.get("content", ""),
            "block_bbox": block["bbox"],
            "block_id": position,
            "block_order": position,
            "group_id": position,
        }
        for position, block in enumerate(blocks)
    ]
    return page


def _restructured(page: ParsedPage) -> dict[str, Any]:
    names = ("block_label", "block_content", "block_id", "block_order", "group_id", "global_block_id")
    answer = pruned_result.to_dict(page)
    items = [
        {name: item[name] for name in (*names, "global_group_id")} | {"title_level": block.title_level}
        for item, block in zip(answer["parsing_res_list"], page.blocks, strict=True)
    ]
    return {"blocks": items, "page_count": answer["page_count"], "markdown": markdown.render(page).text}


def _settings(overrides: Mapping[str, Any]) -> ModelSettings:
    values = dict(overrides)
    if "markdown_ignore_labels" in values:
        values["markdown_ignore_labels"] = tuple(values["markdown_ignore_labels"])
    return ModelSettings(**values)


def _block(item: Mapping[str, Any]) -> Block:
    polygon = item.get("polygon")
    return Block(
        label=item["label"],
        box=_int_box(item["bbox"]),
        content=item.get("content", ""),
        group_id=item.get("group_id"),
        polygon=None if polygon is None else tuple((x, y) for x, y in polygon),
        image_path=item.get("image"),
        title_level=item.get("title_level"),
    )


def _int_box(values: Sequence[float]) -> IntBox:
    x1, y1, x2, y2 = map(int, values)
    return x1, y1, x2, y2


GROUPS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "repetition": repetition,
    "otsl_to_html": otsl.to_html,
    "vlm_text_postprocess": vlm_text_postprocess,
    "block_to_markdown": block_to_markdown,
    "pruned_result": pruned,
    "restructure_pages": restructure_pages,
}
