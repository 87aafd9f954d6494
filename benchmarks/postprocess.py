"""What is pure in a page's path, in this process, and how often its pixels are copied.

A page of 60 regions (56 texts and titles, two tables of 20 x 5 cells, a formula, a picture; A4 of 144 dpi), 40 times:
layout rules, overlaps, blocks and crops, then clean-up of the VLM's answers, blocks, Markdown and prunedResult. Once
without outlines, as PP-DocLayoutV2 gives, and once with outlines of eight corners (V3), which have to be cut out.
`visualize`: drawing the overlay and encoding it and the page. Copies: a page of A4 at 400 dpi through the whole
pipeline in this process (decoder and VLM stub are others); the peak of what Python and NumPy allocated (tracemalloc)
and of the resident memory, each over before and without the decoded bitmap, which lies in a memory file.
"""

import asyncio
import re
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import sample_page
from hps import answer, assembly, config, options, output_images, recognition
from hps import settings as hps_settings
from hps.build import parser
from hps.context import RequestContext
from hps.contract import LayoutParsingRequest
from hps.document import Detections, Image, ParsedPage
from hps.handlers import Parser
from hps.layout import postprocess
from hps.layout.detector import LocalLayoutDetector
from hps.layout.fixed import FixedLayout
from hps.options import ParseOptions
from hps.ports import free_port
from tests.e2e.chain import MODEL, ROOT, status_of, stub_vlm, wait_for

LIMITS = {
    "page of 60 regions, median ms": 8.0,
    "visualize, median ms": 60.0,
    "400 dpi: peak allocated / page": 1.0,
}

ROUNDS = 40
_TEXT, _TITLE, _TABLE, _FORMULA, _PICTURE = 22, 17, 21, 5, 14
_SENTENCE = "The *quick* brown fox jumps over 1,234 lazy dogs; \\(x^2 + y^2 = z^2\\) holds for each of them. "
_ANSWERS = {
    "ocr": _SENTENCE * 3,
    "table": "".join("<fcel>cell of text" * 5 + "<nl>" for _ in range(20)),
    "formula": "\\[ \\sum_{i=1}^{n} \\frac{a_i}{b_i} = \\int_0^1 f(x) \\, dx \\]",
}


def run() -> dict[str, float]:
    page = sample_page.printed(144)
    release = hps_settings.load({})
    wanted = options.resolve(
        LayoutParsingRequest(file="x", visualize=False),
        config.effective(release)[0],
        has_orientation=False,
        has_unwarping=False,
    )
    plain, outlined = _detections(page), _with_outlines(_detections(page))
    assert len(_finished(page, plain, wanted).regions or ()) == 60
    return {
        "page of 60 regions, median ms": _median_ms(lambda: _rendered(page, plain, wanted)),
        "page of 60 regions with outlines, median ms": _median_ms(lambda: _rendered(page, outlined, wanted)),
        "visualize, median ms": _median_ms(_visualization(page, _finished(page, outlined, wanted))),
        **_copies(),
    }


def _median_ms(work: Callable[[], object]) -> float:
    def once() -> float:
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) * 1000

    once()
    return statistics.median(once() for _ in range(ROUNDS))


# ---- a page of 60 regions ----


def _detections(page: Image) -> Detections:
    """Four columns of 15 boxes."""
    height, width = page.shape[:2]
    classes = [_TEXT] * 60
    classes[0] = classes[15] = classes[30] = _TITLE
    classes[7] = classes[22] = _TABLE
    classes[40], classes[50] = _FORMULA, _PICTURE
    rows = []
    for number, cls_id in enumerate(classes):
        column, row = divmod(number, 15)
        x, y = (0.04 + 0.235 * column) * width, (0.04 + 0.062 * row) * height
        rows.append([cls_id, 0.9, x, y, x + 0.21 * width, y + 0.055 * height, number])
    return Detections(np.array(rows, np.float32))


def _with_outlines(detections: Detections) -> Detections:
    """Each box with its corners cut off by 4 pixels."""
    cut = np.array([[4, 0], [-4, 0], [0, 4], [0, -4], [-4, 0], [4, 0], [0, -4], [0, 4]], np.float32)
    outlines = []
    for x1, y1, x2, y2 in detections.rows[:, 2:6]:
        corners = np.array([[x1, y1], [x2, y1], [x2, y1], [x2, y2], [x2, y2], [x1, y2], [x1, y2], [x1, y1]])
        outlines.append((corners + cut).astype(np.float32))
    return Detections(detections.rows, tuple(outlines))


def _finished(page: Image, detections: Detections, wanted: ParseOptions) -> ParsedPage:
    """All that happens to a page but the models, encoding and rendering."""
    height, width = page.shape[:2]
    regions = postprocess.regions(detections, (width, height), wanted.layout)
    plan = recognition.plan(page, regions, wanted.recognition, wanted.prompt_label)
    answers = {task.block_index: _ANSWERS[task.kind] for task in plan.tasks}
    return assembly.page(plan, answers, wanted, None)


def _rendered(page: Image, detections: Detections, wanted: ParseOptions) -> object:
    return answer.page_result(_finished(page, detections, wanted), None, wanted.render)


def _visualization(page: Image, parsed: ParsedPage) -> Callable[[], object]:
    limit = (4000, 4000)
    regions = parsed.regions or ()

    def draw() -> object:
        overlay = output_images.layout_overlay(page, regions, limit)
        return output_images.encode(overlay, limit), output_images.encode(page, limit)

    return draw


# ---- copies of a large page ----


def _copies() -> dict[str, float]:
    page = sample_page.printed(400)
    small = sample_page.request_body(sample_page.jpeg(sample_page.printed(72), 200_000))
    large = sample_page.request_body(sample_page.jpeg(page, 3_000_000))
    bitmap = page.nbytes
    del page
    port = free_port()
    stub = subprocess.Popen([*stub_vlm(), "--port", str(port)], stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        wait_for(lambda: status_of(f"http://127.0.0.1:{port}/health") == 200, "the VLM stub")
        allocated, resident = asyncio.run(_peaks(f"http://127.0.0.1:{port}", small, large))
    finally:
        stub.terminate()
        stub.wait()
    return {
        "400 dpi: page MB": bitmap / 1e6,
        "400 dpi: peak allocated / page": allocated / bitmap,
        "400 dpi: peak resident without the bitmap / page": (resident - bitmap) / bitmap,
    }


async def _peaks(vlm_url: str, small: bytes, large: bytes) -> tuple[int, int]:
    """Bytes allocated, and bytes resident, at most while the large page was on its way; over before."""
    settings = hps_settings.load({}, vlm_url=vlm_url, vlm_model_name=MODEL, decode_workers=1)
    layout = FixedLayout(np.array(sample_page.TWELVE_BLOCKS, np.float32))
    handler = parser(settings, LocalLayoutDetector(layout))
    await handler.start()
    try:
        await _handled(handler, small)
        before = _reset_peak()
        await _handled(handler, large)
        resident = _status("VmHWM") - before
        tracemalloc.start()
        await _handled(handler, large)
        _, allocated = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    finally:
        await handler.close()
    return allocated, resident


async def _handled(handler: Parser, body: bytes) -> None:
    assert b'"errorCode":0' in await handler.handle(body, RequestContext.within("benchmark", 60))


def _reset_peak() -> int:
    """Resident bytes now, from where the kernel counts its peak anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, sys.platform
    return int(found[1]) * 1024
