"""Layout detection by a call into the Triton model `layout-detection` (BLS), and the tensors of that call."""

import logging
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hps.document import Detections, Image
from hps.errors import BackendError, NotEnabled, Unavailable
from hps.layout.detector import bounded

log = logging.getLogger(__name__)

MODEL = "layout-detection"

# Inputs, all with a batch dimension of 1 in front: image uint8 (h, w, 3) BGR; size int32 (2), width and height of the
# page that it was made from; token uint64 (1); task int32 (1).
IMAGE, SIZE, TOKEN, TASK = "image", "size", "token", "task"
# Outputs: rows float32 (n, 7); polygons float32 (m, 3), each the number of its row, x, y; angle int32 (1); the token.
ROWS, POLYGONS, ANGLE, TOKEN_OUT = "rows", "polygons", "angle", "token_out"

DETECT, ORIENTATION = 0, 1
NO_CLASSIFIER = -1  # as angle: the backend cannot tell


class BlsLayoutDetector:
    """A LayoutDetector whose model runs in another Triton process and batches the pages of all requests.

    Awaits in the loop's default executor, one thread a call: give the loop a large one.
    """

    def __init__(self, pb_utils: Any, max_side: int) -> None:
        """max_side: long side in pixels of the images that the model's backend wants."""
        self._pb_utils = pb_utils
        self._max_side = max_side

    async def detect(self, image: Image) -> Detections:
        """Raises Unavailable when the model gives no answer, BackendError when it gives a wrong one."""
        outputs = await self._call(image, DETECT)
        return Detections(outputs[ROWS], polygons_of_rows(outputs[POLYGONS], len(outputs[ROWS])))

    async def orientation(self, image: Image) -> int:
        """Degrees counter-clockwise. Raises as `detect`, and NotEnabled when the backend has no classifier."""
        angle = int((await self._call(image, ORIENTATION))[ANGLE][0])
        if angle == NO_CLASSIFIER:
            raise NotEnabled("Document orientation classification is not available with this layout backend")
        return angle

    async def _call(self, image: Image, task: int) -> dict[str, NDArray[Any]]:
        page = bounded(image, self._max_side)
        token = secrets.randbits(64)
        request = self._pb_utils.InferenceRequest(
            model_name=MODEL,
            requested_output_names=[ROWS, POLYGONS, ANGLE, TOKEN_OUT],
            inputs=[
                self._tensor(IMAGE, np.ascontiguousarray(page.image)),
                self._tensor(SIZE, np.array([page.width, page.height], np.int32)),
                self._tensor(TOKEN, np.array([token], np.uint64)),
                self._tensor(TASK, np.array([task], np.int32)),
            ],
        )
        try:
            response = await request.async_exec()
        except Exception as error:  # pb_utils has one exception type: the model is not there, or its process died
            log.warning("layout detection gives no answer: %s", error)
            raise Unavailable("Layout detection is not available") from error
        if response.has_error():
            raise self._translated(response.error())
        outputs = {name: self._array(response, name) for name in (ROWS, POLYGONS, ANGLE, TOKEN_OUT)}
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
        if error.code() == self._pb_utils.TritonError.UNAVAILABLE:
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
