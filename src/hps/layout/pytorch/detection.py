"""PP-DocLayoutV2 and V3: pages in batches through the model, rows and outlines out (SPEC C.2, C.3, C.5)."""

import logging
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from hps.document import Detections
from hps.layout.detector import Finish
from hps.layout.labels import LABELS
from hps.layout.page_inputs import LayoutInput, Stretched
from hps.layout.polygons import mask_polygons
from hps.layout.pytorch.checkpoint import load_model
from hps.layout.pytorch.decoding import BOX, QUERY, SCORE, decoded, packed_masks

log = logging.getLogger(__name__)

CLASSES: Final = {
    "pp_doclayout_v2": "PPDocLayoutV2ForObjectDetection",
    "pp_doclayout_v3": "PPDocLayoutV3ForObjectDetection",
}
# Rows below it never leave the model, so a request's threshold below it acts as if it were this. The releases use 0.3
# to 0.5; of the 300 rows of a page all but some dozen are far below either, and each kept row costs an outline.
SCORE_FLOOR: Final = 0.05
_WARM_RUNS: Final = 3  # a CUDA graph is recorded by the second


@dataclass(frozen=True, slots=True)
class Batches:
    """How many pages go through the model at once: `largest` at most, and nothing but `sizes` where that is given."""

    largest: int
    sizes: tuple[int, ...] = ()

    def size_for(self, pages: int) -> int:
        return next((size for size in self.sizes if size >= pages), pages)


def fixed_batches(largest: int) -> Batches:
    """Two sizes: each costs minutes of compilation, and a full batch of compiled code takes less time (10 ms on an
    H200) than a single page without compilation (26 ms)."""
    return Batches(largest, tuple(sorted({1, largest})))


class DetectionModel:
    """Owns a PP-DocLayout model on one device. Made and called by one thread (CUDA graphs belong to their thread)."""

    def __init__(self, model: Any, device: str, batches: Batches, form: Stretched, *, compiled: bool) -> None:
        self._device = device
        self._batches = batches
        self._shape = (form.height, form.width, 3)
        self._dtype = torch.float16 if device != "cpu" else torch.float32
        memory_format = torch.channels_last if device != "cpu" else torch.preserve_format
        self._model = model.to(dtype=self._dtype, memory_format=memory_format)
        self._forward: Callable[[Any], tuple[Any, Any]] = self._rows_and_masks
        self._is_compiled = compiled
        if compiled:
            mode = "reduce-overhead" if device != "cpu" else None
            self._forward = torch.compile(self._rows_and_masks, mode=mode, dynamic=False)
        # Page-locked memory on a GPU, so that the copy runs at full speed.
        self._staging = torch.zeros((batches.largest, *self._shape), dtype=torch.uint8, pin_memory=device != "cpu")

    def warm_up(self) -> None:
        """Runs every batch size that requests will meet, so that none of them waits for kernels to be chosen."""
        sizes = self._batches.sizes
        if not sizes:
            sizes = tuple(range(1, self._batches.largest + 1)) if self._device != "cpu" else (1,)
        blank = np.full(self._shape, 255, np.uint8)
        for size in sizes:
            started = time.perf_counter()
            for _ in range(_WARM_RUNS if self._device != "cpu" else 1):
                self.detect([LayoutInput(blank, 100, 100)] * size)
            log.info("layout model warm for %d pages after %.1f s", size, time.perf_counter() - started)

    def detect(self, pages: Sequence[LayoutInput]) -> list[Finish]:
        """As LayoutBackend.detect, for at most `Batches.largest` pages. Rows: those above SCORE_FLOOR, best first."""
        size = self._batches.size_for(len(pages))
        staging = self._staging.numpy()
        for place, page in enumerate(pages):
            if page.image.shape != self._shape:
                raise ValueError(f"a page of shape {page.image.shape} instead of {self._shape}")
            staging[place] = page.image
        with torch.inference_mode():
            if self._is_compiled:
                torch.compiler.cudagraph_mark_step_begin()
            images = self._staging[:size].to(self._device, non_blocking=True)
            on_device, masks = self._forward(images)
            rows = on_device[: len(pages)].cpu().numpy()
            kept = rows[:, :, SCORE] > SCORE_FLOOR
            outlines = _packed_on_host(masks, rows, kept)
        columns = masks.shape[-1] if masks is not None else 0
        return [
            partial(_finished, rows[place, kept[place]], packed, columns, (page.width, page.height))
            for place, (page, packed) in enumerate(zip(pages, outlines, strict=True))
        ]

    def _rows_and_masks(self, images: Any) -> tuple[Any, Any]:
        """images: uint8 (b, h, w, 3) BGR, on the device. Rows as `decoded`; mask logits, None from PP-DocLayoutV2."""
        pixels = images.flip(-1).permute(0, 3, 1, 2).to(self._dtype) / 255
        outputs = self._model(pixel_values=pixels)
        rows = decoded(outputs.logits, outputs.pred_boxes, outputs.order_logits)
        return rows, getattr(outputs, "out_masks", None)


def _packed_on_host(masks: Any, rows: NDArray[np.float32], kept: NDArray[np.bool_]) -> list[NDArray[np.uint8] | None]:
    """The masks of each page's kept rows as bits; None a page without masks."""
    if masks is None:
        return [None] * len(rows)
    pages, places = np.nonzero(kept)
    queries = rows[pages, places, QUERY].astype(np.int64)
    chosen = (torch.from_numpy(indices).to(masks.device) for indices in (pages, queries))
    packed: NDArray[np.uint8] = packed_masks(masks, *chosen).cpu().numpy()
    return list(np.split(packed, np.cumsum(kept.sum(axis=1))[:-1]))


def _finished(
    rows: NDArray[np.float32], packed: NDArray[np.uint8] | None, columns: int, page_size: tuple[int, int]
) -> Detections:
    """rows: as `decoded`, the kept ones. packed: their masks, `columns` bits a line."""
    width, height = page_size
    scaled = rows[:, :QUERY].copy()
    scaled[:, BOX] *= np.array([width, height, width, height], np.float32)
    if packed is None:
        return Detections(scaled)
    masks = np.unpackbits(packed, axis=-1, count=columns)
    return Detections(scaled, mask_polygons(scaled[:, BOX], masks, page_size))


def require_compiler() -> None:
    """Raises ValueError where the C compiler is missing that torch.compile calls for each kernel's launcher."""
    if not any(shutil.which(name) for name in (os.environ.get("CC"), "gcc", "clang", "cc") if name):
        raise ValueError(
            "HPS_LAYOUT_COMPILE needs a C compiler: build the pipeline on a base image with gcc, or leave it off"
        )


def use_cache(folder: Path) -> None:
    """Compiled code is kept in `folder` (made if absent), and found there by the next start."""
    folder.mkdir(parents=True, exist_ok=True)
    # The only way to say it that holds for the compiler's worker processes, too.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")


def load_detection(
    directory: Path, form: Stretched, device: str, max_batch: int, *, compiled: bool, cache: Path | None
) -> DetectionModel:
    """A warm model. cache: where compiled code is kept between starts. Raises ModelFileError, and ValueError where
    nothing can be compiled."""
    if compiled:
        require_compiler()
    model = load_model(directory, CLASSES, len(LABELS), device, "HPS_LAYOUT_MODEL_DIR")
    if compiled and cache is not None:
        use_cache(cache)
    batches = fixed_batches(max_batch) if compiled else Batches(max_batch)
    detection = DetectionModel(model, device, batches, form, compiled=compiled)
    detection.warm_up()
    return detection
