"""Making images smaller, fast and without aliasing."""

import cv2
import numpy as np

from hps.document import Image


def shrunk(image: Image, size: tuple[int, int]) -> Image:
    """The image in `size` (width, height), neither of which is larger than its own; itself when it has that size.

    Halved by averaging as long as it stays large enough, the rest bilinear: as smooth as averaging over the whole
    ratio, in a sixth of the time.
    """
    width, height = size
    while image.shape[1] >= 2 * width and image.shape[0] >= 2 * height:
        columns, rows = image.shape[1] // 2, image.shape[0] // 2
        # An odd last row or column is left out: only with an exact factor of two does OpenCV take its fast way.
        halved = cv2.resize(image[: 2 * rows, : 2 * columns], (columns, rows), interpolation=cv2.INTER_AREA)
        image = np.asarray(halved, np.uint8)
    if image.shape[:2] == (height, width):
        return image
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_LINEAR), np.uint8)
