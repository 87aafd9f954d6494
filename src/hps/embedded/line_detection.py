"""Finding text lines with the PP-OCR detection network: image → quadrilaterals."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from hps.document import Image
from hps.embedded.sessions import Session, Tensor, imagenet_tensor

# Corners of a line as it is read: top left, top right, bottom right, bottom left; float32 (4, 2), pixels.
Quad = NDArray[np.float32]

STRIDE = 32
PIXEL_THRESHOLD = 0.3
LINE_THRESHOLD = 0.5
# The network paints shrunken lines: they are grown back by area · ratio / perimeter.
UNCLIP_RATIO = 1.5
MIN_PAINTED_SIDE = 3
MIN_LINE_SIDE = 5
MAX_LINES = 3000


@dataclass(frozen=True, slots=True)
class LineDetector:
    session: Session

    def lines(self, image: Image, max_side: int, min_scale: float = 0.0) -> list[Quad]:
        """The lines of a BGR image, unordered, in its pixels.

        The network sees the image with its long side reduced to `max_side`, or enlarged by `min_scale` when that is
        above 1 and the result still fits.
        """
        height, width = image.shape[:2]
        scale = min(max(1.0, min_scale), max_side / max(height, width))
        size = [max(STRIDE, round(side * scale / STRIDE) * STRIDE) for side in (width, height)]
        enlarges = size[0] > width
        resized = cv2.resize(image, size, interpolation=cv2.INTER_CUBIC if enlarges else cv2.INTER_LINEAR)
        painted = self.session.run(imagenet_tensor(np.asarray(resized, np.uint8)))[0][0, 0]
        return _quads(painted, width, height)


def _quads(painted: Tensor, width: int, height: int) -> list[Quad]:
    """Lines from the probability map of the whole image; `width` and `height` are the image's."""
    mask = cv2.dilate((painted > PIXEL_THRESHOLD).astype(np.uint8), np.ones((2, 2), np.uint8))
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    to_image = np.array([width / painted.shape[1], height / painted.shape[0]], np.float32)
    limit = np.array([width - 1, height - 1], np.float32)
    quads = []
    for contour in contours[:MAX_LINES]:
        centre, (a, b), angle = cv2.minAreaRect(contour)
        if min(a, b) < MIN_PAINTED_SIDE or _mean_inside(painted, np.asarray(contour)) < LINE_THRESHOLD:
            continue
        grown = a * b * UNCLIP_RATIO / (2 * (a + b))
        corners = cv2.boxPoints((centre, (a + 2 * grown, b + 2 * grown), angle)) * to_image
        quad = _reading_corners(np.clip(corners, 0, limit).astype(np.float32))
        if min(np.linalg.norm(quad[0] - quad[3]), np.linalg.norm(quad[0] - quad[1])) >= MIN_LINE_SIDE:
            quads.append(quad)
    return quads


def _mean_inside(painted: Tensor, contour: NDArray[np.int32]) -> float:
    x, y, width, height = cv2.boundingRect(contour)
    mask = np.zeros((height, width), np.uint8)
    cv2.fillPoly(mask, [contour.reshape(-1, 2) - (x, y)], 1)
    return float(cv2.mean(painted[y : y + height, x : x + width], mask)[0])


def _reading_corners(corners: Quad) -> Quad:
    """Clockwise from the top left; the two leftmost corners make the left edge."""
    by_x = corners[np.argsort(corners[:, 0], kind="stable")]
    left = by_x[:2][np.argsort(by_x[:2, 1], kind="stable")]
    right = by_x[2:][np.argsort(by_x[2:, 1], kind="stable")]
    return np.asarray([left[0], right[0], right[1], left[1]], np.float32)


def bounds(quads: list[Quad]) -> NDArray[np.float32]:
    """The axis-parallel boxes around the lines: (n, 4)."""
    if not quads:
        return np.zeros((0, 4), np.float32)
    corners = np.stack(quads)
    return np.concatenate([corners.min(1), corners.max(1)], axis=1)
