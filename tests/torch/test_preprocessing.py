"""Orientation and unwarping on real classes of transformers, with tiny random weights."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from hps.embedded.models import ModelFileError
from hps.layout.page_inputs import CentreCrop, CornerAligned, LayoutInput, layout_input
from hps.layout.pytorch.preprocessing import ANGLES, load_orientation, load_unwarping
from hps.layout.unwarping import unwarped
from tests.torch import checkpoints
from tests.torch.reference import processor


def picture(height: int, width: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    noise = random.integers(0, 256, (6, 6, 3)) * random.random(3)
    return cv2.resize(noise.astype(np.uint8), (width, height), interpolation=cv2.INTER_LINEAR)


def test_orientations_are_the_best_classes(tmp_path: Path) -> None:
    model = checkpoints.orientation()
    pages = [layout_input(CentreCrop(256, 224), picture(400, 300, seed)) for seed in range(8)]
    found = load_orientation(checkpoints.saved(model, tmp_path), "cpu").orientations(pages)
    # The processor normalises RGB pictures with the statistics the other way round, then turns them into BGR.
    mean, std = np.array([0.406, 0.456, 0.485]), np.array([0.225, 0.224, 0.229])
    pixels = np.stack([((page.image[..., ::-1] / 255 - mean) / std)[..., ::-1] for page in pages])
    with torch.inference_mode():
        logits = model(pixel_values=torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2).float()).last_hidden_state
    assert found == [ANGLES[index] for index in logits.argmax(dim=1).tolist()]
    assert len(set(found)) > 1


def test_a_classifier_of_something_else_is_refused(tmp_path: Path) -> None:
    directory = checkpoints.saved(checkpoints.orientation(classes=2), tmp_path)
    with pytest.raises(ModelFileError, match=r"HPS_ORIENTATION_MODEL_DIR.*2 classes apart instead of 4"):
        load_orientation(directory, "cpu")


def test_a_page_is_flattened_as_transformers_does(tmp_path: Path) -> None:
    model = checkpoints.unwarping()
    image = picture(500, 380, 1)
    form = CornerAligned(488, 712)
    backend = load_unwarping(checkpoints.saved(model, tmp_path), "cpu")
    (grid,) = backend.grids([layout_input(form, image)])
    assert grid.dtype == np.float32 and grid.shape == (45, 31, 2)
    # The processor's own steps: BGR from 0 to 1, aligned corners, the model, the mesh enlarged to the page.
    original = torch.from_numpy(image).permute(2, 0, 1).float() / 255
    small = torch.nn.functional.interpolate(original[None], size=(712, 488), mode="bilinear", align_corners=True)
    with torch.inference_mode():
        mesh = model(pixel_values=small).last_hidden_state
        (rectified,) = processor("uvdoc", "UVDocImageProcessor").post_process_document_rectification(mesh, [original])
    assert np.abs(grid - mesh[0].permute(1, 2, 0).numpy()).max() < 0.02  # the small picture was rounded to bytes
    # That function turns the channels of what it is given.
    difference = np.abs(unwarped(image, grid).astype(int) - rectified["images"].numpy()[..., ::-1].astype(int))
    assert np.percentile(difference, 99) <= 6 and difference.mean() < 1.5


def test_pages_of_a_batch_keep_their_places(tmp_path: Path) -> None:
    backend = load_unwarping(checkpoints.saved(checkpoints.unwarping(), tmp_path), "cpu")
    pages = [layout_input(CornerAligned(488, 712), picture(90, 70, seed)) for seed in range(2)]
    together = backend.grids(pages)
    for grid, page in zip(together, pages, strict=True):
        np.testing.assert_allclose(grid, backend.grids([page])[0], atol=1e-4)
    assert np.abs(together[0] - together[1]).max() > 0.01


def test_a_blank_page_has_an_orientation_and_a_grid(tmp_path: Path) -> None:
    def white(height: int, width: int) -> LayoutInput:
        return LayoutInput(np.full((height, width, 3), 255, np.uint8), width, height)

    orientation = load_orientation(checkpoints.saved(checkpoints.orientation(), tmp_path / "o"), "cpu")
    unwarping = load_unwarping(checkpoints.saved(checkpoints.unwarping(), tmp_path / "u"), "cpu")
    assert orientation.orientations([white(224, 224)])[0] in ANGLES
    assert np.isfinite(unwarping.grids([white(712, 488)])[0]).all()
