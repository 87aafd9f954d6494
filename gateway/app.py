"""The application: what it is made of, and its start and end."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI

from gateway import error_handlers, openapi, routes
from gateway.admission import Admission
from gateway.backend import Backend, TritonBackend
from gateway.body_memory import BodyMemory
from gateway.cache import AnswerCache
from gateway.health import Readiness, VlmServer
from gateway.keys import Keys, PerKey
from gateway.lingering import Lingering
from gateway.metering import Metering
from gateway.models import Models
from gateway.security_headers import SecurityHeaders
from gateway.stopping import Stopping
from hps import contract
from hps import settings as hps_settings
from hps.api_keys import ApiKeys
from hps.memory import keep_freed_memory
from hps.metrics import GatewayMetrics
from hps.settings import Settings


def create_app(settings: Settings, backend: Backend | None = None) -> FastAPI:
    """The gateway over `backend`, which stays the caller's; without one, over Triton at `settings.triton_url`.

    Raises KeysError when the file of API keys cannot be used, CacheUnavailable when the cache cannot.
    """
    used: Backend = TritonBackend(settings.triton_url) if backend is None else backend
    is_ours = backend is None
    models = Models(used, settings.triton_outage)
    timeout_s = settings.health_check_timeout
    vlm = VlmServer(
        settings.vlm_url, hps_settings.vlm_model(settings), api_key=settings.vlm_api_key, timeout_s=timeout_s
    )
    cache = None if settings.cache_url is None else AnswerCache(settings)
    readiness = Readiness(used, models, vlm, timeout_s)
    stopping = Stopping(settings.stop_delay)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if cache is not None:
            await cache.start()
        stopping.watch()
        yield
        if cache is not None:
            await cache.close()
        await readiness.close()
        await vlm.close()
        if is_ours:
            await used.close()

    app = FastAPI(
        title="PaddleOCR-VL HPS Gateway",
        version="1.0.0",  # of the HTTP interface, which is the official kit's
        description="Document parsing over HTTP: documents in, Markdown and structure out.",
        lifespan=lifespan,
    )
    metrics = GatewayMetrics()
    max_wait_s = settings.max_queue_wait or settings.inference_timeout
    app.state.parts = routes.Parts(
        settings=settings,
        models=models,
        inference=Admission(
            settings.max_concurrent_inference_requests,
            settings.max_queued_requests,
            max_wait_s=max_wait_s,
            metrics=metrics.admission(f"/{contract.LAYOUT_PARSING}"),
        ),
        non_inference=Admission(
            settings.max_concurrent_non_inference_requests,
            settings.max_queued_requests,
            max_wait_s=max_wait_s,
            metrics=metrics.admission(f"/{contract.RESTRUCTURE_PAGES}"),
        ),
        bodies=BodyMemory(max(settings.body_memory_bytes, settings.max_body_bytes)),
        per_key=PerKey(settings.max_requests_per_key),
        readiness=readiness,
        stopping=stopping,
        cache=cache,
    )
    if settings.api_keys_file is not None:
        app.add_middleware(Keys, keys=ApiKeys(settings.api_keys_file))
    app.add_middleware(Metering, metrics=metrics)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Lingering)  # the last added is the outermost
    error_handlers.install(app)
    app.include_router(routes.router)
    app.openapi = partial(openapi.document, app, with_keys=settings.api_keys_file is not None)  # type: ignore[method-assign]
    return app


def from_environment() -> FastAPI:
    """The factory that every worker process calls."""
    # A body of 1 MB is copied a few times on its way: 1.36 ms a request with fresh pages each time, 0.14 ms without.
    keep_freed_memory(kept_mib=128, largest_block_mib=32)
    app = create_app(hps_settings.load())
    # What a request makes ends with its references; looking for cycles every 700 objects took 6 % of a request's CPU.
    gc.freeze()
    gc.set_threshold(20_000)
    return app
