"""What becomes of each kind of file, decoded in this process."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from hps.document import Image
from hps.errors import InvalidInput
from hps.inputs import channel
from hps.inputs.bitmaps import BitmapFiles
from hps.inputs.decoding import OpenedFile
from hps.inputs.limits import DecodeLimits
from hps.inputs.pdf import pdf_scale
from hps.inputs.sources import FileType
from tests.unit.inputs import files

DOCUMENTS = Path(__file__).parents[2] / "documents"


def opened(
    data: bytes, file_type: FileType = "IMAGE", limits: DecodeLimits | None = None, max_pages: int | None = None
) -> OpenedFile:
    return OpenedFile(channel.memory_file(data), file_type, limits or DecodeLimits(), max_pages)


def page(document: OpenedFile, index: int = 0) -> Image:
    width, height = document.sizes[index]
    bitmap = document.render(index, BitmapFiles())
    bitmap.close_file()
    return np.frombuffer(bitmap.memory, np.uint8, width * height * 3).reshape(height, width, 3)


def only_page(data: bytes, file_type: FileType = "IMAGE") -> Image:
    document = opened(data, file_type)
    try:
        assert document.total_pages == len(document.sizes) == 1
        return page(document)
    finally:
        document.close()


@pytest.mark.parametrize(
    ("data", "bgr"),
    [
        (files.encoded(files.picture(colour=(10, 20, 30)), "PNG"), (30, 20, 10)),
        (files.encoded(files.picture("L", 77), "PNG"), (77, 77, 77)),
        (files.encoded(files.picture("1", 1), "PNG"), (255, 255, 255)),
        (files.encoded(files.picture("I;16", 40000), "PNG"), (156, 156, 156)),
        (files.encoded(files.picture("I;16", 40000), "TIFF"), (156, 156, 156)),
        (b"P5 2 2 65535\n" + b"\x9c\x40" * 4, (156, 156, 156)),
        (files.encoded(files.picture("RGBA", (255, 0, 0, 255)), "PNG"), (0, 0, 255)),
        (files.encoded(files.picture("RGBA", (255, 0, 0, 0)), "PNG"), (255, 255, 255)),
        (files.encoded(files.picture("LA", (0, 0)), "PNG"), (255, 255, 255)),
        (files.encoded(files.picture("P", 0), "PNG", transparency=0), (255, 255, 255)),
        (files.encoded(files.picture("CMYK", (0, 255, 255, 0)), "JPEG", quality=100), (0, 0, 255)),
        (files.encoded(files.picture(), "WEBP", lossless=True), (30, 20, 10)),
        (files.encoded(files.picture(), "BMP"), (30, 20, 10)),
    ],
)
def test_every_kind_of_pixel_becomes_bgr(data: bytes, bgr: tuple[int, int, int]) -> None:
    assert np.abs(only_page(data)[0, 0].astype(int) - bgr).max() <= 2


def test_white_text_on_transparency_stays_readable() -> None:
    picture = files.picture("RGBA", (255, 255, 255, 0), (40, 20))
    picture.paste((255, 255, 255, 255), (5, 5, 20, 10))
    image = only_page(files.encoded(picture, "PNG"))
    assert image[7, 10].tolist() == [255, 255, 255]
    assert image[0, 0].tolist() == [0, 0, 0]


def test_dark_text_on_transparency_stands_on_white() -> None:
    picture = files.picture("RGBA", (0, 0, 0, 0), (40, 20))
    picture.paste((0, 0, 0, 255), (5, 5, 20, 10))
    image = only_page(files.encoded(picture, "PNG"))
    assert (image[7, 10].tolist(), image[0, 0].tolist()) == ([0, 0, 0], [255, 255, 255])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_obeyed(orientation: int) -> None:
    original = files.picture("L", 0, (16, 8))
    original.paste(255, (0, 0, 8, 4))  # top left
    exif = Pillow.Exif()
    exif[0x0112] = orientation
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # inverse transpositions, as Pillow numbers them
    stored = original.transpose(Pillow.Transpose(undo[orientation])) if orientation > 1 else original
    image = only_page(files.encoded(stored, "PNG", exif=exif))
    assert np.array_equal(image[..., 0], np.asarray(original))


def test_frames_of_a_tiff_are_pages() -> None:
    document = opened(files.tiff([(10, 0, 0), (20, 0, 0), (30, 0, 0)]), max_pages=2)
    assert (document.kind, document.total_pages, document.sizes) == ("tiff", 3, ((8, 6), (8, 6)))
    assert [page(document, index)[0, 0, 2] for index in (1, 0, 1)] == [20, 10, 20]
    document.close()


def test_a_tiff_of_one_frame_is_an_image() -> None:
    document = opened(files.tiff([(10, 0, 0)], compression="tiff_lzw"))
    assert document.kind == "image"
    assert page(document)[0, 0].tolist() == [0, 0, 10]
    document.close()


def test_pdf_pages_are_drawn_on_white_at_144_dpi() -> None:
    document = opened(files.pdf([(100, 200), (50.4, 60)], content="0 0 1 rg 0 0 50 50 re f"), "PDF", max_pages=1)
    assert (document.kind, document.total_pages, document.sizes) == ("pdf", 2, ((200, 400),))
    image = page(document)
    assert (image[0, 0].tolist(), image[399, 0].tolist()) == ([255, 255, 255], [255, 0, 0])
    document.close()


def test_fractions_of_a_pixel_are_rounded_up() -> None:
    document = opened(files.pdf([(50.4, 60)]), "PDF")
    assert document.sizes == ((101, 120),)
    assert page(document).shape == (120, 101, 3)
    document.close()


def test_the_pages_own_rotation_is_honoured() -> None:
    assert only_page(files.pdf([(100, 200)], rotate=90), "PDF").shape == (200, 400, 3)


def test_form_fields_are_drawn() -> None:
    filled = only_page((DOCUMENTS / "form-filled.pdf").read_bytes(), "PDF")
    assert filled.min() < 100


def test_a_pdf_called_an_image_is_read_as_what_it_is() -> None:
    assert only_page(files.pdf([(100, 200)]), "IMAGE").shape == (400, 200, 3)


def test_a_huge_page_is_rendered_smaller() -> None:
    limits = DecodeLimits(max_pixels=10_000)
    document = opened(files.pdf([(1000, 1000)]), "PDF", limits)
    assert document.sizes == ((100, 100),)
    document.close()


def test_render_scale_is_the_largest_that_fits() -> None:
    assert pdf_scale(595.28, 841.89, DecodeLimits()) == 2.0
    assert pdf_scale(10_000, 10_000, DecodeLimits()) == 1.337699999819072


@pytest.mark.parametrize(("width", "height"), [(0, 10), (10, -1), (float("nan"), 10), (float("inf"), 10)])
def test_a_page_without_size_is_refused(width: float, height: float) -> None:
    with pytest.raises(InvalidInput, match="Page 3 of the PDF has no valid size"):
        pdf_scale(width, height, DecodeLimits(), 3)


def test_a_page_too_large_at_the_smallest_scale_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Page 2 of the PDF is too large"):
        opened(files.pdf([(10, 10), (20_000, 20_000)]), "PDF", DecodeLimits(max_pixels=1000))


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM"])
def test_a_truncated_image_is_an_error_and_never_half_a_page(image_format: str) -> None:
    data = files.encoded(files.noise(200, 200), image_format)
    with pytest.raises(InvalidInput, match="damaged"):
        document = opened(data[: len(data) * 2 // 3])
        try:
            document.render(0, BitmapFiles())
        finally:
            document.close()


def test_a_progressive_jpeg_cut_short_is_an_error() -> None:
    data = files.encoded(files.noise(200, 200), "JPEG", progressive=True)
    document = opened(data[: len(data) // 2])
    with pytest.raises(InvalidInput, match="damaged or incomplete"):
        document.render(0, BitmapFiles())
    document.close()


def test_a_broken_frame_names_its_page() -> None:
    data = bytearray(files.tiff([(10, 0, 0), (20, 0, 0)], compression="tiff_deflate"))
    document = opened(bytes(data))
    offsets = [document.sizes]
    document.close()
    second = data.rfind(b"\x78")  # zlib's header of the last strip
    data[second : second + 8] = bytes(8)
    document = opened(bytes(data))
    assert [document.sizes] == offsets
    page(document, 0)
    with pytest.raises(InvalidInput, match="Page 2 of the TIFF is damaged"):
        document.render(1, BitmapFiles())
    document.close()


def test_pixels_are_counted_before_anything_is_decoded() -> None:
    bomb = (DOCUMENTS / "bomb-30000x30000.png").read_bytes()
    with pytest.raises(InvalidInput, match="too many pixels: 30000 x 30000 exceeds the limit of 178956970"):
        opened(bomb)


def test_pixels_of_every_frame_are_counted() -> None:
    first, second = files.picture(size=(4, 4)), files.picture(size=(8, 8))
    data = files.encoded(first, "TIFF", save_all=True, append_images=[second])
    with pytest.raises(InvalidInput, match="Page 2 of the TIFF has too many pixels: 8 x 8"):
        opened(data, limits=DecodeLimits(max_pixels=40))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"%PDF-", "The PDF is damaged and cannot be opened"),
        (b"%PDF-1.4 and then nothing of use", "The PDF is damaged and cannot be opened"),
        (files.pdf([]), "The PDF has no pages"),
        ((DOCUMENTS / "encrypted-user-password.pdf").read_bytes(), "The PDF is encrypted: a password is required"),
        (files.jpeg()[:40], "The image is damaged: its header cannot be read"),
        (files.encoded(files.picture("F", 1.0), "TIFF"), "32-bit samples are not supported"),
    ],
)
def test_each_problem_has_its_message(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        only_page(data, "PDF")


def test_a_pdf_that_lost_its_end_is_not_taken_for_the_whole() -> None:
    whole = files.pdf([(10, 10)] * 5)
    with pytest.raises(InvalidInput, match="The PDF is damaged"):
        opened(whole[: whole.rfind(b"xref\n0")], "PDF")


def test_a_pdf_with_a_wrong_index_but_its_end_is_read() -> None:
    moved = files.pdf([(10, 10)]).replace(b"%PDF-1.4\n", b"%PDF-1.4\n% a line more\n")
    assert only_page(moved, "PDF").shape == (20, 20, 3)


def test_an_owner_password_alone_does_not_lock() -> None:
    assert only_page((DOCUMENTS / "encrypted-owner-only.pdf").read_bytes(), "PDF").min() < 100


def test_nothing_stays_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for data in (files.jpeg(), files.tiff([(1, 2, 3)] * 2), files.pdf(), b"garbage", files.jpeg()[:40], b"%PDF-"):
        try:
            document = opened(data)
        except InvalidInput:
            continue
        page(document)
        document.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("options", [{"subsampling": 0}, {"subsampling": 2}, {"progressive": True}, {"quality": 30}])
def test_jpegs_are_decoded_to_the_bytes_that_pillow_makes(mode: str, options: dict[str, int]) -> None:
    data = files.encoded(files.noise(61, 47).convert(mode), "JPEG", **options)
    with Pillow.open(io.BytesIO(data)) as picture:
        expected = np.asarray(picture.convert("RGB"))[:, :, ::-1]
    assert np.array_equal(only_page(data), expected)


def test_a_jpeg_with_remarks_that_pillow_overlooks_is_decoded_all_the_same() -> None:
    data = files.encoded(files.noise(64, 64), "JPEG")
    untidy = data[:-2] + b"\x00\x00\x00" + data[-2:]  # stray bytes before the end: a warning of libjpeg
    assert np.array_equal(only_page(untidy), only_page(data))
