"""Pages as layout models want them: each backend declares a form for each task, coordinators bring pages into it.

So the page travels once and small, and what a model does not look at never leaves the coordinator.
"""

from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from hps.document import Image
from hps.scaling import shrunk

REMAP_SIDE = 32766  # longest side of an image that OpenCV can warp


@dataclass(frozen=True, slots=True, eq=False)
class LayoutInput:
    """A page as a backend gets it.

    image: BGR uint8 (h, w, 3) in the form that the backend declares for the task.
    width, height: size in pixels of the page that the image was made from; detections refer to it.
    """

    image: Image
    width: int
    height: int


class InputForm(Protocol):
    """A way to make a model's input from a page (BGR uint8); the same array when it has that form already."""

    def prepared(self, image: Image) -> Image: ...


@dataclass(frozen=True, slots=True)
class Bounded:
    """Long side at most `max_side`, aspect kept, without aliasing."""

    max_side: int

    def prepared(self, image: Image) -> Image:
        height, width = image.shape[:2]
        scale = self.max_side / max(height, width)
        if scale >= 1:
            return image
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        return shrunk(image, size)


@dataclass(frozen=True, slots=True)
class Stretched:
    """Exactly `width` x `height`, aspect ignored, by cubic interpolation without antialiasing (SPEC C.2)."""

    width: int
    height: int

    def prepared(self, image: Image) -> Image:
        if image.shape[:2] == (self.height, self.width):
            return image
        return np.asarray(cv2.resize(image, (self.width, self.height), interpolation=cv2.INTER_CUBIC), np.uint8)


@dataclass(frozen=True, slots=True)
class CornerAligned:
    """Exactly `width` x `height`, bilinear, where the centres of the corner pixels fall on each other (SPEC B.4)."""

    width: int
    height: int

    def prepared(self, image: Image) -> Image:
        image = Bounded(REMAP_SIDE).prepared(image)
        height, width = image.shape[:2]
        if (height, width) == (self.height, self.width):
            return image
        columns = np.linspace(0, width - 1, self.width, dtype=np.float32)
        rows = np.linspace(0, height - 1, self.height, dtype=np.float32)
        x, y = np.meshgrid(columns, rows)
        return np.asarray(cv2.remap(image, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), np.uint8)


@dataclass(frozen=True, slots=True)
class CentreCrop:
    """Short side scaled to `short_side`, bilinear; then the middle `side` x `side` of it (SPEC B.4)."""

    short_side: int
    side: int

    def prepared(self, image: Image) -> Image:
        image = Bounded(REMAP_SIDE).prepared(image)
        height, width = image.shape[:2]
        if (height, width) == (self.side, self.side):
            return image
        scale = self.short_side / min(height, width)
        # Only the square that the crop looks at is scaled: a strip of 1 x 60,000 pixels costs no more than a page.
        from_centre = (np.arange(self.side) + 0.5 - self.side / 2) / scale
        x, y = np.meshgrid(*((side / 2 + from_centre - 0.5).astype(np.float32) for side in (width, height)))
        return np.asarray(cv2.remap(image, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), np.uint8)


@dataclass(frozen=True, slots=True)
class PageInputs:
    """The form of each task's input; None for a task that the backend cannot do."""

    detection: InputForm
    orientation: InputForm | None = None
    unwarping: InputForm | None = None


Grid = NDArray[np.float32]
"""How to flatten a page: (rows, columns, 2), for points spread evenly over the flat page, corner to corner, where they
lie in the page as it is: x, y from -1 (centre of the first pixel) to 1 (centre of the last)."""


def layout_input(form: InputForm, image: Image) -> LayoutInput:
    """The page in that form, with its own size beside it."""
    height, width = image.shape[:2]
    return LayoutInput(form.prepared(image), width, height)
