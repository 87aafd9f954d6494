"""Little files, made where they are needed."""

import io
from collections.abc import Sequence
from typing import Any

from PIL import Image

SIZE = (8, 6)


def encoded(picture: Image.Image, image_format: str, **options: Any) -> bytes:
    written = io.BytesIO()
    picture.save(written, image_format, **options)
    return written.getvalue()


def picture(mode: str = "RGB", colour: Any = (10, 20, 30), size: tuple[int, int] = SIZE) -> Image.Image:
    return Image.new(mode, size, colour)


def noise(width: int, height: int) -> Image.Image:
    return Image.effect_noise((width, height), 80).convert("RGB")


def jpeg(orientation: int | None = None, size: tuple[int, int] = SIZE) -> bytes:
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    return encoded(picture(size=size), "JPEG", quality=100, exif=exif)


def tiff(colours: Sequence[tuple[int, int, int]], **options: Any) -> bytes:
    first, *others = (picture(colour=colour) for colour in colours)
    return encoded(first, "TIFF", save_all=True, append_images=others, **options)


def pdf(
    sizes: Sequence[tuple[float, float]] = ((100, 200),), *, rotate: int = 0, content: str = "", tail: str = "%%EOF"
) -> bytes:
    """A PDF written by hand: one page a size in points, all with the same content stream."""
    kids = " ".join(f"{4 + i} 0 R" for i in range(len(sizes)))
    bodies = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(sizes)} >>",
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        *(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {w} {h}] /Rotate {rotate} /Contents 3 0 R >>"
            for w, h in sizes
        ),
    ]
    written, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(bodies, 1):
        offsets.append(len(written))
        written += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(bodies) + 1
    return (
        f"{written}xref\n0 {size}\n0000000000 65535 f \n{table}"
        f"trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{len(written)}\n{tail}\n"
    ).encode()
