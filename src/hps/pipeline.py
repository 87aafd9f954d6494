"""The path of a document: decode → orientation → layout → regions → crops → VLM → blocks → answer. The only orchestration.

Every page runs down this path by itself; pages of a request go in a window, so that a long document neither holds all its
bitmaps nor makes others wait: each shared resource (decoders, layout model, VLM) serves requests in turn.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import cv2
import numpy as np

from hps import assembly, markdown, options, output_images, pruned_result, recognition, restructure
from hps.config import PipelineConfig
from hps.context import RequestContext, StageTimes, Stopwatch
from hps.contract import LayoutParsingRequest, without_nulls
from hps.document import Image, ParsedPage, Region
from hps.fair import FairLimiter
from hps.inputs.fetch import UrlFetcher
from hps.inputs.pool import DecodePool, SourceDocument
from hps.inputs.sources import load_source
from hps.layout import postprocess
from hps.layout.detector import LayoutDetector
from hps.options import ParseOptions
from hps.version import VERSION
from hps.vlm_client import VlmClient

log = logging.getLogger(__name__)

T = TypeVar("T")
_TURNS = {90: cv2.ROTATE_90_COUNTERCLOCKWISE, 180: cv2.ROTATE_180, 270: cv2.ROTATE_90_CLOCKWISE}


@dataclass(frozen=True, slots=True, eq=False)
class PageOutput:
    """A finished page without its bitmaps: pictures are encoded already, and only those that will be returned.

    pictures, output_images: name → Base64 JPEG; None where the request wants none.
    """

    parsed: ParsedPage
    pictures: dict[str, str] | None
    output_images: dict[str, str] | None
    input_image: str | None
    times: StageTimes


class Pipeline:
    """Owns no process or connection; what it is given must be started and stays its owner's to close."""

    def __init__(
        self,
        config: PipelineConfig,
        *,
        decoder: DecodePool,
        fetcher: UrlFetcher,
        detector: LayoutDetector,
        has_orientation: bool,
        vlm: VlmClient,
        vlm_model: str,
        executor: Executor,
        page_window: int,
        layout_in_flight: int,
    ) -> None:
        self.config = config
        self._decoder = decoder
        self._fetcher = fetcher
        self._detector = detector
        self._has_orientation = has_orientation
        self._vlm = vlm
        self._vlm_model = vlm_model
        self._executor = executor
        self._page_window = page_window
        self._layout_turns = FairLimiter(layout_in_flight)

    async def parse(self, request: LayoutParsingRequest, context: RequestContext) -> dict[str, Any]:
        """The `result` of the answer. Raises HpsError; one failed page fails its document."""
        started = time.perf_counter()
        wanted = options.resolve(request, self.config, has_orientation=self._has_orientation)
        source = await load_source(request.file, request.fileType, self._fetcher, context)
        async with await self._decoder.open(source.data, source.kind, context, self.config.max_pages) as document:
            pages = [page async for page in self.pages(document, wanted, context)]
            info = document.info
        times = sum((page.times for page in pages), StageTimes())
        with _timed() as rendering:
            result = self._answer(pages, wanted)
        result["dataInfo"] = info.data_info()
        result["hps"] = self._about(len(pages), info.total_pages)
        _log_request(context, pages, replace(times, render=times.render + rendering.seconds), started)
        return result

    async def pages(
        self, document: SourceDocument, wanted: ParseOptions, context: RequestContext
    ) -> AsyncIterator[PageOutput]:
        """The document's pages in order, at most `page_window` of them in work or waiting to be taken."""
        indices = iter(range(len(document.info.sizes)))
        window: deque[asyncio.Task[PageOutput]] = deque()

        def admit() -> None:
            index = next(indices, None)
            if index is not None:
                window.append(asyncio.create_task(self._page(document, index, wanted, context)))

        try:
            for _ in range(self._page_window):
                admit()
            while window:
                # A later page that fails ends the request at once, not when its turn comes.
                await _first_in_line(window)
                page = await window.popleft()
                admit()
                yield page
        finally:
            for task in window:
                task.cancel()
            await asyncio.gather(*window, return_exceptions=True)

    # --- one page ---

    async def _page(
        self, document: SourceDocument, index: int, wanted: ParseOptions, context: RequestContext
    ) -> PageOutput:
        watch = Stopwatch()
        with watch.stage("decode"):
            loaded = await document.page(index)
        image, angle = loaded, -1
        if wanted.orientation:
            with watch.stage("layout"):
                image, angle = await self._upright(loaded, context, index)
        regions: tuple[Region, ...] | None = None
        if wanted.settings.use_layout_detection:
            with watch.stage("layout"):
                async with self._layout_turns.slot(context.id, index):
                    detections = await self._detector.detect(image)
                height, width = image.shape[:2]
                regions = postprocess.regions(detections, (width, height), wanted.layout)
        with watch.stage("crop"):
            plan = await self._run(recognition.plan, image, regions, wanted.recognition, wanted.prompt_label)
        with watch.stage("vlm"):
            answers = await self._recognised(plan.tasks, context, index)
        with watch.stage("assembly"):
            parsed = assembly.page(plan, answers, wanted.settings, angle if wanted.orientation else None)
        with watch.stage("render"):
            return await self._run(self._output, parsed, loaded, image, wanted, watch)

    async def _upright(self, image: Image, context: RequestContext, index: int) -> tuple[Image, int]:
        async with self._layout_turns.slot(context.id, index):
            angle = await self._detector.orientation(image)
        if angle == 0:
            return image, 0
        return await self._run(lambda: np.asarray(cv2.rotate(image, _TURNS[angle]), np.uint8)), angle

    async def _recognised(
        self, tasks: Sequence[recognition.VlmTask], context: RequestContext, index: int
    ) -> dict[int, str]:
        """Block index → what the VLM read. Blocks are sent as soon as each is encoded; the longest go first."""

        async def one(task: recognition.VlmTask) -> tuple[int, str]:
            body = await self._run(recognition.encoded_request, task, self._vlm_model)
            answer = await self._vlm.complete(body, context, (index, *recognition.work_rank(task)))
            return task.block_index, answer.text

        return dict(await _all([one(task) for task in sorted(tasks, key=recognition.work_rank)]))

    def _output(
        self, parsed: ParsedPage, loaded: Image, image: Image, wanted: ParseOptions, watch: Stopwatch
    ) -> PageOutput:
        limit = self.config.max_output_size
        pictures = output = shown = None
        if wanted.render.markdown_images:
            pictures = {path: output_images.encode(picture, limit) for path, picture in parsed.pictures.items()}
        if wanted.render.visualize:
            shown = output_images.encode(loaded, limit)
            output = {}
            if parsed.regions is not None:
                output["layout_det_res"] = output_images.encode(
                    output_images.layout_overlay(image, parsed.regions, limit), limit
                )
            if wanted.orientation:
                output["preprocessed_img"] = output_images.encode(image, limit)
        bare = replace(parsed, pictures=dict.fromkeys(parsed.pictures, _NO_PIXELS))
        return PageOutput(bare, pictures, output, shown, watch.times())

    # --- the answer ---

    def _answer(self, pages: Sequence[PageOutput], wanted: ParseOptions) -> dict[str, Any]:
        parsed = [page.parsed for page in pages]
        if wanted.restructure is not None:
            parsed = restructure.pages(
                parsed,
                merge_tables=wanted.restructure.merge_tables,
                relevel_titles=wanted.restructure.relevel_titles,
            )
        return {
            "layoutParsingResults": [
                without_nulls(
                    {
                        "prunedResult": pruned_result.to_dict(page),
                        "markdown": rendered_markdown(page, output.pictures, wanted.render),
                        "outputImages": output.output_images,
                        "inputImage": output.input_image,
                    }
                )
                for page, output in zip(parsed, pages, strict=True)
            ]
        }

    def _about(self, processed: int, total: int) -> dict[str, Any]:
        return about(self.config.release) | {"totalPages": total, "processedPages": processed}

    def _run(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    async def probe(self) -> None:
        """Decoder and layout model answer. Raises HpsError."""


_NO_PIXELS: Image = np.zeros((0, 0, 3), np.uint8)


def about(release: str) -> dict[str, Any]:
    """What every answer carries under `hps`."""
    return {"release": release, "version": VERSION}


def rendered_markdown(page: ParsedPage, pictures: dict[str, str] | None, wanted: options.RenderOptions) -> dict[str, Any]:
    rendered = markdown.render(page, pretty=wanted.pretty, show_formula_number=wanted.show_formula_number)
    return without_nulls({"text": rendered.text, "images": pictures})


class _timed:
    """`with _timed() as t: ...; t.seconds`"""

    seconds = 0.0

    def __enter__(self) -> "_timed":
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._started


async def _all(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order. The first failure cancels the others and is raised as itself, not as a group."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first_in_line(window: deque[asyncio.Task[PageOutput]]) -> None:
    """Returns when the first task is done; raises as soon as any has failed."""
    while not window[0].done():
        done, _ = await asyncio.wait([t for t in window if not t.done()], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
