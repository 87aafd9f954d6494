import threading
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest

from hps.document import Detections
from hps.errors import NotEnabled
from hps.layout.detector import LayoutInput, LocalLayoutDetector, bounded


class Recording:
    max_side = 100

    def __init__(self, *, has_orientation: bool = True) -> None:
        self.has_orientation = has_orientation
        self.pages: list[LayoutInput] = []
        self.threads: set[int] = set()

    def detect(self, pages: Sequence[LayoutInput]) -> list[Detections]:
        self.threads.add(threading.get_ident())
        self.pages += pages
        return [Detections(np.zeros((0, 7), np.float32)) for _ in pages]

    def orientation(self, page: LayoutInput) -> int:
        self.threads.add(threading.get_ident())
        return 90


@pytest.fixture
async def backend() -> Recording:
    return Recording()


@pytest.fixture
async def detector(backend: Recording) -> AsyncIterator[LocalLayoutDetector]:
    detector = LocalLayoutDetector(backend)
    yield detector
    detector.close()


def page(height: int, width: int) -> np.ndarray:
    return np.zeros((height, width, 3), np.uint8)


def test_small_image_is_passed_without_a_copy() -> None:
    image = page(80, 100)
    assert bounded(image, 100).image is image


def test_large_image_keeps_its_shape_and_its_original_size() -> None:
    result = bounded(page(400, 200), 100)
    assert result.image.shape == (100, 50, 3)
    assert (result.width, result.height) == (200, 400)


def test_extreme_aspect_keeps_one_pixel() -> None:
    assert bounded(page(1, 5000), 100).image.shape == (1, 100, 3)


def test_reduction_averages() -> None:
    image = page(200, 200)
    image[::2] = 200
    assert np.unique(bounded(image, 100).image).tolist() == [100]


async def test_detector_bounds_the_page_and_gives_its_size(backend: Recording, detector: LocalLayoutDetector) -> None:
    await detector.detect(page(300, 200))
    (seen,) = backend.pages
    assert seen.image.shape[:2] == (100, 67)
    assert (seen.width, seen.height) == (200, 300)


async def test_one_thread_owns_the_backend(backend: Recording, detector: LocalLayoutDetector) -> None:
    for _ in range(3):
        await detector.detect(page(10, 10))
    assert await detector.orientation(page(10, 10)) == 90
    assert len(backend.threads) == 1
    assert threading.get_ident() not in backend.threads


async def test_orientation_without_a_classifier_is_refused() -> None:
    detector = LocalLayoutDetector(Recording(has_orientation=False))
    with pytest.raises(NotEnabled):
        await detector.orientation(page(10, 10))
    detector.close()
