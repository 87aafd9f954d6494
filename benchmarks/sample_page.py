"""Pages to measure with: what a scanner makes of printed text, and boxes as a layout model would find them."""

import base64
import json
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]

A4_INCHES = (8.27, 11.69)
SENTENCE = "The quick brown fox jumps over the lazy dog and reads 1234567890 pages of print. "
_TEXT, _TITLE, _TABLE, _PICTURE = 22, 17, 21, 14  # ids of the layout model's classes

# Two columns under a title, with a table and a picture: class, score, x1, y1, x2, y2 (fractions), reading order.
TWELVE_BLOCKS: list[list[float]] = [
    [_TITLE, 0.95, 0.10, 0.04, 0.90, 0.09, 0],
    *([_TEXT, 0.92, 0.08, 0.11 + 0.17 * row, 0.48, 0.26 + 0.17 * row, 1 + row] for row in range(5)),
    *([_TEXT, 0.92, 0.52, 0.11 + 0.17 * row, 0.92, 0.26 + 0.17 * row, 6 + row] for row in range(3)),
    [_TABLE, 0.94, 0.52, 0.62, 0.92, 0.77, 9],
    [_PICTURE, 0.93, 0.52, 0.79, 0.92, 0.94, 10],
    [_TEXT, 0.90, 0.08, 0.955, 0.92, 0.985, 11],
]


def printed(dpi: int) -> Image:
    """A page of A4 full of text in two columns, black on white, BGR."""
    width, height = (round(inches * dpi) for inches in A4_INCHES)
    page: Image = np.full((height, width, 3), 255, np.uint8)
    scale, step = dpi / 300, round(dpi * 0.13)
    for number, y in enumerate(range(round(height * 0.12), round(height * 0.97), step)):
        for left, right in ((0.085, 0.475), (0.525, 0.915)):
            column = page[:, round(left * width) : round(right * width)]
            text = (SENTENCE * 3)[number % len(SENTENCE) :][: round(0.39 * width / (scale * 18))]
            cv2.putText(column, text, (0, y), cv2.FONT_HERSHEY_COMPLEX, scale, (20, 20, 20), 1, cv2.LINE_AA)
    cv2.putText(page, "A title", (width // 5, round(height * 0.075)), cv2.FONT_HERSHEY_COMPLEX, 3 * scale, (0, 0, 0), 2)
    return page


def scanned(dpi: int, noise: float = 9.0) -> Image:
    """The same with the grain of paper and scanner."""
    page = printed(dpi)
    grain = np.random.default_rng(1).normal(-6, noise, page.shape[:2]).astype(np.float32)
    grain = cv2.GaussianBlur(grain, (0, 0), 0.6)
    return np.clip(page.astype(np.float32) + grain[:, :, np.newaxis], 0, 255).astype(np.uint8)


def jpeg(page: Image, about_bytes: int) -> bytes:
    """The page as a JPEG, of the quality whose size comes nearest."""
    files = [cv2.imencode(".jpg", page, [cv2.IMWRITE_JPEG_QUALITY, q])[1].tobytes() for q in range(75, 100)]
    return min(files, key=lambda data: abs(len(data) - about_bytes))


def request_body(file: bytes, *, file_type: int = 1, **fields: Any) -> bytes:
    """A /layout-parsing request as a client sends it."""
    request = {"file": base64.b64encode(file).decode(), "fileType": file_type, "visualize": False, **fields}
    return json.dumps(request).encode()
