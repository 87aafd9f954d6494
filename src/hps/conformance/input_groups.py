"""Golden group of the inputs: file types, Base64, decoding, render scale, size of returned pictures (A.4, A.7, B)."""

import io
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from PIL import Image as Pillow

from hps import answer
from hps.inputs import channel, sources
from hps.inputs.bitmaps import BitmapFiles
from hps.inputs.decoding import OpenedFile
from hps.inputs.limits import DecodeLimits
from hps.inputs.pdf import pdf_scale
from hps.inputs.pool import DocumentInfo
from hps.output_images import limited_size

_SIZE: Final = (8, 6)
_DEFAULT_MAX_PAGES: Final = 10
_OUTPUT_LIMIT: Final = (2000, 2000)
_EXIF_ORIENTATION: Final = 0x0112


def file_rules(case: Mapping[str, Any]) -> Any:
    """Raises InvalidInput where the reference raises."""
    operation, argument = case["op"], case["arg"]
    if operation.startswith("file_to_images"):
        return _decoded(operation, argument)
    return _SIMPLE_OPERATIONS[operation.split("(")[0]](argument)


def _decoded(operation: str, description: str) -> dict[str, Any]:
    found = re.fullmatch(r"file_to_images (IMAGE|PDF)(?: max (\d+))?", operation)
    if found is None:
        raise ValueError(f"unknown operation {operation!r}")
    max_pages = int(found[2] or _DEFAULT_MAX_PAGES)
    data = _pdf_file() if found[1] == "PDF" else _image_file(description)
    file_type: sources.FileType = "PDF" if found[1] == "PDF" else "IMAGE"
    opened = OpenedFile(channel.memory_file(data), file_type, DecodeLimits(), max_pages)
    try:
        pages = [_page(opened, index) for index in range(len(opened.sizes))]
    finally:
        opened.close()
    info = DocumentInfo(opened.kind, opened.total_pages, opened.sizes)
    return {
        "n": len(pages),
        "shapes": [list(page.shape) for page in pages],
        "first_pixel_bgr": pages[0][0, 0].tolist(),
        "info": answer.data_info(info),
    }


def _page(opened: OpenedFile, index: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    width, height = opened.sizes[index]
    bitmap = opened.render(index, BitmapFiles())
    bitmap.close_file()
    return np.frombuffer(bitmap.memory, np.uint8, width * height * 3).reshape(height, width, 3)


def _image_file(description: str) -> bytes:
    """The cases describe their files: "8x6 RGBA (255,0,0,0)", "3 RGB frames", an EXIF orientation, or bare bytes."""
    written = io.BytesIO()
    plain = re.fullmatch(r"(\d+)x(\d+) ([A-Z0-9;]+) \(?([\d, ]+)\)?", description)
    frames = re.match(r"(\d+) RGB frame", description)
    orientation = re.search(r"(?:EXIF|orientation)\D*(\d)", description, re.IGNORECASE)
    if plain:
        values = tuple(int(value) for value in plain[4].split(","))
        colour = values if len(values) > 1 else values[0]
        Pillow.new(plain[3], (int(plain[1]), int(plain[2])), colour).save(written, "PNG")
    elif frames:
        first, *others = (Pillow.new("RGB", _SIZE, (10 * (n + 1), 0, 0)) for n in range(int(frames[1])))
        first.save(written, "TIFF", save_all=True, append_images=others)
    elif orientation:
        exif = Pillow.Exif()
        exif[_EXIF_ORIENTATION] = int(orientation[1])
        Pillow.new("RGB", _SIZE, (10, 20, 30)).save(written, "JPEG", quality=100, exif=exif)
    elif "gif" in description.lower():
        Pillow.new("RGB", _SIZE, (10, 20, 30)).save(written, "GIF")
    else:
        return description.encode()
    return written.getvalue()


def _pdf_file() -> bytes:
    """One page of 100 x 200 points, RGB (1, 2, 3), and three of 50 x 60."""
    pages = [Pillow.new("RGB", size, (1, 2, 3)) for size in ((100, 200), (50, 60), (50, 60), (50, 60))]
    written = io.BytesIO()
    pages[0].save(written, "PDF", save_all=True, append_images=pages[1:], resolution=72.0, quality=100)
    return written.getvalue()


_SIMPLE_OPERATIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "is_url": sources.is_url,
    "infer_file_type": sources.infer_file_type,
    "get_raw_bytes": lambda text: sources.decode_base64(text).decode(),
    "pdf_scale": lambda size: pdf_scale(size[0], size[1], DecodeLimits()),
    "postprocess_image": lambda size: list(limited_size(tuple(size), _OUTPUT_LIMIT)),
}

GROUPS: Final[Mapping[str, Callable[[Any], Any]]] = {"file_rules": file_rules}
