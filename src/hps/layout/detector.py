"""What a layout model is to the rest of the package: the backend protocol, the detector protocol, and one of each side.

A backend is the model itself: synchronous, owned by one thread, fed with prepared images. A detector is what the
pipeline awaits; where the model runs (this process, a Triton model) is its secret.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from hps.document import Detections, Image
from hps.errors import NotEnabled
from hps.layout.page_inputs import Grid, InputForm, LayoutInput, PageInputs, layout_input

T = TypeVar("T")

Finish = Callable[[], Detections]
"""The rest of a page's detection, after the model's own work: cheap, made once, in any thread."""


class LayoutBackend(Protocol):
    """A layout model. Not thread-safe: one thread creates it, or at least is the only one to call it.

    Each method takes pages in the form that `inputs` has for its task, and gives one result a page, in order.
    """

    @property
    def inputs(self) -> PageInputs: ...

    def detect(self, pages: Sequence[LayoutInput]) -> list[Finish]:
        """Rows in pixels of the original page (SPEC C.3). The model is free again when this returns, and the images
        are no longer needed."""
        ...

    def orientations(self, pages: Sequence[LayoutInput]) -> list[int]:
        """Counter-clockwise degrees (0, 90, 180 or 270) that turn a page upright (SPEC B.4). Not called when `inputs`
        has no form for it."""
        ...

    def grids(self, pages: Sequence[LayoutInput]) -> list[Grid]:
        """How to flatten each page. Not called when `inputs` has no form for it."""
        ...


class LayoutDetector(Protocol):
    """Layout detection as the pipeline sees it. `image` is the whole page, BGR uint8."""

    async def detect(self, image: Image) -> Detections: ...

    async def orientation(self, image: Image) -> int:
        """As LayoutBackend.orientations. Raises NotEnabled when the backend has no classifier."""
        ...

    async def grid(self, image: Image) -> Grid:
        """As LayoutBackend.grids. Raises NotEnabled when the backend has no unwarping model."""
        ...


class LocalLayoutDetector:
    """Runs a backend in this process, in the one thread that owns it; for tests and for use without Triton."""

    def __init__(self, backend: LayoutBackend) -> None:
        self._backend = backend
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="layout")

    async def detect(self, image: Image) -> Detections:
        finish = await self._run(self._backend.detect, self._backend.inputs.detection, image)
        return finish()

    async def orientation(self, image: Image) -> int:
        return await self._run(self._backend.orientations, orientation_form(self._backend.inputs), image)

    async def grid(self, image: Image) -> Grid:
        return await self._run(self._backend.grids, unwarping_form(self._backend.inputs), image)

    async def _run(self, method: Callable[[Sequence[LayoutInput]], list[T]], form: InputForm, image: Image) -> T:
        page = layout_input(form, image)
        (result,) = await asyncio.get_running_loop().run_in_executor(self._thread, method, [page])
        return result

    def close(self) -> None:
        """Lets the running page finish, drops those that wait, ends the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)


def orientation_form(inputs: PageInputs) -> InputForm:
    """Raises NotEnabled when the backend has no classifier."""
    if inputs.orientation is None:
        raise NotEnabled("Document orientation classification is not available with this layout backend")
    return inputs.orientation


def unwarping_form(inputs: PageInputs) -> InputForm:
    """Raises NotEnabled when the backend has no unwarping model."""
    if inputs.unwarping is None:
        raise NotEnabled("Document unwarping is not available with this layout backend")
    return inputs.unwarping


def finished(detections: Sequence[Detections]) -> list[Finish]:
    """For a backend that leaves nothing to finish."""
    return [lambda page=page: page for page in detections]  # type: ignore[misc]
