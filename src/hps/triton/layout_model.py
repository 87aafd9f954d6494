"""The Triton model `layout-detection`: batches of pages of all requests through one layout backend."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hps.document import Detections
from hps.layout.detector import Finish, LayoutBackend
from hps.layout.page_inputs import Grid, LayoutInput
from hps.triton.bls import (
    ANGLE,
    DETECTION,
    GRID,
    IMAGE,
    ORIENTATION,
    POLYGONS,
    ROWS,
    SIZE,
    TASK,
    TOKEN,
    TOKEN_OUT,
    UNWARPING,
    polygon_table,
)
from hps.triton.stack import stack_of

log = logging.getLogger(__name__)

# Not INTERNAL: that is what Triton itself says of a model process that died, after which another try may succeed.
PAGE_FAILED = "UNKNOWN"

NOTHING = Detections(np.zeros((0, 7), np.float32))
NO_GRID: Grid = np.zeros((0, 0, 2), np.float32)

Outputs = dict[str, NDArray[Any]]
Work = Callable[[list[LayoutInput]], list[Callable[[], Outputs]]]


@dataclass(frozen=True, slots=True)
class _Reply:
    """Where the one answer of a request goes."""

    sender: Any
    token: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Call:
    page: LayoutInput
    task: int
    reply: _Reply


class LayoutModel:
    """Owns the backend, which Triton's one thread makes and calls.

    What follows the model's own work (outlines of masks) happens in `finishing`, which answers each request, so that
    the model takes the next batch meanwhile. Every request is answered exactly once; a page that fails fails alone.
    """

    def __init__(self, pb_utils: Any, create: Callable[[], LayoutBackend], finishing: Executor) -> None:
        self._pb_utils = pb_utils
        self._backend = create()
        self._finishing = finishing
        self._work: dict[int, Work] = {
            DETECTION: self._detections,
            ORIENTATION: self._orientations,
            UNWARPING: self._grids,
        }
        # Their quotient is the mean batch. A family must outlive its metric.
        self._families = [
            self._counters("hps_layout_batches_total", "Batches given to the layout model"),
            self._counters("hps_layout_pages_total", "Pages in these batches"),
        ]
        self._batches, self._pages = (family.Metric(labels={}) for family in self._families)

    def execute(self, requests: Sequence[Any]) -> None:
        calls = [call for request in requests if (call := self._read(request)) is not None]
        for task, work in self._work.items():
            self._run(work, [call for call in calls if call.task == task])

    def close(self) -> None:
        """Waits until every request is answered."""
        self._finishing.shutdown(wait=True)

    def _read(self, request: Any) -> _Call | None:
        """None when the request cannot be read; it is answered then."""
        sender = request.get_response_sender()
        try:
            image, size, token, task = (
                self._pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in (IMAGE, SIZE, TOKEN, TASK)
            )
            if len(image) != 1 or image.size == 0:
                raise ValueError("one page a request, with at least one pixel")
            width, height = map(int, size[0])
            if int(task[0, 0]) not in self._work:
                raise ValueError("unknown task")
            # The token is copied: it outlives the request, whose memory is Triton's.
            return _Call(LayoutInput(image[0], width, height), int(task[0, 0]), _Reply(sender, np.array(token)))
        except Exception as error:  # a request that cannot be read fails alone
            log.error("layout request could not be read: %s", stack_of(error))
            self._send_error(sender, "The request could not be read", "INVALID_ARG")
            return None

    def _run(self, work: Work, calls: list[_Call]) -> None:
        if not calls:
            return
        try:
            finishes = work([call.page for call in calls])
            if len(finishes) != len(calls):
                raise RuntimeError(f"{len(finishes)} results for {len(calls)} pages")
        except Exception as error:  # one bad page must not fail its neighbours: find it
            log.error("layout model failed with %d pages: %s", len(calls), stack_of(error))
            if len(calls) == 1:
                self._send_error(calls[0].reply.sender, "The page could not be processed", PAGE_FAILED)
                return
            for call in calls:
                self._run(work, [call])
            return
        for call, finish in zip(calls, finishes, strict=True):
            self._finishing.submit(self._answer, call.reply, finish)

    def _answer(self, reply: _Reply, finish: Callable[[], Outputs]) -> None:
        try:
            tensors = _empty_outputs() | finish() | {TOKEN_OUT: reply.token}
            outputs = [self._pb_utils.Tensor(name, np.ascontiguousarray(values)) for name, values in tensors.items()]
            response = self._pb_utils.InferenceResponse(output_tensors=outputs)
        except Exception as error:
            log.error("layout answer could not be made: %s", stack_of(error))
            self._send_error(reply.sender, "The page could not be processed", PAGE_FAILED)
            return
        self._send(reply.sender, response)

    def _detections(self, pages: list[LayoutInput]) -> list[Callable[[], Outputs]]:
        self._batches.increment(1)
        self._pages.increment(len(pages))
        return [partial(_detection_outputs, finish) for finish in self._backend.detect(pages)]

    def _orientations(self, pages: list[LayoutInput]) -> list[Callable[[], Outputs]]:
        angles = self._backend.orientations(pages)
        return [partial(dict, {ANGLE: np.array([[angle]], np.int32)}) for angle in angles]

    def _grids(self, pages: list[LayoutInput]) -> list[Callable[[], Outputs]]:
        grids = self._backend.grids(pages)
        return [partial(dict, {GRID: np.asarray(grid, np.float32)[np.newaxis]}) for grid in grids]

    def _send(self, sender: Any, response: Any) -> None:
        try:
            sender.send(response, flags=self._pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        except Exception as error:  # Triton is stopping or the caller is gone: there is no other way to answer
            log.error("layout answer could not be sent: %s", stack_of(error))

    def _send_error(self, sender: Any, message: str, code: str) -> None:
        error = self._pb_utils.TritonError(message, getattr(self._pb_utils.TritonError, code))
        self._send(sender, self._pb_utils.InferenceResponse(output_tensors=[], error=error))

    def _counters(self, name: str, description: str) -> Any:
        return self._pb_utils.MetricFamily(name=name, description=description, kind=self._pb_utils.MetricFamily.COUNTER)


def _empty_outputs() -> Outputs:
    """What an answer holds of the tasks that it is not about."""
    return _rows_and_polygons(NOTHING) | {ANGLE: np.zeros((1, 1), np.int32), GRID: NO_GRID[np.newaxis]}


def _detection_outputs(finish: Finish) -> Outputs:
    return _rows_and_polygons(finish())


def _rows_and_polygons(detections: Detections) -> Outputs:
    rows = np.asarray(detections.rows, np.float32)[np.newaxis]
    return {ROWS: rows, POLYGONS: polygon_table(detections)[np.newaxis]}
