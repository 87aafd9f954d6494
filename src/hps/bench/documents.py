"""What is sent: documents as ready-made requests, from a folder or from the built-in page mix."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pypdfium2
from PIL import Image

from hps import client
from hps.bench import page_mix
from hps.bench.page_mix import MixPage

PDF, IMAGE = 0, 1


@dataclass(frozen=True, slots=True)
class Document:
    """body: of a POST to /layout-parsing."""

    name: str
    pages: int
    body: bytes


def of_mix(mix: Sequence[MixPage], options: Mapping[str, Any], *, pdf_pages: int | None = None) -> list[Document]:
    """The pages of the mix as image files of one page, or as PDFs of `pdf_pages` pages."""
    if pdf_pages is None:
        return [
            Document(f"page {number}", 1, request_body(page_mix.jpeg(page_mix.picture(page)), IMAGE, options))
            for number, page in enumerate(mix, 1)
        ]
    parts = [mix[start : start + pdf_pages] for start in range(0, len(mix), pdf_pages)]
    return [
        Document(f"document {number}", len(part), request_body(page_mix.pdf(map(page_mix.picture, part)), PDF, options))
        for number, part in enumerate(parts, 1)
    ]


def of_folder(folder: Path, options: Mapping[str, Any]) -> list[Document]:
    """Every document below the folder. Raises FileNotFoundError when there is none."""
    sources = client.find_sources([folder])
    if not sources:
        raise FileNotFoundError(f"no documents in {folder}")
    documents = []
    for source in sources:
        data = source.path.read_bytes()
        file_type = PDF if b"%PDF" in data[:1024] else IMAGE
        body = request_body(data, file_type, options)
        documents.append(Document(source.name, _pages(data, file_type), body))
    return documents


def request_body(data: bytes, file_type: int, options: Mapping[str, Any]) -> bytes:
    """As clients send it; without overlays unless asked for."""
    fields: dict[str, Any] = {"fileType": file_type, "visualize": False, **options}
    return json.dumps({"file": base64.b64encode(data).decode(), **fields}).encode()


def _pages(data: bytes, file_type: int) -> int:
    if file_type == PDF:
        document = pypdfium2.PdfDocument(data)
        try:
            return len(document)
        finally:
            document.close()
    with Image.open(io.BytesIO(data)) as image:
        return int(getattr(image, "n_frames", 1))
