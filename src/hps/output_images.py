"""Pictures of the answer: size limit, JPEG, Base64 (SPEC A.4), and the layout overlay. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import cv2
import numpy as np
import pybase64
from numpy.typing import NDArray

from hps.document import Image, Region, Spotting

T = TypeVar("T")
JPEG_QUALITY = 95  # OpenCV's default, which the reference relies on
_FONT = cv2.FONT_HERSHEY_SIMPLEX


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answer shows of a page: name → Base64 JPEG; None where the request wants none.

    pictures: those of Markdown. output_images: overlays. input_image: the page as it came.
    """

    pictures: Mapping[str, str] | None = None
    output_images: Mapping[str, str] | None = None
    input_image: str | None = None


def encoded(
    overlay: Callable[[Image, T, tuple[int, int]], Image], image: Image, what: T, limit: tuple[int, int]
) -> str:
    """`what` drawn over the page by `overlay`, one of the two below, as Base64."""
    return encode(overlay(image, what, limit), limit)


def encoded_all(pictures: Mapping[str, Image], limit: tuple[int, int]) -> dict[str, str]:
    """`encode` of each."""
    return {name: encode(picture, limit) for name, picture in pictures.items()}


def limited_size(size: tuple[int, int], limit: tuple[int, int]) -> tuple[int, int]:
    """The (width, height) in which an image of `size` is returned: never over `limit`, proportions kept, truncated."""
    width, height = size
    if width <= limit[0] and height <= limit[1]:
        return size
    scale = limit[0] / width if width / height > limit[0] / limit[1] else limit[1] / height
    return max(1, int(width * scale)), max(1, int(height * scale))


def encode(image: Image, limit: tuple[int, int]) -> str:
    """Base64 of the JPEG."""
    height, width = image.shape[:2]
    size = limited_size((width, height), limit)
    if size != (width, height):
        image = np.asarray(cv2.resize(image, size), np.uint8)
    done, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not done:
        raise ValueError("an image could not be encoded")
    return str(pybase64.b64encode_as_string(data.data))


def layout_overlay(image: Image, regions: Sequence[Region], limit: tuple[int, int]) -> Image:
    """The page with each region's outline, label, score and reading order, at the size in which it is returned.

    Drawn after shrinking: no full-page copy is made of a page that is larger than the limit, and lines stay sharp.
    """
    canvas, factor = _canvas(image, limit)
    line = _line_width(canvas)
    scale = max(0.35, max(canvas.shape[:2]) / 3000)
    for region in regions:
        outline = region.polygon or _corners(region.box)
        points = np.rint(np.asarray(outline, np.float64) * factor).astype(np.int32)
        colour = _colour(region.cls_id)
        _tint(canvas, points, colour)
        cv2.polylines(canvas, [points], True, colour, line, cv2.LINE_AA)
    for region in regions:  # labels last: no outline crosses a text
        x, y = round(region.box[0] * factor), round(region.box[1] * factor)
        prefix = "" if region.order is None else f"{region.order} "
        _label(canvas, (x, y), f"{prefix}{region.label} {region.score:.2f}", _colour(region.cls_id), scale)
    return canvas


def spotting_overlay(image: Image, spotting: Spotting, limit: tuple[int, int]) -> Image:
    """The page with the outline of each text line that was spotted, numbered in order, at the size of the answer."""
    canvas, factor = _canvas(image, limit)
    scale = max(0.35, max(canvas.shape[:2]) / 3000)
    for number, outline in enumerate(spotting.rec_polys, start=1):
        points = np.rint(np.asarray(outline, np.float64) * factor).astype(np.int32)
        colour = _colour(number)
        cv2.polylines(canvas, [points], True, colour, _line_width(canvas), cv2.LINE_AA)
        _label(canvas, (int(points[:, 0].min()), int(points[:, 1].min())), str(number), colour, scale)
    return canvas


def _canvas(image: Image, limit: tuple[int, int]) -> tuple[Image, float]:
    """A copy to draw on, in the size of the answer, and the factor from page to canvas."""
    height, width = image.shape[:2]
    size = limited_size((width, height), limit)
    canvas = np.asarray(cv2.resize(image, size), np.uint8) if size != (width, height) else image.copy()
    return canvas, size[0] / width


def _line_width(canvas: Image) -> int:
    return max(1, round(max(canvas.shape[:2]) / 800))


def _corners(box: tuple[int, int, int, int]) -> list[tuple[float, float]]:
    x1, y1, x2, y2 = box
    return [(x1, y1), (x2, y1), (x2, y2), (x1, y2)]


def _colour(cls_id: int) -> tuple[int, int, int]:
    """Hues that neighbouring class ids do not share: steps of the golden angle."""
    pixel = np.array([[[int(cls_id * 180 * 0.618034) % 180, 200, 200]]], np.uint8)
    blue, green, red = cv2.cvtColor(pixel, cv2.COLOR_HSV2BGR)[0, 0]
    return int(blue), int(green), int(red)


def _tint(canvas: Image, points: NDArray[np.int32], colour: tuple[int, int, int]) -> None:
    """Blends the inside of the polygon, touching only its bounding box."""
    x, y, w, h = cv2.boundingRect(points)
    x2, y2 = min(x + w, canvas.shape[1]), min(y + h, canvas.shape[0])
    x, y = max(x, 0), max(y, 0)
    if x2 <= x or y2 <= y:
        return
    patch = canvas[y:y2, x:x2]
    filled = patch.copy()
    cv2.fillPoly(filled, [points - [x, y]], colour)
    cv2.addWeighted(filled, 0.2, patch, 0.8, 0, dst=patch)


def _label(canvas: Image, at: tuple[int, int], text: str, colour: tuple[int, int, int], scale: float) -> None:
    (w, h), base = cv2.getTextSize(text, _FONT, scale, 1)
    x = max(0, min(at[0], canvas.shape[1] - w - 4))
    y = max(h + base + 2, at[1])
    cv2.rectangle(canvas, (x, y - h - base - 2), (x + w + 4, y), colour, cv2.FILLED)
    cv2.putText(canvas, text, (x + 2, y - base), _FONT, scale, (255, 255, 255), 1, cv2.LINE_AA)
