"""Files that are small and want to become large: made here, in memory, for the tests and the fuzzer."""

import struct
import zlib


def png(width: int, height: int, *chunks: bytes, data: bytes | None = None) -> bytes:
    """Greyscale, 8 bits; black unless `data` (compressed rows) is given."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width + 1) * height), 9) if data is None else data
    parts = (png_chunk(b"IHDR", header), *chunks, png_chunk(b"IDAT", rows), png_chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pdf(*objects: bytes) -> bytes:
    """Numbered from 1; the first is the catalog."""
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    trailer = b"trailer<</Size %d/Root 1 0 R>>startxref\n%d\n%%%%EOF" % (size, len(out))
    return bytes(out) + b"xref\n0 %d\n0000000000 65535 f \n" % size + table + trailer


def pdf_of_pages(count: int) -> bytes:
    kids = b" ".join(b"%d 0 R" % (3 + index) for index in range(count))
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]>>"
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count %d/Kids[%s]>>" % (count, kids), *([page] * count)
    )


def pdf_page(content: bytes, *objects: bytes, media_box: bytes = b"0 0 595 842") -> bytes:
    """One page: `content` is a stream; of the further objects the first is its picture /I."""
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[%s]/Contents 4 0 R/Resources<</XObject<</I 5 0 R>>>>>>" % media_box
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 1/Kids[3 0 R]>>", page, stream(content), *objects
    )


def stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<<%s/Length %d>>stream\n%s\nendstream" % (entries, len(data), data)


def deflated(data: bytes, entries: bytes = b"", *, times: int = 1) -> bytes:
    for _ in range(times):
        data = zlib.compress(data, 9)
    return stream(data, entries + b"/Filter[" + b"/FlateDecode" * times + b"]")


def pdf_content(content: bytes, *, times: int = 1) -> bytes:
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R>>"
    objects = (b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 1/Kids[3 0 R]>>", page)
    return pdf(*objects, deflated(content, times=times))


def _picture(width: int, height: int, bits: int, *, filtered: bytes = b"") -> bytes:
    size = b"/Type/XObject/Subtype/Image/Width %d/Height %d/BitsPerComponent %d/ColorSpace/DeviceGray"
    return size % (width, height, bits) + filtered


PAGE = b"595 0 0 842 0 0 cm"
DRAW = b"/I Do"


def pdf_picture(width: int, height: int, *, draws: int = 1) -> bytes:
    """A page that is its picture, drawn that often: time without memory."""
    content = PAGE + b"\n" + b"\n".join([DRAW] * draws)
    return pdf_page(content, deflated(bytes(width * height), _picture(width, height, 8)))


def pdf_jbig2(width: int, height: int) -> bytes:
    """A page of that size in a generic region of a few bytes."""
    page = struct.pack(">IBBBI", 0, 48, 0, 1, 19) + struct.pack(">IIIIBH", width, height, 0, 0, 0, 0)
    template = b"\x03\xff\xfd\xff\x02\xfe\xfe\xfe"
    region = struct.pack(">IIIIB", width, height, 0, 0, 0) + b"\0" + template + bytes(10)
    data = page + struct.pack(">IBBBI", 1, 38, 0, 1, len(region)) + region
    return pdf_page(PAGE + b" " + DRAW, stream(data, _picture(width, height, 1, filtered=b"/Filter/JBIG2Decode")))


def tiff(frames: int, width: int, height: int, data: bytes = bytes(100), *, end: int = 0) -> bytes:
    """Uncompressed frames that all show the same few bytes. end: where the chain leads after the last."""
    out = bytearray(b"II*\0\0\0\0\0") + data
    struct.pack_into("<I", out, 4, len(out))
    entries = ((256, width), (257, height), (258, 8), (259, 1), (262, 1), (273, 8), (278, height), (279, len(data)))
    body = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    for frame in range(frames):
        following = len(out) + len(body) + 4 if frame < frames - 1 else end
        out += body + struct.pack("<I", following)
    return bytes(out)
