import numpy as np

from hps.embedded.boxes import as_boxes
from hps.embedded.page_regions import PageRegion, clustered, merged, page_regions
from hps.embedded.picodet import Candidate

WIDTH, HEIGHT = 1000, 1400


def candidate(label: str, *box: float, score: float = 0.9) -> Candidate:
    return Candidate(label, score, np.array(box, np.float32))


def paragraph(x1: float, y1: float, x2: float, lines: int, height: float = 20) -> list[tuple[float, ...]]:
    return [(x1, y1 + 30 * n, x2, y1 + 30 * n + height) for n in range(lines)]


def regions(found: list[Candidate], lines: list[tuple[float, ...]]) -> list[PageRegion]:
    return page_regions(found, as_boxes(lines), WIDTH, HEIGHT)


def test_blank_page_has_no_regions() -> None:
    assert regions([], []) == []


def test_box_grows_to_the_lines_that_it_cuts() -> None:
    (region,) = regions([candidate("text", 100, 110, 480, 200)], paragraph(90, 100, 500, 4))
    x1, y1, x2, y2 = region.box
    assert x1 < 90 and y1 < 100 and x2 > 500 and y2 > 210


def test_picture_keeps_its_box() -> None:
    (region,) = regions([candidate("image", 100, 100, 500, 500)], [(110, 480, 490, 510)])
    assert region.box.tolist() == [100, 100, 500, 500]


def test_lines_without_a_box_become_text_above_every_threshold() -> None:
    (region,) = regions([], paragraph(100, 100, 500, 3))
    assert region.label == "text" and region.score >= 0.6


def test_figure_full_of_lines_is_text() -> None:
    found = regions([candidate("image", 50, 50, 950, 700)], paragraph(100, 100, 900, 20))
    assert [region.label for region in found] == ["text"]


def test_figure_with_few_lines_stays() -> None:
    found = regions([candidate("image", 50, 50, 950, 700)], paragraph(100, 100, 900, 3))
    assert [region.label for region in found] == ["image"]


def test_topmost_large_title_is_the_documents() -> None:
    lines = [(100, 50, 900, 90), (100, 200, 300, 226), *paragraph(100, 300, 900, 6)]
    found = [
        candidate("text", 100, 300, 900, 480),
        candidate("paragraph_title", 100, 200, 300, 226),
        candidate("header", 100, 50, 900, 90),
    ]
    assert [region.label for region in regions(found, lines)] == ["doc_title", "paragraph_title", "text"]


def test_running_head_in_small_type_stays_a_header() -> None:
    lines = [(100, 20, 300, 38), *paragraph(100, 300, 900, 6)]
    found = [candidate("header", 100, 20, 300, 38), candidate("text", 100, 300, 900, 480)]
    assert [region.label for region in regions(found, lines)] == ["header", "text"]


STAMP = (20, 300, 60, 900)
BODY = [(150, 100 + 300 * n, 900, 300 + 300 * n) for n in range(3)]


def test_one_stamp_in_the_margin_is_aside_text() -> None:
    found = regions([candidate("text", *box) for box in (STAMP, *BODY)], [])
    assert sorted(region.label for region in found) == ["aside_text", "text", "text", "text"]


def test_columns_of_vertical_writing_are_text() -> None:
    columns = [(20 + 80 * n, 300, 60 + 80 * n, 900) for n in range(4)]
    found = regions([candidate("text", *box) for box in columns], [])
    assert {region.label for region in found} == {"text"}


def test_margin_notes_stay_apart_from_a_text_whose_line_runs_into_them() -> None:
    text = paragraph(100, 100, 600, 8)
    text[2] = (100, 160, 660, 180)
    notes = [(610, 100, 700, 118), (610, 124, 700, 142), (610, 150, 700, 168)]
    found = regions([], [*text, *notes])
    assert sorted(round(float(region.box[2])) for region in found) == [602, 702]


def test_cluster_ends_at_a_gap() -> None:
    lines = as_boxes([*paragraph(100, 100, 500, 3), *paragraph(100, 260, 500, 2)])
    assert clustered(lines, np.arange(5)) == [[0, 1, 2], [3, 4]]


def region(label: str, *box: float, score: float = 0.9) -> PageRegion:
    return PageRegion(label, score, np.array(box, np.float32))


def test_overlapping_texts_become_one_with_the_better_label() -> None:
    (one,) = merged([region("text", 0, 0, 100, 100, score=0.6), region("paragraph_title", 0, 50, 100, 120)])
    assert one.label == "paragraph_title"
    assert one.box.tolist() == [0, 0, 100, 120]


def test_text_inside_a_table_is_the_tables() -> None:
    kept = merged([region("text", 10, 10, 90, 30, score=0.99), region("table", 0, 0, 100, 100, score=0.5)])
    assert [one.label for one in kept] == ["table"]


def test_text_inside_a_picture_is_kept() -> None:
    kept = merged([region("text", 10, 10, 90, 30), region("image", 0, 0, 100, 100)])
    assert sorted(one.label for one in kept) == ["image", "text"]


def test_a_title_cut_at_both_ends_reaches_to_the_ends_of_its_line() -> None:
    (title,) = regions([candidate("paragraph_title", 400, 100, 700, 140)], [(180, 100, 900, 140)])
    assert title.box[0] < 180 and title.box[2] > 900


def test_a_box_that_cuts_into_a_neighbours_line_keeps_to_its_own_lines() -> None:
    first, second = regions(
        [candidate("text", 100, 100, 900, 130), candidate("text", 100, 115, 900, 170)],
        [(100, 100, 900, 125), (100, 140, 900, 165)],
    )
    assert first.box[3] < 135 and second.box[1] > 130


def test_a_line_over_the_gutter_leaves_the_columns_in_their_order() -> None:
    left = [*paragraph(100, 100, 480, 1), (100, 130, 512, 150), *paragraph(100, 160, 480, 4)]
    found = regions(
        [candidate("text", 100, 100, 480, 290), candidate("paragraph_title", 505, 90, 700, 120)],
        [*left, (520, 92, 700, 118)],
    )
    assert [region.label for region in found] == ["text", "paragraph_title"]


def test_headers_and_footers_stand_at_the_edges_of_a_page() -> None:
    found = [
        candidate("header", 100, 40, 400, 70),
        candidate("header", 100, 500, 400, 530),
        candidate("footer", 100, 600, 400, 630),
        candidate("footer", 100, 1340, 400, 1370),
    ]
    assert [region.label for region in regions(found, [])] == ["header", "text", "text", "footer"]


def test_a_small_figure_that_its_lines_nearly_fill_is_text() -> None:
    rows = [(x, y, x + 150, y + 25) for y in (110, 145, 180) for x in (120, 700)]
    assert [region.label for region in regions([candidate("image", 100, 100, 900, 215)], rows)] == ["text"] * 2
