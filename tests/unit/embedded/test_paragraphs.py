import pytest

from hps.embedded.paragraphs import block_text, joined, rows
from hps.embedded.text_lines import TextLine


def line(text: str, x: float, y: float, width: float = 100, height: float = 20) -> TextLine:
    return TextLine((x, y, x + width, y + height), text)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["two", "words"], "two words"),
        (["a hyphen-", "ated word"], "a hyphenated word"),
        (["Franco-", "Prussian"], "Franco- Prussian"),
        (["pages 3-", "and on"], "pages 3- and on"),
        (["上海静安区", "市北"], "上海静安区市北"),
        (["型号 A", "座"], "型号 A座"),
        (["  padded ", "", " text "], "padded text"),
        ([], ""),
    ],
)
def test_joined(parts: list[str], text: str) -> None:
    assert joined(parts) == text


def test_rows_are_top_to_bottom_and_left_to_right() -> None:
    found = rows([line("d", 200, 42), line("a", 0, 0), line("c", 0, 40), line("b", 200, 3)])
    assert [[one.text for one in row] for row in found] == [["a", "b"], ["c", "d"]]


def test_overlapping_lines_below_each_other_are_two_rows() -> None:
    assert len(rows([line("a", 0, 0), line("b", 0, 17)])) == 2


def test_vertical_lines_come_last_from_right_to_left() -> None:
    vertical = [line("左", 0, 0, 20, 200), line("右", 40, 0, 20, 200)]
    assert block_text([*vertical, line("head", 100, 0)]) == "head右左"
