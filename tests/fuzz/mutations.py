"""Files that are almost right: the test documents and bombs, changed in ways that decoders meet."""

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hps.inputs.sources import FileType
from tests.unit.inputs import bombs

DOCUMENTS = Path(__file__).parents[1] / "documents"
LARGEST = 400_000  # bytes of a seed: what is larger only costs time
NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 2**31 - 1, 2**31, 2**32 - 1)
WORDS = (
    b"/Length",
    b"endobj",
    b"stream",
    b"xref",
    b"%%EOF",
    b"/Kids",
    b"/Parent",
    b"/Filter",
    b"obj",
    b"IDAT",
    b"IHDR",
)


@dataclass(frozen=True)
class Input:
    """number: with the run's seed it makes the same input again."""

    number: int
    seed: str
    file_type: FileType
    data: bytes


def seeds() -> dict[str, bytes]:
    """Name → content."""
    found = {file.name: file.read_bytes() for file in sorted(DOCUMENTS.iterdir()) if file.is_file()}
    found |= {
        "made.png": bombs.png(64, 48),
        "made.tif": bombs.tiff(3, 16, 12, bytes(range(192))),
        "made.pdf": bombs.pdf_of_pages(3),
        "picture.pdf": bombs.pdf_picture(40, 30),
        "jbig2.pdf": bombs.pdf_jbig2(64, 64),
    }
    return {name: data for name, data in found.items() if 0 < len(data) <= LARGEST}


def inputs(count: int, seed: int) -> Iterator[Input]:
    """`count` inputs, always the same for a seed."""
    corpus = seeds()
    names = sorted(corpus)
    for number in range(count):
        chance = random.Random(seed * 1_000_003 + number)
        name = chance.choice(names)
        data = bytearray(corpus[name])
        for _ in range(chance.choice((1, 1, 2, 4, 16))):
            chance.choice(MUTATIONS)(data, chance, corpus)
        file_type: FileType = chance.choice(("PDF", "IMAGE"))
        yield Input(number, name, file_type, bytes(data))


_Mutation = Callable[[bytearray, random.Random, dict[str, bytes]], None]


def _flip(data: bytearray, chance: random.Random, corpus: dict[str, bytes]) -> None:
    if data:
        data[_somewhere(data, chance)] ^= 1 << chance.randrange(8)


def _number(data: bytearray, chance: random.Random, corpus: dict[str, bytes]) -> None:
    """A length, a size or an offset that is not what it should be, in either byte order."""
    form = chance.choice(("<I", ">I", "<H", ">H", "B"))
    value = chance.choice(NUMBERS) & (256 ** struct.calcsize(form) - 1)
    at = _somewhere(data, chance)
    data[at : at + struct.calcsize(form)] = struct.pack(form, value)


def _digits(data: bytearray, chance: random.Random, corpus: dict[str, bytes]) -> None:
    """The same in text, as in PDFs."""
    digits = [at for at in range(max(0, len(data) - 4000), len(data)) if 48 <= data[at] < 58]
    if digits:
        at = chance.choice(digits)
        data[at : at + 1] = str(chance.choice((*NUMBERS, -1, 2**63))).encode()


def _cut(data: bytearray, chance: random.Random, corpus: dict[str, bytes]) -> None:
    del data[_somewhere(data, chance) :]


def _remove(data: bytearray, chance: random.Random, corpus: dict[str, bytes]) -> None:
    at = _somewhere(data, chance)
    del data[at : at + chance.choice((1, 4, 100, 5000))]


def _repeat(data: bytearray, chance: random.Random, corpus: dict[str, bytes]) -> None:
    at = _somewhere(data, chance)
    piece = bytes(data[at : at + chance.choice((1, 12, 300))])
    data[at:at] = piece * chance.choice((1, 3, 50))


def _splice(data: bytearray, chance: random.Random, corpus: dict[str, bytes]) -> None:
    """A piece of another file."""
    other = corpus[chance.choice(sorted(corpus))]
    start = chance.randrange(len(other))
    at = _somewhere(data, chance)
    piece = other[start : start + chance.choice((8, 200, 5000))]
    data[at : at + (len(piece) if chance.random() < 0.5 else 0)] = piece


def _word(data: bytearray, chance: random.Random, corpus: dict[str, bytes]) -> None:
    word = chance.choice(WORDS)
    at = data.find(word, _somewhere(data, chance))
    if at >= 0:
        data[at : at + len(word)] = chance.choice(WORDS)


def _somewhere(data: bytearray, chance: random.Random) -> int:
    """More often where headers are."""
    end = min(len(data), 200) if chance.random() < 0.5 else len(data)
    return chance.randrange(end) if end else 0


MUTATIONS: tuple[_Mutation, ...] = (_flip, _number, _digits, _cut, _remove, _repeat, _splice, _word)
