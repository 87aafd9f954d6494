"""How well a known text was read."""

import html
import re

_MARKUP = re.compile(r"<[^>]+>|^#+ |\\|[*_`$]", re.MULTILINE)


def plain(markdown: str) -> str:
    """Letters and digits of a Markdown text in order, without markup, white space and case of widths."""
    text = html.unescape(_MARKUP.sub("", markdown))
    return re.sub(r"\s+", "", text)


def best_match(snippet: str, text: str) -> tuple[float, int]:
    """Character error rate of the best place of `snippet` in `text`, and where that place ends (both without spaces).

    Sellers' algorithm: edit distance with a free start in the text.
    """
    needle, hay = plain(snippet), plain(text)
    at = hay.find(needle)
    if at >= 0:
        return 0.0, at + len(needle)
    column = list(range(len(needle) + 1))
    best, end = len(needle), 0
    for position, letter in enumerate(hay, start=1):
        diagonal, column[0] = column[0], 0
        for row, wanted in enumerate(needle, start=1):
            diagonal, column[row] = (
                column[row],
                min(diagonal + (letter != wanted), column[row] + 1, column[row - 1] + 1),
            )
        if column[-1] < best:
            best, end = column[-1], position
    return best / max(1, len(needle)), end
