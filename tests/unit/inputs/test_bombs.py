"""Bombs: refused by name before anything is decoded, or decoded within the limits of a process that others outlive."""

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Callable

import psutil
import pytest
import pytest_asyncio

from hps.context import RequestContext
from hps.errors import InvalidInput
from hps.inputs.limits import DecodeLimits
from hps.inputs.pool import DecodePool
from hps.inputs.raster import tiff_frames
from hps.inputs.sources import FileType
from tests.unit.inputs import bombs

pytestmark = pytest.mark.asyncio(loop_scope="module")
MIB = 2**20
PAGE_S = 3.0  # a decoder's time for one job
LIMITS = DecodeLimits(max_pixels=25_000_000, max_pages=500, max_document_pixels=200_000_000, memory_bytes=1 << 30)
KEPT_MIB = 400  # memory of a decoder afterwards


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def pool() -> AsyncIterator[DecodePool]:
    running = DecodePool(1, limits=LIMITS, page_timeout_s=PAGE_S)
    await running.start()
    yield running
    await running.close()


async def first_page(pool: DecodePool, data: bytes, file_type: FileType) -> tuple[int, ...]:
    """Its shape."""
    async with await pool.open(data, file_type, RequestContext.within("bomb", 60)) as document:
        return tuple((await document.page(0)).shape)


REFUSED: dict[str, tuple[Callable[[], bytes], FileType, str]] = {
    "picture": (lambda: bombs.png(30_000, 30_000, data=b""), "IMAGE", r"too many pixels: 30000 x 30000 exceeds"),
    "thin picture": (lambda: bombs.png(2**31 - 1, 1, data=b""), "IMAGE", "too many pixels"),
    "compressed text": (
        lambda: bombs.png(9, 9, bombs.png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(300 * MIB), 9))),
        "IMAGE",
        "damaged",
    ),
    "colour profile": (
        lambda: bombs.png(9, 9, bombs.png_chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(300 * MIB), 9))),
        "IMAGE",
        "damaged",
    ),
    "TIFF picture": (lambda: bombs.tiff(1, 60_000, 60_000), "IMAGE", "too many pixels"),
    "TIFF page": (lambda: bombs.tiff(3, 60_000, 60_000), "IMAGE", "Page 1 of the TIFF has too many pixels"),
    "TIFF of many pages": (lambda: bombs.tiff(60_000, 9, 9), "IMAGE", "too many pages: 60000 exceeds the limit of 500"),
    "TIFF of more": (lambda: bombs.tiff(100_001, 9, 9), "IMAGE", "too many pages: more than 100000"),
    "TIFF of large pages": (lambda: bombs.tiff(400, 4000, 4000), "IMAGE", "too many pixels on its pages together"),
    "TIFF that leads nowhere": (lambda: bombs.tiff(2, 9, 9, end=2**31), "IMAGE", "damaged"),
    "PDF of many pages": (
        lambda: bombs.pdf_of_pages(100_000),
        "PDF",
        "too many pages: 100000 exceeds the limit of 500",
    ),
    "PDF of large pages": (lambda: bombs.pdf_of_pages(499), "PDF", "too many pixels on its pages together"),
    "PDF that draws for ever": (
        lambda: bombs.pdf_picture(2000, 2000, draws=20_000),
        "PDF",
        "takes too long: more than 3 s",
    ),
    "PDF of more shapes than fit into memory": (  # on a slow machine its time ends first
        lambda: bombs.pdf_content(b"0 0 595 842 re f\n" * 5_000_000),
        "PDF",
        "could not be decoded: the decoder failed on it|takes too long",
    ),
}
HARMLESS: dict[str, tuple[Callable[[], bytes], FileType]] = {
    "more data than pixels": (lambda: bombs.png(10, 10, data=zlib.compress(bytes(500 * MIB), 9)), "IMAGE"),
    "many chunks": (lambda: bombs.png(10, 10, *[bombs.png_chunk(b"tEXt", b"a\0b")] * 20_000), "IMAGE"),
    "compressed twice": (lambda: bombs.pdf_content(bytes(100 * MIB), times=2), "PDF"),
    "JBIG2": (lambda: bombs.pdf_jbig2(60_000, 60_000), "PDF"),
    "picture in a PDF": (lambda: bombs.pdf_picture(20_000, 10_000), "PDF"),
    "TIFF in a circle": (lambda: bombs.tiff(1, 9, 9, bytes(100), end=108), "IMAGE"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_refused_by_name(pool: DecodePool, name: str) -> None:
    make, file_type, message = REFUSED[name]
    data = await asyncio.to_thread(make)
    started = time.monotonic()
    with pytest.raises(InvalidInput, match=message):
        await first_page(pool, data, file_type)
    assert time.monotonic() - started < 2 * PAGE_S + 5
    await _still_works(pool)


@pytest.mark.parametrize("name", HARMLESS)
async def test_decoded_at_no_greater_cost_than_its_pixels(pool: DecodePool, name: str) -> None:
    make, file_type = HARMLESS[name]
    height, width, channels = await first_page(pool, await asyncio.to_thread(make), file_type)
    assert channels == 3
    assert height * width <= LIMITS.max_pixels
    await _still_works(pool)


async def _still_works(pool: DecodePool) -> None:
    assert await first_page(pool, bombs.png(20, 10), "IMAGE") == (10, 20, 3)
    assert all(psutil.Process(pid).memory_info().rss < KEPT_MIB * MIB for pid in pool.pids)


@pytest.mark.parametrize("frames", [1, 2, 7, 1000])
async def test_frames_are_counted_as_pillow_counts_them(frames: int) -> None:
    assert tiff_frames(memoryview(bombs.tiff(frames, 9, 9))) == frames


@pytest.mark.parametrize("limit", [0, 499, 500, 501])
async def test_the_limit_of_pages_holds_for_those_that_are_processed(pool: DecodePool, limit: int) -> None:
    """An operator's own `max_num_input_imgs` may cut a longer document: that says so in the answer."""
    opened = pool.open(bombs.tiff(600, 9, 9), "IMAGE", RequestContext.within("r", 60), limit or None)
    if 0 < limit <= 500:
        async with await opened as document:
            assert (document.info.total_pages, len(document.info.sizes)) == (600, limit)
    else:
        with pytest.raises(InvalidInput, match="too many pages"):
            await opened
