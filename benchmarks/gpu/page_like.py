"""The outputs of a page with many regions laid over those of random weights, which find nothing.

The model runs as it is; what it says only shifts the laid-over values a little, so that a compiler cannot leave it out.
Everything behind it (decoding, masks, outlines, answers) then has as much to do as for a real page.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from hps.layout.page_inputs import Stretched
from hps.layout.pytorch.checkpoint import load_model
from hps.layout.pytorch.detection import CLASSES, Batches, DetectionModel, fixed_batches

LIKELY, UNLIKELY, NEVER = 2.0, -2.0, -9.0  # logits: 0.88, 0.12, 0.0001


class PageLike:
    """Stands for a PP-DocLayoutV3 whose pages have `regions` likely boxes and half as many unlikely ones."""

    def __init__(self, model: Any, regions: int, mask_side: int) -> None:
        self._model = model
        queries, classes = model.config.num_queries, model.config.num_labels
        generator = torch.Generator().manual_seed(1)
        centres = 0.2 + 0.6 * torch.rand((queries, 2), generator=generator)
        sizes = torch.tensor([0.12, 0.012]) + torch.tensor([0.34, 0.06]) * torch.rand((queries, 2), generator=generator)
        self._boxes = torch.cat([centres, sizes], dim=-1)
        self._logits = torch.full((queries, classes), NEVER)
        labels = torch.randint(classes, (queries,), generator=generator)
        for query in range(min(queries, regions * 3 // 2)):
            self._logits[query, labels[query]] = LIKELY if query < regions else UNLIKELY
        self._masks = torch.stack([_mask(box, mask_side) for box in self._boxes])

    def to(self, **options: Any) -> "PageLike":
        self._model.to(**options)
        parameter = next(self._model.parameters())
        self._boxes, self._logits, self._masks = (
            values.to(parameter.device, parameter.dtype) for values in (self._boxes, self._logits, self._masks)
        )
        return self

    def __call__(self, pixel_values: Any) -> Any:
        real = self._model(pixel_values=pixel_values)
        return SimpleNamespace(
            logits=self._logits + _little(real.logits),
            pred_boxes=self._boxes + _little(real.pred_boxes),
            order_logits=real.order_logits,
            out_masks=self._masks + _little(real.out_masks),
        )


def _little(values: Any) -> Any:
    return values.clamp(-1e-3, 1e-3)


def _mask(box: Any, side: int) -> Any:
    """Positive inside the box, whose first line starts late."""
    x, y, width, height = (box * side).tolist()
    left, right = int(x - width / 2), int(x + width / 2) + 1
    top, bottom = int(y - height / 2), int(y + height / 2) + 1
    mask = torch.full((side, side), -1.0)
    mask[top:bottom, left:right] = 1.0
    if bottom - top > 4:
        mask[top : top + 2, left : (left + right) // 2] = -1.0
    return mask


def load_page_like(
    directory: Path, form: Stretched, device: str, max_batch: int, regions: int, *, compiled: bool
) -> DetectionModel:
    """As hps.layout.pytorch.detection.load_detection, with a PageLike in the place of the model."""
    model = PageLike(load_model(directory, CLASSES, 25, device, "--folder"), regions, form.width // 4)
    batches = fixed_batches(max_batch) if compiled else Batches(max_batch)
    detection = DetectionModel(model, device, batches, form, compiled=compiled)
    detection.warm_up()
    return detection
