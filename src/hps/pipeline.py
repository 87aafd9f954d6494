"""The path of a document: decode → orientation → layout → crops → VLM → blocks → answer. The only orchestration.

Every page runs down this path by itself; a request has only so many in work, and of these only so many with their
bitmaps, so that a long document neither fills the memory nor makes others wait: each shared resource (decoders, layout
model, VLM) serves requests in turn.
"""

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import cv2
import numpy as np

from hps import answer, assembly, ink, options, output_images, recognition, storage
from hps.answer import PageOutput
from hps.config import PipelineConfig
from hps.context import RequestContext, StageTimes, Stopwatch
from hps.contract import LayoutParsingRequest
from hps.document import Image, ParsedPage, Region
from hps.errors import BackendError, InvalidInput, Unavailable
from hps.fair import FairLimiter
from hps.inputs import sources
from hps.inputs.fetch import UrlFetcher
from hps.inputs.pool import DecodePool, SourceDocument
from hps.layout import postprocess
from hps.layout.detector import LayoutDetector
from hps.layout.unwarping import unwarped
from hps.metrics import PageMetrics
from hps.options import ParseOptions
from hps.output_images import Shown
from hps.pulse import Pulse
from hps.vlm import requests as vlm_requests
from hps.vlm.client import ReadsBlocks, VlmAnswer
from hps.vlm.requests import BlockRequest
from hps.window import BitmapRoom

log = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")
_TURNS = {90: cv2.ROTATE_90_COUNTERCLOCKWISE, 180: cv2.ROTATE_180, 270: cv2.ROTATE_90_CLOCKWISE}
_SMALL_BYTES = 1 << 18
_RENDERED_BYTES = 1 << 12  # of image work, about what a block takes to become Markdown and JSON
_PROBE_PAGE: Image = np.full((32, 32, 3), 255, np.uint8)


@dataclass(frozen=True, slots=True)
class Stages:
    """What the pipeline works with. Each is started, and closed, by who made it. publication: where files of answers
    are stored, if anywhere."""

    decoder: DecodePool
    fetcher: UrlFetcher
    detector: LayoutDetector
    vlm: ReadsBlocks
    executor: Executor
    publication: storage.Publication | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one request: pages_in_work at once. Of these at most page_window, and of large pages fewer, by window_bytes,
    hold a bitmap, as a page does until its blocks are encoded. layout_in_flight: pages at the layout model at once."""

    pages_in_work: int
    page_window: int
    window_bytes: int
    layout_in_flight: int
    probe_fresh_s: float


class Pipeline:
    def __init__(
        self,
        config: PipelineConfig,
        stages: Stages,
        limits: Limits,
        *,
        vlm_model: str,
        has_orientation: bool,
        has_unwarping: bool,
        metrics: PageMetrics | None = None,
    ) -> None:
        self._config = config
        self._stages = stages
        self._limits = limits
        self._vlm_model = vlm_model
        self._has_orientation = has_orientation
        self._has_unwarping = has_unwarping
        self._layout_turns = FairLimiter(limits.layout_in_flight)
        self._layout_pulse = Pulse()
        self._metrics = metrics or PageMetrics()

    async def parse(self, request: LayoutParsingRequest, context: RequestContext) -> dict[str, Any]:
        """The `result` of the answer. Raises HpsError; one failed page fails its document, and no other."""
        started = time.perf_counter()
        wanted = options.resolve(
            request, self._config, has_orientation=self._has_orientation, has_unwarping=self._has_unwarping
        )
        file_type = sources.requested_type(request.file, request.fileType)
        watch = Stopwatch()
        with watch.stage("decode"):
            data = await self._file(request.file, context)
            opened = await self._stages.decoder.open(data, file_type, context, self._config.max_pages)
            del data
        self._metrics.opened(watch.times().decode)
        async with opened as document:
            outputs = [output async for output in self.pages(document, wanted, context)]
            failures = [output.failure for output in outputs if output.failure is not None]
            if failures and len(failures) == len(outputs):  # nothing is left that could be returned
                raise failures[0]
            info = document.info
        with watch.stage("render"):
            size = _RENDERED_BYTES * sum(len(output.parsed.blocks) for output in outputs)
            size = _SMALL_BYTES if wanted.render.docx else size
            result = await self._run(
                size, answer.layout_parsing, outputs, info, wanted.render, wanted.restructure, self._config.release
            )
        if self._stages.publication is not None:
            result["layoutParsingResults"] = await storage.publish(
                result["layoutParsingResults"],
                request.logId or context.id,
                self._stages.publication,
                self._stages.executor,
                context,
            )
        _log_request(context, outputs, watch.times(), time.perf_counter() - started)
        return result

    async def pages(
        self, document: SourceDocument, wanted: ParseOptions, context: RequestContext
    ) -> AsyncGenerator[PageOutput, None]:
        """The document's pages in order; of them in work or waiting to be taken are as many as the limits allow."""
        room = BitmapRoom(self._limits.page_window, self._limits.window_bytes)
        indices = iter(range(len(document.info.sizes)))
        window: deque[asyncio.Task[PageOutput]] = deque()

        def admit() -> None:
            for index in itertools.islice(indices, self._limits.pages_in_work - len(window)):
                window.append(asyncio.create_task(self._page_or_failure(document, index, wanted, context, room)))

        try:
            admit()
            while window:
                await _first_in_line(window)
                output = window.popleft().result()
                admit()
                yield output
        finally:
            await _cancelled(window)

    async def probe(self) -> None:
        """Proof that the layout model answers: a page of a request just now, or a tiny one. Raises HpsError.

        Decoders need none: their pool replaces what dies or hangs, within the time of a page.
        """
        if self._layout_pulse.is_fresh(self._limits.probe_fresh_s):
            return
        # Behind a full queue the tiny page may wait long; a real page that comes through says the same.
        tiny = asyncio.create_task(self._stages.detector.detect(_PROBE_PAGE))
        real = asyncio.create_task(self._layout_pulse.next())
        try:
            await asyncio.wait([tiny, real], return_when=asyncio.FIRST_COMPLETED)
            if not real.done():
                tiny.result()
        finally:
            await _cancelled([tiny, real])

    # --- one page ---

    async def _page_or_failure(
        self, document: SourceDocument, index: int, wanted: ParseOptions, context: RequestContext, room: BitmapRoom
    ) -> PageOutput:
        """The page; with `allow_partial`, what is left of one that cannot be parsed. Errors name their page."""
        width, height = document.info.sizes[index]
        try:
            async with AsyncExitStack() as bitmap:
                await bitmap.enter_async_context(room.held(width * height * 3))
                return await self._page(document, index, wanted, context, bitmap)
        except (InvalidInput, BackendError, Unavailable) as error:
            if len(document.info.sizes) > 1:
                error.named(f"Page {index + 1}")
            if not wanted.allow_partial:
                raise
            log.warning("request=%s page=%d: status %d, left out", context.id, index + 1, error.status)
            regions = () if wanted.settings.use_layout_detection else None
            return PageOutput(ParsedPage(width, height, (), wanted.settings, regions), failure=error)

    async def _page(
        self,
        document: SourceDocument,
        index: int,
        wanted: ParseOptions,
        context: RequestContext,
        bitmap: AsyncExitStack,
    ) -> PageOutput:
        """bitmap: closed as soon as the page's pixels are needed no more."""
        watch = Stopwatch()
        with watch.stage("decode"):
            loaded = await document.page(index)
            blank = not ink.is_printed(loaded) and await self._run(loaded.nbytes, ink.is_blank, loaded)
        image, angle = loaded, None
        regions: tuple[Region, ...] | None = () if wanted.settings.use_layout_detection else None
        if not blank:
            with watch.stage("layout"):
                image, angle = await self._preprocessed(loaded, wanted, context, index)
                if regions is not None:
                    regions = await self._regions(image, wanted, context, index)
        with watch.stage("crop"):
            plan = await self._run(
                image.nbytes, recognition.plan, image, regions, wanted.recognition, wanted.prompt_label
            )
            if blank:
                plan = replace(plan, tasks=())
            is_spotting = wanted.render.visualize and any(task.kind == "spotting" for task in plan.tasks)
            spotted = image if is_spotting else None
        with watch.stage("vlm"):
            # What the answer shows of the page is encoded while the VLM reads it, and then its memory is free.
            encoded = asyncio.Event()
            reading = self._answers(plan.tasks, context, index, encoded)
            unneeded = None if is_spotting else bitmap
            showing = self._shown(plan, loaded, image, wanted, encoded, unneeded)
            plan = recognition.without_pixels(plan)
            del loaded, image
            answers, shown = await _both(reading, showing)
        with watch.stage("assembly"):
            texts = {block: answer.text for block, answer in answers.items()}
            parsed = assembly.page(plan, texts, wanted, angle)
        if spotted is not None and parsed.spotting is not None:
            with watch.stage("render"):
                limit = self._config.max_output_size
                overlay = await self._in_thread(
                    output_images.encoded, output_images.spotting_overlay, spotted, parsed.spotting, limit
                )
            shown = replace(shown, output_images={**(shown.output_images or {}), "spotting_res_img": overlay})
        self._metrics.page(watch.times(), is_blank=blank)
        stopped = {block: answer.stopped for block, answer in answers.items() if answer.stopped is not None}
        return PageOutput(
            parsed, shown, is_blank=blank, times=watch.times(), stopped=recognition.by_place(plan, stopped)
        )

    async def _file(self, file: str, context: RequestContext) -> bytes:
        if sources.is_url(file):
            return await self._stages.fetcher.fetch(file, context)
        # Gigabytes a second: below this size sooner done than handed to a thread.
        return await self._run(len(file) // 8, sources.decode_base64, file)

    async def _preprocessed(
        self, image: Image, wanted: ParseOptions, context: RequestContext, index: int
    ) -> tuple[Image, int | None]:
        """The page upright and flat, as asked for; the turn that was applied, None without classification (B.4)."""
        angle: int | None = None
        if wanted.orientation:
            async with self._layout_turns.slot(context.id, index):
                angle = await self._stages.detector.orientation(image)
            self._layout_pulse.beat()
            if angle:
                image = await self._run(image.nbytes, _turned, image, angle)
        if wanted.unwarping:
            async with self._layout_turns.slot(context.id, index):
                grid = await self._stages.detector.grid(image)
            self._layout_pulse.beat()
            image = await self._run(image.nbytes, unwarped, image, grid)
        return image, angle

    async def _regions(
        self, image: Image, wanted: ParseOptions, context: RequestContext, index: int
    ) -> tuple[Region, ...]:
        async with self._layout_turns.slot(context.id, index):
            detections = await self._stages.detector.detect(image)
        self._layout_pulse.beat()
        height, width = image.shape[:2]
        return postprocess.regions(detections, (width, height), wanted.layout)

    async def _answers(
        self, tasks: Sequence[recognition.VlmTask], context: RequestContext, index: int, encoded: asyncio.Event
    ) -> dict[int, VlmAnswer]:
        """Block index → what the VLM read. Each is sent as soon as its batch is encoded; the longest go first.

        Sets `encoded` when the page's pixels are not needed for this any more.
        """
        batches = vlm_requests.batches(tasks)
        del tasks
        to_encode = len(batches)

        async def read(block: int, kind: str, request: BlockRequest, rank: tuple[int, ...]) -> tuple[int, VlmAnswer]:
            answer = await self._stages.vlm.read(request, context, rank)
            self._metrics.block(kind, answer.completion_tokens, answer.stopped)
            return block, answer

        async def read_batch(batch: list[recognition.VlmTask]) -> list[tuple[int, VlmAnswer]]:
            nonlocal to_encode
            pixels = sum(task.image.nbytes for task in batch)
            requests = await self._run(pixels, vlm_requests.encoded_requests, batch, self._vlm_model)
            reads = [
                read(task.block_index, task.kind, request, (index, *vlm_requests.work_rank(task)))
                for task, request in zip(batch, requests, strict=True)
            ]
            batch.clear()  # their images are views of the page
            del requests
            to_encode -= 1
            if not to_encode:
                encoded.set()
            return await _all(reads)

        if not batches:
            encoded.set()
        return dict(itertools.chain.from_iterable(await _all([read_batch(batch) for batch in batches])))

    async def _shown(
        self,
        plan: recognition.PagePlan,
        loaded: Image,
        image: Image,
        wanted: ParseOptions,
        encoded: asyncio.Event,
        bitmap: AsyncExitStack | None,
    ) -> Shown:
        """Pictures and overlays as far as the request wants them, but for what the VLM still has to find. Begun when
        the blocks are `encoded`: those come first. bitmap: closed at the end."""
        await encoded.wait()
        limit = self._config.max_output_size
        pictures = overlays = input_image = None
        if wanted.render.markdown_images or wanted.render.docx:
            pixels = sum(picture.nbytes for picture in plan.pictures.values())
            pictures = await self._run(pixels, output_images.encoded_all, plan.pictures, limit)
        if wanted.render.visualize:
            overlays = {}
            if plan.regions is not None:
                overlays["layout_det_res"] = await self._in_thread(
                    output_images.encoded, output_images.layout_overlay, image, plan.regions, limit
                )
            if wanted.settings.use_doc_preprocessor:
                overlays["preprocessed_img"] = await self._in_thread(output_images.encode, image, limit)
            input_image = await self._in_thread(output_images.encode, loaded, limit)
        if bitmap is not None:
            del plan, loaded, image
            await bitmap.aclose()
        return Shown(pictures, overlays, input_image)

    async def _run(self, size: int, function: Callable[..., T], *arguments: Any) -> T:
        """Work on `size` bytes: in a thread, or at once if they are so few that waking one would take longer."""
        return function(*arguments) if size < _SMALL_BYTES else await self._in_thread(function, *arguments)

    def _in_thread(self, function: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._stages.executor, function, *arguments)


def _turned(image: Image, angle: int) -> Image:
    return np.asarray(cv2.rotate(image, _TURNS[angle]), np.uint8)


def _log_request(context: RequestContext, outputs: Sequence[PageOutput], rendering: StageTimes, total_s: float) -> None:
    times = sum((output.times for output in outputs), rendering)
    blocks = sum(len(output.parsed.blocks) for output in outputs)
    stages = " ".join(f"{name}={value}" for name, value in times.milliseconds().items())
    log.info("request=%s pages=%d blocks=%d total_ms=%d %s", context.id, len(outputs), blocks, total_s * 1000, stages)


async def _all(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order. The first failure cancels the others and is raised as itself, not as a group."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _cancelled(tasks)


async def _both(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """As `_all`, for two kinds of results."""
    one, other = asyncio.create_task(first), asyncio.create_task(second)
    try:
        return await asyncio.gather(one, other)
    finally:
        await _cancelled([one, other])


async def _cancelled(tasks: Sequence["asyncio.Task[Any]"] | deque["asyncio.Task[Any]"]) -> None:
    """Cancels what still runs and waits until it has let go of its turns and connections."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _first_in_line(window: deque["asyncio.Task[PageOutput]"]) -> None:
    """Returns when the first task is done; raises as soon as any has failed."""
    while not window[0].done():
        done, _ = await asyncio.wait([t for t in window if not t.done()], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
