import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hps.layout.geometry import (
    box_areas,
    box_corners,
    box_overlap,
    intersections,
    is_convex,
    polygon_area,
    polygon_intersection,
    polygon_smaller_area_ratio,
    signed_area,
    smaller_area_ratios,
)

SQUARE = box_corners((0, 0, 10, 10))
L_SHAPE = ((0, 0), (10, 0), (10, 4), (4, 4), (4, 10), (0, 10))
U_SHAPE = ((0, 0), (10, 0), (10, 10), (8, 10), (8, 2), (2, 2), (2, 10), (0, 10))

corners = st.floats(-50, 50, allow_nan=False, width=32)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[float, float, float, float]:
    x, y = draw(corners), draw(corners)
    return x, y, x + draw(st.floats(0.5, 60, width=32)), y + draw(st.floats(0.5, 60, width=32))


@st.composite
def star_shapes(draw: st.DrawFn) -> tuple[tuple[float, float], ...]:
    """Simple polygons, mostly concave: one point a direction around a centre."""
    radii = draw(st.lists(st.floats(1, 30), min_size=3, max_size=9))
    x, y = draw(corners), draw(corners)
    turns = [2 * math.pi * place / len(radii) for place in range(len(radii))]
    return tuple((x + r * math.cos(a), y + r * math.sin(a)) for r, a in zip(radii, turns, strict=True))


def test_clockwise_on_the_screen_is_positive() -> None:
    assert signed_area(SQUARE) == 100
    assert signed_area(SQUARE[::-1]) == -100


def test_a_line_has_no_area() -> None:
    assert polygon_area(((0, 0), (5, 5))) == 0


def test_inverted_boxes_have_no_area() -> None:
    assert box_areas(np.array([[5.0, 5, 1, 9]])).tolist() == [0]


def test_inclusive_intersection_counts_the_last_pixel() -> None:
    rows = np.array([[0.0, 0, 4, 4], [4, 0, 8, 4]])
    assert intersections(rows)[0, 1] == 0
    assert intersections(rows, inclusive=True)[0, 1] == 5


def test_boxes_without_area_share_nothing() -> None:
    assert smaller_area_ratios(np.array([[0.0, 0, 9, 9], [3, 3, 3, 8]])).tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize(("shape", "expected"), [(SQUARE, True), (L_SHAPE, False), (SQUARE[::-1], True)])
def test_convexity(shape: tuple[tuple[float, float], ...], expected: bool) -> None:
    assert is_convex(shape) is expected


def test_two_concave_polygons_share_what_they_share() -> None:
    upside_down = tuple((x, 12 - y) for x, y in U_SHAPE)
    # The legs cross in two 2 x 8 strips; each base lies in the other's gap but for its ends.
    assert polygon_intersection(U_SHAPE, upside_down) == pytest.approx(2 * 2 * 8)


def test_a_polygon_in_the_dent_of_another_shares_nothing() -> None:
    assert polygon_intersection(L_SHAPE, box_corners((5, 5, 9, 9))) == pytest.approx(0)


def test_a_polygon_without_area_has_no_ratio() -> None:
    assert polygon_smaller_area_ratio(SQUARE, ((0, 0), (1, 1), (2, 2))) == 0


@settings(max_examples=50, deadline=None)
@given(star_shapes(), boxes())
def test_box_overlap_agrees_with_the_general_way(
    shape: tuple[tuple[float, float], ...], box: tuple[float, ...]
) -> None:
    assert box_overlap(shape, box) == pytest.approx(polygon_intersection(shape, box_corners(box)), abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(star_shapes(), star_shapes())
def test_intersection_is_symmetric_and_within_both(
    first: tuple[tuple[float, float], ...], second: tuple[tuple[float, float], ...]
) -> None:
    shared = polygon_intersection(first, second)
    assert shared == pytest.approx(polygon_intersection(second, first), abs=1e-6)
    assert 0 <= shared <= min(polygon_area(first), polygon_area(second)) + 1e-9


@settings(max_examples=50, deadline=None)
@given(star_shapes())
def test_a_polygon_shares_all_of_itself(shape: tuple[tuple[float, float], ...]) -> None:
    assert polygon_intersection(shape, shape[::-1]) == pytest.approx(polygon_area(shape), abs=1e-6)
