"""What a layout model is to the rest of the package: the backend protocol, the detector protocol, and one of each side.

A backend is the model itself: synchronous, owned by one thread, fed with bounded images. A detector is what the
pipeline awaits; where the model runs (this process, a Triton model) is its secret.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np

from hps.document import Detections, Image
from hps.errors import NotEnabled


@dataclass(frozen=True, slots=True, eq=False)
class LayoutInput:
    """A page as a backend gets it.

    image: BGR uint8 (h, w, 3), long side at most the backend's `max_side`.
    width, height: size in pixels of the page that the image was made from; detections refer to it.
    """

    image: Image
    width: int
    height: int


class LayoutBackend(Protocol):
    """A layout model. Not thread-safe: one thread creates it, or at least is the only one to call it."""

    @property
    def max_side(self) -> int:
        """Long side in pixels of the images that it wants; more would be thrown away."""
        ...

    @property
    def has_orientation(self) -> bool:
        """Whether `orientation` classifies; without it every page counts as upright."""
        ...

    def detect(self, pages: Sequence[LayoutInput]) -> list[Detections]:
        """One result a page, in order, rows in pixels of the original page (SPEC C.3)."""
        ...

    def orientation(self, page: LayoutInput) -> int:
        """Counter-clockwise degrees (0, 90, 180 or 270) that turn the page upright (SPEC B.4)."""
        ...


class LayoutDetector(Protocol):
    """Layout detection as the pipeline sees it. `image` is the whole page, BGR uint8."""

    async def detect(self, image: Image) -> Detections: ...

    async def orientation(self, image: Image) -> int:
        """As LayoutBackend.orientation. Raises NotEnabled when the backend has no classifier."""
        ...


class LocalLayoutDetector:
    """Runs a backend in this process, in the one thread that owns it; for tests and for use without Triton."""

    def __init__(self, backend: LayoutBackend) -> None:
        self._backend = backend
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="layout")

    async def detect(self, image: Image) -> Detections:
        page = bounded(image, self._backend.max_side)
        loop = asyncio.get_running_loop()
        return (await loop.run_in_executor(self._thread, self._backend.detect, [page]))[0]

    async def orientation(self, image: Image) -> int:
        if not self._backend.has_orientation:
            raise NotEnabled("Document orientation classification is not available with this layout backend")
        page = bounded(image, self._backend.max_side)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._backend.orientation, page)

    def close(self) -> None:
        """Lets the running page finish, drops those that wait, ends the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)


def bounded(image: Image, max_side: int) -> LayoutInput:
    """The page with its long side at most `max_side`, by area averaging; the same array when it is small enough."""
    height, width = image.shape[:2]
    scale = max_side / max(height, width)
    if scale >= 1:
        return LayoutInput(image, width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return LayoutInput(np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8), width, height)
