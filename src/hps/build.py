"""The composition root of the model processes: settings in, request handlers out."""

import os
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Final

from hps import config, storage
from hps import settings as hps_settings
from hps.config import PipelineConfig
from hps.handlers import Parser, Restructurer
from hps.inputs.fetch import UrlFetcher
from hps.inputs.limits import DecodeLimits
from hps.inputs.pool import DecodePool
from hps.layout import backends
from hps.layout.detector import LayoutDetector
from hps.metrics import VlmMetrics
from hps.pipeline import Limits, Pipeline, Stages
from hps.settings import Settings
from hps.vlm import reporting
from hps.vlm.client import VlmClient, VlmOptions

_PROBE_FRESH_S: Final = 1.0  # a layout model that hangs is found out so much later


def parser(settings: Settings, detector: LayoutDetector) -> Parser:
    """Raises ConfigError when pipeline_config.yaml cannot be used, StorageError when its store cannot."""
    pipeline_config, settings = config.effective(settings)
    limits = DecodeLimits(
        max_pixels=settings.max_image_pixels,
        pdf_scale=settings.pdf_render_scale,
        pdf_min_scale=settings.pdf_min_render_scale,
        max_pages=settings.max_pages,
        max_document_pixels=settings.max_document_pixels,
    )
    vlm_model = hps_settings.vlm_model(settings)
    vlm = VlmClient(
        VlmOptions(
            settings.vlm_url,
            vlm_model,
            replicas=settings.vlm_replicas,
            max_concurrency=settings.vlm_max_concurrency,
            timeout_s=settings.vlm_timeout,
            retries=settings.vlm_retries,
            outage_s=settings.vlm_outage,
            guard=settings.vlm_guard,
            block_time_s=settings.vlm_block_time,
            pixel_budget=settings.vlm_pixel_budget,
            api_key=settings.vlm_api_key,
        )
    )
    stages = Stages(
        decoder=DecodePool(settings.decode_workers, limits=limits, page_timeout_s=settings.decode_timeout),
        fetcher=_fetcher(settings),
        detector=detector,
        vlm=vlm,
        executor=_executor(),
        publication=_publication(pipeline_config),
    )
    pipeline = Pipeline(
        pipeline_config,
        stages,
        Limits(
            pages_in_work=settings.pages_in_work,
            page_window=settings.page_window,
            window_bytes=settings.request_bitmap_bytes,
            layout_in_flight=settings.layout_in_flight,
            probe_fresh_s=_PROBE_FRESH_S,
        ),
        vlm_model=vlm_model,
        has_orientation=backends.has_orientation(settings),
        has_unwarping=backends.has_unwarping(settings),
    )
    return Parser(pipeline, stages, partial(reporting.report, vlm, VlmMetrics()))


def restructurer(settings: Settings) -> Restructurer:
    """Raises as `parser`."""
    pipeline_config, settings = config.effective(settings)
    return Restructurer(pipeline_config.release, _executor(), _fetcher(settings), _publication(pipeline_config))


def _executor() -> Executor:
    """For the short computations of a page: image work that lets go of the interpreter lock."""
    return ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="cpu")


def _fetcher(settings: Settings) -> UrlFetcher:
    return UrlFetcher(settings.url_input, timeout_s=settings.url_timeout, max_bytes=settings.url_max_bytes)


def _publication(pipeline_config: PipelineConfig) -> storage.Publication | None:
    if pipeline_config.storage is None:
        return None
    store = storage.open_storage(pipeline_config.storage)
    return storage.Publication(store, pipeline_config.return_urls, pipeline_config.url_expires_s)
