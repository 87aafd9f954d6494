"""What becomes of the VLM's text before it is a block's content (SPEC D.6).

Pure and bounded: 20,000 characters of any kind take milliseconds.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hps import otsl
from hps.document import Polygon, Spotting

# Shorter texts are never searched for repetition: a short list of equal lines is more likely real.
REPETITION_MIN_CHARS = 50
REPETITION_MIN_CHARS_TABLE = 5000

_PHRASE_MIN_TEXT = 100
_PHRASE_MIN_CHARS = 8
_PHRASE_MIN_COUNT = 5
_UNIT_MIN_TEXT = 10
_UNIT_MIN_COUNT = 10
_LINES_MIN = 10
_LINES_MIN_SHARE = 0.8

_COORDINATE = re.compile(r"<\|LOC_(\d{1,9})\|>")
_COORDINATES_OF_LINE = 8
_COORDINATE_SCALE = 1000.0

_PICTURE_TOKEN = re.compile(r"\[F\d+\]")


@dataclass(frozen=True, slots=True)
class CleanText:
    """`spotting` is set for the label "spotting" only; its polygons are page pixels."""

    content: str
    spotting: Spotting | None = None


@dataclass(frozen=True, slots=True)
class TablePicture:
    """A picture inside a table that was hidden from the VLM behind a token; `text` is its own recognised text."""

    path: str
    text: str = ""


def clean(label: str, raw: str | None, page_size: tuple[int, int]) -> CleanText:
    """The content of a block labelled `label` whose VLM answer is `raw`; `page_size` is (width, height) in pixels."""
    text = without_repetition(raw or "", min_chars=repetition_min_chars(label))
    text = _with_dollar_maths(text, keep_dollars=label != "formula_number")
    if label == "table":
        # Models also answer with HTML or prose; what is no OTSL passes through.
        return CleanText(otsl.to_html(text) or text)
    if label == "spotting":
        spotting = _spotting(text, page_size)
        return CleanText("\n\n".join(spotting.rec_texts), spotting)
    return CleanText(text)


def repetition_min_chars(label: str) -> int:
    """The length below which the text of such a block is never searched for repetition."""
    return REPETITION_MIN_CHARS_TABLE if label == "table" else REPETITION_MIN_CHARS


def with_table_pictures(content: str, pictures: Mapping[str, TablePicture]) -> str:
    """A table's content with its picture tokens ("[F2]", the keys of `pictures`) turned into HTML (SPEC D.3).

    Tokens that are not in `pictures` stay. The stray quote is part of the published contract (SPEC H, Q9).
    """

    def image(token: re.Match[str]) -> str:
        picture = pictures.get(token[0])
        if picture is None:
            return token[0]
        text = f"\n\n{picture.text}\n\n" if picture.text else ""
        return f'<img src="{picture.path}" alt="Image"" />{text}'

    return _PICTURE_TOKEN.sub(image, content)


def without_repetition(text: str, *, min_chars: int) -> str:
    """`text` without the loop that a VLM sometimes falls into; texts shorter than `min_chars` are left alone."""
    stripped = text.strip()
    if len(text) < min_chars or not stripped:
        return text
    if "\n" in stripped:
        return _repeated_line(text) or text
    if len(stripped) > _PHRASE_MIN_TEXT:
        before = _before_repeated_phrase(stripped)
        if before is not None:
            return before
    if len(stripped) > _UNIT_MIN_TEXT:
        return _repeated_unit(stripped) or text
    return text


def _before_repeated_phrase(text: str) -> str | None:
    """What stands before a phrase that repeats to the end of `text` and makes up more than half of it."""
    length = len(text)
    tail = text[-_PHRASE_MIN_CHARS:]
    tail_start = length - _PHRASE_MIN_CHARS
    # A phrase of n characters puts the tail also n characters before the end: its occurrences are the only candidates.
    candidate = tail_start - length // _PHRASE_MIN_COUNT - 1
    while (candidate := text.find(tail, candidate + 1, tail_start)) >= 0:
        size = tail_start - candidate
        shifted = (_PHRASE_MIN_COUNT - 1) * size
        if not text.startswith(text[length - shifted :], length - shifted - size):
            continue
        phrase = text[length - size :]
        start = length - _PHRASE_MIN_COUNT * size
        while text.endswith(phrase, 0, start):
            start -= size
        return text[:start] if length - start > length / 2 else None
    return None


def _repeated_unit(text: str) -> str | None:
    # A text is made of repeats of its first n characters exactly if it recurs in its own double at n.
    size = (text + text).find(text, 1)
    return text[:size] if len(text) // size >= _UNIT_MIN_COUNT else None


def _repeated_line(text: str) -> str | None:
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    if len(lines) < _LINES_MIN:
        return None
    line, count = Counter(lines).most_common(1)[0]
    return line if count >= _LINES_MIN and count / len(lines) >= _LINES_MIN_SHARE else None


def _with_dollar_maths(text: str, *, keep_dollars: bool) -> str:
    r"""`\(x\)` and `\[x\]` as ` $ x $` and ` $$ x $$ `; dollars that stood there before would confuse and go."""
    is_inline = r"\(" in text and r"\)" in text
    is_display = r"\[" in text and r"\]" in text
    if not (is_inline or is_display):
        return text
    text = text.replace("$", "").replace(r"\[\[", r"\[").replace(r"\]\]", r"\]")
    text = text.replace(r"\(", " $ ").replace(r"\)", " $").replace(r"\[", " $$ ").replace(r"\]", " $$ ")
    return text if keep_dollars else text.replace("$", "")


def _spotting(text: str, page_size: tuple[int, int]) -> Spotting:
    lines = _tagged_lines(text) or _untagged_lines(text)
    return Spotting(
        rec_polys=tuple(_polygon(coordinates, page_size) for _, coordinates in lines),
        rec_texts=tuple(line for line, _ in lines),
    )


def _tagged_lines(text: str) -> list[tuple[str, list[str]]]:
    """The n-th text belongs to the n-th place; pairs whose place is incomplete are dropped."""
    texts = _between(text, "<|TEXT_START|>", "<|TEXT_END|>")
    places = _between(text, "<|LOC_BEGIN|>", "<|LOC_END|>")
    lines = []
    for line, place in zip(texts, places, strict=False):
        coordinates = _COORDINATE.findall(place)
        if len(coordinates) >= _COORDINATES_OF_LINE:
            lines.append((line.strip(), coordinates[:_COORDINATES_OF_LINE]))
    return lines


def _between(text: str, opening: str, closing: str) -> list[str]:
    # Not a lazy regular expression: each opening tag without a closing one would make it run to the end of the text.
    found = []
    start = text.find(opening)
    while start >= 0 and (end := text.find(closing, start + len(opening))) >= 0:
        found.append(text[start + len(opening) : end])
        start = text.find(opening, end + len(closing))
    return found


def _untagged_lines(text: str) -> list[tuple[str, list[str]]]:
    """Groups of eight coordinates, each with the text between it and the group before."""
    coordinates = list(_COORDINATE.finditer(text))
    lines = []
    end = 0
    for first in range(0, len(coordinates) - _COORDINATES_OF_LINE + 1, _COORDINATES_OF_LINE):
        group = coordinates[first : first + _COORDINATES_OF_LINE]
        lines.append((text[end : group[0].start()].strip(), [coordinate[1] for coordinate in group]))
        end = group[-1].end()
    return lines


def _polygon(coordinates: list[str], page_size: tuple[int, int]) -> Polygon:
    width, height = page_size
    xs = [int(value) / _COORDINATE_SCALE * width for value in coordinates[0::2]]
    ys = [int(value) / _COORDINATE_SCALE * height for value in coordinates[1::2]]
    return tuple(zip(xs, ys, strict=True))
