import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hps.layout.geometry import box_corners, polygon_area
from hps.layout.polygons import mask_polygon, mask_polygons, quadrilateral, shaped_polygons

BOX = (50, 50, 150, 100)
RECTANGLE = box_corners(BOX)
TILTED = np.array([[50, 70], [145, 50], [150, 80], [55, 100]], np.float32)
# Fills too little of its quadrilateral to be taken for one.
CROSS_X = [90, 110, 110, 150, 150, 110, 110, 90, 90, 50, 50, 90]
CROSS_Y = [50, 50, 65, 65, 85, 85, 100, 100, 85, 85, 65, 65]
CROSS = np.array([CROSS_X, CROSS_Y], np.float32).T


def mask(*rectangles: tuple[int, int, int, int], size: tuple[int, int] = (100, 60)) -> np.ndarray:
    pixels = np.zeros(size[::-1], np.uint8)
    for x1, y1, x2, y2 in rectangles:
        pixels[y1:y2, x1:x2] = 1
    return pixels


def test_an_empty_mask_has_no_outline() -> None:
    assert mask_polygon(mask(), 100) is None


def test_a_single_dent_is_closed() -> None:
    dented = mask((0, 0, 100, 60))
    dented[0:8, 50] = 0
    outline = mask_polygon(dented, 400)
    assert outline is not None
    assert set(outline[:, 1]) == {0, 59}


def test_a_pixel_is_an_outline_too() -> None:
    outline = mask_polygon(mask((5, 5, 6, 6)), 100)
    assert outline is not None
    assert len(outline) <= 1


def test_a_box_without_mask_keeps_its_rectangle() -> None:
    outlines = mask_polygons(np.array([[10.0, 10, 50, 30]]), np.zeros((1, 200, 200), np.uint8), (800, 800))
    assert outlines[0].tolist() == [[10, 10], [50, 10], [50, 30], [10, 30]]


def test_masks_are_scaled_to_the_page() -> None:
    masks = np.zeros((1, 200, 200), np.uint8)
    masks[0, 50:100, 20:60] = 1
    outline = mask_polygons(np.array([[40.0, 200, 120, 400]]), masks, (400, 800))[0]
    assert outline.min(axis=0).tolist() == [40, 200]
    assert outline.max(axis=0).tolist() == [119, 399]


@settings(max_examples=50, deadline=None)
@given(arrays(np.uint8, (24, 32), elements=st.integers(0, 1)))
def test_outlines_of_any_mask_are_finite(pixels: np.ndarray) -> None:
    outline = mask_polygon(pixels, 32)
    assert outline is None or np.isfinite(outline).all()


def test_rect_mode_reports_no_polygon() -> None:
    assert shaped_polygons([BOX], [TILTED], "rect") == [None]


@pytest.mark.parametrize("outline", [None, TILTED[:3], TILTED[:0]])
@pytest.mark.parametrize("mode", ["quad", "poly", "auto"])
def test_too_few_points_count_as_the_rectangle(outline: np.ndarray | None, mode: str) -> None:
    assert shaped_polygons([BOX], [outline], mode) == [RECTANGLE]  # type: ignore[arg-type]


def test_auto_takes_the_polygon_when_the_quadrilateral_is_too_loose() -> None:
    cross = shaped_polygons([BOX], [CROSS], "poly")
    tilted = shaped_polygons([(45, 45, 155, 105)], [CROSS * 0.6 + 40], "auto")
    assert len(cross[0] or ()) == 12
    assert len(tilted[0] or ()) == 12


def test_auto_takes_the_quadrilateral_only_clear_of_the_box_before() -> None:
    far, near = (0, 0, 20, 20), (40, 40, 100, 80)
    clear = shaped_polygons([far, BOX], [np.array(box_corners(far)), TILTED], "auto")
    touching = shaped_polygons([near, BOX], [np.array(box_corners(near)), TILTED], "auto")
    assert clear[1] == quadrilateral(TILTED)
    assert touching[1] == tuple(map(tuple, TILTED.tolist()))


def test_a_quadrilateral_starts_next_to_the_origin_and_runs_clockwise() -> None:
    quad = quadrilateral(TILTED)
    assert quad[0] == min(quad, key=sum)
    assert quad[1][0] > quad[0][0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=4, max_size=12))
def test_any_points_give_a_quadrilateral(points: list[tuple[int, int]]) -> None:
    quad = quadrilateral(np.array(points, np.float32))
    assert len(quad) == 4
    assert quad[0] == min(quad, key=lambda point: np.float32(point[0]) + np.float32(point[1]))
    assert polygon_area(quad) >= 0
