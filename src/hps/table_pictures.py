"""Pictures inside tables, hidden from the VLM behind tokens so that it reads the table and not them (SPEC D.1, D.3)."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from hps import crops
from hps.document import Image, IntBox, Region

_PICTURE_LABELS: Final = frozenset({"image", "figure", "seal"})
_SMALLEST_TOKEN_SIDE: Final = 25  # px; below, a token could not be read
_TOKEN_SEED: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class DocumentPicture:
    """A picture of the page (a view of it) and the token that stands for it inside a table."""

    box: IntBox
    image: Image
    token: str


@dataclass(frozen=True, slots=True, eq=False)
class TableCrop:
    """A table's crop with its pictures painted over.

    tokens: token in the image → path of the picture under it. contained: paths of all pictures inside the table, also
    of those that are too small for a token.
    """

    image: Image
    tokens: Mapping[str, str]
    contained: frozenset[str]


def document_pictures(page: Image, regions: Sequence[Region]) -> dict[str, DocumentPicture]:
    """Path → picture of all regions that show one, also of those that the overlap filter drops."""
    found = [region for region in regions if region.label in _PICTURE_LABELS]
    return {
        crops.picture_path(region.label, region.box): DocumentPicture(region.box, crops.crop(page, region.box), token)
        for region, token in zip(found, _tokens(len(found)), strict=True)
    }


def with_tokens(image: Image, table: IntBox, pictures: Mapping[str, DocumentPicture]) -> TableCrop:
    """The crop `image` of the box `table`, with the pictures that lie inside; copied only if a token is painted."""
    tokens: dict[str, str] = {}
    contained: set[str] = set()
    for path, picture in pictures.items():
        x1, y1, x2, y2 = picture.box
        if x1 < table[0] or y1 < table[1] or x2 > table[2] or y2 > table[3]:
            continue
        contained.add(path)
        if min(x2 - x1, y2 - y1) < _SMALLEST_TOKEN_SIDE:
            continue
        if not tokens:
            image = image.copy()
        crops.paint_token(image, (x1 - table[0], y1 - table[1], x2 - table[0], y2 - table[1]), picture.token)
        tokens[picture.token] = path
    return TableCrop(image, MappingProxyType(tokens), frozenset(contained))


def _tokens(count: int) -> list[str]:
    """`count` different tokens; their digits are those that a reader does not take for a letter or another digit."""
    numbers: list[int] = []
    for number in _clear_numbers():
        if len(numbers) == count:
            break
        numbers.append(number)
    random.Random(_TOKEN_SEED).shuffle(numbers)
    return [f"[F{number}]" for number in numbers]


def _clear_numbers() -> Iterator[int]:
    """2, 3, … 8, 22, 23, …: the numbers without a digit 0, 1 or 9."""
    shorter = [0]
    while True:
        shorter = [10 * number + digit for number in shorter for digit in range(2, 9)]
        yield from shorter
