"""The built-in page mix: pages whose blocks, sizes and text lengths are those of an ordinary document, from a seed.

A page has 9 text blocks, 2 titles, a formula on half of the pages and a table on 40 %: 11.9 blocks and about 1,070
tokens in the mean. It is a picture of letters that no model needs to understand: the layout backend `fixed` knows a
page by its size, and a VLM server that is told the token counts knows a crop by its size, so every page and every crop
has a size of its own. `write_table` writes both for them.
"""

import contextlib
import io
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Final

import pypdfium2
from PIL import Image, ImageDraw

from hps.layout.labels import CLASS_IDS

SEED: Final = 7
PDF_DPI: Final = 144  # of a page in a PDF, so that the default render scale gives its picture's size again

_PDF_PART: Final = 16  # pages
_MARGIN: Final = 40
_GAP: Final = 24
_NARROWEST: Final = 1600  # pixels; page number n is n pixels wider
_TEXT_HEIGHTS: Final = (40, 90, 160, 240, 400)
_LINE: Final = 16
_LETTERS: Final = "abcdefghijklmnop qrstuvwxyz0123456789"
_SCORE: Final = 0.9

PROMPTS: Final = {
    "text": "OCR:",
    "paragraph_title": "OCR:",
    "display_formula": "Formula Recognition:",
    "table": "Table Recognition:",
}


@dataclass(frozen=True, slots=True)
class MixBlock:
    """box: x1, y1, x2, y2 in pixels of the page. tokens: how long the VLM's answer is."""

    label: str
    box: tuple[int, int, int, int]
    tokens: int

    @property
    def size(self) -> tuple[int, int]:
        x1, y1, x2, y2 = self.box
        return x2 - x1, y2 - y1


@dataclass(frozen=True, slots=True)
class MixPage:
    """blocks: in reading order, below each other."""

    width: int
    height: int
    blocks: tuple[MixBlock, ...]

    @property
    def tokens(self) -> int:
        return sum(block.tokens for block in self.blocks)


def pages(count: int, seed: int = SEED) -> list[MixPage]:
    """The first `count` pages of the mix; the same for everybody."""
    source = random.Random(seed)
    taken: set[tuple[int, int]] = set()
    return [_page(source, _NARROWEST + number, taken) for number in range(count)]


def _page(source: random.Random, width: int, taken: set[tuple[int, int]]) -> MixPage:
    drawn = [
        ("text", source.randint(600, 1500), source.choice(_TEXT_HEIGHTS), max(8, int(source.lognormvariate(4.2, 0.7))))
        for _ in range(9)
    ]
    titles = [("paragraph_title", source.randint(300, 1000), 50, source.randint(5, 20)) for _ in range(2)]
    drawn = [titles[0], *drawn[:4], titles[1], *drawn[4:]]
    if source.random() < 0.5:
        drawn.insert(4, ("display_formula", source.randint(300, 900), 80, source.randint(30, 120)))
    if source.random() < 0.4:
        drawn.append(("table", source.randint(700, 1500), source.randint(300, 900), source.randint(200, 900)))
    blocks = []
    y = _MARGIN
    for label, drawn_width, height, tokens in drawn:
        block_width = _own_width(drawn_width, height, taken)
        blocks.append(MixBlock(label, (_MARGIN, y, _MARGIN + block_width, y + height), tokens))
        y += height + _GAP
    return MixPage(width, y + _MARGIN, tuple(blocks))


def _own_width(width: int, height: int, taken: set[tuple[int, int]]) -> int:
    """The next width that no crop of this height has yet; when all are taken, the width itself."""
    for own in chain(range(width, 1500), range(width, 299, -1)):
        if (own, height) not in taken:
            taken.add((own, height))
            return own
    return width


# --- pictures ---


def picture(page: MixPage) -> Image.Image:
    """The page as a scan would show it: letters in its blocks, white elsewhere. RGB."""
    source = random.Random(page.width)
    image = Image.new("RGB", (page.width, page.height), "white")
    draw = ImageDraw.Draw(image)
    for block in page.blocks:
        x1, y1, x2, y2 = block.box
        for y in range(y1 + 3, y2 - _LINE + 3, _LINE):
            image.paste(source.choice(_printed_lines()).crop((0, 0, x2 - x1 - 6, _LINE)), (x1 + 3, y))
        if block.label in ("display_formula", "table"):
            # Ink at the edges, or a formula's crop would be trimmed.
            draw.rectangle((x1, y1, x2 - 1, y2 - 1), outline="black")
    return image


@cache
def _printed_lines() -> tuple[Image.Image, ...]:
    """Some lines of text as long as a page is wide: drawing each line of each page anew takes ten times as long."""
    source = random.Random(0)
    lines = []
    for _ in range(200):
        line = Image.new("RGB", (_NARROWEST, _LINE), "white")
        ImageDraw.Draw(line).text((0, 0), "".join(source.choices(_LETTERS, k=_NARROWEST // 6)), fill="black")
        lines.append(line)
    return tuple(lines)


def jpeg(image: Image.Image, quality: int = 75) -> bytes:
    """The page as an image file."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def pdf(images: Iterable[Image.Image]) -> bytes:
    """One document of these pages, as scanners make them of print: black and white."""
    document = pypdfium2.PdfDocument.new()
    printed = (image.convert("1", dither=Image.Dither.NONE) for image in images)
    while part := list(islice(printed, _PDF_PART)):  # Pillow holds all images of the file that it writes
        buffer = io.BytesIO()
        part[0].save(buffer, "PDF", save_all=True, append_images=part[1:], resolution=PDF_DPI)
        with contextlib.closing(pypdfium2.PdfDocument(buffer.getvalue())) as pages:
            document.import_pages(pages)
    whole = io.BytesIO()
    document.save(whole)
    document.close()
    return whole.getvalue()


# --- what layout and VLM stand-ins know ---


def boxes(page: MixPage) -> list[list[float]]:
    """Rows as layout models give them: class, score, x1, y1, x2, y2 as fractions of the page, reading order."""
    return [
        [CLASS_IDS[block.label], _SCORE, *_fractions(page, block), order] for order, block in enumerate(page.blocks)
    ]


def write_table(mix: Sequence[MixPage], file: Path) -> None:
    """`{"boxes": [], "pages": {"1600x2200": [row, …]}, "tokens": {"812x160": 74, …}}`: boxes by the page's size in
    pixels, for the layout backend `fixed`; tokens by the crop's size, for VLM servers."""
    table = {
        "boxes": [],
        "pages": {f"{page.width}x{page.height}": boxes(page) for page in mix},
        "tokens": {"{}x{}".format(*block.size): block.tokens for page in mix for block in page.blocks},
    }
    file.write_text(json.dumps(table))


def _fractions(page: MixPage, block: MixBlock) -> list[float]:
    x1, y1, x2, y2 = block.box
    return [x1 / page.width, y1 / page.height, x2 / page.width, y2 / page.height]
