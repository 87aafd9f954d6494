"""Writes headings, paragraphs, pictures and tables as a .docx with python-docx (the extra `docx`).

The same elements always give the same bytes: no time and no name of a machine gets into the file.
"""

import io
import re
import zipfile
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from docx import Document
from docx.document import Document as DocxDocument
from docx.enum.section import WD_ORIENT
from docx.enum.text import WD_ALIGN_PARAGRAPH
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.shared import Length, Mm, Pt
from docx.table import _Cell
from docx.text.run import Run

from hps.docx_export import Cell, DocxElement, Heading, Paragraph, Picture, Table
from hps.errors import InvalidInput

_LONG_SIDE, _SHORT_SIDE, _MARGIN = Mm(297), Mm(210), Mm(20)
_EPOCH: Final = datetime(2000, 1, 1)
_ZIP_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
# What XML cannot hold: control characters, halves of surrogate pairs, two non-characters.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def write(elements: Iterable[DocxElement], page_size: tuple[int, int], pictures: Mapping[str, bytes]) -> bytes:
    """page_size: (width, height) of the page that was parsed; only its orientation counts, the paper is A4.

    Raises InvalidInput for a picture that python-docx cannot read.
    """
    writer = _Writer(page_size[0] > page_size[1], pictures)
    for element in elements:
        writer.add(element)
    return writer.bytes()


class _Writer:
    def __init__(self, is_landscape: bool, pictures: Mapping[str, bytes]) -> None:
        self._document: DocxDocument = Document()
        self._pictures = pictures
        section = self._document.sections[0]
        width, height = (_LONG_SIDE, _SHORT_SIDE) if is_landscape else (_SHORT_SIDE, _LONG_SIDE)
        section.page_width, section.page_height = width, height
        section.orientation = WD_ORIENT.LANDSCAPE if is_landscape else WD_ORIENT.PORTRAIT
        section.left_margin = section.right_margin = section.top_margin = section.bottom_margin = _MARGIN
        self._text_width, self._text_height = width - 2 * _MARGIN, height - 2 * _MARGIN

    def add(self, element: DocxElement) -> None:
        match element:
            case Heading():
                self._document.add_heading(_clean(element.text), element.level)
            case Paragraph():
                style = "Caption" if element.is_caption else None
                paragraph = self._document.add_paragraph(_clean(element.text), style)
                if element.is_centred:
                    paragraph.alignment = WD_ALIGN_PARAGRAPH.CENTER
            case Picture():
                paragraph = self._document.add_paragraph()
                paragraph.alignment = WD_ALIGN_PARAGRAPH.CENTER
                self._picture(paragraph.add_run(), element, self._text_width)
            case Table():
                self._table(element)

    def bytes(self) -> bytes:
        properties = self._document.core_properties
        properties.author, properties.comments = "", ""
        properties.created = properties.modified = _EPOCH
        written = io.BytesIO()
        self._document.save(written)
        return _without_times(written)

    def _picture(self, run: Run, picture: Picture, room: int) -> None:
        data = self._pictures.get(picture.path)
        if data is None:
            run.text = f"[{_clean(picture.path)}]"
            return
        try:
            shape = run.add_picture(io.BytesIO(data))
            width, height = shape.width, shape.height
            wanted = width if picture.share is None else picture.share * self._text_width
            factor = min(wanted / width, room / width, self._text_height / height)
        except Exception as error:  # its readers of image headers raise whatever a broken file makes them raise
            raise InvalidInput("markdownImages: a picture is not a JPEG, PNG, GIF, BMP or TIFF file") from error
        shape.width, shape.height = Length(max(1, int(width * factor))), Length(max(1, int(height * factor)))

    # python-docx finds a cell, and merges cells, in time that grows with the table, for each cell: large tables would
    # take minutes. So the rows are built here, spans included.
    def _table(self, table: Table) -> None:
        written = self._document.add_table(rows=0, cols=table.columns, style="Table Grid")
        covering: list[dict[int, Cell]] = [{} for _ in range(table.rows)]
        for cell in table.cells:
            for row in range(cell.row, cell.row + cell.rowspan):
                covering[row][cell.column] = cell
        for row_number, row_cells in enumerate(covering):
            written_row: Any = OxmlElement("w:tr")
            column = 0
            while column < table.columns:
                cell = row_cells.get(column, Cell(row_number, column, 1, 1, ()))
                element = _cell_element(cell, is_first=cell.row == row_number)
                written_row.append(element)
                if cell.row == row_number:
                    self._fill(_Cell(element, written), cell, self._text_width * cell.colspan // table.columns)
                column += cell.colspan
            written._tbl.append(written_row)
        self._document.add_paragraph()  # or two tables in a row would be one

    def _fill(self, cell: _Cell, content: Cell, room: int) -> None:
        paragraph = cell.paragraphs[0]
        paragraph.alignment = WD_ALIGN_PARAGRAPH.CENTER
        paragraph.paragraph_format.space_after = Pt(0)
        for piece in content.content:
            if isinstance(piece, Picture):
                self._picture(paragraph.add_run(), piece, room)
            else:
                paragraph.add_run(_clean(piece))


def _cell_element(cell: Cell, *, is_first: bool) -> Any:
    """An empty w:tc; cells that lie below the first row of a span carry on the merge."""
    element: Any = OxmlElement("w:tc")
    properties: Any = OxmlElement("w:tcPr")
    if cell.colspan > 1:
        span: Any = OxmlElement("w:gridSpan")
        span.set(qn("w:val"), str(cell.colspan))
        properties.append(span)
    if cell.rowspan > 1:
        merge: Any = OxmlElement("w:vMerge")
        merge.set(qn("w:val"), "restart" if is_first else "continue")
        properties.append(merge)
    element.append(properties)
    element.append(OxmlElement("w:p"))
    return element


def _clean(text: str) -> str:
    return _NOT_XML.sub("", text)


def _without_times(written: io.BytesIO) -> bytes:
    """The same archive with every member at one fixed time."""
    rewritten = io.BytesIO()
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(rewritten, "w", zipfile.ZIP_DEFLATED) as target:
        for member in source.infolist():
            fixed = zipfile.ZipInfo(member.filename, _ZIP_EPOCH)
            fixed.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(fixed, source.read(member))
    return rewritten.getvalue()
