"""Golden groups of the recognition stage: crops, merging, prompts, requests to the VLM (SPEC D.1 to D.5)."""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

import cv2
import numpy as np

from hps import crops, recognition, text_cleanup
from hps.conformance import image_spec
from hps.document import Image, IntBox, Region
from hps.layout.labels import CLASS_IDS
from hps.vlm import requests as vlm_requests

_VLM_ANSWER: Final = "T"
# The reference's predictor alone; its pipeline always fills in 4096.
_PREDICTOR_MAX_TOKENS: Final = 8192
_EXTRA_BODY: Final = ("skip_special_tokens", "repetition_penalty", "mm_processor_kwargs")
_OPTION_NAMES: Final = frozenset(option.name for option in fields(recognition.RecognitionOptions))


def block_merging(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks = case["blocks"]
    boxes = [_int_box(block["box"]) for block in blocks]
    images = [np.zeros((y2 - y1, x2 - x1, 3), np.uint8) for x1, y1, x2, y2 in boxes]
    placed = crops.merge_blocks([block["label"] for block in blocks], boxes, frozenset(case["non_merge_labels"]))
    items = []
    for merged in placed:
        image = None
        if merged.members:
            image = crops.stacked([images[member] for member in merged.members], merged.alignments)
        is_first = image is not None and merged.group is not None
        items.append(
            {
                "index": merged.index,
                "group_id": merged.group,
                "image_hw": None if image is None else list(image.shape[:2]),
                "merge_aligns": list(merged.alignments) if is_first else None,
            }
        )
    return items


def crop_pixels(case: Mapping[str, Any]) -> dict[str, Any]:
    page = image_spec.image(case["image"])
    operation = case.get("op")
    if operation == "crop_margin":
        trimmed = crops.trimmed_margins(page)
        return {"shape_hwc": list(trimmed.shape), "sha256": image_spec.image_hash(trimmed)}
    if operation == "spotting_upscale":
        return {"shape_hwc": list(crops.enlarged_for_spotting(page).shape)}
    points = None if case["mode"] == "rect" else case["polygon"]
    polygon = None if points is None else tuple((float(x), float(y)) for x, y in points)
    cut = crops.crop(page, _int_box(case["box"]), polygon)
    return {
        "shape_hwc": list(cut.shape),
        "sha256": image_spec.image_hash(cut),
        "white_pixels": int((cut == 255).all(axis=2).sum()),
        "has_polygon": polygon is not None,
    }


def crop_and_prompt(case: Mapping[str, Any]) -> dict[str, Any]:
    page = image_spec.image(case["image"])
    plan = recognition.plan(page, [_region(box) for box in case["boxes"]], _options(case))
    contents = {
        task.block_index: text_cleanup.clean(
            plan.blocks[task.block_index].label, _VLM_ANSWER, (plan.width, plan.height)
        ).content
        for task in plan.tasks
    }
    return {
        "vlm_calls": _calls(plan.tasks),
        "blocks": [
            {
                "label": block.label,
                "bbox": list(block.box),
                "content": block.content,
                "group_id": block.group_id,
                "image_path": block.image_path,
            }
            for block in recognition.finish(plan, contents)
        ],
    }


def genai_request(case: Mapping[str, Any]) -> dict[str, Any]:
    dialect = vlm_requests.DIALECTS[case["backend"]]
    max_tokens = case["max_new_tokens"]
    sampling = recognition.Sampling(
        temperature=case["temperature"],
        top_p=case["top_p"],
        repetition_penalty=case["repetition_penalty"],
        max_tokens=_PREDICTOR_MAX_TOKENS if max_tokens is None else max_tokens,
        skip_special_tokens=case["skip_special_tokens"],
    )
    budget = case["min_pixels"], case["max_pixels"]
    task = recognition.VlmTask(0, "ocr", recognition.PROMPTS["ocr"], _solid(case["image"]), *budget, sampling)
    body = vlm_requests.chat_request(task, case["model"], vlm_requests.image_data_url(task.image, dialect), dialect)
    messages = body.pop("messages")
    reference = messages[0]["content"][0]["image_url"]
    head, _, payload = reference["url"].partition(",")
    reference["url"] = f"{head},<...>"
    pixels = cv2.imdecode(np.frombuffer(base64.b64decode(payload), np.uint8), cv2.IMREAD_COLOR)
    del body["model"]
    extra_body = {name: body.pop(name) for name in _EXTRA_BODY if name in body}
    return {
        "messages": messages,
        "kwargs": {**body, "extra_body": extra_body},
        "decoded_bgr_first_pixel": pixels[0, 0].tolist(),
        "decoded_wh": [pixels.shape[1], pixels.shape[0]],
    }


def vlm_smart_resize(case: Mapping[str, Any]) -> list[int]:
    return list(crops.smart_resize(case["h"], case["w"], case["min_pixels"], case["max_pixels"]))


def _calls(tasks: tuple[recognition.VlmTask, ...]) -> list[dict[str, Any]]:
    """Tasks as the reference batches them: one call a pixel budget. Ours are sent one by one."""
    batches: dict[tuple[int, int], list[recognition.VlmTask]] = {}
    for task in tasks:
        batches.setdefault((task.min_pixels, task.max_pixels), []).append(task)
    return [
        {
            "n": len(batch),
            "prompts": [task.prompt for task in batch],
            "image_hw": [list(task.image.shape[:2]) for task in batch],
            "kwargs": {
                "min_pixels": min_pixels,
                "max_pixels": max_pixels,
                "max_new_tokens": batch[0].sampling.max_tokens,
                "temperature": batch[0].sampling.temperature,
                "top_p": batch[0].sampling.top_p,
                "repetition_penalty": batch[0].sampling.repetition_penalty,
                "skip_special_tokens": batch[0].sampling.skip_special_tokens,
                "use_cache": True,  # of the reference's own predictor, which it does not send on
            },
        }
        for (min_pixels, max_pixels), batch in batches.items()
    ]


def _options(case: Mapping[str, Any]) -> recognition.RecognitionOptions:
    values = {**case["options"], **case["vlm_kwargs"]}
    extra = {name: values.pop(name) for name in list(values) if name not in _OPTION_NAMES}
    return recognition.RecognitionOptions(**values, vlm_extra_args=extra)


def _region(item: Mapping[str, Any]) -> Region:
    points = item.get("polygon_points", item.get("polygon"))
    polygon = None if points is None else tuple((float(x), float(y)) for x, y in points)
    return Region(CLASS_IDS.get(item["label"], 0), item["label"], 1.0, _int_box(item["box"]), polygon=polygon)


def _int_box(values: list[float]) -> IntBox:
    x1, y1, x2, y2 = map(int, values)
    return x1, y1, x2, y2


def _solid(description: str) -> Image:
    """ "30x20 solid blue BGR(200,0,0)": width x height and the colour of every pixel."""
    width, height, *colour = map(int, re.findall(r"\d+", description))
    return np.full((height, width, 3), colour, np.uint8)


GROUPS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "block_merging": block_merging,
    "crop_pixels": crop_pixels,
    "crop_and_prompt": crop_and_prompt,
    "genai_request": genai_request,
    "vlm_smart_resize": vlm_smart_resize,
}
