from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hps.document import Detections, Region
from hps.layout.labels import CLASS_IDS, LABELS, UNORDERED_LABELS
from hps.layout.polygons import SHAPE_MODES
from hps.layout.postprocess import LayoutRules, kept_rows, regions

PAGE = (400, 300)
TEXT, TABLE, IMAGE, CHART = (CLASS_IDS[label] for label in ("text", "table", "image", "chart"))


def row(box: Sequence[float], *, cls: int = TEXT, score: float = 0.9, order: float = 0) -> list[float]:
    return [cls, score, *box, order]


def found(*rows: list[float], page: tuple[int, int] = PAGE, rules: LayoutRules | None = None) -> tuple[Region, ...]:
    return regions(Detections(np.array(rows, dtype=np.float32).reshape(len(rows), -1)), page, rules or LayoutRules())


def boxes(*rows: list[float], rules: LayoutRules | None = None) -> list[tuple[int, int, int, int]]:
    return [region.box for region in found(*rows, rules=rules)]


def test_nothing_detected_is_no_region() -> None:
    assert regions(Detections(np.zeros((0, 7), np.float32)), PAGE, LayoutRules()) == ()


def test_a_score_must_be_above_the_threshold() -> None:
    assert len(found(row((0, 0, 50, 20), score=0.3), row((0, 40, 50, 60), score=0.3001))) == 1


def test_a_class_without_its_own_threshold_needs_a_half() -> None:
    rules = LayoutRules(threshold={TABLE: 0.2})
    kept = found(row((0, 0, 50, 50), cls=TABLE, score=0.3), row((0, 60, 50, 90), score=0.5), rules=rules)
    assert [region.label for region in kept] == ["table"]


def test_rows_that_no_class_or_number_fits_are_dropped() -> None:
    assert boxes(row((0, 0, 50, 20), cls=25), row((0, 0, 50, 20), cls=-1), row((0, float("nan"), 50, 20))) == []


def test_of_overlapping_boxes_the_better_stays() -> None:
    assert boxes(row((0, 0, 100, 100), score=0.8), row((0, 0, 100, 90), score=0.9)) == [(0, 0, 100, 90)]


def test_nms_can_be_switched_off() -> None:
    assert len(boxes(row((0, 0, 100, 100)), row((0, 0, 100, 90)), rules=LayoutRules(nms=False))) == 2


def test_a_suppressed_box_suppresses_nothing() -> None:
    steps = [row((0, 20 * place, 100, 100 + 20 * place), score=0.9 - place / 10) for place in range(3)]
    assert [box[1] for box in boxes(*steps)] == [0, 40]


def test_images_that_are_the_page_go_unless_nothing_is_left() -> None:
    page_sized = row((0, 0, 400, 290), cls=IMAGE)
    assert boxes(page_sized, row((10, 10, 90, 30))) == [(10, 10, 90, 30)]
    assert boxes(page_sized) == [(0, 0, 400, 290)]


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        (None, ["table", "text"]),
        ({}, ["table", "text"]),
        ("union", ["table", "text"]),
        ("large", ["table"]),
        ("small", ["text"]),
        ({TABLE: "large"}, ["table"]),
        ({TEXT: "large"}, ["table", "text"]),
        ({TEXT: "small"}, ["text"]),
        ({TABLE: "small"}, ["table", "text"]),
    ],
)
def test_containment(modes: object, expected: list[str]) -> None:
    rules = LayoutRules(merge_modes=modes)  # type: ignore[arg-type]
    kept = found(row((0, 0, 200, 200), cls=TABLE, order=1), row((10, 10, 90, 30), order=2), rules=rules)
    assert [region.label for region in kept] == expected


def test_small_keeps_a_box_that_is_itself_inside() -> None:
    nest = [row((0, 0, 200, 200), order=1), row((10, 10, 150, 150), order=2), row((20, 20, 60, 60), order=3)]
    rules = LayoutRules(merge_modes="small")
    assert boxes(*nest, rules=rules) == [(10, 10, 150, 150), (20, 20, 60, 60)]


def test_equal_orders_are_told_apart_by_the_eighth_column() -> None:
    rows = [[*row((0, 0, 50, 20), order=1), 0.0], [*row((0, 40, 50, 60), order=1), 5.0]]
    assert [box[1] for box in boxes(*rows)] == [40, 0]


def test_unclip_grows_about_the_centre() -> None:
    assert boxes(row((100, 100, 200, 150)), rules=LayoutRules(unclip=(1.2, 1.0))) == [(90, 100, 210, 150)]


def test_unclip_by_class_leaves_others_alone() -> None:
    rules = LayoutRules(unclip={TABLE: 2.0})
    rows = row((100, 100, 200, 150), cls=TABLE), row((10, 10, 50, 50), order=1)
    assert boxes(*rows, rules=rules) == [(50, 75, 250, 175), (10, 10, 50, 50)]


def test_boxes_beside_the_page_are_dropped() -> None:
    assert boxes(row((400, 0, 500, 50)), row((-40, 0, 0, 50)), row((390, 290, 999, 999))) == [(390, 290, 400, 300)]


def test_numbers_skip_what_is_outside_the_reading_order() -> None:
    labels = ["doc_title", "image", "text", "footer", "seal"]
    rows = [row((0, 40 * n, 90, 40 * n + 20), cls=CLASS_IDS[label], order=n) for n, label in enumerate(labels)]
    assert [region.order for region in found(*rows)] == [1, None, 2, None, 3]


def test_polygons_stay_with_their_boxes() -> None:
    rows = np.array([row((0, 100, 90, 140), order=2), row((0, 0, 90, 40), order=1)], np.float32)
    outlines = tuple(np.array([[x1, y1], [x2, y1], [x2, y2], [x1, y2]], np.float32) for x1, y1, x2, y2 in rows[:, 2:6])
    kept = regions(Detections(rows, outlines), PAGE, LayoutRules(shape_mode="poly"))
    assert [region.polygon[0] for region in kept if region.polygon] == [(0, 0), (0, 100)]


def test_without_outlines_no_polygon_is_made_up() -> None:
    assert found(row((0, 0, 50, 20)))[0].polygon is None


# ---- properties ----

quick = settings(max_examples=60, deadline=None)


@st.composite
def detections(draw: st.DrawFn) -> Detections:
    """Rows that overlap, contain each other and leave the page; from one seed, for drawing each number is slow."""
    count = draw(st.integers(0, 14))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    low = random.uniform(-60, 380, (count, 2))
    rows = np.column_stack(
        [
            random.integers(0, 25, count),
            random.random(count).round(1),
            low,
            low + random.choice([0, 5, 40, 200, 420], (count, 2)),
            random.integers(0, 6, count),
        ]
    )
    outlines = [random.uniform(-60, 460, (random.integers(0, 8), 2)).astype(np.float32) for _ in range(count)]
    return Detections(rows.astype(np.float32), tuple(outlines) if draw(st.booleans()) else ())


modes = st.sampled_from(["large", "small", "union"])
rule_sets = st.builds(
    LayoutRules,
    threshold=st.floats(0, 0.6) | st.dictionaries(st.integers(0, 24), st.floats(0, 1)),
    nms=st.booleans(),
    unclip=st.floats(0.1, 3) | st.tuples(st.floats(0.1, 3), st.floats(0.1, 3)),
    merge_modes=st.none() | modes | st.dictionaries(st.integers(0, 24), modes),
    shape_mode=st.sampled_from(SHAPE_MODES),
)


@quick
@given(detections(), rule_sets)
def test_regions_lie_inside_the_page_and_count_without_gaps(page: Detections, rules: LayoutRules) -> None:
    kept = regions(page, PAGE, rules)
    for region in kept:
        x1, y1, x2, y2 = region.box
        assert 0 <= x1 < x2 <= PAGE[0]
        assert 0 <= y1 < y2 <= PAGE[1]
        assert region.label == LABELS[region.cls_id]
        assert (region.order is None) == (region.label in UNORDERED_LABELS)
    numbers = [region.order for region in kept if region.order is not None]
    assert numbers == list(range(1, len(numbers) + 1))


@quick
@given(detections(), rule_sets)
def test_rows_are_kept_once_and_in_order(page: Detections, rules: LayoutRules) -> None:
    kept = kept_rows(page.rows, PAGE, rules).tolist()
    assert len(set(kept)) == len(kept)
    assert sorted(page.rows[kept, 6]) == page.rows[kept, 6].tolist()


@quick
@given(detections())
def test_nms_is_idempotent(page: Detections) -> None:
    rules = LayoutRules(threshold=0.0, merge_modes=None)
    once = page.rows[kept_rows(page.rows, PAGE, rules)]
    # One page-sized image may be dropped late, once it is no longer alone in its kind: that is not NMS's doing.
    once = once[once[:, 0] != IMAGE]
    assert len(kept_rows(once, PAGE, rules)) == len(once)


@quick
@given(detections())
def test_the_order_of_rows_does_not_matter_when_scores_and_orders_differ(page: Detections) -> None:
    rows = page.rows.copy()
    rows[:, 1] = np.linspace(0.4, 0.9, len(rows), dtype=np.float32)
    rows[:, 6] = np.arange(len(rows))
    shuffled = np.random.default_rng(len(rows)).permutation(rows)
    assert regions(Detections(shuffled), PAGE, LayoutRules()) == regions(Detections(rows), PAGE, LayoutRules())
