"""What the public Triton models do with a request: body in, envelope out. They own what they are given."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from hps import answer, contract, docx_export, pruned_result, restructure, storage
from hps.context import RequestContext
from hps.contract import LayoutParsingRequest, RestructurePagesRequest
from hps.document import ParsedPage
from hps.inputs.fetch import UrlFetcher
from hps.options import RenderOptions
from hps.pipeline import Pipeline, Stages


class Parser:
    """The handler of `layout-parsing`."""

    def __init__(
        self, pipeline: Pipeline, stages: Stages, report: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        """report: tells the metrics how the stages are doing, for as long as requests are served."""
        self._pipeline = pipeline
        self._stages = stages
        self._report = report
        self._reporting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._stages.decoder.start()
        if self._report is not None:
            self._reporting = asyncio.create_task(self._report())

    async def handle(self, body: bytes, context: RequestContext) -> bytes:
        request = contract.parse_request(LayoutParsingRequest, body)
        result = await self._pipeline.parse(request, context)
        return contract.success(request.logId or context.id, result)

    async def probe(self) -> None:
        await self._pipeline.probe()

    async def close(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.wait([self._reporting])
        await self._stages.vlm.close()
        await self._stages.decoder.close()
        self._stages.executor.shutdown(wait=False, cancel_futures=True)


class Restructurer:
    """The handler of `restructure-pages`: no model; fetches pictures and stores files for exports only."""

    def __init__(
        self, release: str, executor: Executor, fetcher: UrlFetcher, publication: storage.Publication | None
    ) -> None:
        self._release = release
        self._executor = executor
        self._fetcher = fetcher
        self._publication = publication

    async def start(self) -> None:
        """Nothing to open."""

    async def handle(self, body: bytes, context: RequestContext) -> bytes:
        request = contract.parse_request(RestructurePagesRequest, body)
        if request.outputFormats:
            docx_export.require()
        # Off the loop: a long document takes long, and others answer meanwhile.
        loop = asyncio.get_running_loop()
        pages, images = await loop.run_in_executor(self._executor, _restructured, request)
        pictures: list[dict[str, bytes]] = []
        if request.outputFormats:
            pictures = [await self._pictures(page, shown, context) for page, shown in zip(pages, images, strict=True)]
        result = await loop.run_in_executor(self._executor, self._result, request, pages, images, pictures)
        if self._publication is not None:
            result["layoutParsingResults"] = await storage.publish(
                result["layoutParsingResults"],
                request.logId or context.id,
                self._publication,
                self._executor,
                context,
                passed_through=True,
            )
        return contract.success(request.logId or context.id, result)

    async def _pictures(self, page: ParsedPage, images: Mapping[str, str], context: RequestContext) -> dict[str, bytes]:
        """Path → bytes of the pictures that an export shows. Those by URL may have no more bytes than one file."""
        pictures: dict[str, bytes] = {}
        fetched = 0
        for path in docx_export.picture_paths(page):
            if path in images:
                payload = docx_export.decode_payload(images[path])
                if isinstance(payload, str):
                    payload = await self._fetcher.fetch(payload, context, already=fetched)
                    fetched += len(payload)
                pictures[path] = payload
        return pictures

    def _result(
        self,
        request: RestructurePagesRequest,
        pages: Sequence[ParsedPage],
        images: Sequence[Mapping[str, str]],
        pictures: Sequence[Mapping[str, bytes]],
    ) -> dict[str, Any]:
        rendering = RenderOptions(pretty=request.prettifyMarkdown, show_formula_number=request.showFormulaNumber)
        results = []
        for index, (page, shown) in enumerate(zip(pages, images, strict=True)):
            result = answer.page_result(page, (shown or None) if request.returnMarkdownImages else None, rendering)
            if request.outputFormats:
                place = None if request.concatenatePages else index
                result["exports"] = answer.exports(page, pictures[index], place)
            results.append(result)
        about = answer.about(self._release) | {"processedPages": len(request.pages)}
        return {"layoutParsingResults": results, "hps": about}

    async def probe(self) -> None:
        """Answering is the proof."""

    async def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def _restructured(request: RestructurePagesRequest) -> tuple[tuple[ParsedPage, ...], list[Mapping[str, str]]]:
    """The pages and the images that belong to each. Raises InvalidInput that names page and key."""
    parsed = [pruned_result.parsed_page(page.prunedResult, position=i) for i, page in enumerate(request.pages)]
    pages = restructure.pages(
        parsed,
        merge_tables=request.mergeTables,
        relevel_titles=request.relevelTitles,
        concatenate_pages=request.concatenatePages,
    )
    images: list[Mapping[str, str]] = [page.markdownImages or {} for page in request.pages]
    if request.concatenatePages:
        images = [{path: image for one in images for path, image in one.items()}]
    return pages, images
