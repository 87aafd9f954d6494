"""CPU seconds of a page outside the VLM servers, by process, and how they grow with blocks and pixels.

A two-column A4 text page, a JPEG, with fixed boxes and a VLM stub that answers at once, eight requests in flight. 24
blocks at 144 dpi; then 12 and 48 blocks; then twice and four times the pixels. A line through the outer two of three
points shows how far the middle one is from it. What a process has to do with stages: decoders decode; layout-detection
stands for the layout model's process; layout-parsing crops, encodes, calls the VLM, assembles and renders.
"""

import asyncio
import contextlib
import json
import math
import tempfile
from pathlib import Path

import cv2

from benchmarks import cpu_times, sample_page
from benchmarks.http_load import Client
from tests.e2e import chain as chains
from tests.e2e.chain import Chain

LIMITS = {"CPU s a page of 24 blocks at 144 dpi": 0.15}
RECORDED = tuple(LIMITS)

WARM_UP, PAGES, IN_FLIGHT = 24, 96, 8
DPI = 144
BLOCKS = (12, 24, 48)
PIXELS = (1, 2, 4)  # times those of an A4 page at 144 dpi
_TEXT = 22


def run() -> dict[str, float]:
    pages = {(blocks, 1): _page(blocks, 1) for blocks in BLOCKS} | {
        (24, pixels): _page(24, pixels) for pixels in PIXELS
    }
    with tempfile.TemporaryDirectory(prefix="hps-bench-") as name:
        folder = Path(name)
        boxes = folder / "boxes.json"
        table = {f"{width}x{height}": _boxes(blocks) for (blocks, _), (_, (width, height)) in pages.items()}
        boxes.write_text(json.dumps({"boxes": [], "pages": table}))
        layout = {"HPS_LAYOUT_BACKEND": "fixed", "HPS_LAYOUT_FIXED_FILE": str(boxes), "HPS_LOG_LEVEL": "WARNING"}
        with chains.running(folder, layout, vlm=chains.stub_vlm(0.0)) as chain:
            spent = {key: asyncio.run(_spent(chain, body)) for key, (body, _) in pages.items()}
    totals = {key: sum(by_process.values()) for key, by_process in spent.items()}
    by_blocks = [totals[blocks, 1] for blocks in BLOCKS]
    by_pixels = [totals[24, pixels] for pixels in PIXELS]
    return {
        "CPU s a page of 24 blocks at 144 dpi": totals[24, 1],
        **{f"  {name}": seconds for name, seconds in spent[24, 1].items() if seconds >= 0.0001},
        **{f"CPU s, {blocks} blocks": total for blocks, total in zip(BLOCKS, by_blocks, strict=True)},
        "  ms a further block": 1000 * (by_blocks[2] - by_blocks[0]) / (BLOCKS[2] - BLOCKS[0]),
        "  24 blocks, off the line between 12 and 48: %": _off_the_line(BLOCKS, by_blocks),
        **{f"CPU s, {pixels} x 2 megapixels": total for pixels, total in zip(PIXELS, by_pixels, strict=True)},
        "  ms a further megapixel": 1000 * (by_pixels[2] - by_pixels[0]) / (PIXELS[2] - PIXELS[0]) / 2,
        "  2 x, off the line between 1 x and 4 x: %": _off_the_line(PIXELS, by_pixels),
    }


def _off_the_line(places: tuple[int, ...], values: list[float]) -> float:
    share = (places[1] - places[0]) / (places[2] - places[0])
    expected = values[0] + share * (values[2] - values[0])
    return 100 * (values[1] / expected - 1)


def _page(blocks: int, pixels: int) -> tuple[bytes, tuple[int, int]]:
    """A request, and the page's size, which nobody else's page has."""
    page = sample_page.printed(round(DPI * math.sqrt(pixels)))
    page = cv2.copyMakeBorder(page, 0, 0, 0, blocks, cv2.BORDER_CONSTANT, value=(255, 255, 255))
    data = cv2.imencode(".jpg", page, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()
    return sample_page.request_body(data), (page.shape[1], page.shape[0])


def _boxes(blocks: int) -> list[list[float]]:
    """Two columns of text blocks."""
    rows = blocks // 2
    height = 0.86 / rows
    return [
        [_TEXT, 0.9, left, 0.1 + row * height, left + 0.39, 0.1 + (row + 0.8) * height, column * rows + row]
        for column, left in enumerate((0.085, 0.525))
        for row in range(rows)
    ]


async def _spent(chain: Chain, body: bytes) -> dict[str, float]:
    """CPU seconds of a page by process, all but the stub."""
    clients = [await Client.connected(chain.url) for _ in range(IN_FLIGHT)]

    async def load(requests: int) -> None:
        turns = iter(range(requests))

        async def worker(client: Client) -> None:
            for _ in turns:
                await client.parse(body)

        await asyncio.gather(*map(worker, clients))

    with contextlib.ExitStack() as stack:
        for client in clients:
            stack.callback(client.close)
        await load(WARM_UP)
        before = cpu_times.by_process(chain)
        await load(PAGES)
        after = cpu_times.by_process(chain)
    return {
        name: (seconds - before.get(name, 0.0)) / PAGES
        for name, seconds in after.items()
        if name not in ("vlm", "triton")
    }
