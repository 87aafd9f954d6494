"""Pictures of the answer: their size, and overlays that can be read (SPEC A.4)."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hps.document import Image, Region, Spotting
from hps.output_images import encode, layout_overlay, limited_size, spotting_overlay
from tests.unit.pipeline_parts import decoded

LIMIT = (2000, 2000)


def paper(width: int, height: int) -> Image:
    return np.full((height, width, 3), 255, np.uint8)


def coloured(image: Image) -> NDArray[np.bool_]:
    """Mask of the pixels that are no grey."""
    return np.asarray(np.ptp(image.astype(int), axis=2) > 40)


@given(st.tuples(*[st.integers(1, 70_000)] * 2), st.tuples(*[st.integers(1, 5000)] * 2))
def test_no_size_exceeds_the_limit_or_vanishes(size: tuple[int, int], limit: tuple[int, int]) -> None:
    width, height = limited_size(size, limit)
    assert 1 <= width <= limit[0]
    assert 1 <= height <= limit[1]
    assert width <= size[0]
    assert height <= size[1]


def test_an_image_within_the_limit_keeps_its_size_and_pixels() -> None:
    image = cv2.rectangle(paper(64, 48), (8, 8), (40, 40), (0, 0, 0), cv2.FILLED)
    back = decoded(encode(image, LIMIT))
    assert np.abs(back.astype(int) - image).max() < 20


@pytest.mark.parametrize(
    ("size", "returned"), [((300, 100), (200, 66)), ((100, 400), (50, 200)), ((4000, 1), (200, 1))]
)
def test_a_larger_one_is_shrunk_in_proportion(size: tuple[int, int], returned: tuple[int, int]) -> None:
    assert decoded(encode(paper(*size), (200, 200))).shape[1::-1] == returned


def test_an_overlay_outlines_and_names_each_region_and_spares_the_page() -> None:
    page = paper(400, 300)
    regions = [Region(22, "text", 0.87, (100, 100, 300, 200), 1), Region(14, "image", 0.5, (20, 220, 60, 280))]
    drawn = layout_overlay(page, regions, LIMIT)
    assert (page == 255).all()
    marks = coloured(drawn)
    assert marks[100, 110:290].all()  # the outline
    assert (drawn[240, 25:55] != 255).any(axis=1).all()  # a tint inside
    assert marks[88:100, 102:160].mean() > 0.5  # the label, on a ground of its colour
    assert not marks[:60, 320:].any()


def test_an_overlay_follows_the_polygon() -> None:
    triangle = ((200.0, 50.0), (300.0, 250.0), (100.0, 250.0))
    drawn = layout_overlay(paper(400, 300), [Region(22, "t", 0.9, (100, 50, 300, 250), 1, triangle)], LIMIT)
    tinted = np.any(drawn != 255, axis=2)
    assert tinted[200, 200]
    assert not tinted[120, 290]


def test_an_overlay_is_drawn_in_the_size_of_the_answer() -> None:
    drawn = layout_overlay(paper(4000, 3000), [Region(22, "text", 0.9, (1000, 1000, 3000, 2000), 1)], (400, 400))
    assert drawn.shape == (300, 400, 3)
    assert coloured(drawn)[100, 110:290].all()


@given(
    st.tuples(*[st.integers(1, 300)] * 2),
    st.lists(st.tuples(*[st.integers(-50, 400)] * 4), max_size=4),
    st.integers(0, 24),
)
def test_no_region_is_too_odd_to_be_drawn(
    size: tuple[int, int], boxes: list[tuple[int, int, int, int]], cls_id: int
) -> None:
    regions = [Region(cls_id, "label", 1.0, box, number) for number, box in enumerate(boxes)]
    assert layout_overlay(paper(*size), regions, (100, 100)).dtype == np.uint8


def test_spotted_lines_are_outlined_and_numbered() -> None:
    line = ((40.0, 100.0), (200.0, 100.0), (200.0, 130.0), (40.0, 130.0))
    page = paper(300, 200)
    drawn = spotting_overlay(page, Spotting((line,), ("x",)), LIMIT)
    marks = coloured(drawn)
    assert marks[100, 50:190].all()
    assert marks[80:100, 40:50].any()
    assert (page == 255).all()
