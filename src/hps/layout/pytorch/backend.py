"""The layout backend `transformers` as a whole."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hps.layout.detector import Finish
from hps.layout.page_inputs import Grid, InputForm, LayoutInput, PageInputs, Stretched, layout_input
from hps.layout.pytorch import checkpoint, detection, preprocessing
from hps.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransformersLayout:
    """LayoutBackend. Models that `inputs` has no form for are None."""

    inputs: PageInputs
    detection: detection.DetectionModel
    orientation: preprocessing.OrientationModel | None = None
    unwarping: preprocessing.UnwarpingModel | None = None

    def detect(self, pages: Sequence[LayoutInput]) -> list[Finish]:
        return self.detection.detect(pages)

    def orientations(self, pages: Sequence[LayoutInput]) -> list[int]:
        if self.orientation is None:
            raise RuntimeError("no orientation model")
        return self.orientation.orientations(pages)

    def grids(self, pages: Sequence[LayoutInput]) -> list[Grid]:
        if self.unwarping is None:
            raise RuntimeError("no unwarping model")
        return self.unwarping.grids(pages)


def load_transformers(settings: Settings, inputs: PageInputs, *, gpu: int | None, max_batch: int) -> TransformersLayout:
    """All configured models, warm. Raises ValueError when HPS_LAYOUT_MODEL_DIR is not set, ModelFileError."""
    if settings.layout_model_dir is None:
        raise ValueError("the layout backend 'transformers' needs a folder with the model: HPS_LAYOUT_MODEL_DIR")
    if not isinstance(inputs.detection, Stretched):
        raise TypeError("PP-DocLayout takes pages of one size")
    device = checkpoint.device(gpu)
    checkpoint.limit_threads(settings.layout_threads)
    backend = TransformersLayout(
        inputs,
        detection.load_detection(
            settings.layout_model_dir,
            inputs.detection,
            device,
            max_batch,
            compiled=settings.layout_compile,
            cache=settings.layout_compile_cache,
        ),
        preprocessing.load_orientation(settings.orientation_model_dir, device)
        if settings.orientation_model_dir
        else None,
        preprocessing.load_unwarping(settings.unwarping_model_dir, device) if settings.unwarping_model_dir else None,
    )
    if inputs.orientation:
        backend.orientations([_blank(inputs.orientation)])
    if inputs.unwarping:
        backend.grids([_blank(inputs.unwarping)])
    log.info("layout models on %s, batches of up to %d pages", device, max_batch)
    return backend


def _blank(form: InputForm) -> LayoutInput:
    return layout_input(form, np.full((100, 100, 3), 255, np.uint8))
