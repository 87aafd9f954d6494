"""From recognised lines to the text of a block: rows, reading order within them, joining."""

import re
from collections.abc import Iterable, Sequence

from hps.embedded.text_lines import TextLine

# Characters that are written without spaces between words: CJK, kana and full-width forms.
_SPACELESS = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
_HYPHENATED = re.compile(r"[^\W\d_]-$")
# A line belongs to a row when its middle lies this far inside the row's height, measured from both edges.
_ROW_EDGE = 0.2


def rows(lines: Iterable[TextLine]) -> list[list[TextLine]]:
    """Lines of one height side by side, top to bottom, each row from left to right."""
    found: list[list[TextLine]] = []
    for line in sorted(lines, key=_middle):
        row = next((row for row in reversed(found[-3:]) if _is_beside(line, row[-1])), None)
        if row is None:
            found.append([line])
        else:
            row.append(line)
    return [sorted(row, key=lambda line: line.box[0]) for row in found]


def joined(parts: Iterable[str]) -> str:
    """One paragraph: no space beside CJK, words put together that a hyphen divided at the end of a line."""
    text = ""
    for part in map(str.strip, parts):
        if not part or not text or _SPACELESS.match(text[-1]) or _SPACELESS.match(part[0]):
            text += part
        elif _HYPHENATED.search(text) and part[0].islower():
            text = text[:-1] + part
        else:
            text += " " + part
    return text


def block_text(lines: Sequence[TextLine]) -> str:
    """The text of one block, as a single paragraph."""
    level = [line for line in lines if not line.is_vertical]
    upright = [line for line in lines if line.is_vertical]
    ordered = [line.text for row in rows(level) for line in row]
    # Vertical lines stand beside the text; among themselves they go from right to left, as vertical writing does.
    ordered += [line.text for line in sorted(upright, key=lambda line: -line.box[0])]
    return joined(ordered)


def _middle(line: TextLine) -> float:
    return (line.box[1] + line.box[3]) / 2


def _is_beside(line: TextLine, neighbour: TextLine) -> bool:
    edge = _ROW_EDGE * neighbour.height
    return neighbour.box[1] + edge < _middle(line) < neighbour.box[3] - edge
