"""samples/manifest.json and the shipped documents agree, so that the end-to-end tests can trust the manifest."""

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = json.loads((ROOT / "samples" / "manifest.json").read_text(encoding="utf-8"))
DOCUMENTS: list[dict[str, Any]] = MANIFEST["documents"]
OUTCOMES = {"parsed", "empty", "error", "parsed or error", "empty or error"}


def each(documents: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("document", documents, ids=[document["file"] for document in documents])


def path_of(document: dict[str, Any]) -> Path:
    return ROOT.joinpath(document["file"])


def is_pdf(document: dict[str, Any]) -> bool:
    return path_of(document).read_bytes().startswith(b"%PDF-")


READABLE = [document for document in DOCUMENTS if document["pages"]]
READABLE_PDFS = [document for document in READABLE if is_pdf(document)]


@cache
def text_layer(file: str) -> tuple[str, ...]:
    """The words of each displayed page without white space: line breaks are no part of a snippet."""
    with pypdfium2.PdfDocument(ROOT / file) as opened:
        return tuple(squeezed(page.get_textpage().get_text_bounded()) for page in opened)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def test_every_document_is_listed_once_and_every_listed_one_is_there() -> None:
    no_documents = {".py", ".md", ".json", ".pyc"}
    shipped = {
        path.relative_to(ROOT).as_posix()
        for folder in ("samples", "tests/documents")
        for path in (ROOT / folder).iterdir()
        if path.is_file() and path.suffix not in no_documents and not path.name.startswith(".")
    }
    listed = [document["file"] for document in DOCUMENTS]
    assert len(listed) == len(set(listed))
    assert set(listed) == shipped


def test_documents_stay_small() -> None:
    sizes = [path_of(document).stat().st_size for document in DOCUMENTS]
    assert max(sizes) <= MANIFEST["max_file_bytes"] <= 400_000
    assert sum(sizes) <= MANIFEST["max_total_bytes"] <= 2_500_000


@each(DOCUMENTS)
def test_the_file_is_the_one_that_the_script_made(document: dict[str, Any]) -> None:
    data = path_of(document).read_bytes()
    assert len(data) == document["bytes"]
    assert hashlib.sha256(data).hexdigest() == document["sha256"]


@each(DOCUMENTS)
def test_the_entry_makes_sense(document: dict[str, Any]) -> None:
    assert document["outcome"] in OUTCOMES
    assert ("error" in document) == ("error" in document["outcome"])
    assert bool(document.get("snippets")) == ("parsed" in document["outcome"])
    for by_page in ("snippets", "contains", "reading_order"):
        assert {int(page) for page in document.get(by_page, {})} <= set(range(1, document["pages"] + 1))
    if "error" in document:
        assert document["error"]["status"] == 422
        assert document["error"]["message_has_one_of"]
    if "page_sizes" in document:
        assert len(document["page_sizes"]) == document["pages"]


@each(READABLE)
def test_page_count(document: dict[str, Any]) -> None:
    path = path_of(document)
    if is_pdf(document):
        with pypdfium2.PdfDocument(path) as opened:
            assert len(opened) == document["pages"]
    else:
        with Image.open(path) as image:
            assert getattr(image, "n_frames", 1) == document["pages"]


@each(READABLE_PDFS)
def test_snippets_of_a_pdf_stand_on_their_page(document: dict[str, Any]) -> None:
    values = form_values(document["file"])
    for page, snippets in document.get("snippets", {}).items():
        words = text_layer(document["file"])[int(page) - 1]
        assert [text for text in snippets if squeezed(text) not in words and text not in values] == []


def form_values(file: str) -> set[str]:
    """Values of form fields, which are no part of a page's text layer."""
    data = (ROOT / file).read_bytes()
    return {value.decode("latin-1") for value in re.findall(rb"/V \(([^)]*)\)", data)}


@each([document for document in READABLE_PDFS if "reading_order" in document])
def test_reading_order_is_the_order_in_which_the_page_was_set(document: dict[str, Any]) -> None:
    for page, snippets in document["reading_order"].items():
        words = text_layer(document["file"])[int(page) - 1]
        positions = [words.find(squeezed(text)) for text in snippets]
        assert -1 not in positions
        assert positions == sorted(positions)


@each([document for document in READABLE_PDFS if "page_sizes" in document])
def test_displayed_page_sizes(document: dict[str, Any]) -> None:
    with pypdfium2.PdfDocument(path_of(document)) as opened:
        assert [[round(2 * side) for side in page.get_size()] for page in opened] == document["page_sizes"]


@each([document for document in READABLE_PDFS if "absent" in document])
def test_text_outside_the_crop_box_is_in_the_file_but_not_displayed(document: dict[str, Any]) -> None:
    with pypdfium2.PdfDocument(path_of(document)) as opened:
        whole = "".join(squeezed(page.get_textpage().get_text_range()) for page in opened)
        shown = "".join(squeezed(page.get_textpage().get_text_bounded(*page.get_cropbox())) for page in opened)
    for text in document["absent"]:
        assert squeezed(text) in whole
        assert squeezed(text) not in shown


def test_files_that_must_be_refused_cannot_be_opened_as_pdf() -> None:
    for name in ("truncated.pdf", "empty.pdf", "encrypted-user-password.pdf", "random.bin"):
        with pytest.raises(pypdfium2.PdfiumError):
            pypdfium2.PdfDocument((ROOT / "tests" / "documents" / name).read_bytes())
