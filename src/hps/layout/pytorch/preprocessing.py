"""What comes before layout detection when a request asks for it: page orientation and unwarping (SPEC B.4)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from hps.layout.page_inputs import Grid, LayoutInput
from hps.layout.pytorch.checkpoint import load_model

ANGLES: Final = (0, 90, 180, 270)  # by class
# As the checkpoints were trained: channels in OpenCV's order, statistics of ImageNet in the order of the channels.
_MEAN: Final = (0.485, 0.456, 0.406)
_STD: Final = (0.229, 0.224, 0.225)


class OrientationModel:
    """PP-LCNet_x1_0_doc_ori, single precision: it is a few milliseconds of work."""

    def __init__(self, model: Any, device: str) -> None:
        self._model = model
        self._device = device
        self._mean, self._std = (torch.tensor(v, device=device).view(1, 3, 1, 1) for v in (_MEAN, _STD))

    def orientations(self, pages: Sequence[LayoutInput]) -> list[int]:
        with torch.inference_mode():
            pixels = (_pixels(pages, self._device) - self._mean) / self._std
            classes = self._model(pixel_values=pixels).last_hidden_state.argmax(dim=-1)
        return [ANGLES[index] for index in classes.tolist()]


class UnwarpingModel:
    """UVDoc, single precision: half of it would move points by half a pixel."""

    def __init__(self, model: Any, device: str) -> None:
        self._model = model
        self._device = device

    def grids(self, pages: Sequence[LayoutInput]) -> list[Grid]:
        with torch.inference_mode():
            points = self._model(pixel_values=_pixels(pages, self._device)).last_hidden_state
            found: Grid = points.permute(0, 2, 3, 1).float().cpu().numpy()
        return list(np.ascontiguousarray(found))


def _pixels(pages: Sequence[LayoutInput], device: str) -> Any:
    """float32 (n, 3, h, w), BGR from 0 to 1. All pages have the size that their form says."""
    images = torch.from_numpy(np.stack([page.image for page in pages])).to(device)
    return images.permute(0, 3, 1, 2).float() / 255


def load_orientation(directory: Path, device: str) -> OrientationModel:
    """Raises ModelFileError."""
    classes = {"pp_lcnet": "PPLCNetForImageClassification"}
    return OrientationModel(load_model(directory, classes, len(ANGLES), device, "HPS_ORIENTATION_MODEL_DIR"), device)


def load_unwarping(directory: Path, device: str) -> UnwarpingModel:
    """Raises ModelFileError."""
    return UnwarpingModel(
        load_model(directory, {"uvdoc": "UVDocModel"}, None, device, "HPS_UNWARPING_MODEL_DIR"), device
    )
