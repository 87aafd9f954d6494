"""A parsed page as a Word file (`outputFormats: ["docx"]`, SPEC A.3 to A.5).

`elements` says what stands in the file, in order, and is pure; `docx_writer` writes it with python-docx, which is an
extra: a process without it refuses such requests and says how to get it.
"""

import base64
import binascii
import html
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote_to_bytes

from hps import markdown, table_html
from hps.document import Block, ParsedPage
from hps.errors import InvalidInput, NotEnabled
from hps.table_html import Element

MAX_COLUMNS: Final = 63  # of a table in Word
MAX_LEVEL: Final = 9  # of a heading in Word

_HEADINGS: Final = frozenset({"doc_title", "paragraph_title"})
_WITH_HEADING_LINE: Final = frozenset({"abstract", "reference"})
_FORMULAS: Final = frozenset({"display_formula", "formula"})
_PICTURES: Final = frozenset({"image", "header_image", "footer_image"})
_PARAGRAPHS: Final = frozenset(
    {
        "text",
        "ocr",
        "vertical_text",
        "reference_content",
        "vision_footnote",
        "content",
        "inline_formula",
        "spotting",
        "number",
        "footnote",
        "header",
        "footer",
        "aside_text",
    }
)
_HEADING_LINE = re.compile(r"(#+) +(.*)", re.DOTALL)
_DATA_URI = re.compile(r"data:([^,]*),(.*)", re.DOTALL)
_IMAGE_SOURCE = re.compile(r"""\ssrc\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)


# --- what stands in the file ---


@dataclass(frozen=True, slots=True)
class Heading:
    """level: 1 to MAX_LEVEL."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Newlines in `text` are line breaks."""

    text: str
    is_centred: bool = False
    is_caption: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """share: of the text's width, over 0 and at most 1; None for the size that the picture has."""

    path: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """Spans lie inside the table and overlap no other cell."""

    row: int
    column: int
    rowspan: int
    colspan: int
    content: tuple[str | Picture, ...]


@dataclass(frozen=True, slots=True)
class Table:
    rows: int
    columns: int
    cells: tuple[Cell, ...]


DocxElement = Heading | Paragraph | Picture | Table


def elements(page: ParsedPage) -> list[DocxElement]:
    """What the page's blocks become, in order. As in Markdown, labels to ignore and unknown ones are left out."""
    ignored = frozenset(page.settings.markdown_ignore_labels)
    formatted = replace(page, settings=replace(page.settings, format_block_content=True))
    rendered = markdown.block_contents(formatted)
    found: list[DocxElement] = []
    for index, block in enumerate(page.blocks):
        if block.label not in ignored:
            following = page.blocks[index + 1] if index + 1 < len(page.blocks) else None
            found += _of_block(block, rendered[index], following, page)
    return found


def picture_paths(page: ParsedPage) -> tuple[str, ...]:
    """The pictures that the file shows: those that a caller has to provide."""
    paths = []
    for element in elements(page):
        if isinstance(element, Picture):
            paths.append(element.path)
        elif isinstance(element, Table):
            paths += [piece.path for cell in element.cells for piece in cell.content if isinstance(piece, Picture)]
    return tuple(dict.fromkeys(paths))


def docx_file(page: ParsedPage, pictures: Mapping[str, bytes]) -> bytes:
    """The bytes of the .docx; the same page always gives the same bytes.

    pictures: path → file (JPEG, PNG, GIF, BMP or TIFF). Where one is missing its path stands in its place. Raises
    NotEnabled without python-docx, InvalidInput for a picture that is none.
    """
    require()
    from hps import docx_writer

    return docx_writer.write(elements(page), (page.width, page.height), pictures)


def require() -> None:
    """Raises NotEnabled when this process cannot write such files."""
    if importlib.util.find_spec("docx") is None:
        raise NotEnabled("outputFormats: docx is not enabled; install the extra: pip install 'paddleocr-vl-hps[docx]'")


def file_name(index: int | None) -> str:
    """Of the page at `index`, counted from 0; None for all pages in one."""
    return "document.docx" if index is None else f"page_{index}.docx"


def decode_payload(payload: str) -> bytes | str:
    """A value of `markdownImages`: the bytes of a Base64 text or data URI; an http(s) URL as it is, to be fetched.

    Base64 is read as the reference reads it: foreign characters are skipped. Raises InvalidInput.
    """
    if payload.startswith(("http://", "https://")):
        return payload
    try:
        uri = _DATA_URI.match(payload)
        if uri is None:
            return base64.b64decode(payload)
        parameters, data = uri.groups()
        raw = unquote_to_bytes(data)
        return base64.b64decode(raw) if parameters.lower().endswith(";base64") else raw
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("markdownImages: a value is neither Base64, nor a data URI, nor an http(s) URL") from error


# --- blocks ---


def _of_block(block: Block, rendered: str, following: Block | None, page: ParsedPage) -> Iterator[DocxElement]:
    label, content = block.label, block.content
    if label in _HEADINGS:
        yield from _heading(rendered)
    elif label in _WITH_HEADING_LINE:
        yield from _with_heading_line(rendered)
    elif label in _FORMULAS:
        yield from _formula(content, following)
    elif label == "figure_title":
        yield from _caption(content)
    elif label == "table":
        yield from _tables(content)
    elif label == "algorithm":
        yield from _paragraphs(content, separator=None)
    elif label == "chart" and page.settings.use_chart_recognition:
        yield from _chart(content)
    elif label in _PICTURES or label == "chart":
        yield from _picture(block, page, shows_text=label != "chart" and page.settings.use_ocr_for_image_block)
    elif label == "seal":
        if page.settings.use_layout_detection:
            yield from _picture(block, page, shows_text=page.settings.use_seal_recognition)
        else:
            yield from _caption(content)
    elif label in _PARAGRAPHS:
        yield from _paragraphs(content)


def _heading(rendered: str) -> Iterator[DocxElement]:
    """From Markdown, whose rule for levels holds here too."""
    mark = _HEADING_LINE.match(rendered)
    if mark and mark[2].strip():
        yield Heading(min(len(mark[1]), MAX_LEVEL), mark[2].strip())


def _with_heading_line(rendered: str) -> Iterator[DocxElement]:
    for line in filter(str.strip, rendered.split("\n")):
        mark = _HEADING_LINE.match(line)
        yield Heading(len(mark[1]), mark[2].strip()) if mark else Paragraph(line.strip())


def _formula(content: str, following: Block | None) -> Iterator[DocxElement]:
    formula = content.replace("$$", "").strip()
    if following is not None and following.label == "formula_number" and following.content.strip():
        formula = f"{formula}\t{following.content.strip()}"
    if formula:
        yield Paragraph(formula, is_centred=True)


def _caption(content: str) -> Iterator[DocxElement]:
    text = content.replace("-\n", "").replace("\n", " ").strip()
    if text:
        yield Paragraph(text, is_centred=True, is_caption=True)


def _paragraphs(content: str, separator: str | None = "\n") -> Iterator[DocxElement]:
    for text in content.split(separator) if separator else [content.strip("\n")]:
        if text.strip():
            yield Paragraph(text.strip() if separator else text)


def _picture(block: Block, page: ParsedPage, *, shows_text: bool) -> Iterator[DocxElement]:
    if block.image_path is not None:
        width = (block.box[2] - block.box[0]) / page.width if page.width else 1.0
        yield Picture(block.image_path, min(max(width, 0.02), 1.0))
    if shows_text:
        yield from _paragraphs(block.content)


def _chart(content: str) -> Iterator[DocxElement]:
    rows = [[cell.strip() for cell in line.split("|")] for line in content.split("\n") if line.strip()]
    cells = [Cell(row, column, 1, 1, (text,)) for row, texts in enumerate(rows) for column, text in enumerate(texts)]
    if rows:
        yield from _table(len(rows), max(map(len, rows)), cells)


# --- tables ---


def _tables(content: str) -> Iterator[DocxElement]:
    """The tables of an HTML text, and what stands beside them as paragraphs."""
    beside: list[Element | str] = []
    pending: list[Element | str] = table_html.parsed(content).children[::-1]
    while pending:
        node = pending.pop()
        if isinstance(node, Element) and node.tag == "table":
            yield from _beside(beside)
            beside = []
            cells, columns = placed(node.rows())
            yield from _table(len(node.rows()), columns, cells)
        elif isinstance(node, Element) and node.tag in ("html", "body"):
            pending += node.children[::-1]
        else:
            beside.append(node)
    yield from _beside(beside)


def _beside(nodes: Sequence[Element | str]) -> Iterator[DocxElement]:
    text = ""
    for piece in _pieces(nodes):
        if isinstance(piece, Picture):
            yield from _paragraphs(text)
            yield piece
            text = ""
        else:
            text += piece
    yield from _paragraphs(text)


def _table(rows: int, columns: int, cells: Sequence[Cell]) -> Iterator[DocxElement]:
    if columns > MAX_COLUMNS:
        by_row: dict[int, list[str]] = {}
        for cell in cells:
            by_row.setdefault(cell.row, []).append("".join(p for p in cell.content if isinstance(p, str)))
        yield from (Paragraph("\t".join(texts)) for texts in by_row.values())
    elif columns:
        yield Table(rows, columns, tuple(cells))


def placed(rows: Sequence[Element]) -> tuple[list[Cell], int]:
    """The cells on the grid that their spans make, and its width. Where two would overlap the earlier one stays."""
    cells = []
    free_from: dict[int, int] = {}  # column → first row in which no rowspan from above reaches it
    for row_number, row in enumerate(rows):
        column = 0
        for element in row.cells():
            while free_from.get(column, 0) > row_number:
                column += 1
            colspan = 1
            while colspan < element.span("colspan") and free_from.get(column + colspan, 0) <= row_number:
                colspan += 1
            rowspan = min(element.span("rowspan"), len(rows) - row_number)
            cells.append(Cell(row_number, column, rowspan, colspan, tuple(_pieces(element.children))))
            free_from.update(dict.fromkeys(range(column, column + colspan), row_number + rowspan))
            column += colspan
    return cells, max((cell.column + cell.colspan for cell in cells), default=0)


def _pieces(nodes: Sequence[Element | str]) -> Iterator[str | Picture]:
    """The text of nodes with line breaks, and the pictures between; neighbouring texts are one piece."""
    text = ""
    pending = list(nodes)[::-1]
    while pending:
        node = pending.pop()
        if isinstance(node, str):
            text += html.unescape(node)
        elif node.tag == "br":
            text += "\n"
        elif node.tag == "img" and (source := _IMAGE_SOURCE.search(node.opening)):
            if text.strip():
                yield text.strip()
            text = ""
            yield Picture(html.unescape(source[1] or source[2] or ""))
        else:
            pending += node.children[::-1]
    if text.strip():
        yield text.strip()
