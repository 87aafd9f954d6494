"""Images and multi-page TIFFs to BGR bitmaps (SPEC B.1, B.2). Runs inside worker processes only.

By Pillow, which reads sizes without decoding and refuses truncated files where OpenCV hands out half a page in grey;
the plain JPEG, the daily load, by libjpeg-turbo straight into the bitmap: the same bytes in two thirds of the time.
"""

import mmap
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import simplejpeg
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    Image,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from hps.errors import InvalidInput
from hps.inputs.limits import DecodeLimits

# Pillow's own limit would refuse half of what ours allows; ours is checked right after the header is read.
Image.MAX_IMAGE_PIXELS = None

# The classes, not Image.open: on a file that it cannot place it imports every plugin there is, Ghostscript's included.
_READERS: Final[dict[str, Callable[[str], ImageFile.ImageFile]]] = {
    "AVIF": AvifImagePlugin.AvifImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "JPEG": JpegImagePlugin.JpegImageFile,
    "JPEG2000": Jpeg2KImagePlugin.Jpeg2KImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "PPM": PpmImagePlugin.PpmImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
    "WEBP": WebPImagePlugin.WebPImageFile,
}
_EXIF_ORIENTATION: Final = 0x0112
_UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_TURNED: Final = frozenset({5, 6, 7, 8})
_STRIP_BYTES: Final = 32 << 20
_MAX_FRAMES: Final = 100_000  # that are counted; how many are processed is in the limits
_WHITE: Final = (255, 255, 255)
_BLACK: Final = (0, 0, 0)
_LIGHT: Final = 200  # grey level from which on text is lost on white
_DARK_SHARE: Final = 0.001  # a single line of dark text covers more of a page


class OpenedImage:
    """One picture: the first of a container that holds several, upright as its EXIF orientation says."""

    kind: Final = "image"
    total_pages: Final = 1

    def __init__(self, path: str, data: mmap.mmap, image_format: str, limits: DecodeLimits) -> None:
        self._path = path
        self._data = data
        self._format = image_format
        with _read_header(path, image_format) as image:
            _check_pixels(image.size, limits, "The image")
            self._orientation = _orientation(image)
            width, height = image.size
            self._is_plain_jpeg = (
                image_format == "JPEG" and image.mode in ("RGB", "L") and self._orientation not in _UPRIGHT
            )
        self.sizes: tuple[tuple[int, int], ...] = (
            (height, width) if self._orientation in _TURNED else (width, height),
        )

    def render(self, index: int, bitmap: memoryview) -> None:
        """Decodes into `bitmap` of width * height * 3 bytes."""
        if self._is_plain_jpeg and _decode_jpeg(self._data, self.sizes[index], bitmap):
            return
        with _read_header(self._path, self._format) as image:
            _load(image, "The image is damaged or incomplete")
            picture = _as_rgb(image)
            if self._orientation in _UPRIGHT:
                picture = picture.transpose(_UPRIGHT[self._orientation])
            _write_bgr(picture, self.sizes[index], bitmap, "The image is damaged or incomplete")

    def close(self) -> None:
        """Nothing is held between renderings."""


class OpenedTiff:
    """A TIFF of several frames, each a page."""

    kind: Final = "tiff"

    def __init__(
        self, image: TiffImagePlugin.TiffImageFile, frames: int, limits: DecodeLimits, max_pages: int | None
    ) -> None:
        self._image = image
        self.total_pages = frames
        processed = frames if max_pages is None else min(frames, max_pages)
        limits.check_pages(processed, "The TIFF")
        self.sizes = limits.checked_sizes((self._size(index, limits) for index in range(processed)), "The TIFF")

    def _size(self, index: int, limits: DecodeLimits) -> tuple[int, int]:
        self._seek(index)
        _check_pixels(self._image.size, limits, f"Page {index + 1} of the TIFF")
        return self._image.size

    def _seek(self, index: int) -> None:
        try:
            self._image.seek(index)
        except MemoryError:
            raise
        except Exception as error:  # see _load
            raise InvalidInput(_damaged_frame(index)) from error

    def render(self, index: int, bitmap: memoryview) -> None:
        """Decodes frame `index` into `bitmap` of width * height * 3 bytes."""
        self._seek(index)
        _load(self._image, _damaged_frame(index))
        _write_bgr(_as_rgb(self._image), self.sizes[index], bitmap, _damaged_frame(index))

    def close(self) -> None:
        self._image.close()


def open_image(
    path: str, data: mmap.mmap, image_format: str, limits: DecodeLimits, max_pages: int | None
) -> OpenedImage | OpenedTiff:
    """path, data: of the same file. `image_format` is a name of `sources.DECODABLE_IMAGES`. Reads headers only."""
    if image_format != "TIFF":
        return OpenedImage(path, data, image_format, limits)
    frames = tiff_frames(memoryview(data))
    image = _read_header(path, "TIFF")
    assert isinstance(image, TiffImagePlugin.TiffImageFile)
    try:
        if frames > 1:
            return OpenedTiff(image, frames, limits, max_pages)
    except BaseException:
        image.close()
        raise
    image.close()
    return OpenedImage(path, data, "TIFF", limits)


def _decode_jpeg(data: mmap.mmap, size: tuple[int, int], bitmap: memoryview) -> bool:
    """False when it does not find all in order: that is for Pillow to judge."""
    with suppress(ValueError):
        height, width, *_ = simplejpeg.decode_jpeg_header(data)
        if (width, height) == size:
            simplejpeg.decode_jpeg(data, colorspace="BGR", buffer=bitmap)
            return True
    return False


def _read_header(path: str, image_format: str) -> ImageFile.ImageFile:
    try:
        return _READERS[image_format](path)
    except MemoryError:
        raise
    except Exception as error:  # see _load
        raise InvalidInput("The image is damaged: its header cannot be read") from error


def tiff_frames(data: memoryview) -> int:
    """Frames of a TIFF, by their chain alone: Pillow reads each of them and takes a minute for what a bomb holds.

    A chain that leads back into itself ends there, as it does for Pillow. Raises InvalidInput for one that leads out of
    the file, whose missing pages nobody would miss, and for one without end.
    """
    head = bytes(data[:4])
    order = "<" if head.startswith(b"II") else ">"
    count, entry_bytes, offset = ("Q", 20, "Q") if b"+" in head else ("H", 12, "I")
    seen: set[int] = set()
    try:
        (at,) = struct.unpack_from(order + offset, data, 8 if offset == "Q" else 4)
        while at and at not in seen:
            seen.add(at)
            if len(seen) > _MAX_FRAMES:
                raise InvalidInput(f"The TIFF has too many pages: more than {_MAX_FRAMES}")
            (entries,) = struct.unpack_from(order + count, data, at)
            (at,) = struct.unpack_from(order + offset, data, at + struct.calcsize(count) + entries * entry_bytes)
    except (struct.error, OverflowError) as error:
        raise InvalidInput("The image is damaged: its header cannot be read") from error
    return max(1, len(seen))


def _load(image: ImageFile.ImageFile, message: str) -> None:
    """The border to Pillow's decoders. Fed with garbage they raise anything: SyntaxError, struct.error, OSError,
    ZeroDivisionError, KeyError; whichever it is, the file is at fault. Memory alone is another matter."""
    try:
        image.load()
    except MemoryError:
        raise
    except Exception as error:
        raise InvalidInput(message) from error


def _damaged_frame(index: int) -> str:
    return f"Page {index + 1} of the TIFF is damaged or incomplete"


def _check_pixels(size: tuple[int, int], limits: DecodeLimits, what: str) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise InvalidInput(f"{what} has no valid size")
    if width * height > limits.max_pixels:
        raise InvalidInput(f"{what} has too many pixels: {width} x {height} exceeds the limit of {limits.max_pixels}")


def _orientation(image: ImageFile.ImageFile) -> int:
    """1 to 8 as in EXIF. Pillow turns TIFFs by itself, and would decode a whole PNG to look for a late EXIF chunk."""
    if image.format == "TIFF" or (image.format == "PNG" and "exif" not in image.info):
        return 1
    try:
        value = image.getexif().get(_EXIF_ORIENTATION, 1)
    except MemoryError:
        raise
    except Exception:  # A broken EXIF block raises anything, and leaves the picture as readable as without it.
        return 1
    return value if value in _UPRIGHT else 1


def _as_rgb(image: Image.Image) -> Image.Image:
    """Greys replicated, 16 bits cut to the high byte, transparency composited on white, CMYK and palettes converted."""
    if re.match(r"I;16", image.mode):
        big_endian = image.mode == "I;16B"
        return Image.frombytes("L", image.size, image.tobytes()[0 if big_endian else 1 :: 2]).convert("RGB")
    if image.mode == "I" and image.format == "PPM":  # 16 bits in Pillow's 32
        return image.point(lambda value: value * (1 / 256) + 0).convert("L").convert("RGB")
    if image.mode in ("I", "F"):
        raise InvalidInput("Images with 32-bit samples are not supported")
    try:
        if not image.has_transparency_data:
            return image if image.mode == "RGB" else image.convert("RGB")
        layer = image.convert("RGBA")
    except ValueError as error:
        raise InvalidInput("The image's colour space is not supported") from error
    alpha = layer.getchannel("A")
    page = Image.new("RGB", image.size, _BLACK if _vanishes_on_white(layer, alpha) else _WHITE)
    page.paste(layer, mask=alpha)
    return page


def _vanishes_on_white(layer: Image.Image, alpha: Image.Image) -> bool:
    """Whether what can be seen is all but white, with transparency around it: white text made for a dark ground."""
    visible = alpha.point(lambda value: 255 if value >= 128 else 0)
    shades = layer.convert("L").histogram(visible)
    seen = sum(shades)
    return 0 < seen < layer.width * layer.height and sum(shades[:_LIGHT]) < seen * _DARK_SHARE


def _write_bgr(picture: Image.Image, size: tuple[int, int], bitmap: memoryview, message: str) -> None:
    """In strips, so that a large page is not held twice."""
    if picture.size != size:  # the header and the data disagree
        raise InvalidInput(message)
    width, height = size
    rows = max(1, _STRIP_BYTES // (width * 3))
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        strip = picture if rows >= height else picture.crop((0, top, width, bottom))
        bitmap[top * width * 3 : bottom * width * 3] = strip.tobytes("raw", "BGR")
