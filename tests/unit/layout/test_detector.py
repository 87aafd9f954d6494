import threading
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest

from hps.document import Detections
from hps.errors import NotEnabled
from hps.layout.detector import Finish, LocalLayoutDetector, finished
from hps.layout.page_inputs import Bounded, Grid, LayoutInput, PageInputs


class Recording:
    def __init__(self, *, is_complete: bool = True) -> None:
        form = Bounded(100)
        self.inputs = PageInputs(form, form, form) if is_complete else PageInputs(form)
        self.pages: list[LayoutInput] = []
        self.threads: set[int] = set()

    def detect(self, pages: Sequence[LayoutInput]) -> list[Finish]:
        self.threads.add(threading.get_ident())
        self.pages += pages
        return finished([Detections(np.zeros((0, 7), np.float32)) for _ in pages])

    def orientations(self, pages: Sequence[LayoutInput]) -> list[int]:
        self.threads.add(threading.get_ident())
        return [90 for _ in pages]

    def grids(self, pages: Sequence[LayoutInput]) -> list[Grid]:
        self.threads.add(threading.get_ident())
        return [np.zeros((2, 2, 2), np.float32) for _ in pages]


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


async def test_detector_bounds_the_page_and_gives_its_size(backend: Recording, detector: LocalLayoutDetector) -> None:
    await detector.detect(page(300, 200))
    (seen,) = backend.pages
    assert seen.image.shape[:2] == (100, 67)
    assert (seen.width, seen.height) == (200, 300)


async def test_one_thread_owns_the_backend(backend: Recording, detector: LocalLayoutDetector) -> None:
    for _ in range(3):
        await detector.detect(page(10, 10))
    assert await detector.orientation(page(10, 10)) == 90
    assert (await detector.grid(page(10, 10))).shape == (2, 2, 2)
    assert len(backend.threads) == 1
    assert threading.get_ident() not in backend.threads


async def test_tasks_that_the_backend_lacks_are_refused() -> None:
    detector = LocalLayoutDetector(Recording(is_complete=False))
    with pytest.raises(NotEnabled, match="orientation"):
        await detector.orientation(page(10, 10))
    with pytest.raises(NotEnabled, match="unwarping"):
        await detector.grid(page(10, 10))
    detector.close()
