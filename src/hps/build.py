"""The composition root of the model processes: settings in, request handlers out."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hps import answer, config, contract, pruned_result, restructure
from hps import settings as hps_settings
from hps.config import PipelineConfig
from hps.context import RequestContext
from hps.contract import LayoutParsingRequest, RestructurePagesRequest
from hps.inputs.fetch import UrlFetcher
from hps.inputs.limits import DecodeLimits
from hps.inputs.pool import DecodePool
from hps.layout import backends
from hps.layout.detector import LayoutDetector
from hps.options import RenderOptions
from hps.pipeline import Limits, Pipeline, Stages
from hps.settings import Settings
from hps.vlm_client import VlmClient


class Parser:
    """The handler of `layout-parsing`: owns the stages and the pipeline over them."""

    def __init__(self, settings: Settings, detector: LayoutDetector, pipeline: PipelineConfig) -> None:
        self._executor = ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="cpu")
        limits = DecodeLimits(
            max_pixels=settings.max_image_pixels,
            pdf_scale=settings.pdf_render_scale,
            pdf_min_scale=settings.pdf_min_render_scale,
        )
        self._decoder = DecodePool(settings.decode_workers, limits=limits, page_timeout_s=settings.decode_timeout)
        self._vlm = VlmClient(
            settings.vlm_url,
            max_concurrency=settings.vlm_max_concurrency,
            timeout_s=settings.vlm_timeout,
            retries=settings.vlm_retries,
            api_key=settings.vlm_api_key,
        )
        fetcher = UrlFetcher(settings.url_input, timeout_s=settings.url_timeout, max_bytes=settings.url_max_bytes)
        self._pipeline = Pipeline(
            pipeline,
            Stages(self._decoder, fetcher, detector, self._vlm, self._executor),
            Limits(settings.page_window, settings.layout_in_flight, settings.health_check_timeout),
            vlm_model=hps_settings.vlm_model(settings),
            has_orientation=backends.has_orientation(settings),
        )

    async def start(self) -> None:
        await self._decoder.start()

    async def handle(self, body: bytes, context: RequestContext) -> bytes:
        request = contract.parse_request(LayoutParsingRequest, body)
        result = await self._pipeline.parse(request, context)
        return contract.success(request.logId or context.id, result)

    async def probe(self) -> None:
        await self._pipeline.probe()

    async def close(self) -> None:
        await self._vlm.close()
        await self._decoder.close()
        self._executor.shutdown(wait=False, cancel_futures=True)


class Restructurer:
    """The handler of `restructure-pages`: no model, no I/O."""

    def __init__(self, settings: Settings) -> None:
        self._release = settings.pipeline_name

    async def start(self) -> None:
        """Nothing to open."""

    async def handle(self, body: bytes, context: RequestContext) -> bytes:
        request = contract.parse_request(RestructurePagesRequest, body)
        return contract.success(request.logId or context.id, restructured(request, self._release))

    async def probe(self) -> None:
        """Answering is the proof."""

    async def close(self) -> None:
        """Nothing to close."""


def restructured(request: RestructurePagesRequest, release: str) -> dict[str, Any]:
    """`result` of /restructure-pages. Raises InvalidInput that names page and key."""
    parsed = [pruned_result.parsed_page(page.prunedResult, position=i) for i, page in enumerate(request.pages)]
    pages = restructure.pages(
        parsed,
        merge_tables=request.mergeTables,
        relevel_titles=request.relevelTitles,
        concatenate_pages=request.concatenatePages,
    )
    images = [page.markdownImages for page in request.pages]
    if request.concatenatePages:
        union: dict[str, str] = {path: image for one in images for path, image in (one or {}).items()}
        images = [union or None]
    if not request.returnMarkdownImages:
        images = [None] * len(pages)
    rendering = RenderOptions(pretty=request.prettifyMarkdown, show_formula_number=request.showFormulaNumber)
    results = [answer.page_result(page, shown, rendering) for page, shown in zip(pages, images, strict=True)]
    about = answer.about(release) | {"processedPages": len(request.pages)}
    return {"layoutParsingResults": results, "hps": about}


def parser(settings: Settings, detector: LayoutDetector) -> Parser:
    """Raises ConfigError when pipeline_config.yaml cannot be used."""
    pipeline, effective = config.effective(settings)
    return Parser(effective, detector, pipeline)


def restructurer(settings: Settings) -> Restructurer:
    return Restructurer(settings)
