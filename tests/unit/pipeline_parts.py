"""A whole pipeline in process, over parts that a test steers: a layout backend and a VLM of its own, real decoders.

Pages tell themselves apart by their width: the layout backend and the VLM see it, whatever order they come in.
"""

import asyncio
import base64
import io
import json
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image as Pillow

from hps import storage
from hps.config import PipelineConfig
from hps.context import RequestContext
from hps.contract import LayoutParsingRequest
from hps.document import Detections, Image
from hps.errors import BackendError, DeadlineExceeded
from hps.fair import FairLimiter
from hps.inputs.fetch import UrlFetcher
from hps.inputs.pool import DecodePool
from hps.layout.detector import Finish, LocalLayoutDetector, finished
from hps.layout.page_inputs import Bounded, Grid, LayoutInput, PageInputs
from hps.pipeline import Limits, Pipeline, Stages
from hps.vlm.client import VlmAnswer
from hps.vlm.guard import Stop
from hps.vlm.requests import BlockRequest

MODEL = "the-model"
WHOLE = (22, 0.9, 0.0, 0.0, 1.0, 1.0, 0)  # one text block over the whole page, in fractions
FLAT = [[[-1, -1], [1, -1]], [[-1, 1], [1, 1]]]  # the unwarping of a page that is flat already
_FORM = Bounded(4096)
ALL_TASKS = PageInputs(_FORM, orientation=_FORM, unwarping=_FORM)


def page(width: int = 100, height: int = 80, *, blank: bool = False) -> Image:
    """A white page; unless blank, with a frame on it."""
    image = np.full((height, width, 3), 255, np.uint8)
    if not blank:
        cv2.rectangle(image, (5, 5), (width - 10, height - 10), (0, 0, 0), 3)
    return image


def png(image: Image) -> str:
    return base64.b64encode(cv2.imencode(".png", image)[1].tobytes()).decode()


def tiff(*pages: Image) -> str:
    """A document of these pages."""
    first, *others = (Pillow.fromarray(np.ascontiguousarray(image[:, :, ::-1])) for image in pages)
    written = io.BytesIO()
    first.save(written, "TIFF", save_all=True, append_images=others)
    return base64.b64encode(written.getvalue()).decode()


def decoded(jpeg: str) -> Image:
    """A picture of an answer, or of a request to the VLM."""
    data = np.frombuffer(base64.b64decode(jpeg), np.uint8)
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)


def files_below(folder: Path) -> dict[str, bytes]:
    """Relative path → content."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def request(file: str, **fields: Any) -> LayoutParsingRequest:
    return LayoutParsingRequest(**({"file": file, "fileType": 1, "visualize": False} | fields))


def context(request_id: str = "r", timeout_s: float = 30) -> RequestContext:
    return RequestContext.within(request_id, timeout_s)


@dataclass(eq=False)
class Layout:
    """A layout backend. `calls` lists (task, page width); widths in `broken` fail, those in `gates` wait for theirs.

    rows: `[class, score, x1, y1, x2, y2, order]` in fractions of the page.
    """

    rows: Sequence[Sequence[float]] = (WHOLE,)
    inputs: PageInputs = ALL_TASKS
    angle: int = 0
    grid: Grid = field(default_factory=lambda: np.array(FLAT, np.float32))
    broken: dict[int, Exception] = field(default_factory=dict)
    gates: dict[int, threading.Event] = field(default_factory=dict)
    calls: list[tuple[str, int]] = field(default_factory=list)

    def detect(self, pages: Sequence[LayoutInput]) -> list[Finish]:
        return finished([self._detections(each) for each in pages])

    async def until_called(self, task: str, width: int, timeout_s: float = 30) -> None:
        """Returns when the model has begun with that page. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while (task, width) not in self.calls:  # noqa: ASYNC110  filled by another thread
                await asyncio.sleep(0.002)

    def orientations(self, pages: Sequence[LayoutInput]) -> list[int]:
        self.calls += [("orientation", each.width) for each in pages]
        return [self.angle] * len(pages)

    def grids(self, pages: Sequence[LayoutInput]) -> list[Grid]:
        self.calls += [("grid", each.width) for each in pages]
        return [self.grid] * len(pages)

    def _detections(self, given: LayoutInput) -> Detections:
        self.calls.append(("detect", given.width))
        if given.width in self.gates:
            assert self.gates[given.width].wait(30)
        if given.width in self.broken:
            raise self.broken[given.width]
        rows = np.array(self.rows, np.float32).reshape(-1, 7)
        rows[:, 2:6] *= np.array([given.width, given.height] * 2, np.float32)
        return Detections(rows)


@dataclass(eq=False)
class Vlm:
    """A VLM without servers. `text` may have {width} and {prompt} in it.

    held: page widths whose blocks wait until their event is set. refused: widths that it does not read.
    stopped: why its texts end early.
    """

    text: str = "text {width}"
    held: dict[int, asyncio.Event] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    requests: list[dict[str, Any]] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    stopped: Stop | None = None
    in_flight: int = 0
    left: int = 0
    limiter: FairLimiter = field(default_factory=lambda: FairLimiter(50))
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, block: BlockRequest, context: RequestContext, rank: Any = 0) -> VlmAnswer:
        async with self.limiter.slot(context.id, rank):
            try:
                return await asyncio.wait_for(self._read(block), context.remaining_s())
            except TimeoutError:
                raise DeadlineExceeded from None

    async def close(self) -> None:
        """Nothing is open."""

    async def _read(self, block: BlockRequest) -> VlmAnswer:
        body = json.loads(block.body())
        image, prompt = body["messages"][0]["content"]
        width = decoded(image["image_url"]["url"].partition(",")[2]).shape[1]
        self.requests.append(body)
        self.widths.append(width)
        self.in_flight += 1
        self._changed.set()
        try:
            if width in self.held:
                await self.held[width].wait()
        except asyncio.CancelledError:
            self.left += 1
            raise
        finally:
            self.in_flight -= 1
        if width in self.refused:
            raise BackendError("The VLM server refused a block")
        return VlmAnswer(self.text.format(width=width, prompt=prompt["text"]), 1, self.stopped)

    def hold(self, *widths: int) -> None:
        self.held |= {width: asyncio.Event() for width in widths}

    async def until_seen(self, count: int, timeout_s: float = 30) -> None:
        """Returns when so many requests have arrived. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while len(self.widths) < count:
                self._changed.clear()
                await self._changed.wait()


@dataclass(frozen=True, eq=False)
class Parts:
    """What a test looks at."""

    pipeline: Pipeline
    stages: Stages
    layout: Layout
    vlm: Vlm

    async def until_free(self, timeout_s: float = 20) -> None:
        """Returns when no turn is held or waited for: a decoder in mid-page keeps its own for a moment. Raises
        TimeoutError."""
        limiters = (self.stages.decoder._limiter, self.pipeline._layout_turns, self.vlm.limiter)
        async with asyncio.timeout(timeout_s):
            while any(limiter.held + limiter.waiting for limiter in limiters):  # noqa: ASYNC110  three of them
                await asyncio.sleep(0.002)


@asynccontextmanager
async def assembled(
    decoder: DecodePool,
    layout: Layout | None = None,
    vlm: Vlm | None = None,
    *,
    config: PipelineConfig | None = None,
    publication: storage.Publication | None = None,
    pages_in_work: int = 4,
    page_window: int = 4,
    window_bytes: int = 2**29,
    probe_fresh_s: float = 60,
) -> AsyncIterator[Parts]:
    """A pipeline over a running decoder, which stays the caller's."""
    layout, vlm = layout or Layout(), vlm or Vlm()
    detector = LocalLayoutDetector(layout)
    executor = ThreadPoolExecutor(2, thread_name_prefix="cpu")
    stages = Stages(decoder, UrlFetcher("off"), detector, vlm, executor, publication)
    pipeline = Pipeline(
        config or PipelineConfig(),
        stages,
        Limits(pages_in_work, page_window, window_bytes, layout_in_flight=4, probe_fresh_s=probe_fresh_s),
        vlm_model=MODEL,
        has_orientation=layout.inputs.orientation is not None,
        has_unwarping=layout.inputs.unwarping is not None,
    )
    try:
        yield Parts(pipeline, stages, layout, vlm)
    finally:
        for gate in layout.gates.values():
            gate.set()
        detector.close()
        executor.shutdown()


def envelope(answer: bytes) -> dict[str, Any]:
    """The envelope as a strict reader reads it: NaN and Infinity are no JSON."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} in an answer")

    value = json.loads(answer.decode("utf-8"), parse_constant=refuse)
    assert list(value) in (["logId", "result", "errorCode", "errorMsg"], ["logId", "errorCode", "errorMsg"])
    return dict(value)


def texts(result: dict[str, Any]) -> list[str]:
    """Markdown of each page."""
    return [one["markdown"]["text"] for one in result["layoutParsingResults"]]
