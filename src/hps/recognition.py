"""What of a page goes to the VLM, with which prompt and budget, and where the answers belong (SPEC D.1 to D.4, E.1).

Pure: regions, pixels and options in; tasks and blocks out. `plan` before the VLM, `finish` after it.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np

from hps import crops
from hps.document import Block, Image, Polygon, Region
from hps.errors import InvalidRequest
from hps.layout.labels import CLASS_IDS
from hps.layout.overlap import kept_regions
from hps.layout.polygons import ShapeMode
from hps.table_pictures import document_pictures, with_tokens
from hps.text_cleanup import TablePicture, with_table_pictures

T = TypeVar("T")

PROMPTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ocr": "OCR:",
        "table": "Table Recognition:",
        "chart": "Chart Recognition:",
        "formula": "Formula Recognition:",
        "seal": "Seal Recognition:",
        "spotting": "Spotting:",
    }
)
# The same with layout detection off: one block over the page bears one of these labels.
PROMPT_LABELS: Final[tuple[str, ...]] = tuple(PROMPTS)

DEFAULT_PIXELS: Final = (112_896, 1_003_520)
SPOTTING_PIXELS: Final = (112_896, 1_605_632)
DEFAULT_MAX_TOKENS: Final = 4096

_NO_PIXELS: Final[Image] = np.zeros((0, 0, 3), np.uint8)
_PICTURE_LABELS: Final = frozenset({"image", "header_image", "footer_image"})

_BUDGETED_TASKS: Final = ("ocr", "table", "chart", "formula", "seal")
_EXTRA_NUMBERS: Final = ("temperature", "top_p", "repetition_penalty")
_EXTRA_INTEGERS: Final = (
    "max_new_tokens",
    "min_pixels",
    "max_pixels",
    *(f"{task}_{bound}_pixels" for task in _BUDGETED_TASKS for bound in ("min", "max")),
)


@dataclass(frozen=True, slots=True)
class RecognitionOptions:
    """What a request says about recognition; None leaves a value to the default, or to the VLM server.

    shape_mode: outside "rect", what is outside a region's polygon is painted white.
    vlm_extra_args: overrides the values above by their own names, and {ocr,table,chart,formula,seal}_{min,max}_pixels.
        Other names are ignored. Raises InvalidRequest for a value of the wrong type.
    """

    use_chart_recognition: bool = False
    use_seal_recognition: bool = False
    use_ocr_for_image_block: bool = False
    merge_layout_blocks: bool = True
    shape_mode: ShapeMode = "auto"
    temperature: float | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    max_new_tokens: int | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None
    vlm_extra_args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_extra_args(self.vlm_extra_args)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the VLM writes; None is left to the server. skip_special_tokens is off where location tokens are wanted."""

    temperature: float | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    skip_special_tokens: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class VlmTask:
    """One request to the VLM: an image (BGR, often a view of the page), a prompt, a pixel budget.

    block_index: place in PagePlan.blocks. kind: key of PROMPTS.
    """

    block_index: int
    kind: str
    prompt: str
    image: Image
    min_pixels: int
    max_pixels: int
    sampling: Sampling


@dataclass(frozen=True, slots=True, eq=False)
class PagePlan:
    """A page of width x height pixels between layout and VLM.

    options: those that hold for this page (`options_for_prompt`). regions: all of the layout stage; None without it.
    blocks: in their final order, still without content; `finish` leaves out those of `swallowed`.
    tasks: in the order of the blocks; blocks without one are pictures or were fused into an earlier block.
    pictures: path → pixels of all pictures that Markdown may show.
    table_pictures: block index of a table → token in its image → path of the picture that the token hides.
    swallowed: indices of picture blocks that a table contains.
    """

    width: int
    height: int
    options: RecognitionOptions
    regions: tuple[Region, ...] | None
    blocks: tuple[Block, ...]
    tasks: tuple[VlmTask, ...]
    pictures: dict[str, Image]
    table_pictures: Mapping[int, Mapping[str, str]]
    swallowed: frozenset[int]


# ---- before the VLM ----


def plan(
    page: Image, regions: Sequence[Region] | None, options: RecognitionOptions, prompt_label: str = "ocr"
) -> PagePlan:
    """Blocks, tasks and pictures of a page (BGR) whose layout stage found `regions`, in reading order.

    regions None: layout detection is off, and the whole page is one block labelled `prompt_label` (one of
    PROMPT_LABELS; else InvalidRequest), with the options of `options_for_prompt`.
    """
    height, width = page.shape[:2]
    if regions is not None:
        return _plan(page, regions, options)
    if prompt_label not in PROMPTS:
        raise InvalidRequest(f"promptLabel must be one of: {', '.join(PROMPT_LABELS)}")
    whole = Region(CLASS_IDS.get(prompt_label, 0), prompt_label, 1.0, (0, 0, width, height))
    return replace(_plan(page, [whole], options_for_prompt(options, prompt_label)), regions=None)


def options_for_prompt(options: RecognitionOptions, prompt_label: str) -> RecognitionOptions:
    """The options that hold without layout detection: asking for a chart or a seal is asking for its recognition."""
    return replace(
        options,
        use_chart_recognition=options.use_chart_recognition or prompt_label == "chart",
        use_seal_recognition=options.use_seal_recognition or prompt_label == "seal",
    )


def _plan(page: Image, regions: Sequence[Region], options: RecognitionOptions) -> PagePlan:
    page_pictures = document_pictures(page, regions)
    kept = [regions[index] for index in kept_regions(regions, options.shape_mode)]
    never_read = _never_read(options)
    images = [crops.crop(page, region.box, _polygon(region, options)) for region in kept]
    placed = _placed(kept, never_read, options)
    blocks = tuple(_block(kept[merged.index], merged, options) for merged in placed)
    tables: dict[int, Mapping[str, str]] = {}
    contained: set[str | None] = set()
    tasks: list[VlmTask] = []
    for index, (block, merged) in enumerate(zip(blocks, placed, strict=True)):
        if block.label in never_read or not merged.members:
            continue
        image = crops.stacked([images[member] for member in merged.members], merged.alignments)
        if block.label == "table":
            table = with_tokens(image, block.box, page_pictures)
            image, tables[index] = table.image, table.tokens
            contained |= table.contained
        tasks.append(_task(index, block.label, image, options))
    pictures = {
        block.image_path: images[merged.index]
        for block, merged in zip(blocks, placed, strict=True)
        if block.image_path is not None
    }
    pictures |= {path: picture.image for path, picture in page_pictures.items()}
    return PagePlan(
        page.shape[1],
        page.shape[0],
        options,
        tuple(regions),
        blocks,
        tuple(tasks),
        {path: crops.kept_beyond_page(picture, page) for path, picture in pictures.items()},
        MappingProxyType(tables),
        frozenset(index for index, block in enumerate(blocks) if block.image_path in contained),
    )


def _never_read(options: RecognitionOptions) -> frozenset[str]:
    """Labels whose blocks stay pictures."""
    labels = set() if options.use_ocr_for_image_block else set(_PICTURE_LABELS)
    if not options.use_chart_recognition:
        labels.add("chart")
    if not options.use_seal_recognition:
        labels.add("seal")
    return frozenset(labels)


def _has_picture(label: str, options: RecognitionOptions) -> bool:
    return label in _PICTURE_LABELS or label == "seal" or (label == "chart" and not options.use_chart_recognition)


def _polygon(region: Region, options: RecognitionOptions) -> Polygon | None:
    return None if options.shape_mode == "rect" else region.polygon


def _placed(
    kept: Sequence[Region], never_read: frozenset[str], options: RecognitionOptions
) -> tuple[crops.MergedBlock, ...]:
    if not options.merge_layout_blocks:
        return tuple(crops.MergedBlock(index, None, (index,)) for index in range(len(kept)))
    labels, boxes = [region.label for region in kept], [region.box for region in kept]
    return crops.merge_blocks(labels, boxes, never_read | {"table"})


def _block(region: Region, merged: crops.MergedBlock, options: RecognitionOptions) -> Block:
    return Block(
        label=region.label,
        box=region.box,
        group_id=merged.group,
        polygon=_polygon(region, options),
        image_path=crops.picture_path(region.label, region.box) if _has_picture(region.label, options) else None,
    )


# ---- tasks ----


def _task(index: int, label: str, image: Image, options: RecognitionOptions) -> VlmTask:
    kind = _kind(label)
    if kind == "formula":
        image = crops.trimmed_formula(image)
    elif kind == "spotting":
        image = crops.enlarged_for_spotting(image)
    min_pixels, max_pixels = _pixel_budget(kind, options)
    sampling = _sampling(options, skip_special_tokens=kind != "spotting")
    return VlmTask(index, kind, PROMPTS[kind], crops.padded_to_aspect(image), min_pixels, max_pixels, sampling)


def _kind(label: str) -> str:
    if label in ("table", "chart", "seal", "spotting"):
        return label
    return "formula" if "formula" in label and label != "formula_number" else "ocr"


def _pixel_budget(kind: str, options: RecognitionOptions) -> tuple[int, int]:
    if kind == "spotting":
        return SPOTTING_PIXELS
    extra = options.vlm_extra_args
    bounds = []
    for bound, asked, default in zip(
        ("min_pixels", "max_pixels"), (options.min_pixels, options.max_pixels), DEFAULT_PIXELS, strict=True
    ):
        choices = (extra.get(f"{kind}_{bound}"), extra.get(bound), asked)
        bounds.append(next((int(value) for value in choices if value is not None), default))
    return bounds[0], bounds[1]


def _sampling(options: RecognitionOptions, *, skip_special_tokens: bool) -> Sampling:
    merged: dict[str, Any] = {
        "temperature": options.temperature,
        "top_p": options.top_p,
        "repetition_penalty": options.repetition_penalty,
        "max_new_tokens": options.max_new_tokens,
    }
    merged |= {name: value for name, value in options.vlm_extra_args.items() if name in merged}
    max_tokens = merged.pop("max_new_tokens")
    return Sampling(
        **merged,
        max_tokens=DEFAULT_MAX_TOKENS if max_tokens is None else int(max_tokens),
        skip_special_tokens=skip_special_tokens,
    )


def _check_extra_args(extra: Mapping[str, Any]) -> None:
    if "skip_special_tokens" in extra:
        raise InvalidRequest("vlmExtraArgs: skip_special_tokens follows from the task and cannot be set")
    for name in (*_EXTRA_NUMBERS, *_EXTRA_INTEGERS):
        value = extra.get(name)
        if value is None:
            continue
        # Compared, not converted: JSON's integers may be too large for a float. Not NaN, not infinite.
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise InvalidRequest(f"vlmExtraArgs: {name} must be a number")
        if name in _EXTRA_INTEGERS and (value != int(value) or value < 1):
            raise InvalidRequest(f"vlmExtraArgs: {name} must be a whole number above 0")
        if value < 0 or (name == "repetition_penalty" and value == 0) or (name == "top_p" and not 0 < value <= 1):
            raise InvalidRequest(f"vlmExtraArgs: {name} is out of range")


def without_pixels(page_plan: PagePlan) -> PagePlan:
    """The plan as `finish` needs it: the page's memory is free when nobody else holds on to it."""
    return replace(page_plan, tasks=(), pictures=dict.fromkeys(page_plan.pictures, _NO_PIXELS))


# ---- after the VLM ----


def by_place(page_plan: PagePlan, of_blocks: Mapping[int, T]) -> dict[int, T]:
    """Block index → value, as place in what `finish` returns → value: swallowed blocks are not there."""
    gone = page_plan.swallowed
    return {
        index - sum(swallowed < index for swallowed in gone): value
        for index, value in sorted(of_blocks.items())
        if index not in gone
    }


def finish(page_plan: PagePlan, contents: Mapping[int, str]) -> tuple[Block, ...]:
    """The page's blocks with their contents.

    contents: block index → cleaned text (`text_cleanup.clean`), for blocks that had a task; others stay empty. Tokens
    in tables become pictures again, followed by the picture's own text, and the blocks of these pictures go.
    """
    texts = {
        block.image_path: contents.get(index, "")
        for index, block in enumerate(page_plan.blocks)
        if block.image_path is not None
    }
    finished = []
    for index, block in enumerate(page_plan.blocks):
        if index in page_plan.swallowed:
            continue
        content = contents.get(index, "")
        tokens = page_plan.table_pictures.get(index)
        if tokens:
            shown = {token: TablePicture(path, texts.get(path, "")) for token, path in tokens.items()}
            content = with_table_pictures(content, shown)
        finished.append(replace(block, content=content))
    return tuple(finished)
