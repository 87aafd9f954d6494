from hps.embedded.boxes import as_boxes
from hps.embedded.tables import TableStructure, owners, table_html
from hps.embedded.text_lines import TextLine

GRID = as_boxes([(0, 0, 100, 50), (100, 0, 200, 50), (0, 50, 100, 100), (100, 50, 200, 100)])
PLAIN = ("<table>", "<tr>", "<td></td>", "<td></td>", "</tr>", "<tr>", "<td></td>", "<td></td>", "</tr>", "</table>")


def line(text: str, x: float, y: float, width: float = 60) -> TextLine:
    return TextLine((x, y, x + width, y + 20), text)


def test_lines_go_to_the_cells_that_cover_them() -> None:
    lines = [line("d", 110, 60), line("a", 10, 10), line("b", 110, 10), line("c", 10, 60)]
    html = table_html(TableStructure(PLAIN, GRID), lines)
    assert html == "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>"


def test_lines_of_one_cell_are_joined_in_order() -> None:
    html = table_html(TableStructure(PLAIN, GRID), [line("below", 10, 28), line("above", 10, 4)])
    assert "<td>above below</td>" in html


def test_text_is_escaped() -> None:
    assert "<td>a &lt; b</td>" in table_html(TableStructure(PLAIN, GRID), [line("a < b", 10, 10)])


def test_spans_are_kept_and_sections_dropped() -> None:
    tokens = ("<thead>", "<tr>", "<td", ' colspan="2"', ' rowspan="1"', ">", "</td>", "</tr>", "</thead>")
    html = table_html(TableStructure(tokens, as_boxes([(0, 0, 200, 50)])), [line("head", 10, 10)])
    assert html == '<table><tr><td colspan="2">head</td></tr></table>'


def test_an_unfinished_row_is_closed() -> None:
    html = table_html(TableStructure(("<tr>", "<td></td>"), GRID[:1]), [line("a", 10, 10)])
    assert html == "<table><tr><td>a</td></tr></table>"


def test_a_line_outside_every_cell_goes_to_the_nearest() -> None:
    assert owners(GRID, [line("far", 210, 60)]) == [3]
    assert owners(GRID, []) == []
