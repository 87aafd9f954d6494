"""Pages as Word files, opened again with python-docx."""

import base64
import contextlib
import io
import time
import zipfile
from typing import Any

import cv2
import numpy as np
import pytest
from docx import Document
from docx.enum.text import WD_ALIGN_PARAGRAPH
from hypothesis import given, settings
from hypothesis import strategies as st

from hps import docx_export
from hps.document import Block, ModelSettings, ParsedPage
from hps.docx_export import Cell, Heading, Paragraph, Picture, Table, decode_payload, docx_file, elements, picture_paths
from hps.errors import InvalidInput


def page(*blocks: Block, size: tuple[int, int] = (1000, 1400), **changes: Any) -> ParsedPage:
    return ParsedPage(*size, blocks, ModelSettings(**changes))


def block(label: str, content: str = "", **changes: Any) -> Block:
    return Block(label, changes.pop("box", (0, 0, 500, 100)), content, **changes)


def image(width: int = 40, height: int = 20, extension: str = ".jpg") -> bytes:
    return bytes(cv2.imencode(extension, np.full((height, width, 3), 99, np.uint8))[1])


def opened(data: bytes) -> Any:
    return Document(io.BytesIO(data))


def texts(data: bytes) -> list[tuple[str, str]]:
    return [(paragraph.style.name, paragraph.text) for paragraph in opened(data).paragraphs]


# --- blocks ---


def test_titles_are_headings_of_their_levels() -> None:
    blocks = [
        block("doc_title", "A paper-\nback"),
        block("paragraph_title", "1. Intro"),
        block("paragraph_title", "1.2.3Setup"),
        block("paragraph_title", "Deep", title_level=3),
        block("paragraph_title", "Below zero", title_level=-4),
        block("paragraph_title", "Abyss", title_level=40),
    ]
    assert texts(docx_file(page(*blocks), {})) == [
        ("Heading 1", "A paperback"),
        ("Heading 3", "1. Intro"),
        ("Heading 4", "1.2.3 Setup"),
        ("Heading 4", "Deep"),
        ("Heading 1", "Below zero"),
        ("Heading 9", "Abyss"),
    ]


def test_texts_are_paragraphs() -> None:
    written = texts(
        docx_file(page(block("text", "One\n\nTwo"), block("text", ""), block("reference_content", "Three")), {})
    )
    assert written == [("Normal", "One"), ("Normal", "Two"), ("Normal", "Three")]


def test_an_abstract_and_references_have_their_heading() -> None:
    blocks = [block("abstract", "Abstract We show."), block("reference", "References\n[1] A\n[2] B")]
    assert elements(page(*blocks)) == [
        Heading(2, "Abstract"),
        Paragraph("We show."),
        Heading(2, "References"),
        Paragraph("[1] A"),
        Paragraph("[2] B"),
    ]


def test_captions_are_centred() -> None:
    (paragraph,) = opened(docx_file(page(block("figure_title", "Figure 1.\nA cat")), {})).paragraphs
    assert (paragraph.style.name, paragraph.text) == ("Caption", "Figure 1. A cat")
    assert paragraph.alignment == WD_ALIGN_PARAGRAPH.CENTER


def test_a_formula_is_text_with_its_number() -> None:
    blocks = [
        block("display_formula", " $$ E = mc^2 $$ "),
        block("formula_number", "(1)"),
        block("formula_number", "(2)"),
    ]
    assert elements(page(*blocks)) == [Paragraph("E = mc^2\t(1)", is_centred=True)]


def test_an_algorithm_keeps_its_lines() -> None:
    assert elements(page(block("algorithm", "\nfor x:\n  y\n"))) == [Paragraph("for x:\n  y")]


def test_labels_to_ignore_and_unknown_ones_are_left_out() -> None:
    blocks = [block("header", "Head"), block("mystery", "?"), block("text", "Body")]
    assert elements(page(*blocks)) == [Paragraph("Body")]
    kept = elements(page(*blocks, markdown_ignore_labels=()))
    assert kept == [Paragraph("Head"), Paragraph("Body")]


def test_a_charts_table_is_a_table() -> None:
    chart = block("chart", "year | sold\n2024 | 3", image_path="imgs/c.jpg")
    (table,) = opened(docx_file(page(chart, use_chart_recognition=True), {})).tables
    assert [[cell.text for cell in row.cells] for row in table.rows] == [["year", "sold"], ["2024", "3"]]
    assert elements(page(chart)) == [Picture("imgs/c.jpg", 0.5)]


@pytest.mark.parametrize(
    ("label", "changes", "expected"),
    [
        ("image", {}, [Picture("p", 0.5)]),
        ("image", {"use_ocr_for_image_block": True}, [Picture("p", 0.5), Paragraph("read")]),
        ("seal", {}, [Picture("p", 0.5)]),
        ("seal", {"use_seal_recognition": True}, [Picture("p", 0.5), Paragraph("read")]),
        ("seal", {"use_layout_detection": False}, [Paragraph("read", is_centred=True, is_caption=True)]),
    ],
)
def test_pictures_show_their_text_where_it_was_read(label: str, changes: dict[str, Any], expected: list[Any]) -> None:
    assert elements(page(block(label, "read", image_path="p"), **changes)) == expected


# --- pictures ---


@pytest.mark.parametrize("extension", [".jpg", ".png", ".bmp", ".tiff"])
def test_a_picture_has_the_width_that_it_has_on_the_page(extension: str) -> None:
    data = docx_file(page(block("image", image_path="a")), {"a": image(extension=extension)})
    written = opened(data)
    (shape,) = written.inline_shapes
    section = written.sections[0]
    text_width = section.page_width - section.left_margin - section.right_margin
    assert shape.width == pytest.approx(text_width / 2, rel=1e-3)
    assert shape.height == pytest.approx(shape.width / 2, rel=1e-3)


def test_a_tall_picture_fits_the_paper() -> None:
    written = opened(docx_file(page(block("image", image_path="a")), {"a": image(2, 2000)}))
    assert written.inline_shapes[0].height < written.sections[0].page_height


def test_a_picture_that_is_not_there_leaves_its_name() -> None:
    assert texts(docx_file(page(block("image", image_path="imgs/a.jpg")), {})) == [("Normal", "[imgs/a.jpg]")]


@pytest.mark.parametrize("data", [b"", b"no image", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"GIF89a", b"II*\0"])
def test_what_is_no_picture_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="picture"):
        docx_file(page(block("image", image_path="a")), {"a": data})


@given(st.binary(max_size=60), st.sampled_from([b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"BM", b"GIF89a", b"II*\0"]))
@settings(max_examples=15, deadline=None)
def test_a_broken_picture_is_refused_or_shown(tail: bytes, magic: bytes) -> None:
    with contextlib.suppress(InvalidInput):
        docx_file(page(block("image", image_path="a")), {"a": magic + tail})


def test_the_paper_lies_as_the_page_does() -> None:
    section = opened(docx_file(page(size=(1400, 1000)), {})).sections[0]
    assert section.page_width > section.page_height


# --- tables ---

SPANS = (
    "<table><tr><td rowspan=2>a</td><td colspan='2'>b &amp; c</td></tr>"
    "<tr><td>d</td><td>e<br>f</td></tr><tr><td>g</td></tr></table>"
)


def test_spans_are_merged_cells() -> None:
    (table,) = opened(docx_file(page(block("table", SPANS)), {})).tables
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["a", "b & c", "b & c"],
        ["a", "d", "e\nf"],
        ["g", "", ""],
    ]
    assert table.cell(0, 0)._tc is table.cell(1, 0)._tc
    assert table.cell(0, 1)._tc is table.cell(0, 2)._tc


def test_text_beside_tables_stays() -> None:
    found = elements(page(block("table", "before<table><tr><td>1</td></tr></table>after")))
    assert found == [Paragraph("before"), Table(1, 1, (Cell(0, 0, 1, 1, ("1",)),)), Paragraph("after")]


def test_text_that_is_no_table_is_text() -> None:
    assert elements(page(block("table", "a < b\nplain"))) == [Paragraph("a < b"), Paragraph("plain")]


def test_pictures_in_cells_are_shown() -> None:
    cell = 'x<img src="imgs/a.jpg" alt="Image"" />y'
    with_picture = page(block("table", f"<table><tr><td>{cell}</td></tr></table>"))
    assert picture_paths(with_picture) == ("imgs/a.jpg",)
    written = opened(docx_file(with_picture, {"imgs/a.jpg": image()}))
    assert len(written.inline_shapes) == 1
    assert written.tables[0].cell(0, 0).text == "xy"


def test_a_table_too_wide_for_word_is_text() -> None:
    row = "".join(f"<td>{n}</td>" for n in range(70))
    (paragraph,) = elements(page(block("table", f"<table><tr>{row}</tr></table>")))
    assert paragraph == Paragraph("\t".join(map(str, range(70))))


def test_a_large_table_is_written_in_no_time() -> None:
    rows = "".join(f"<tr>{''.join(f'<td>{r}</td>' for _ in range(10))}</tr>" for r in range(500))
    started = time.process_time()
    docx_file(page(block("table", f"<table>{rows}</table>")), {})
    assert time.process_time() - started < 10


CELLS = st.builds(
    lambda tag, rowspan, colspan, text: f"<{tag} rowspan={rowspan} colspan={colspan}>{text}</{tag}>",
    st.sampled_from(["td", "th"]),
    st.sampled_from(["1", "2", "3", "0", "x", "9999"]),
    st.sampled_from(["1", "2", "3", "-1"]),
    st.text(max_size=5),
)


@given(st.lists(st.lists(CELLS, max_size=5), max_size=5))
@settings(max_examples=20, deadline=None)
def test_any_spans_make_a_table_that_opens(rows: list[list[str]]) -> None:
    content = "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in rows) + "</table>"
    data = docx_file(page(block("table", content)), {})
    for table in opened(data).tables:
        for row in table.rows:
            assert len(row.cells) == len(table.columns)


# --- the file ---


@given(st.text(), st.sampled_from(["text", "table", "paragraph_title", "display_formula", "figure_title", "abstract"]))
@settings(max_examples=20, deadline=None)
def test_any_text_makes_a_file_that_opens(text: str, label: str) -> None:
    opened(docx_file(page(block(label, text + "\x00\ud800")), {}))


def test_the_same_page_gives_the_same_bytes() -> None:
    full = page(block("text", "Body"), block("image", image_path="a"), block("table", SPANS))
    first = docx_file(full, {"a": image()})
    assert docx_file(full, {"a": image()}) == first
    assert {member.date_time[0] for member in zipfile.ZipFile(io.BytesIO(first)).infolist()} == {1980}
    assert opened(first).core_properties.modified.year == 2000


def test_an_empty_page_is_an_empty_file() -> None:
    assert texts(docx_file(page(), {})) == []


def test_file_names() -> None:
    assert (docx_export.file_name(2), docx_export.file_name(None)) == ("page_2.docx", "document.docx")


# --- payloads ---


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (base64.b64encode(b"bytes").decode(), b"bytes"),
        ("Ynl0\nZXM=", b"bytes"),
        ("data:image/png;base64,Ynl0ZXM=", b"bytes"),
        ("data:image/png;base64,Ynl0ZXM%3D", b"bytes"),
        ("data:,a%20b", b"a b"),
        ("https://example.com/a.jpg", "https://example.com/a.jpg"),
    ],
)
def test_a_payload_is_bytes_or_a_url(payload: str, expected: bytes | str) -> None:
    assert decode_payload(payload) == expected


@pytest.mark.parametrize("payload", ["abc", "data:image/png;base64,abc", "ü", "file:///etc/passwd"])
def test_other_payloads_are_refused(payload: str) -> None:
    with pytest.raises(InvalidInput, match="markdownImages"):
        decode_payload(payload)
