import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from hps.ink import is_blank

WHITE = (255, 255, 255)


def paper(colour: tuple[int, int, int] = WHITE, size: tuple[int, int] = (1190, 1684)) -> NDArray[np.uint8]:
    return np.full((size[1], size[0], 3), colour, np.uint8)


def with_text(page: NDArray[np.uint8], text: str, colour: int = 0) -> NDArray[np.uint8]:
    cv2.putText(page, text, (80, 90), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (colour,) * 3, 2, cv2.LINE_AA)
    return page


def grainy(page: NDArray[np.uint8], sigma: float) -> NDArray[np.uint8]:
    noise = np.random.default_rng(1).normal(0, sigma, page.shape)
    return np.clip(page + noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("colour", [WHITE, (0, 0, 0), (200, 220, 240), (30, 60, 90)])
def test_plain_paper_of_any_colour_is_blank(colour: tuple[int, int, int]) -> None:
    assert is_blank(paper(colour))


def test_shaded_and_grainy_paper_is_blank() -> None:
    page = paper()
    page[:] = np.linspace(180, 250, page.shape[0], dtype=np.uint8)[:, None, None]
    assert is_blank(grainy(page, 6))


def test_single_specks_are_no_ink() -> None:
    page = paper()
    rng = np.random.default_rng(2)
    page[rng.integers(0, page.shape[0], 60), rng.integers(0, page.shape[1], 60)] = 0
    assert is_blank(page)


@pytest.mark.parametrize("text", ["7", "-", "i"])
@pytest.mark.parametrize("colour", [0, 120, 200])
def test_one_character_is_ink(text: str, colour: int) -> None:
    assert not is_blank(with_text(paper(), text, colour))


def test_white_text_on_dark_ground_is_ink() -> None:
    assert not is_blank(with_text(paper((20, 20, 20)), "Hello", 255))


def test_a_picture_over_the_whole_page_is_ink() -> None:
    page = paper()
    page[:] = np.random.default_rng(3).integers(0, 255, (27, 19, 3), np.uint8).repeat(64, 0).repeat(64, 1)[:1684, :1190]
    assert not is_blank(page)


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (3, 3), (40, 20)])
def test_tiny_pages_are_no_trouble(size: tuple[int, int]) -> None:
    assert is_blank(paper(size=size))
