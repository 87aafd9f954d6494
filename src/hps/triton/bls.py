"""Layout detection by a call into the Triton model `layout-detection` (BLS), and the tensors of that call."""

import asyncio
import logging
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hps.document import Detections, Image
from hps.errors import BackendError, Unavailable
from hps.layout.detector import orientation_form, unwarping_form
from hps.layout.page_inputs import Grid, InputForm, PageInputs, layout_input

log = logging.getLogger(__name__)

MODEL = "layout-detection"

# Inputs, all with a batch dimension of 1 in front: image uint8 (h, w, 3) BGR; size int32 (2), width and height of the
# page that it was made from; token uint64 (1); task int32 (1).
IMAGE, SIZE, TOKEN, TASK = "image", "size", "token", "task"
# Outputs: rows float32 (n, 7); polygons float32 (m, 3), each the number of its row, x, y; angle int32 (1); grid float32
# (rows, columns, 2), see page_inputs.Grid; the token. What a task does not give is empty or 0.
ROWS, POLYGONS, ANGLE, GRID, TOKEN_OUT = "rows", "polygons", "angle", "grid", "token_out"
OUTPUTS = (ROWS, POLYGONS, ANGLE, GRID, TOKEN_OUT)

DETECTION, ORIENTATION, UNWARPING = 0, 1, 2


class BlsLayoutDetector:
    """A LayoutDetector whose model runs in another Triton process and batches the pages of all requests.

    Each call takes a thread of the loop's default executor until it is answered: give the loop a large one.
    """

    def __init__(self, pb_utils: Any, inputs: PageInputs) -> None:
        """inputs: the form of the images that the model's backend wants."""
        self._pb_utils = pb_utils
        self._inputs = inputs

    async def detect(self, image: Image) -> Detections:
        """Raises Unavailable when the model gives no answer, BackendError when it gives a wrong one."""
        outputs = await self._call(image, self._inputs.detection, DETECTION)
        return Detections(outputs[ROWS], polygons_of_rows(outputs[POLYGONS], len(outputs[ROWS])))

    async def orientation(self, image: Image) -> int:
        """Degrees counter-clockwise. Raises as `detect`, and NotEnabled when the backend has no classifier."""
        outputs = await self._call(image, orientation_form(self._inputs), ORIENTATION)
        return int(outputs[ANGLE][0])

    async def grid(self, image: Image) -> Grid:
        """How to flatten the page. Raises as `detect`, and NotEnabled when the backend has no unwarping model."""
        return (await self._call(image, unwarping_form(self._inputs), UNWARPING))[GRID]

    async def _call(self, image: Image, form: InputForm, task: int) -> dict[str, NDArray[Any]]:
        # One thread for all of it: preparing the page takes milliseconds, and Triton's own async_exec is a thread too.
        return await asyncio.get_running_loop().run_in_executor(None, self._answered, image, form, task)

    def _answered(self, image: Image, form: InputForm, task: int) -> dict[str, NDArray[Any]]:
        page = layout_input(form, image)
        token = secrets.randbits(64)
        request = self._pb_utils.InferenceRequest(
            model_name=MODEL,
            requested_output_names=list(OUTPUTS),
            inputs=[
                self._tensor(IMAGE, np.ascontiguousarray(page.image)),
                self._tensor(SIZE, np.array([page.width, page.height], np.int32)),
                self._tensor(TOKEN, np.array([token], np.uint64)),
                self._tensor(TASK, np.array([task], np.int32)),
            ],
        )
        try:
            response = request.exec()
        except Exception as error:  # pb_utils has one exception type: the model is not there, or its process died
            log.warning("layout detection gives no answer: %s", error)
            raise Unavailable("Layout detection is not available") from error
        if response.has_error():
            raise self._translated(response.error())
        outputs = {name: self._array(response, name) for name in OUTPUTS}
        if int(outputs[TOKEN_OUT][0]) != token:
            log.error("layout detection answered with the result of another page")
            raise BackendError
        return outputs

    def _tensor(self, name: str, values: NDArray[Any]) -> Any:
        return self._pb_utils.Tensor(name, values[np.newaxis])

    def _array(self, response: Any, name: str) -> NDArray[Any]:
        # A copy: the response's memory is shared with Triton and goes back with it.
        values: NDArray[Any] = self._pb_utils.get_output_tensor_by_name(response, name).as_numpy()[0]
        return values.copy()

    def _translated(self, error: Any) -> BackendError | Unavailable:
        log.warning("layout detection failed: %s", error.message())
        codes = self._pb_utils.TritonError
        if error.code() in (codes.UNAVAILABLE, codes.INTERNAL):  # not loaded; its process has died
            return Unavailable("Layout detection is not available")
        return BackendError("Layout detection failed")


def polygon_table(detections: Detections) -> NDArray[np.float32]:
    """All polygons as one float32 (m, 3) table: number of the row, x, y."""
    parts = [np.column_stack((np.full(len(p), row), p)) for row, p in enumerate(detections.polygons) if len(p)]
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros((0, 3), np.float32)


def polygons_of_rows(table: NDArray[np.float32], rows: int) -> tuple[NDArray[np.float32], ...]:
    """The inverse of `polygon_table`: one (k, 2) array a row, or nothing when no row has a polygon."""
    if not len(table):
        return ()
    return tuple(np.ascontiguousarray(table[table[:, 0] == row, 1:], np.float32) for row in range(rows))
