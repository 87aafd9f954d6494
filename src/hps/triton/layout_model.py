"""The Triton model `layout-detection`: batches of pages of all requests through one layout backend."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hps.document import Detections
from hps.layout.detector import LayoutBackend, LayoutInput
from hps.triton.bls import (
    ANGLE,
    DETECT,
    IMAGE,
    NO_CLASSIFIER,
    ORIENTATION,
    POLYGONS,
    ROWS,
    SIZE,
    TASK,
    TOKEN,
    TOKEN_OUT,
    polygon_table,
)
from hps.triton.stack import stack_of

log = logging.getLogger(__name__)

NOTHING = Detections(np.zeros((0, 7), np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class _Page:
    page: LayoutInput
    task: int
    token: NDArray[np.uint64]


class LayoutModel:
    """Owns the backend; every method is called by Triton's one thread, in which the backend is made, too."""

    def __init__(self, pb_utils: Any, create: Callable[[], LayoutBackend]) -> None:
        self._pb_utils = pb_utils
        self._backend = create()
        # Their quotient is the mean batch. A family must outlive its metric.
        self._families = [
            self._counters("hps_layout_batches_total", "Batches given to the layout model"),
            self._counters("hps_layout_pages_total", "Pages in these batches"),
        ]
        self._batches, self._pages = (family.Metric(labels={}) for family in self._families)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response a request, in order; a page that fails fails alone."""
        pages = [self._read(request) for request in requests]
        detect = [page for page in pages if isinstance(page, _Page) and page.task == DETECT]
        results = dict(zip(map(id, detect), self._detect([page.page for page in detect]), strict=True))
        return [self._respond(page, results) if isinstance(page, _Page) else page for page in pages]

    def _read(self, request: Any) -> Any:
        """The page of a request, or the error response for it."""
        try:
            image, size, token, task = (
                self._pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in (IMAGE, SIZE, TOKEN, TASK)
            )
            if len(image) != 1 or image.size == 0:
                raise ValueError("one page a request, with at least one pixel")
            width, height = map(int, size[0])
            if int(task[0, 0]) not in (DETECT, ORIENTATION):
                raise ValueError("unknown task")
            return _Page(LayoutInput(image[0], width, height), int(task[0, 0]), token)
        except Exception as error:  # a request that cannot be read fails alone
            log.error("layout request could not be read: %s", stack_of(error))
            return self._error("The request could not be read", "INVALID_ARG")

    def _detect(self, pages: list[LayoutInput]) -> list[Detections | Exception]:
        if not pages:
            return []
        self._batches.increment(1)
        self._pages.increment(len(pages))
        try:
            return list(self._backend.detect(pages))
        except Exception as error:  # one bad page must not fail its neighbours: find it
            log.error("layout detection of %d pages failed: %s", len(pages), stack_of(error))
            return [error] if len(pages) == 1 else [result for page in pages for result in self._detect([page])]

    def _respond(self, page: _Page, results: dict[int, Detections | Exception]) -> Any:
        try:
            if page.task == ORIENTATION:
                angle = self._backend.orientation(page.page) if self._backend.has_orientation else NO_CLASSIFIER
                return self._response(NOTHING, angle, page.token)
            result = results[id(page)]
            if isinstance(result, Exception):
                return self._error("The page could not be processed", "INTERNAL")
            return self._response(result, 0, page.token)
        except Exception as error:
            log.error("layout answer could not be made: %s", stack_of(error))
            return self._error("The page could not be processed", "INTERNAL")

    def _response(self, detections: Detections, angle: int, token: NDArray[np.uint64]) -> Any:
        tensors = {
            ROWS: np.asarray(detections.rows, np.float32)[np.newaxis],
            POLYGONS: polygon_table(detections)[np.newaxis],
            ANGLE: np.array([[angle]], np.int32),
            TOKEN_OUT: np.array(token, np.uint64),
        }
        outputs = [self._pb_utils.Tensor(name, np.ascontiguousarray(values)) for name, values in tensors.items()]
        return self._pb_utils.InferenceResponse(output_tensors=outputs)

    def _error(self, message: str, code: str) -> Any:
        error = self._pb_utils.TritonError(message, getattr(self._pb_utils.TritonError, code))
        return self._pb_utils.InferenceResponse(output_tensors=[], error=error)

    def _counters(self, name: str, description: str) -> Any:
        return self._pb_utils.MetricFamily(name=name, description=description, kind=self._pb_utils.MetricFamily.COUNTER)
