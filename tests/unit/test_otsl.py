import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hps.otsl import to_html

TOKENS = st.sampled_from(
    [
        "<fcel>",
        "<ecel>",
        "<lcel>",
        "<ucel>",
        "<xcel>",
        "<nl>",
        "a",
        " ",
        "\n",
        "<",
        ">",
        "&",
        '"',
        "<td>",
        "</table>",
        "表",
    ]
)
SOUP = st.lists(TOKENS, max_size=80).map("".join)


class TableReader(HTMLParser):
    """Reads what `to_html` writes and fails on anything that is not well-formed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[tuple[str, dict[str, str | None]]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        allowed_parent = {"table": [], "tr": ["table"], "td": ["table", "tr"]}
        assert self.open == allowed_parent[tag]
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            assert {name for name, _ in attrs} <= {"rowspan", "colspan"}
            self.rows[-1].append(("", dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert self.open[-1] == "td"
        text, attributes = self.rows[-1][-1]
        self.rows[-1][-1] = (text + data, attributes)


def read(html: str) -> list[list[tuple[str, dict[str, str | None]]]]:
    reader = TableReader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader.rows


@given(SOUP)
def test_any_tokens_give_a_well_formed_table(otsl: str) -> None:
    read(to_html(otsl))


@given(SOUP)
def test_the_text_of_full_cells_is_kept(otsl: str) -> None:
    full = [piece.split("<")[0].strip() for piece in otsl.split("<fcel>")[1:]]
    shown = [text for row in read(to_html(otsl)) for text, _ in row if text]
    assert [text.split("<")[0].strip() for text in shown if not text.startswith("<")] == [text for text in full if text]


@given(st.lists(st.lists(st.text("ab &<>\"'", min_size=1), min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_plain_table_comes_back(rows: list[list[str]]) -> None:
    otsl = "".join("".join(f"<fcel>{text}" for text in row) + "<nl>" for row in rows)
    assert [[text for text, _ in row] for row in read(to_html(otsl))] == [
        [text.strip() for text in row] for row in rows
    ]


@pytest.mark.parametrize(
    ("otsl", "cells"),
    [
        ("<fcel>a<lcel><nl><ucel><xcel><nl>", '<tr><td rowspan="2" colspan="2">a</td></tr><tr></tr>'),
        ("<ecel><lcel><nl><fcel>a<fcel>b<nl>", '<tr><td colspan="2"></td></tr><tr><td>a</td><td>b</td></tr>'),
        ("<fcel>a<xcel><fcel>b<nl>", '<tr><td colspan="2">a</td><td>b</td></tr>'),
        ("<ucel><fcel>a<nl><fcel>b<xcel>", '<tr><td></td><td rowspan="2">a</td></tr><tr><td colspan="2">b</td></tr>'),
        ("<fcel>a<fcel>b<nl><nl><fcel>c<fcel>d<nl>", "<tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr>"),
        ("<fcel>a<nl>stray<nl><fcel>b<nl>", "<tr><td>a</td></tr><tr><td>b</td></tr>"),
        ("<fcel>a\nb<nl>", "<tr><td>a\nb</td></tr>"),
        (
            "<fcel>a<nl><fcel>b<ecel><nl><fcel>c<ecel><nl>",
            "<tr><td>a</td><td></td></tr><tr><td>b</td><td></td></tr><tr><td>c</td><td></td></tr>",
        ),
        ("<ecel><ecel><nl><ecel>", "<tr><td></td></tr><tr><td></td></tr>"),
    ],
)
def test_spans_and_widths(otsl: str, cells: str) -> None:
    assert to_html(otsl) == f"<table>{cells}</table>"


@pytest.mark.parametrize("otsl", ["", "prose", "<nl><nl>", "<lcel><nl><xcel><ucel><nl>", "<table><tr></tr></table>"])
def test_without_a_cell_there_is_no_table(otsl: str) -> None:
    assert to_html(otsl) == ""


def test_blank_cells_are_empty() -> None:
    assert to_html("<fcel> <fcel><nl>") == "<table><tr><td></td><td></td></tr></table>"


def test_one_long_row_over_many_short_ones_stays_small() -> None:
    started = time.perf_counter()
    html = to_html("<fcel>" * 1200 + "<nl>" + "<ecel><nl>" * 1200)
    assert time.perf_counter() - started < 0.5
    assert len(html) < 100_000
    read(html)
