"""Flattening a page at its full resolution, after what the unwarping model said of a small copy (SPEC B.4)."""

from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from hps.document import Image
from hps.layout.page_inputs import REMAP_SIDE, Grid

# Lines that are worked on at once: where each pixel comes from takes 8 bytes, more than the pixel itself.
_BAND: Final = 256


def unwarped(image: Image, grid: Grid) -> Image:
    """The page flattened, in its own size; black where the grid points beyond it. As it is when too long to be warped.

    image: BGR uint8 (h, w, 3). grid: (rows, columns, 2), at least 2 x 2.
    """
    height, width = image.shape[:2]
    if max(height, width) > REMAP_SIDE:
        return image
    result = np.empty_like(image)
    # From -1..1 to pixels before the grid is enlarged: both steps are linear, so their order does not matter.
    points = (np.asarray(grid, np.float32) + 1) / 2 * np.array([width - 1, height - 1], np.float32)
    columns = np.linspace(0, grid.shape[1] - 1, width, dtype=np.float32)
    rows = np.linspace(0, grid.shape[0] - 1, height, dtype=np.float32)
    for top in range(0, height, _BAND):
        sources = _between(points, rows[top : top + _BAND], columns)
        result[top : top + _BAND] = cv2.remap(
            image, sources, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=(0, 0, 0)
        )
    return result


def _between(points: Grid, rows: NDArray[np.float32], columns: NDArray[np.float32]) -> Grid:
    """The grid bilinearly at all pairs of rows and columns: (len(rows), len(columns), 2)."""
    along_rows = _mixed(points, rows)
    return np.ascontiguousarray(np.swapaxes(_mixed(np.swapaxes(along_rows, 0, 1), columns), 0, 1))


def _mixed(points: Grid, places: NDArray[np.float32]) -> Grid:
    """Linear between neighbours of the first axis."""
    first = np.minimum(places.astype(np.intp), len(points) - 2)
    share = (places - first)[:, np.newaxis, np.newaxis].astype(np.float32)
    mixed: Grid = points[first] * (1 - share) + points[first + 1] * share
    return mixed
