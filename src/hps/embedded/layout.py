"""The layout backend `onnx`: PicoDet, text lines and page orientation on the CPU."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hps.document import Detections
from hps.embedded.line_detection import LineDetector, bounds
from hps.embedded.models import LAYOUT, Quality
from hps.embedded.orientation import OrientationModel, load_orientation_model
from hps.embedded.page_regions import PageRegion, page_regions
from hps.embedded.picodet import PicoDet
from hps.embedded.sessions import Session
from hps.embedded.text_lines import load_line_detector
from hps.layout.detector import Finish, finished
from hps.layout.labels import CLASS_IDS
from hps.layout.page_inputs import Grid, LayoutInput, PageInputs

ORIENTATION_SIDE = 960
# Small pictures are enlarged for the line detector, up to this factor and this side.
MAX_ENLARGEMENT = 2.0
ENLARGED_SIDE = 1400


@dataclass(frozen=True, slots=True)
class OnnxLayout:
    """LayoutBackend. Pages are worked on one by one: a batch saves nothing on a CPU."""

    picodet: PicoDet
    line_detector: LineDetector
    orientation_model: OrientationModel
    inputs: PageInputs
    max_side: int

    def detect(self, pages: Sequence[LayoutInput]) -> list[Finish]:
        return finished([self._detect(page) for page in pages])

    def orientations(self, pages: Sequence[LayoutInput]) -> list[int]:
        return [self._orientation(page) for page in pages]

    def grids(self, pages: Sequence[LayoutInput]) -> list[Grid]:
        raise NotImplementedError("no unwarping model")

    def _orientation(self, page: LayoutInput) -> int:
        lines = bounds(self.line_detector.lines(page.image, ORIENTATION_SIDE))
        return self.orientation_model.angle(page.image, lines)

    def _detect(self, page: LayoutInput) -> Detections:
        height, width = page.image.shape[:2]
        enlargement = min(MAX_ENLARGEMENT, ENLARGED_SIDE / max(height, width))
        lines = bounds(self.line_detector.lines(page.image, self.max_side, enlargement))
        regions = page_regions(self.picodet.detect(page.image), lines, width, height)
        return Detections(_rows(regions, page.width / width, page.height / height))


def _rows(regions: list[PageRegion], x_scale: float, y_scale: float) -> NDArray[np.float32]:
    rows = np.zeros((len(regions), 7), np.float32)
    for order, region in enumerate(regions):
        rows[order, :2] = CLASS_IDS[region.label], region.score
        rows[order, 2:6] = region.box * np.array([x_scale, y_scale] * 2, np.float32)
        rows[order, 6] = order
    return rows


def load_layout(*, threads: int, inputs: PageInputs, max_side: int) -> OnnxLayout:
    """max_side: of the image in which text lines are looked for. Raises ModelFileError when a wheel is missing."""
    return OnnxLayout(
        PicoDet(Session(LAYOUT.path(), threads)),
        load_line_detector(Quality.FAST, threads),
        load_orientation_model(threads),
        inputs,
        max_side,
    )
