"""Pixels that go to the VLM: crops, fused blocks, table pictures, trimming and enlarging (SPEC D.1 to D.3).

Nothing here copies a page: a crop is a view of it wherever no pixel has to change.
"""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal

import cv2
import numpy as np

from hps.document import Image, IntBox, Polygon
from hps.errors import BackendError, InvalidInput
from hps.scaling import shrunk

Alignment = Literal["left", "right", "center"]

_WHITE: Final = 255
_BLACK: Final = (0, 0, 0)

# Merging (D.2)
_MERGED_LABEL: Final = "text"
_COLUMN_GAP: Final = 0.3  # of the wider block
_LINE_GAP: Final = 0.5  # of the taller block
_EDGE_TOLERANCE: Final = 5  # px
_TALL: Final = 3  # height / width from which a group is not fused

# Preparation (D.3)
_INK: Final = 200  # grey values up to this one, after stretching
_SMALLEST_TRIMMED: Final = 2  # px; a formula trimmed to this or less is taken untrimmed
_ENLARGED_BELOW: Final = 1500  # px
_MAX_ASPECT: Final = 200  # what the VLM's image processor accepts
_RESIZE_FACTOR: Final = 28  # side of one visual token

# Table pictures (D.3)
_FONT: Final = cv2.FONT_HERSHEY_SIMPLEX
_FONT_SCALES: Final = (0.2, 10.0)
_FONT_SCALE_STEP: Final = 0.01
_TOKEN_FILL: Final = 0.9  # of the short side


# ---- crops ----


def crop(page: Image, box: IntBox, polygon: Polygon | None = None) -> Image:
    """The box (inside the page) cut out without margin; what is outside the polygon is white.

    A view of the page when there is no polygon or it is the box itself.
    """
    x1, y1, x2, y2 = box
    cut = page[y1:y2, x1:x2]
    if polygon is None:
        return cut
    points = np.array(polygon, dtype=np.float64).astype(np.int32) - np.array([x1, y1], dtype=np.int32)
    if points.tolist() == [[0, 0], [x2 - x1, 0], [x2 - x1, y2 - y1], [0, y2 - y1]]:
        return cut
    mask = np.zeros(cut.shape[:2], dtype=np.uint8)
    cv2.fillPoly(mask, [points], 1)
    masked = np.full(cut.shape, _WHITE, dtype=np.uint8)
    cv2.copyTo(cut, mask, masked)
    return masked


def kept_beyond_page(picture: Image, page: Image) -> Image:
    """The picture as it may be kept when the page is done: a copy, unless the page is hardly larger than it.

    A view would hold the whole page in memory for the sake of a small picture.
    """
    if picture.base is None or 2 * picture.size >= page.size:
        return picture
    return picture.copy()


def picture_path(label: str, box: IntBox) -> str:
    """Name of a picture in Markdown (SPEC D.6); two equal boxes of one label share it."""
    return f"imgs/img_in_{label}_box_{box[0]}_{box[1]}_{box[2]}_{box[3]}.jpg"


# ---- blocks that are read as one ----


@dataclass(frozen=True, slots=True)
class MergedBlock:
    """Where one block went.

    index: its place before merging. group: index of the first block of its group; None when it stays by itself without
    a number (never merged, or too tall). members: the blocks whose crops make its image, top to bottom; empty when it
    was fused into another. alignments: one for each member after the first.
    """

    index: int
    group: int | None
    members: tuple[int, ...]
    alignments: tuple[Alignment, ...] = ()


def merge_blocks(
    labels: Sequence[str], boxes: Sequence[IntBox], never_merged: AbstractSet[str]
) -> tuple[MergedBlock, ...]:
    """Finds text that continues in the next column, or around a picture (SPEC D.2); all blocks, in their new order.

    labels, boxes: the blocks in reading order. never_merged: labels that stand by themselves; such a block between
    members of a group comes after the group.
    """
    fixed = [index for index, label in enumerate(labels) if label in never_merged]
    obstacles = [boxes[index] for index in fixed]
    groups: list[list[int]] = []
    alignments: list[list[Alignment]] = []
    for index, label in enumerate(labels):
        if label in never_merged:
            continue
        alignment = None
        if groups and label == labels[groups[-1][-1]] == _MERGED_LABEL:
            alignment = _alignment(boxes[groups[-1][-1]], boxes[index], obstacles)
        if alignment is None:
            groups.append([index])
            alignments.append([])
        else:
            groups[-1].append(index)
            alignments[-1].append(alignment)
    placed: list[MergedBlock] = []
    waiting = iter(fixed)
    following = next(waiting, None)
    for members, aligned in zip(groups, alignments, strict=True):
        while following is not None and following < members[0]:
            placed.append(MergedBlock(following, None, (following,)))
            following = next(waiting, None)
        placed += _fused(members, aligned, boxes)
    placed += [MergedBlock(index, None, (index,)) for index in ([] if following is None else [following, *waiting])]
    return tuple(placed)


def _alignment(previous: IntBox, box: IntBox, obstacles: Sequence[IntBox]) -> Alignment | None:
    """How the block continues the one before; None when it does not."""
    px1, py1, px2, py2 = previous
    x1, y1, x2, y2 = box
    if min(x2, px2) <= max(x1, px1):
        widest = max(px2 - px1, x2 - x1)
        return "center" if x1 > px2 and y1 < py2 and x1 - px2 < widest * _COLUMN_GAP else None
    tallest = max(py2 - py1, y2 - y1)
    left, right = abs(x1 - px1) <= _EDGE_TOLERANCE, abs(x2 - px2) <= _EDGE_TOLERANCE
    if y2 < py1 or abs(y1 - py2) >= tallest * _LINE_GAP or left == right:
        return None
    # Text flows around something: without an obstacle the two are just paragraphs.
    union = min(x1, px1), min(y1, py1), max(x2, px2), max(y2, py2)
    if not any(_overlap(union, obstacle) for obstacle in obstacles):
        return None
    return "left" if left else "right"


def _overlap(first: IntBox, second: IntBox) -> bool:
    return (
        min(first[2], second[2]) > max(first[0], second[0])  # in width
        and min(first[3], second[3]) > max(first[1], second[1])  # in height
    )


def _fused(members: list[int], alignments: list[Alignment], boxes: Sequence[IntBox]) -> list[MergedBlock]:
    width = max(boxes[index][2] - boxes[index][0] for index in members)
    height = sum(boxes[index][3] - boxes[index][1] for index in members)
    if width <= 0 or height / width >= _TALL:
        return [MergedBlock(index, None, (index,)) for index in members]
    first, *others = members
    return [
        MergedBlock(first, first, tuple(members), tuple(alignments)),
        *(MergedBlock(index, first, ()) for index in others),
    ]


def stacked(images: Sequence[Image], alignments: Sequence[Alignment]) -> Image:
    """The images below each other on white; `alignments`: one for each image after the first.

    Each image is aligned with the whole stack above it, which moves as one. A single image comes back as it is.
    """
    if len(images) == 1:
        return images[0]
    width = images[0].shape[1]
    lefts = [0]
    for image, alignment in zip(images[1:], alignments, strict=True):
        stack, width = width, max(width, image.shape[1])
        share = {"left": 0.0, "center": 0.5, "right": 1.0}[alignment]
        shift = math.floor((width - stack) * share)
        lefts = [left + shift for left in lefts] + [math.floor((width - image.shape[1]) * share)]
    canvas = np.full((sum(image.shape[0] for image in images), width, 3), _WHITE, dtype=np.uint8)
    top = 0
    for left, image in zip(lefts, images, strict=True):
        height = image.shape[0]
        canvas[top : top + height, left : left + image.shape[1]] = image
        top += height
    return canvas


# ---- preparation by task ----


def trimmed_margins(image: Image) -> Image:
    """A view of the image without its empty margins; the image itself when it is uniform."""
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    darkest, brightest = int(grey.min()), int(grey.max())
    if darkest == brightest:
        return image
    values = np.arange(256, dtype=np.float64)
    stretched = np.clip((values - darkest) / (brightest - darkest) * 255, 0, 255).astype(np.uint8)
    ink = cv2.LUT(grey, (stretched <= _INK).astype(np.uint8))
    left, top, width, height = cv2.boundingRect(ink)
    return image[top : top + height, left : left + width]


def trimmed_formula(image: Image) -> Image:
    """A formula without margins, unless hardly anything would be left."""
    trimmed = trimmed_margins(image)
    return trimmed if min(trimmed.shape[:2]) > _SMALLEST_TRIMMED else image


def enlarged_for_spotting(image: Image) -> Image:
    """Twice the size when both sides are below 1500 px, for small text is found better so; else the image itself."""
    height, width = image.shape[:2]
    if height >= _ENLARGED_BELOW or width >= _ENLARGED_BELOW:
        return image
    enlarged = cv2.resize(image, (2 * width, 2 * height), interpolation=cv2.INTER_LANCZOS4)
    return np.asarray(enlarged, dtype=np.uint8)


def padded_to_aspect(image: Image) -> Image:
    """White added along the long sides until the VLM server accepts the image (aspect ratio up to 200).

    The reference fails the whole batch over a hair-thin crop, such as a ruling taken for text.
    """
    height, width = image.shape[:2]
    if max(height, width) <= _MAX_ASPECT * min(height, width):
        return image
    shortest = math.ceil(max(height, width) / _MAX_ASPECT)
    canvas = np.full((max(height, shortest), max(width, shortest), 3), _WHITE, dtype=np.uint8)
    top, left = (canvas.shape[0] - height) // 2, (canvas.shape[1] - width) // 2
    canvas[top : top + height, left : left + width] = image
    return canvas


def paint_token(image: Image, box: IntBox, token: str) -> None:
    """Paints the box of `image` white, in place, and writes the token into its middle."""
    x1, y1, x2, y2 = box
    image[y1:y2, x1:x2] = _WHITE
    scale, width, height = _fitting_scale(token, min(x2 - x1, y2 - y1))
    origin = x1 + (x2 - x1 - width) // 2, y1 + (y2 - y1 + height) // 2
    cv2.putText(image, token, origin, _FONT, scale, _BLACK, max(1, math.floor(4 * scale)), cv2.LINE_AA)


def _fitting_scale(token: str, side: int) -> tuple[float, int, int]:
    """Largest font scale at which the token fills at most 90 % of a square, and its size in pixels there."""
    low, high = _FONT_SCALES
    while high - low > _FONT_SCALE_STEP:
        middle = (low + high) / 2
        width, height = cv2.getTextSize(token, _FONT, middle, 1)[0]
        if max(width, height) < side * _TOKEN_FILL:
            low = middle
        else:
            high = middle
    width, height = cv2.getTextSize(token, _FONT, low, 1)[0]
    return low, width, height


def smart_resize(
    height: int, width: int, min_pixels: int, max_pixels: int, factor: int = _RESIZE_FACTOR
) -> tuple[int, int]:
    """(height, width) to which the VLM's image processor brings an image: multiples of `factor` within the budget.

    Raises InvalidInput for an aspect ratio above 200, once sides below `factor` are enlarged.
    """
    if height < factor:
        height, width = factor, round(width * factor / height)
    if width < factor:
        height, width = round(height * factor / width), factor
    if max(height, width) > _MAX_ASPECT * min(height, width):
        raise InvalidInput("A part of the page is more than 200 times as long as wide and cannot be recognised")
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    if rows * columns > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        return math.floor(height / shrink / factor) * factor, math.floor(width / shrink / factor) * factor
    if rows * columns < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        return math.ceil(height * grow / factor) * factor, math.ceil(width * grow / factor) * factor
    return rows, columns


# ---- encoding ----


def near_budget(image: Image, max_pixels: int) -> Image:
    """The image halved as often as it keeps at least twice the pixels that the VLM's processor will leave of it.

    That processor shrinks it to at most `max_pixels` with a filter that looks at every pixel, so it makes the same of
    both; but a crop of a large scan would be compressed, sent and decoded many times over. (The reference sends it as
    it is.)
    """
    height, width = image.shape[:2]
    while height * width >= 8 * max_pixels:
        height, width = height // 2, width // 2
    return shrunk(image, (width, height))


def encode_jpeg(image: Image) -> bytes:
    """The crop as the reference sends it: JPEG with Pillow's defaults (quality 75, 4:2:0, no optimisation).

    OpenCV gives the same bytes, sooner, without an RGB copy and without holding the interpreter lock.
    """
    options = [
        cv2.IMWRITE_JPEG_QUALITY,
        75,
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR,
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    ]
    return _encoded(image, ".jpg", options)


def encode_png(image: Image) -> bytes:
    """The crop without loss, for servers that do not take JPEG."""
    return _encoded(image, ".png", [])


def _encoded(image: Image, extension: str, options: list[int]) -> bytes:
    is_encoded, data = cv2.imencode(extension, image, options)
    if not is_encoded:
        raise BackendError("A part of the page could not be encoded")
    return bytes(data)
