"""A document of 300 pages: complete and in order, in bounded memory, and nobody waits behind it."""

import asyncio
import base64
import io
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from PIL import Image

from hps.ports import free_port
from tests.e2e import chain as chains
from tests.e2e.chain import Chain
from tests.fakes.vlm import FakeVlm

pytestmark = pytest.mark.e2e

PAGES = 300
HEIGHT = 1684  # of every page in pixels: A4 at 144 dpi
VLM_S = 0.05
MAX_GROWTH = 700e6
MAX_KEPT = 200e6
_SQUARE = cv2.rectangle(np.full((64, 64, 3), 255, np.uint8), (12, 12), (50, 50), (0, 0, 0), 2)
SMALL = base64.b64encode(cv2.imencode(".png", _SQUARE)[1].tobytes()).decode()


def width(page: int) -> int:
    """Width in pixels of a page (from 0): each is 4 wider than the one before, so that pages can be told apart."""
    return 800 + 4 * page


def document(pages: int = PAGES) -> bytes:
    """A PDF with a page of text for each, written by hand."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"", b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    kids = []
    for page in range(pages):
        lines = "".join(f"(Line {i} of page {page + 1} says as much as the others do.) '\n" for i in range(40))
        text = f"BT /F1 12 Tf 18 TL 60 800 Td\n{lines}ET".encode()
        objects.append(b"<</Length %d>>stream\n%b\nendstream" % (len(text), text))
        box = f"[0 0 {width(page) // 2} {HEIGHT // 2}]"
        resources = f"/Contents {len(objects)} 0 R/Resources<</Font<</F1 3 0 R>>>>"
        objects.append(f"<</Type/Page/Parent 2 0 R/MediaBox{box}{resources}>>".encode())
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<</Type/Pages/Count {pages}/Kids[{' '.join(kids)}]>>".encode()
    file = io.BytesIO()
    file.write(b"%PDF-1.4\n")
    offsets = []
    for number, content in enumerate(objects, start=1):
        offsets.append(file.tell())
        file.write(b"%d 0 obj\n%b\nendobj\n" % (number, content))
    table = file.tell()
    file.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    file.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
    file.write(b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table))
    return file.getvalue()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder: Path = tmp_path_factory.mktemp("chain")
    with chains.running(folder, chains.fixed_layout(folder), vlm=free_port()) as running:
        yield running


@pytest.fixture
async def vlm(chain: Chain) -> AsyncIterator[FakeVlm]:
    """Reads the shape of the picture that it is sent: "width height"."""
    port = httpx.URL(chain.vlm_url).port
    assert port is not None
    async with FakeVlm(port=port, delay_s=VLM_S, answer=shape_of_picture) as server:
        yield server


def shape_of_picture(request: dict[str, Any]) -> str:
    (url,) = (part["image_url"]["url"] for part in request["messages"][0]["content"] if part["type"] == "image_url")
    picture = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    return f"{picture.width} {picture.height}"


@asynccontextmanager
async def peak_memory(chain: Chain) -> AsyncIterator[list[int]]:
    """Samples of the chain's memory in bytes, complete after the block."""
    samples: list[int] = []

    async def sample() -> None:
        while True:
            samples.append(await asyncio.to_thread(chain.rss_bytes))
            await asyncio.sleep(0.2)

    task = asyncio.create_task(sample())
    try:
        yield samples
    finally:
        task.cancel()
        await asyncio.wait([task])


async def post(http: httpx.AsyncClient, file: str, file_type: int) -> tuple[dict[str, Any], float]:
    body = {"file": file, "fileType": file_type, "visualize": False, "returnMarkdownImages": False}
    started = time.monotonic()
    response = await http.post("/layout-parsing", json=body)
    assert response.status_code == 200, response.text[:1000]
    result: dict[str, Any] = response.json()["result"]
    return result, time.monotonic() - started


async def test_300_pages(chain: Chain, vlm: FakeVlm) -> None:
    pdf = base64.b64encode(document()).decode()
    async with httpx.AsyncClient(base_url=chain.url, timeout=300, trust_env=False) as http:
        await post(http, base64.b64encode(document(4)).decode(), 0)  # everything has been used once
        alone_s = statistics.median([(await post(http, SMALL, 1))[1] for _ in range(5)])
        idle = chain.rss_bytes()
        beside: list[float] = []
        async with peak_memory(chain) as samples:
            long = asyncio.create_task(post(http, pdf, 0))
            await vlm.until(lambda counters: counters.finished > 20, 60)
            while not long.done():
                beside.append((await post(http, SMALL, 1))[1])
                await asyncio.sleep(0.3)
        result, seconds = await long
    growth = max(samples) - idle
    beside_s = statistics.median(beside[:-1])
    print(
        f"{PAGES} pages in {seconds:.1f} s; memory {idle / 1e6:.0f} MB idle, at most {growth / 1e6:.0f} MB more; "
        f"a page alone {alone_s * 1000:.0f} ms, beside it {beside_s * 1000:.0f} ms (median of {len(beside)})"
    )
    check_pages(result)
    assert growth <= MAX_GROWTH
    assert len(beside) >= 3
    assert beside_s <= 2 * alone_s + 1

    def kept() -> int:
        return chain.rss_bytes() - idle

    await asyncio.to_thread(chains.wait_for, lambda: kept() < MAX_KEPT, "memory to come back", 15.0, 0.5)
    print(f"afterwards {kept() / 1e6:.0f} MB more than before")


def check_pages(result: dict[str, Any]) -> None:
    pages = result["layoutParsingResults"]
    widths = [width(page) for page in range(PAGES)]
    assert [[size["width"], size["height"]] for size in result["dataInfo"]["pages"]] == [[w, HEIGHT] for w in widths]
    assert [page["prunedResult"]["width"] for page in pages] == widths
    # And what was read belongs to that page, too: the picture has the shape of its block.
    for page, expected in zip(pages, widths, strict=True):
        picture_width, picture_height = map(int, page["markdown"]["text"].split())
        assert picture_width / picture_height == pytest.approx(expected / HEIGHT, rel=0.002)
