"""The frozen values that pass between the stages of a page.

Coordinates are pixels of the page as it is parsed (after orientation), origin top left, x to the right, y down;
boxes are (x1, y1, x2, y2) with x2, y2 exclusive. Images are uint8 arrays (height, width, 3) in BGR order.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
IntBox = tuple[int, int, int, int]
Polygon = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """What a layout model says of one page, before any rule of ours.

    rows: float32 (n, 7): class id, score, x1, y1, x2, y2, reading order; page pixels.
    polygons: one float32 (k, 2) array a row, or an empty tuple when the model gives none.
    """

    rows: NDArray[np.float32]
    polygons: tuple[NDArray[np.float32], ...] = ()


@dataclass(frozen=True, slots=True)
class Region:
    """A detected box that passed the layout rules (SPEC C.4), in reading order; `order` counts from 1 or is None."""

    cls_id: int
    label: str
    score: float
    box: IntBox
    order: int | None = None
    polygon: Polygon | None = None


@dataclass(frozen=True, slots=True)
class Spotting:
    """Text lines with their quadrilaterals, answer of the `spotting` prompt (page pixels)."""

    rec_polys: tuple[Polygon, ...] = ()
    rec_texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """A region with its content.

    image_path: name of the picture that belongs to the block ("imgs/img_in_image_box_1_2_3_4.jpg") or None.
    group_id: blocks that were read as one share it; None means "report the position" (SPEC D.2).
    title_level, global_block_id, global_group_id: set by restructuring (SPEC E.5) only.
    """

    label: str
    box: IntBox
    content: str = ""
    group_id: int | None = None
    polygon: Polygon | None = None
    image_path: str | None = None
    title_level: int | None = None
    global_block_id: int | None = None
    global_group_id: int | None = None


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """`model_settings` of prunedResult (SPEC E.4): what shaped the page, echoed to the client."""

    use_doc_preprocessor: bool = False
    use_layout_detection: bool = True
    use_chart_recognition: bool = False
    use_seal_recognition: bool = False
    use_ocr_for_image_block: bool = False
    format_block_content: bool = False
    merge_layout_blocks: bool = True
    markdown_ignore_labels: tuple[str, ...] = (
        "number",
        "footnote",
        "header",
        "header_image",
        "footer",
        "footer_image",
        "aside_text",
    )
    return_layout_polygon_points: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class ParsedPage:
    """One page, finished but not yet rendered.

    regions: all boxes of the layout stage (None when layout detection was off).
    pictures: path → pixels of the pictures that Markdown refers to; arrays, encoded only when they are returned.
    angle: counter-clockwise turn that was applied, -1 when orientation was not classified; None without preprocessing.
    carried: parts of a prunedResult that came from a client and go back as they came ("model_settings",
    "layout_det_res", "doc_preprocessor_res", "spotting_res"); empty for pages that were parsed here.
    """

    width: int
    height: int
    blocks: tuple[Block, ...]
    settings: ModelSettings
    regions: tuple[Region, ...] | None = None
    pictures: dict[str, Image] = field(default_factory=dict)
    spotting: Spotting | None = None
    doc_preprocessor: dict[str, Any] | None = None
    page_count: int | None = None
    carried: dict[str, Any] = field(default_factory=dict)
