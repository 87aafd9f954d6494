"""A plugin for vLLM 0.26.0: all images of a step through the vision tower in one packed call, as 0.33.0 does by itself.

It stands in for that release where only 0.26.0 runs. vLLM loads it in each of its processes by the entry point that
vlm_replicas.py writes; without HPS_BENCH_PACKED in the environment it changes nothing.
"""

import os
from itertools import accumulate
from typing import Any


def register() -> None:
    if not os.environ.get("HPS_BENCH_PACKED"):
        return
    from vllm.model_executor.models import paddleocr_vl

    paddleocr_vl.PaddleOCRVLForConditionalGeneration._process_image_input = _packed


def _packed(model: Any, image_input: Any) -> Any:
    """In the place of the loop over images: their patches behind each other, attention kept within each image."""
    import torch

    grids = [tuple(int(side) for side in grid.tolist()) for grid in image_input.image_grid_thw]
    patches = image_input.pixel_values
    if isinstance(patches, list | tuple):
        patches = torch.cat([each.flatten(0, 1) if each.dim() == 5 else each for each in patches])
    elif patches.dim() == 5:
        patches = patches.flatten(0, 1)
    sizes = [frames * rows * columns for frames, rows, columns in grids]
    starts = torch.tensor([0, *accumulate(sizes)], dtype=torch.int32)
    positions = torch.cat([torch.arange(size) % (grid[1] * grid[2]) for size, grid in zip(sizes, grids, strict=True)])
    encoded = model.visual(
        pixel_values=patches.type(model.visual.dtype),
        image_grid_thw=grids,
        position_ids=positions.to(patches.device, non_blocking=True),
        interpolate_pos_encoding=True,
        cu_seqlens=starts.to(patches.device, non_blocking=True),
    )
    return model.mlp_AR(tuple(encoded.squeeze(0).split(sizes, dim=0)), image_input.image_grid_thw)
