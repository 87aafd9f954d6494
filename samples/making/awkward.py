"""The documents of tests/documents/: each has one thing about it that goes wrong in careless parsers."""

import io
import struct
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pikepdf
from PIL import Image
from reportlab.lib import colors
from reportlab.pdfgen.canvas import Canvas

from . import prose
from .document import Document
from .drawing import A4, encode, new_canvas, notice, notice_pdf, pdf, picture, put, style

FOLDER = "tests/documents"


def awkward() -> Iterator[Document]:
    yield from damaged()
    yield from encrypted()
    yield from pictures()
    yield from fax()
    yield from extremes()
    yield from odd_pdfs()


def known(name: str) -> dict[int, tuple[str, ...]]:
    return {1: prose.NOTICES[name]}


# --- files that must be refused --------------------------------------------------------------------------------------


def damaged() -> Iterator[Document]:
    whole = notice_pdf(*prose.NOTICES["owner-password"])
    yield Document(
        f"{FOLDER}/truncated.pdf", whole[: len(whole) * 2 // 3], "PDF cut after two thirds of its bytes",
        pages=0, outcome="error", error=("damaged", "corrupt", "truncated"),
    )  # fmt: skip
    whole = encode(picture(notice_pdf(*prose.NOTICES["truncated-jpeg"])), "JPEG", quality=60)
    yield Document(
        f"{FOLDER}/truncated.jpg", whole[: len(whole) // 3], "JPEG cut after a third of its bytes",
        file_type=1, pages=0, outcome="error", error=("damaged", "corrupt", "truncated"),
    )  # fmt: skip
    yield Document(f"{FOLDER}/empty.pdf", b"", "zero bytes", pages=0, outcome="error", error=("empty",))
    noise = np.random.default_rng(20240621).integers(0, 256, 2048, dtype=np.uint8).tobytes()
    yield Document(
        f"{FOLDER}/random.bin", noise, "random bytes", file_type=1, pages=0, outcome="error",
        error=("unsupported", "not supported", "supported format"),
    )  # fmt: skip


def encrypted() -> Iterator[Document]:
    """RC4 with 128 bits, because AES draws random numbers for each file and these bytes must not change."""
    for name, user in (("user-password", "hps-sample"), ("owner-password", "")):
        buffer = io.BytesIO()
        with pikepdf.open(io.BytesIO(notice_pdf(*prose.NOTICES[name]))) as opened:
            lock = pikepdf.Encryption(owner="hps-owner", user=user, R=3, aes=False, metadata=False)
            opened.save(buffer, encryption=lock, static_id=True)
        if user:
            yield Document(
                f"{FOLDER}/encrypted-user-password.pdf", buffer.getvalue(), "encrypted PDF that needs a password",
                pages=0, outcome="error", error=("password", "encrypted"), note=f"the password is {user}",
            )  # fmt: skip
        else:
            yield Document(
                f"{FOLDER}/encrypted-owner-only.pdf", buffer.getvalue(),
                "encrypted PDF that opens without a password (owner password only)", snippets=known(name),
            )  # fmt: skip


# --- kinds of picture files ------------------------------------------------------------------------------------------


def pictures() -> Iterator[Document]:
    def page(name: str) -> Image.Image:
        return picture(notice_pdf(*prose.NOTICES[name]))

    def image(file: str, data: bytes, kind: str, name: str, **more: str) -> Document:
        return Document(f"{FOLDER}/{file}", data, kind, file_type=1, snippets=known(name), **more)

    cmyk = encode(page("cmyk").convert("CMYK"), "JPEG", quality=55)
    yield image("page-cmyk.jpg", cmyk, "CMYK JPEG", "cmyk")

    orientation = Image.Exif()
    orientation[0x0112] = 6
    lying = page("exif6").transpose(Image.Transpose.ROTATE_90)
    data = encode(lying, "JPEG", quality=60, exif=orientation)
    yield image("photo-exif6.jpg", data, "JPEG stored on its side, EXIF orientation 6", "exif6",
                note="upright once EXIF is obeyed: no orientation option needed")  # fmt: skip

    deep = np.asarray(page("sixteen-bit").convert("L"), np.uint16) * 257
    yield image("scan-16bit.png", encode(Image.fromarray(deep), "PNG", optimize=True), "16-bit grey PNG", "sixteen-bit")

    grey = np.asarray(page("transparent").convert("L"))
    rgba = np.zeros((*grey.shape, 4), np.uint8)
    rgba[..., 3] = 255 - grey
    data = encode(Image.fromarray(rgba), "PNG", optimize=True)
    yield image("transparent-text.png", data, "black text in the alpha channel only", "transparent")

    data = encode(page("gif").quantize(16, dither=0), "GIF")
    yield Document(
        f"{FOLDER}/note.gif", data, "GIF, a kind that the official pipeline cannot read either", file_type=1, pages=0,
        outcome="error", error=("gif",),
    )  # fmt: skip
    yield image("note.webp", encode(page("webp"), "WEBP", quality=60, method=4), "WebP", "webp")

    g4 = picture(notice_pdf(*prose.NOTICES["g4"]), dpi=200).convert("1", dither=Image.Dither.NONE)
    data = encode(g4, "TIFF", compression="group4", dpi=(200, 200))
    yield image("letter-g4.tif", data, "1-bit Group 4 TIFF with one frame", "g4")

    data = notice_pdf(*prose.NOTICES["pdf-as-jpg"])
    yield Document(
        f"{FOLDER}/really-a-pdf.jpg", data, "PDF with the name of a JPEG", file_type=1, snippets=known("pdf-as-jpg"),
        note="sent with fileType 1: the content decides, not the name",
    )  # fmt: skip


def fax() -> Iterator[Document]:
    size = (420.0, 240.0)
    document = pdf(size, "Fax", *(notice(*page, size=size) for page in prose.FAX_PAGES))
    frames = [
        picture(document, dpi=200, page=index).convert("1", dither=Image.Dither.NONE)
        for index in range(len(prose.FAX_PAGES))
    ]
    data = encode(frames[0], "TIFF", compression="group4", dpi=(200, 200), save_all=True, append_images=frames[1:])
    yield Document(
        f"{FOLDER}/fax-3-pages.tif", data, "multi-page 1-bit TIFF", pages=3, file_type=1,
        snippets={index + 1: page for index, page in enumerate(prose.FAX_PAGES)},
    )  # fmt: skip


# --- extreme sizes ---------------------------------------------------------------------------------------------------


def bomb(side: int) -> bytes:
    """A white 1-bit PNG, written row by row: the picture as a whole is never in memory."""
    row = b"\0" + b"\xff" * ((side + 7) // 8)
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def extremes() -> Iterator[Document]:
    yield Document(
        f"{FOLDER}/one-pixel.png", encode(Image.new("RGB", (1, 1), "white"), "PNG"), "one white pixel",
        file_type=1, outcome="empty or error", error=("small", "size", "pixel"),
    )  # fmt: skip
    yield Document(
        f"{FOLDER}/bomb-30000x30000.png", bomb(30_000), "900 megapixels in a small file", file_type=1, pages=0,
        outcome="error", error=("pixels",), note="2.7 GB once decoded: the header must be enough to refuse it",
    )  # fmt: skip

    def large_print(canvas: Canvas) -> None:
        put(canvas, " ".join(prose.LARGE_PRINT), style("Serif", 600), 1800, 10_000, 10_800)

    side = 14_400.0
    yield Document(
        f"{FOLDER}/huge-mediabox.pdf", pdf((side, side), "Huge", large_print), "page of 14400 x 14400 pt",
        outcome="parsed or error", snippets={1: prose.LARGE_PRINT}, error=("pixels", "large"),
        note="drawn at a bounded scale, or refused; never out of memory",
    )  # fmt: skip
    yield Document(f"{FOLDER}/blank-a4.pdf", pdf(A4, "Blank", lambda canvas: None), "blank A4 page", outcome="empty")


# --- PDFs with a twist -----------------------------------------------------------------------------------------------


def odd_pdfs() -> Iterator[Document]:
    yield mixed_pages()
    yield numbered_pages()
    yield filled_form()


def mixed_pages() -> Document:
    """Sizes, /Rotate, a crop box and an origin away from zero; all pages are upright as displayed."""

    def page(heading: str, sentence: str, size: tuple[float, float]) -> bytes:
        return pdf(size, "Mixed", notice(heading, sentence, size=size))

    def turned(degrees: int, heading: str, sentence: str, size: tuple[float, float]) -> bytes:
        """Drawn turned counter-clockwise, so that /Rotate makes it upright with the displayed size `size`."""

        def draw(canvas: Canvas) -> None:
            shift = {90: (size[1], 0.0), 180: size, 270: (0.0, size[0])}[degrees]
            canvas.translate(*shift)
            canvas.rotate(degrees)
            notice(heading, sentence, size=size)(canvas)

        stored = size if degrees == 180 else (size[1], size[0])
        return pdf(stored, "Mixed", draw)

    def cropped(canvas: Canvas) -> None:
        canvas.translate(300, 300)
        notice("Cropped page", "Only the window in the middle is shown.", size=(420, 240))(canvas)
        canvas.setFont("Serif", 15)
        canvas.drawString(-200, 380, "Secret margin note that no reader sees")

    pages = (
        (page("Letter size", "The first page is upright and plain.", (612, 396)), 0, None),
        (turned(90, "Quarter turn", "The second page is turned by its rotate entry.", (520, 300)), 90, None),
        (turned(270, "Three quarters", "The third page is turned the other way.", (300, 420)), 270, None),
        (turned(180, "Half turn", "The fourth page stands on its head in the file.", (420, 297)), 180, None),
        (pdf((1000, 800), "Mixed", cropped), 0, (300, 300, 720, 540)),
        (page("Tiny page", "Small but legible.", (180, 150)), 0, None),
        (pdf((300, 500), "Mixed", lambda canvas: None), 0, None),
    )
    merged = pikepdf.new()
    for data, degrees, crop in pages:
        with pikepdf.open(io.BytesIO(data)) as source:
            merged.pages.append(source.pages[0])
        if degrees:
            merged.pages[-1].rotate(degrees, relative=False)
        if crop:
            merged.pages[-1].cropbox = crop
    buffer = io.BytesIO()
    merged.save(buffer, compress_streams=True, static_id=True)
    texts = (
        ("Letter size", "The first page is upright and plain."),
        ("Quarter turn", "The second page is turned by its rotate entry."),
        ("Three quarters", "The third page is turned the other way."),
        ("Half turn", "The fourth page stands on its head in the file."),
        ("Cropped page", "Only the window in the middle is shown."),
        ("Tiny page", "Small but legible."),
    )
    sizes = ((612, 396), (520, 300), (300, 420), (420, 297), (420, 240), (180, 150), (300, 500))
    return Document(
        f"{FOLDER}/mixed-pages.pdf", buffer.getvalue(), "seven pages of mixed sizes, rotations and boxes, one blank",
        pages=7, snippets={index + 1: text for index, text in enumerate(texts)},
        absent=("Secret margin note that no reader sees",),
        page_sizes=tuple((2 * width, 2 * height) for width, height in sizes),
    )  # fmt: skip


def numbered_pages() -> Document:
    count, size = len(prose.STATIONS), (420.0, 240.0)
    heads = [f"Page {number} of {count}: {name}" for number, (name, _) in enumerate(prose.STATIONS, 1)]
    draw: list[Callable[[Canvas], None]] = [
        notice(head, text, size=size) for head, (_, text) in zip(heads, prose.STATIONS, strict=True)
    ]
    return Document(
        f"{FOLDER}/numbered-12-pages.pdf", pdf(size, "Lighthouse log", *draw), "twelve numbered pages", pages=count,
        snippets={number: (heads[number - 1], prose.STATIONS[number - 1][1]) for number in range(1, count + 1)},
    )  # fmt: skip


def filled_form() -> Document:
    """The first fields carry their drawn appearance; the last has only a value, which the viewer must draw itself."""
    size, buffer = (420.0, 280.0), io.BytesIO()
    canvas = new_canvas(buffer, size, "Berth request")
    top = put(canvas, "Request for a berth", style("Sans-Bold", 20), 38, 245, 344) - 26
    for row, (label, value) in enumerate(prose.FORM_FIELDS):
        y = top - 44 * row
        canvas.setFont("Serif", 14)
        canvas.drawString(38, y, label)
        canvas.acroForm.textfield(
            value=value, name=f"field-{row}", tooltip=label, x=170, y=y - 8, width=210, height=24, fontSize=14,
            borderWidth=1, borderColor=colors.grey, fillColor=colors.white, textColor=colors.black, forceBorder=True,
        )  # fmt: skip
    canvas.showPage()
    canvas.save()
    stripped = io.BytesIO()
    with pikepdf.open(buffer) as opened:
        del opened.Root.AcroForm.Fields[-1].AP
        opened.Root.AcroForm.NeedAppearances = True
        opened.save(stripped, static_id=True)
    values = tuple(value for _, value in prose.FORM_FIELDS)
    return Document(
        f"{FOLDER}/form-filled.pdf", stripped.getvalue(), "PDF form with filled-in fields",
        snippets={1: ("Request for a berth", *(label for label, _ in prose.FORM_FIELDS), *values)},
        note="the last field has no appearance stream: it shows only if the renderer draws forms",
    )  # fmt: skip
