import cv2
import numpy as np
import pytest

from hps.layout.page_inputs import Bounded, CentreCrop, CornerAligned, InputForm, Stretched, layout_input


def page(height: int, width: int) -> np.ndarray:
    return np.zeros((height, width, 3), np.uint8)


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("form", "height", "width"),
    [
        (Bounded(100), 80, 100),
        (Stretched(100, 80), 80, 100),
        (CornerAligned(100, 80), 80, 100),
        (CentreCrop(90, 80), 80, 80),
    ],
)
def test_an_image_that_fits_is_passed_without_a_copy(form: InputForm, height: int, width: int) -> None:
    image = page(height, width)
    assert form.prepared(image) is image


@pytest.mark.parametrize("form", [Bounded(64), Stretched(80, 80), CornerAligned(48, 71), CentreCrop(64, 56)])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 40_000), (40_000, 2), (300, 200)])
def test_any_page_can_be_prepared(form: InputForm, height: int, width: int) -> None:
    prepared = layout_input(form, np.full((height, width, 3), 77, np.uint8))
    assert (prepared.width, prepared.height) == (width, height)
    assert (prepared.image == 77).all()
    assert max(prepared.image.shape[:2]) <= 80


def test_a_bounded_page_keeps_its_shape() -> None:
    assert Bounded(100).prepared(page(400, 200)).shape == (100, 50, 3)
    assert Bounded(100).prepared(page(1, 5000)).shape == (1, 100, 3)


def test_bounding_averages() -> None:
    image = page(200, 200)
    image[::2] = 200
    assert np.unique(Bounded(100).prepared(image)).tolist() == [100]


def test_stretching_is_cubic() -> None:
    image = noise(90, 50)
    expected = cv2.resize(image, (80, 80), interpolation=cv2.INTER_CUBIC)
    np.testing.assert_array_equal(Stretched(80, 80).prepared(image), expected)


def test_aligned_corners_are_the_page_s_own() -> None:
    image = noise(90, 50)
    prepared = CornerAligned(20, 30).prepared(image)
    assert prepared.shape == (30, 20, 3)
    for corner in ((0, 0), (0, -1), (-1, 0), (-1, -1)):
        assert prepared[corner].tolist() == image[corner].tolist()


@pytest.mark.parametrize(("height", "width"), [(600, 500), (500, 600), (100, 130)])
def test_the_crop_is_the_middle_of_the_scaled_page(height: int, width: int) -> None:
    image = cv2.GaussianBlur(noise(height, width), (0, 0), 6)
    scale = 256 / min(height, width)
    scaled = cv2.resize(image, (round(width * scale), round(height * scale)))
    top, left = (scaled.shape[0] - 224) // 2, (scaled.shape[1] - 224) // 2
    expected = scaled[top : top + 224, left : left + 224].astype(int)
    assert np.abs(CentreCrop(256, 224).prepared(image).astype(int) - expected).mean() < 1
