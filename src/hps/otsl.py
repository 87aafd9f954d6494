"""OTSL, the table notation of the VLM, as HTML (SPEC D.6)."""

import html
import re
from typing import NamedTuple

_TAG = re.compile(r"<(fcel|ecel|lcel|ucel|xcel|nl)>")
_CELL_TAGS = frozenset({"fcel", "ecel"})
_EXTENDS_LEFT = frozenset({"lcel", "xcel"})
_EXTENDS_UP = frozenset({"ucel", "xcel"})


class _Cell(NamedTuple):
    tag: str
    text: str = ""


_Row = list[_Cell]
_PADDING = _Cell("ecel")

# One long row above a thousand short ones is a model gone astray, not a table: padding it would make millions of
# cells from a few kilobytes. Such rows stay as they are, which is well-formed as well.
_MAX_CELLS = 20_000


def to_html(otsl: str) -> str:
    """The table without line breaks, or "" when the text has no cell at all.

    Any input gives well-formed HTML: ragged rows are brought to one width, an extension without a cell to extend
    becomes an empty cell.
    """
    rows = _rows(otsl)
    if rows and "<nl>" in otsl:
        rows = _of_one_width(rows)
    # Extensions alone extend nothing.
    if not any(cell.tag in _CELL_TAGS for row in rows for cell in row):
        return ""
    return "<table>" + "".join(f"<tr>{cells}</tr>" for cells in _rendered(rows)) + "</table>"


def _rows(otsl: str) -> list[_Row]:
    """Cells by row; text before the first tag of a row belongs to no cell, rows without a cell do not count."""
    rows: list[_Row] = [[]]
    pieces = _TAG.split(otsl)
    for tag, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if tag == "nl":
            rows.append([])
        else:
            rows[-1].append(_Cell(tag, text.strip() if tag == "fcel" else ""))
    return [row for row in rows if row]


def _of_one_width(rows: list[_Row]) -> list[_Row]:
    """Cuts and pads to the width with the least total change that keeps every full cell.

    The sum of distances to the row lengths is convex with its smallest minimum at their lower median, so the smallest
    allowed minimum is that median or, if full cells reach further, their reach.
    """
    lengths = sorted(len(row) for row in rows)
    reach = max((index + 1 for row in rows for index, cell in enumerate(row) if cell.tag == "fcel"), default=0)
    width = max(lengths[(len(lengths) - 1) // 2], reach)
    if width * len(rows) > _MAX_CELLS:
        return rows
    return [row[:width] + [_PADDING] * (width - len(row)) for row in rows]


def _rendered(rows: list[_Row]) -> list[str]:
    if all(cell.tag in _CELL_TAGS for row in rows for cell in row):
        return ["".join([f"<td>{html.escape(cell.text)}</td>" for cell in row]) for row in rows]
    covered = [bytearray(len(row)) for row in rows]
    rendered = []
    for top, row in enumerate(rows):
        cells = []
        for left, cell in enumerate(row):
            if cell.tag in _CELL_TAGS:
                colspan = 1 + _run_right(row, left)
                rowspan = 1 + _run_down(rows, top, left)
                for below in covered[top : top + rowspan]:
                    below[left : left + colspan] = b"\x01" * len(below[left : left + colspan])
                cells.append(_td(cell.text, rowspan, colspan))
            elif not covered[top][left]:
                cells.append(_td("", 1, 1))
        rendered.append("".join(cells))
    return rendered


def _run_right(row: _Row, left: int) -> int:
    right = left + 1
    while right < len(row) and row[right].tag in _EXTENDS_LEFT:
        right += 1
    return right - left - 1


def _run_down(rows: list[_Row], top: int, left: int) -> int:
    bottom = top + 1
    while bottom < len(rows) and left < len(rows[bottom]) and rows[bottom][left].tag in _EXTENDS_UP:
        bottom += 1
    return bottom - top - 1


def _td(text: str, rowspan: int, colspan: int) -> str:
    spans = (f' rowspan="{rowspan}"' if rowspan > 1 else "") + (f' colspan="{colspan}"' if colspan > 1 else "")
    return f"<td{spans}>{html.escape(text)}</td>"
