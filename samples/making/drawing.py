"""Fonts, PDF canvases without clocks or random ids, and pictures of pages."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pypdfium2
from PIL import Image
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph

A4 = (595.0, 842.0)
INK = "#1c1c1c"
FONT_FILES = {
    "Sans": "liberation2/LiberationSans-Regular.ttf",
    "Sans-Bold": "liberation2/LiberationSans-Bold.ttf",
    "Serif": "liberation2/LiberationSerif-Regular.ttf",
    "Serif-Bold": "liberation2/LiberationSerif-Bold.ttf",
    "Serif-Italic": "liberation2/LiberationSerif-Italic.ttf",
    "Mono": "liberation2/LiberationMono-Regular.ttf",
    "Hei": "droid/DroidSansFallbackFull.ttf",
}
FONT_FOLDER = Path("/usr/share/fonts/truetype")


def register_fonts() -> None:
    for name, file in FONT_FILES.items():
        if not (FONT_FOLDER / file).is_file():
            raise SystemExit(f"{FONT_FOLDER / file} is missing: apt-get install fonts-liberation2 fonts-droid-fallback")
        pdfmetrics.registerFont(TTFont(name, str(FONT_FOLDER / file)))


def style(font: str, size: float, **more: object) -> ParagraphStyle:
    leading = {"leading": size * 1.25, "textColor": INK, **more}
    return ParagraphStyle("sample", fontName=font, fontSize=size, **leading)


def with_latin(text: str) -> str:
    """Set the ASCII runs of a Chinese text in a Latin font: the Chinese one has no such glyphs."""
    return re.sub(r"[ -~]+", lambda run: f'<font name="Sans">{run.group()}</font>', text)


def new_canvas(buffer: io.BytesIO, size: tuple[float, float], title: str) -> Canvas:
    """A canvas whose file has a fixed date and id (`invariant`)."""
    canvas = Canvas(buffer, pagesize=size, invariant=1, pageCompression=1)
    canvas.setTitle(title)
    canvas.setAuthor("samples/make_samples.py")
    return canvas


def pdf(size: tuple[float, float], title: str, *draw_pages: Callable[[Canvas], None]) -> bytes:
    buffer = io.BytesIO()
    canvas = new_canvas(buffer, size, title)
    for draw in draw_pages:
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def put(canvas: Canvas, text: str, look: ParagraphStyle, x: float, top: float, width: float) -> float:
    """Draw a paragraph whose upper edge is at `top`; returns its lower edge."""
    paragraph = Paragraph(text, look)
    _, height = paragraph.wrap(width, 10_000)
    paragraph.drawOn(canvas, x, top - height)
    return top - height


def notice(heading: str, *sentences: str, size: tuple[float, float] = (420.0, 240.0)) -> Callable[[Canvas], None]:
    """A small page: a heading and a few sentences, in 15 pt so that it survives every kind of picture file.

    The heading stands well below the upper edge, where layout models would take it for a running header.
    """

    def draw(canvas: Canvas) -> None:
        margin, top = size[0] * 0.09, size[1] * 0.72
        top = put(canvas, heading, style("Sans-Bold", 20), margin, top, size[0] - 2 * margin) - 14
        put(canvas, " ".join(sentences), style("Serif", 15, leading=21), margin, top, size[0] - 2 * margin)

    return draw


def notice_pdf(heading: str, *sentences: str) -> bytes:
    return pdf((420.0, 240.0), heading, notice(heading, *sentences))


def picture(document: bytes, dpi: int = 144, page: int = 0) -> Image.Image:
    """RGB rendering of one page."""
    opened = pypdfium2.PdfDocument(document)
    try:
        return opened[page].render(scale=dpi / 72).to_pil().convert("RGB")
    finally:
        opened.close()


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def scanned(image: Image.Image, degrees: float, seed: int) -> Image.Image:
    """What a flat-bed scanner makes of a clean page: paper tone, slight skew, uneven light, noise, specks."""
    random = np.random.default_rng(seed)
    tilted = image.convert("L").rotate(degrees, Image.Resampling.BICUBIC, fillcolor=255)
    grey = np.asarray(tilted, np.float32) / 255
    height, width = grey.shape
    ink = 0.16 + 0.84 * grey
    light = 0.97 + 0.03 * np.sin(np.linspace(0.4, 2.6, width, dtype=np.float32))[None, :]
    light = light * np.linspace(1.0, 0.965, height, dtype=np.float32)[:, None]
    page = ink * light * 240 + random.normal(0, 3.2, grey.shape)
    for _ in range(140):
        y, x, r = random.integers(2, height - 3), random.integers(2, width - 3), random.integers(1, 3)
        page[y : y + r, x : x + r] *= random.uniform(0.35, 0.8)
    page[:, : width // 120] *= np.linspace(0.72, 1.0, width // 120)[None, :]
    tone = np.array([1.0, 0.985, 0.94], np.float32)
    return Image.fromarray(np.clip(page[..., None] * tone, 0, 255).astype(np.uint8))
