from hypothesis import given, settings
from hypothesis import strategies as st

from hps.document import IntBox, Polygon, Region
from hps.layout.labels import LABELS
from hps.layout.overlap import kept_regions

WHOLE: IntBox = (0, 0, 100, 100)
INSIDE: IntBox = (10, 10, 90, 90)


def region(label: str, box: IntBox, polygon: Polygon | None = None) -> Region:
    return Region(0, label, 0.9, box, polygon=polygon)


def kept(*found: Region, mode: str = "auto") -> tuple[int, ...]:
    return kept_regions(found, mode)  # type: ignore[arg-type]


def test_nothing_in_nothing_out() -> None:
    assert kept() == ()
    assert kept(region("reference", WHOLE)) == ()


def test_the_smaller_of_two_goes_and_of_equals_the_later() -> None:
    assert kept(region("text", INSIDE), region("text", WHOLE)) == (1,)
    assert kept(region("text", WHOLE), region("text", WHOLE)) == (0,)


def test_slivers_go() -> None:
    assert kept(region("text", (0, 0, 5, 90)), region("text", (50, 0, 56, 90))) == (1,)


def test_formulas_inside_text_go_at_half() -> None:
    assert kept(region("text", WHOLE), region("inline_formula", (60, 0, 120, 20))) == (0,)
    assert kept(region("text", WHOLE), region("display_formula", (60, 0, 120, 20))) == (0, 1)


def test_a_picture_and_its_text_stay_but_a_table_has_read_its_text() -> None:
    assert kept(region("chart", WHOLE), region("text", INSIDE)) == (0, 1)
    assert kept(region("table", WHOLE), region("text", INSIDE)) == (0,)
    assert kept(region("text", WHOLE), region("table", INSIDE)) == (0,)
    assert kept(region("table", WHOLE), region("seal", INSIDE)) == (0, 1)


def test_polygons_may_save_overlapping_boxes() -> None:
    upper = region("text", WHOLE, ((0, 0), (100, 0), (0, 100)))
    lower = region("text", WHOLE, ((100, 100), (100, 5), (5, 100)))
    assert kept(upper, lower) == (0, 1)
    assert kept(upper, lower, mode="rect") == (0,)
    assert kept(upper, region("text", WHOLE)) == (0,)


def test_a_dropped_region_drops_nothing() -> None:
    assert kept(region("text", WHOLE), region("text", (0, 20, 100, 110)), region("text", (0, 75, 100, 115))) == (0, 2)


boxes = st.tuples(*[st.integers(0, 60)] * 2, *[st.integers(61, 120)] * 2)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.builds(region, st.sampled_from(LABELS), boxes), max_size=9), st.sampled_from(["rect", "auto"]))
def test_filtering_twice_changes_nothing_more(found: list[Region], mode: str) -> None:
    first = kept(*found, mode=mode)
    assert list(first) == sorted(set(first))
    again = kept(*(found[index] for index in first), mode=mode)
    assert again == tuple(range(len(first)))
