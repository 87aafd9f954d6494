import numpy as np

from hps.layout.page_inputs import REMAP_SIDE, Grid
from hps.layout.unwarping import unwarped


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (height, width, 3), dtype=np.uint8)


def flat_grid(rows: int = 5, columns: int = 4) -> Grid:
    x, y = np.meshgrid(np.linspace(-1, 1, columns), np.linspace(-1, 1, rows))
    return np.stack([x, y], axis=-1).astype(np.float32)


def test_a_flat_page_stays_as_it_is() -> None:
    image = noise(600, 401)  # more lines than are worked on at once
    result = unwarped(image, flat_grid())
    assert np.abs(result.astype(int) - image).max() <= 8  # positions are rounded to 1/32 pixel
    assert (result == image).mean() > 0.9


def test_a_mirrored_grid_mirrors_the_page() -> None:
    image = noise(40, 33)
    mirrored = flat_grid() * np.array([-1, 1], np.float32)
    assert np.abs(unwarped(image, mirrored).astype(int) - image[:, ::-1]).max() <= 8


def test_a_grid_of_one_half_enlarges_it() -> None:
    image = np.zeros((100, 100, 3), np.uint8)
    image[:, 50:] = 200
    right_half = (flat_grid() + np.array([1, 0], np.float32)) * np.array([0.5, 1], np.float32)
    assert (unwarped(image, right_half)[:, 2:] == 200).all()


def test_beyond_the_page_is_black() -> None:
    image = np.full((50, 50, 3), 255, np.uint8)
    shifted = flat_grid() + np.array([1, 0], np.float32)
    result = unwarped(image, shifted)
    assert (result[:, :25] == 255).all() and (result[:, 26:] == 0).all()


def test_a_page_too_long_to_be_warped_stays_as_it_is() -> None:
    image = noise(REMAP_SIDE + 1, 2)
    assert unwarped(image, flat_grid()) is image


def test_a_page_of_one_pixel() -> None:
    assert unwarped(noise(1, 1), flat_grid()).tolist() == noise(1, 1).tolist()
