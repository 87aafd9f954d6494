"""What a client's `file` is: URL or Base64, PDF or image (SPEC A.6, A.7). Pure; every refusal is an InvalidInput."""

import binascii
import re
from pathlib import PurePosixPath
from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

import pybase64

from hps.errors import InvalidInput

FileType = Literal["PDF", "IMAGE"]

_PDF_HEADER_WINDOW: Final = 1024  # Readers accept a PDF whose header stands anywhere in this many first bytes.

# By extension only and without the system's MIME tables, so that every machine answers alike. Formats that cannot be
# decoded stand here too: the content then says so (SPEC A.7).
_IMAGE_EXTENSION: Final = re.compile(
    r"\.(avif|bmp|dib|gif|hei[cf]|ico|ief|j2k|jfif|jp[2efgx]|jpeg|p[bgnp]m|png|ras|rgb|svg|tiff?|webp|x[bp]m|xwd)", re.I
)
_OBJECT_STORE_HOST: Final = re.compile(r"\w+\.bcebos\.com")

_IMAGE_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"II+\x00", "TIFF"),
    (b"MM\x00+", "TIFF"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
)
_FOREIGN_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"PK\x03\x04", "ZIP"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "OLE"),
    (b"{\\rtf", "RTF"),
    (b"%!PS", "POSTSCRIPT"),
    (b"\x1f\x8b", "GZIP"),
    (b"8BPS", "PSD"),
    (b"\x00\x00\x01\x00", "ICO"),
)
_BRANDED_BOX: Final = {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIC"}
_UNSUPPORTED: Final = {
    "GIF": "GIF images are not supported",
    "HEIC": "HEIC images are not supported",
    "ICO": "Icon files are not supported",
    "PSD": "Photoshop files are not supported",
    "SVG": "SVG images are not supported",
    "HTML": "The file is a web page (HTML), not a PDF or an image",
    "XML": "The file is an XML document, not a PDF or an image",
    "ZIP": "The file is a ZIP archive or an office document, not a PDF or an image",
    "OLE": "The file is an office document, not a PDF or an image",
    "RTF": "The file is an RTF document, not a PDF or an image",
    "POSTSCRIPT": "PostScript files are not supported",
    "GZIP": "The file is compressed (gzip), not a PDF or an image",
}
DECODABLE_IMAGES: Final = frozenset({"JPEG", "PNG", "TIFF", "WEBP", "BMP", "JPEG2000", "PPM", "AVIF"})


def is_url(file: str) -> bool:
    """An http or https URL, scheme in lower case, with a host."""
    if not file.startswith(("http://", "https://")):
        return False
    try:
        return bool(urlsplit(file).hostname)
    except ValueError:  # for example a half-open IPv6 bracket
        return False


def infer_file_type(url: str) -> FileType | None:
    """From the extension of the URL's last path segment; never from its content. None: neither image nor PDF."""
    parts = urlsplit(url)
    by_path = _type_of_name(parts.path)
    if by_path or PurePosixPath(parts.path).suffix or not _OBJECT_STORE_HOST.fullmatch(parts.hostname or ""):
        return by_path
    # Links of this object store carry the name in the query: responseContentDisposition=attachment;filename=NAME.
    disposition = "".join(parse_qs(parts.query).get("responseContentDisposition", []))
    attachment, _, name = disposition.partition(";filename=")
    return _type_of_name(name) if attachment == "attachment" else None


def _type_of_name(name: str) -> FileType | None:
    extension = PurePosixPath(name).suffix
    if extension.lower() == ".pdf":
        return "PDF"
    return "IMAGE" if _IMAGE_EXTENSION.fullmatch(extension) else None


def requested_type(file: str, file_type: int | None) -> FileType:
    """The client's `fileType` (0 PDF, 1 image), or what a URL's extension says without it (SPEC A.6, A.7)."""
    if file_type is not None:
        return "IMAGE" if file_type else "PDF"
    if not is_url(file):
        raise InvalidInput("File type cannot be determined")
    inferred = infer_file_type(file)
    if inferred is None:
        raise InvalidInput("Unsupported file type")
    return inferred


def decode_base64(file: str | bytes) -> bytes:
    """Python's permissive decoder: white space and foreign characters are skipped, wrong padding fails."""
    text = file.encode("ascii", "ignore") if isinstance(file, str) and not file.isascii() else file
    if text[:5].lower() in (b"data:", "data:"):
        raise InvalidInput("Data URIs are not supported: send the Base64 text alone")
    if not file or file.isspace():
        raise InvalidInput("The file is empty")
    try:
        data = pybase64.b64decode(text)
    except binascii.Error as error:
        raise InvalidInput("The file is neither a URL nor valid Base64") from error
    if not data:
        raise InvalidInput("The file is neither a URL nor valid Base64")
    return data


def sniff(data: bytes | memoryview) -> str:
    """The kind that the content shows: "PDF", a name in DECODABLE_IMAGES, another known kind ("GIF", "ZIP", "HTML",
    ...), or "" if none is recognised. An image's magic at the very start outweighs a PDF header further in."""
    head = bytes(data[:_PDF_HEADER_WINDOW])
    for magic, kind in _IMAGE_MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp" and head[8:12] in _BRANDED_BOX:
        return _BRANDED_BOX[head[8:12]]
    if b"%PDF-" in head:
        return "PDF"
    for magic, kind in _FOREIGN_MAGIC:
        if head.startswith(magic):
            return kind
    return _sniff_weak(head)


def _sniff_weak(head: bytes) -> str:
    """Marks of two bytes, or text: looked at last."""
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in (12, 40, 52, 56, 64, 108, 124):
        return "BMP"
    if re.match(rb"P[1-6]\s", head):
        return "PPM"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head")):
        return "HTML"
    if text.startswith((b"<svg", b"<?xml")):
        return "SVG" if b"<svg" in text else "XML"
    return ""


def decodable_kind(data: bytes | memoryview, file_type: FileType) -> str:
    """The decoder for `data`: "PDF" or a name in DECODABLE_IMAGES.

    Content outweighs the declared type, for names lie: PDF bytes sent as an image are parsed as the PDF that they are,
    and the other way round. Raises InvalidInput that names the kind where it is known and not supported.
    """
    if not len(data):
        raise InvalidInput("The file is empty")
    kind = sniff(data)
    if kind == "PDF" or kind in DECODABLE_IMAGES:
        return kind
    if kind in _UNSUPPORTED:
        raise InvalidInput(_UNSUPPORTED[kind])
    wanted = "a PDF document" if file_type == "PDF" else "an image of a supported format"
    raise InvalidInput(f"The file's content is not {wanted}")
