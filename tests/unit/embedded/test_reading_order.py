import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hps.embedded.boxes import as_boxes
from hps.embedded.reading_order import reading_order

TITLE = (100, 50, 900, 100)
LEFT = [(50, 200, 480, 400), (50, 420, 480, 700), (50, 730, 480, 900)]
RIGHT = [(520, 200, 950, 405), (520, 425, 950, 600), (520, 620, 950, 900)]


def order(*boxes: tuple[float, float, float, float]) -> list[int]:
    return reading_order(as_boxes(boxes))


def test_no_boxes() -> None:
    assert order() == []


def test_one_column_from_top_to_bottom() -> None:
    assert order((0, 300, 500, 400), (0, 0, 500, 100), (0, 150, 500, 250)) == [1, 2, 0]


def test_title_then_left_column_then_right_column() -> None:
    assert order(*RIGHT, TITLE, *LEFT) == [3, 4, 5, 6, 0, 1, 2]


def test_chance_gaps_at_one_height_do_not_break_columns() -> None:
    left = [(50, 200, 480, 400), (50, 420, 480, 700)]
    right = [(520, 200, 950, 400), (520, 420, 950, 700)]
    assert order(TITLE, *left, *right) == [0, 1, 2, 3, 4]


def test_wide_figure_between_column_pairs_parts_them() -> None:
    figure = (50, 500, 950, 600)
    above = [(50, 200, 480, 480), (520, 200, 950, 480)]
    below = [(50, 620, 480, 900), (520, 620, 950, 900)]
    assert order(*below, figure, *above) == [3, 4, 2, 0, 1]


def test_date_on_the_right_comes_before_the_address_below_it() -> None:
    date, address, text = (700, 50, 950, 80), (50, 100, 300, 200), (50, 250, 950, 600)
    assert order(text, address, date) == [2, 1, 0]


def test_three_columns() -> None:
    columns = [(x, y, x + 280, y + 180) for x in (0, 300, 600) for y in (0, 200, 400)]
    assert order(*columns) == list(range(9))


def test_slightly_overlapping_boxes_are_still_cut() -> None:
    assert order((0, 99, 500, 200), (0, 0, 500, 100)) == [1, 0]


def test_interlocked_boxes_go_around_the_widest() -> None:
    wide, above, below = (0, 40, 1000, 160), (600, 0, 900, 60), (100, 140, 400, 220)
    assert order(below, wide, above) == [2, 1, 0]


side = st.integers(0, 100)


@given(st.lists(st.tuples(side, side, side, side), max_size=30))
def test_order_is_a_permutation(corners: list[tuple[int, int, int, int]]) -> None:
    boxes = as_boxes([(min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in corners])
    assert sorted(reading_order(boxes)) == list(range(len(boxes)))


def test_many_boxes_are_ordered_quickly() -> None:
    x, y = np.divmod(np.arange(600), 60)
    boxes = as_boxes(np.stack([x * 100, y * 20, x * 100 + 90, y * 20 + 15], 1))
    assert reading_order(boxes) == list(range(600))
