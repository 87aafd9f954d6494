import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hps import restructure, table_html
from hps.document import Block, ModelSettings, ParsedPage, Region
from hps.errors import InvalidInput
from hps.pruned_result import to_dict

BOX = (100, 100, 900, 600)
HEADER = "<tr><td>Item</td><td>Qty</td></tr>"


def table(*rows: str, box: tuple[int, int, int, int] = BOX) -> Block:
    return Block("table", box, f"<table>{''.join(rows)}</table>")


def row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def title(content: str, height: int = 40, width: int = 400) -> Block:
    return Block("paragraph_title", (0, 0, width, height), content)


def pages_of(*pages: Sequence[Block]) -> list[ParsedPage]:
    return [ParsedPage(1000, 1400, tuple(blocks), ModelSettings(), regions=()) for blocks in pages]


def contents(parsed: Sequence[ParsedPage]) -> list[list[str]]:
    return [[block.content for block in page.blocks] for page in parsed]


def levels(*titles: Block) -> list[int | None]:
    (page,) = restructure.pages(pages_of(titles))
    return [block.title_level for block in page.blocks]


# ---- tables ----


def test_a_continued_table_moves_up_and_leaves_an_empty_block() -> None:
    merged = restructure.pages(pages_of([table(HEADER, row("a", "1"))], [table(row("b", "2"))], [table(row("c", "3"))]))
    whole = table(HEADER, row("a", "1"), row("b", "2"), row("c", "3")).content
    assert contents(merged) == [[whole], [""], [""]]
    assert [page.blocks[0].global_group_id for page in merged] == [0, 0, 0]
    assert [page.blocks[0].global_block_id for page in merged] == [0, 1, 2]


def test_a_repeated_header_is_left_out_whatever_its_width_and_spaces() -> None:
    repeated = "<tr><td> Ｉtem </td><td>Q ty</td></tr>"
    merged = restructure.pages(pages_of([table(HEADER, row("a", "1"))], [table(repeated, row("b", "2"))]))
    assert contents(merged)[0] == [table(HEADER, row("a", "1"), row("b", "2")).content]


def test_a_header_has_at_most_five_rows() -> None:
    rows = [row(str(number), "x") for number in range(7)]
    merged = restructure.pages(pages_of([table(*rows)], [table(*rows)]))
    assert contents(merged)[0] == [table(*rows, *rows[5:]).content]


@pytest.mark.parametrize(
    ("first", "second", "fit"),
    [
        ([row("a", "b", "c")], [row("d", "e")], False),
        (['<tr><td rowspan="2">a</td><td>b</td></tr>', row("c")], [row("d", "e")], True),  # two columns in all
        (['<tr><td colspan="3">a</td></tr>', row("b", "c")], [row("d", "e")], True),  # as many cells in the last row
        ([row("a", "b", "c"), '<tr><td colspan="2">d</td></tr>'], [row("e", "f")], True),  # as wide as the last row
        (['<tr><td colspan="x">a</td><td colspan="-1">b</td></tr>'], [row("d", "e")], True),  # nonsense counts as 1
    ],
)
def test_columns_decide(first: list[str], second: list[str], fit: bool) -> None:
    merged = restructure.pages(pages_of([table(*first)], [table(*second)]))
    assert (contents(merged)[1] == [""]) is fit


@pytest.mark.parametrize(
    ("after", "before", "fit"),
    [
        (["footer", "vision_footnote", "number", "footnote", "footer_image", "seal"], [], True),
        ([], ["header", "header_image", "number", "seal"], True),
        (["header"], [], False),
        ([], ["footer"], False),
        ([], ["text"], False),
    ],
)
def test_surroundings_decide(after: list[str], before: list[str], fit: bool) -> None:
    first = [table(row("a", "1")), *(Block(label, BOX) for label in after)]
    second = [*(Block(label, BOX) for label in before), table(row("b", "2"))]
    assert (contents(restructure.pages(pages_of(first, second)))[1][-1] == "") is fit


@pytest.mark.parametrize(("right", "fit"), [(979, True), (980, False), (828, True), (827, False), (100, False)])
def test_widths_decide(right: int, fit: bool) -> None:
    second = table(row("b", "2"), box=(100, 100, right, 600))
    assert (contents(restructure.pages(pages_of([table(row("a", "1"))], [second])))[1] == [""]) is fit


def test_contents_without_rows_are_left_alone() -> None:
    prose = [[Block("table", BOX, "some prose")], [Block("table", BOX, "other prose")]]
    assert contents(restructure.pages(pages_of(*prose))) == [["some prose"], ["other prose"]]
    beside = [[table(row("a"))], [Block("table", BOX, "other prose")]]
    assert contents(restructure.pages(pages_of(*beside)))[1] == ["other prose"]


def test_tables_of_a_middle_page_may_both_merge() -> None:
    middle = [table(row("b", "2")), table(row("x", "y", "z"))]
    merged = restructure.pages(pages_of([table(row("a", "1"))], middle, [table(row("u", "v", "w"))]))
    assert [[bool(text) for text in page] for page in contents(merged)] == [[True], [False, True], [False]]
    assert [block.global_group_id for page in merged for block in page.blocks] == [0, 0, 2, 2]


def test_pictures_and_escapes_in_cells_survive() -> None:
    cell = '<img src="a.jpg" alt="Image"" />\n\n1 &lt; 2 &amp; 3\n\n'
    merged = restructure.pages(pages_of([table(row(cell, "b"))], [table(row("c", cell))]))
    assert contents(merged)[0] == [table(row(cell, "b"), row("c", cell)).content]


def test_merging_can_be_turned_off() -> None:
    blocks = [[table(row("a"))], [table(row("b"))]]
    assert contents(restructure.pages(pages_of(*blocks), merge_tables=False)) == [
        [block.content for block in page] for page in blocks
    ]


# ---- table HTML ----


@given(
    st.lists(
        st.sampled_from(
            [
                "<td>",
                "</td>",
                "<tr a='b\"'>",
                "</tr>",
                "<table>",
                "</table>",
                "<br>",
                "a",
                "&lt;",
                "<",
                ">",
                "<!-- x -->",
            ]
        ),
        max_size=40,
    ).map("".join)
)
def test_html_is_written_as_it_is_read(soup: str) -> None:
    tree = table_html.parsed(soup)
    written = tree.inner_html()
    assert table_html.parsed(written).inner_html() == written
    assert table_html.parsed(written).text() == tree.text()


@pytest.mark.parametrize(
    ("given_html", "written"),
    [
        ("<TABLE border=1 Style='a: b'><tr><td>x", '<table border="1" style="a: b"><tr><td>x</td></tr></table>'),
        ("<td nowrap>&quot;q&#x27;</td>", '<td nowrap="">"q\'</td>'),
        ("a</td></tr>b", "ab"),
        ("<td>1 < 2</td>", "<td>1 &lt; 2</td>"),
        ("<b class=x>a<br>b</b>", "<b class=x>a<br>b</b>"),
    ],
)
def test_spelling_of_html(given_html: str, written: str) -> None:
    assert table_html.parsed(given_html).inner_html() == written


@pytest.mark.parametrize(
    "soup",
    [
        "<td>" * 5000 + "</x>" * 5000,
        "<" * 50_000,
        '<td a="' * 10_000,
        "<td colspan=999 rowspan=999999>" * 2000,
        "<tr>" * 5000,
        "<tr><td " + "a=b " * 20_000 + ">",
    ],
)
def test_no_html_takes_long(soup: str) -> None:
    block = Block("table", BOX, f"<table><tr><td>x{soup}")
    started = time.perf_counter()
    restructure.pages(pages_of([block], [block]))
    assert time.perf_counter() - started < 5


# ---- titles ----


@pytest.mark.parametrize(
    ("contents_", "expected"),
    [
        (["1 A", "1.1 B", "1.1.1 C", "2 D"], [1, 2, 3, 1]),
        (["ABSTRACT", "Related work:", "参考文献", "附 录："], [1, 1, 1, 1]),
        (["(1) a", "2) b", "（3）c"], [1, 1, 1]),
        (["I. One", "iv) four", "X"], [1, 1, 1]),
        (["第十二章 A", "一、B", "(三) C"], [1, 1, 1]),
    ],
)
def test_numbering_of_titles_of_one_height(contents_: list[str], expected: list[int]) -> None:
    assert levels(*map(title, contents_)) == expected


def test_kinds_count_by_first_appearance_and_two_of_three_win() -> None:
    # Letters are the second kind and level 2 by themselves; the height says 1.
    assert levels(title("I. One"), title("A. first")) == [1, 2]
    # Letters alone: the first kind, and as high as all others.
    assert levels(title("A. first"), title("B) second")) == [1, 1]


def test_decimal_numbers_are_relative_to_the_first() -> None:
    assert levels(title("2.1 A", 40), title("2 B", 30), title("2.1.1 C", 20)) == [1, 0, 3]


def test_chinese_words_are_no_numbers() -> None:
    assert levels(title("一种方法", 30), title("二十一世纪", 40)) == [2, 1]


def test_height_is_that_of_a_line_and_upright_titles_are_measured_across() -> None:
    assert levels(title("a\nb", 80), title("c", 40), title("d", 41)) == [2, 2, 1]
    assert levels(title("竖", 300, width=30), title("横", 60)) == [2, 1]


def test_four_levels_at_most_by_height() -> None:
    heights = [100, 99, 70, 69, 40, 39, 10, 9, 8]
    assert levels(*(title("t", height) for height in heights)) == [1, 1, 2, 2, 3, 3, 4, 4, 4]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=30))
def test_taller_titles_are_never_deeper(heights: list[int]) -> None:
    found = [level for level in levels(*(title("t", height) for height in heights)) if level is not None]
    assert set(found) == set(range(1, max(found) + 1))
    assert max(found) == min(4, len(set(heights)))
    by_height = sorted(zip(heights, found, strict=True), reverse=True)
    assert [level for _, level in by_height] == sorted(found)


def test_other_labels_have_no_level() -> None:
    assert levels(Block("doc_title", BOX, "1 A"), Block("text", BOX, "1 A")) == [None, None]


def test_relevelling_can_be_turned_off() -> None:
    (page,) = restructure.pages(pages_of([title("1 A")]), relevel_titles=False)
    assert page.blocks[0].title_level is None


# ---- one page ----


def test_concatenated_pages() -> None:
    region = Region(22, "text", 0.5, BOX, 1)
    first, second = pages_of([Block("text", BOX, "a"), Block("image", BOX)], [Block("text", BOX, "b")])
    second = replace(second, width=5, regions=(region,), settings=ModelSettings(markdown_ignore_labels=()))
    (whole,) = restructure.pages([first, second], concatenate_pages=True)
    result = to_dict(whole)
    assert (result["width"], result["page_count"]) == (1000, 2)
    assert [item["block_id"] for item in result["parsing_res_list"]] == [0, 1, 2]
    assert [item["block_order"] for item in result["parsing_res_list"]] == [1, None, 2]
    assert [item["group_id"] for item in result["parsing_res_list"]] == [0, 1, 0]
    assert [len(layout["boxes"]) for layout in result["layout_det_res"]] == [0, 1]
    assert result["model_settings"]["markdown_ignore_labels"]


def test_there_must_be_a_page_to_concatenate() -> None:
    assert restructure.pages([]) == ()
    with pytest.raises(InvalidInput, match="nothing to concatenate"):
        restructure.pages([], concatenate_pages=True)


BLOCKS = st.lists(
    st.one_of(
        st.builds(title, st.sampled_from(["1 A", "1.1 B", "x", "REFERENCES"]), st.integers(1, 90)),
        st.builds(table, st.sampled_from([HEADER, row("a", "1"), row("x", "y", "z")]), st.just(row("b", "2"))),
        st.builds(Block, st.sampled_from(["text", "header", "footer", "number"]), st.just(BOX), st.text(max_size=5)),
    ),
    max_size=4,
)


@given(st.lists(BLOCKS, min_size=1, max_size=5), st.booleans(), st.booleans())
def test_every_block_is_kept(pages: list[list[Block]], merges: bool, concatenates: bool) -> None:
    done = restructure.pages(pages_of(*pages), merge_tables=merges, concatenate_pages=concatenates)
    before = [block for page in pages for block in page]
    after = [block for page in done for block in page.blocks]
    assert [(block.label, block.box) for block in after] == [(block.label, block.box) for block in before]
    assert [block.global_block_id for block in after] == list(range(len(before)))
    assert all(
        new.content == old.content for new, old in zip(after, before, strict=True) if old.label != "table" or not merges
    )
    # What left a block is found in the table that its group points at; every group is a block that has content.
    for new, old in zip(after, before, strict=True):
        if old.label == "table" and new.global_group_id != new.global_block_id:
            assert new.content == "" and after[new.global_group_id or 0].content.endswith(row("b", "2") + "</table>")
