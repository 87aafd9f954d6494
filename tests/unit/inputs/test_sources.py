import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hps.errors import InvalidInput
from hps.inputs import sources
from tests.unit.inputs import files


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("http://h/a.png", True),
        ("https://h", True),
        ("HTTP://h/a.png", False),
        ("ftp://h/a.png", False),
        ("http://", False),
        ("http:///a.png", False),
        ("http://[::1/a.png", False),
        ("aGVsbG8=", False),
    ],
)
def test_url(file: str, expected: bool) -> None:
    assert sources.is_url(file) is expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h/a.PDF", "PDF"),
        ("http://h/a.jpeg?x=1.pdf", "IMAGE"),
        ("http://h/a.tif", "IMAGE"),
        ("http://h/a.txt", None),
        ("http://h/a", None),
        ("http://h.pdf/", None),
        ("http://b.bcebos.com/k?responseContentDisposition=attachment%3Bfilename%3Dz.pdf", "PDF"),
        ("http://b.bcebos.com/k?responseContentDisposition=inline%3Bfilename%3Dz.pdf", None),
        ("http://b.bcebos.com.evil.com/k?responseContentDisposition=attachment%3Bfilename%3Dz.pdf", None),
    ],
)
def test_type_by_extension(url: str, expected: str | None) -> None:
    assert sources.infer_file_type(url) == expected


def test_the_clients_type_holds_for_a_url() -> None:
    assert sources.requested_type("http://h/a.txt", 0) == "PDF"
    assert sources.requested_type("http://h/a.pdf", 1) == "IMAGE"


def test_base64_without_type_cannot_be_determined() -> None:
    with pytest.raises(InvalidInput, match=r"^File type cannot be determined$"):
        sources.requested_type("aGVsbG8=", None)


def test_url_of_another_extension_is_unsupported() -> None:
    with pytest.raises(InvalidInput, match=r"^Unsupported file type$"):
        sources.requested_type("http://h/a.docx", None)


@given(st.binary(min_size=1), st.integers(1, 80))
def test_base64_skips_what_is_foreign(data: bytes, width: int) -> None:
    text = base64.b64encode(data).decode()
    broken = "\r\n é".join(text[i : i + width] for i in range(0, len(text), width))
    assert sources.decode_base64(broken) == data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The file is empty"),
        (" \n", "The file is empty"),
        ("aGVsbG8", "neither a URL nor valid Base64"),
        ("!!!!", "neither a URL nor valid Base64"),
        ("data:image/png;base64,aGVsbG8=", "Data URIs are not supported"),
    ],
)
def test_what_is_not_base64(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sources.decode_base64(text)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (files.pdf(), "PDF"),
        (b"\n" * 1000 + b"%PDF-1.7", "PDF"),
        (b"\n" * 1020 + b"%PDF-1.7", ""),
        (files.jpeg() + b"%PDF-1.4", "JPEG"),
        (files.tiff([(0, 0, 0)]), "TIFF"),
        *((files.encoded(files.picture(), name), name) for name in ("PNG", "WEBP", "BMP", "PPM", "JPEG2000", "AVIF")),
        (files.encoded(files.picture(), "GIF"), "GIF"),
        (b"BMW is a car", ""),
        (b"hello", ""),
        (b"", ""),
    ],
)
def test_kind_by_content(data: bytes, kind: str) -> None:
    assert sources.sniff(data) == kind


def test_content_outweighs_the_declared_type() -> None:
    assert sources.decodable_kind(files.pdf(), "IMAGE") == "PDF"
    assert sources.decodable_kind(files.jpeg(), "PDF") == "JPEG"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (files.encoded(files.picture(), "GIF"), "GIF images are not supported"),
        (b"PK\x03\x04....", "office document"),
        (b"\xef\xbb\xbf <!DOCTYPE html>", "web page"),
        (b'<?xml version="1.0"?><svg/>', "SVG images are not supported"),
        (b"hello", "not an image of a supported format"),
    ],
)
def test_each_wrong_kind_is_named(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sources.decodable_kind(data, "IMAGE")


@given(st.one_of(st.text(max_size=60), st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode() + "\n")))
def test_base64_is_read_as_python_reads_it(text: str) -> None:
    """The quick decoder accepts, skips and refuses the same."""
    if text[:5].lower() == "data:":
        return
    try:
        expected = base64.b64decode(text.encode("ascii", "ignore"))
    except ValueError:
        expected = b""
    try:
        found = sources.decode_base64(text)
    except InvalidInput:
        found = b""
    assert found == expected
