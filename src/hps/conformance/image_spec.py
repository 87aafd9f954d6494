"""The pictures of the golden cases: described, not stored."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from hps.document import Image


def image(spec: Mapping[str, Any]) -> Image:
    """`{"size": [w, h], "fill": v, "rects": [[x1, y1, x2, y2, v], ...]}` as a BGR array of three equal channels.

    `fill` is 255 and `rects` is empty when absent; rectangles are painted in order, x2 and y2 are exclusive.
    """
    width, height = spec["size"]
    pixels = np.full((height, width, 3), spec.get("fill", 255), np.uint8)
    for x1, y1, x2, y2, value in spec.get("rects", ()):
        pixels[y1:y2, x1:x2] = value
    return pixels


def image_hash(pixels: Image) -> str:
    """First 16 hexadecimal digits of SHA-256 over the pixels in C order."""
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()[:16]
