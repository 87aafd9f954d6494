"""The application: what it is made of, and its start and end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI

from gateway import error_handlers, openapi, routes
from gateway.admission import Admission
from gateway.backend import Backend, TritonBackend
from gateway.health import Readiness, VlmServer
from gateway.metering import Metering
from gateway.models import Models
from hps import contract
from hps import settings as hps_settings
from hps.memory import keep_freed_memory
from hps.metrics import GatewayMetrics
from hps.settings import Settings


def create_app(settings: Settings, backend: Backend | None = None) -> FastAPI:
    """The gateway over `backend`, which stays the caller's; without one, over Triton at `settings.triton_url`."""
    used: Backend = TritonBackend(settings.triton_url) if backend is None else backend
    is_ours = backend is None
    models = Models(used)
    timeout_s = settings.health_check_timeout
    vlm = VlmServer(
        settings.vlm_url, hps_settings.vlm_model(settings), api_key=settings.vlm_api_key, timeout_s=timeout_s
    )
    readiness = Readiness(used, models, vlm, timeout_s)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
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
    app.state.parts = routes.Parts(
        settings=settings,
        models=models,
        inference=Admission(
            settings.max_concurrent_inference_requests,
            settings.max_queued_requests,
            metrics=metrics.admission(f"/{contract.LAYOUT_PARSING}"),
        ),
        non_inference=Admission(
            settings.max_concurrent_non_inference_requests,
            settings.max_queued_requests,
            metrics=metrics.admission(f"/{contract.RESTRUCTURE_PAGES}"),
        ),
        readiness=readiness,
    )
    app.add_middleware(Metering, metrics=metrics)
    error_handlers.install(app)
    app.include_router(routes.router)
    app.openapi = partial(openapi.document, app)  # type: ignore[method-assign]
    return app


def from_environment() -> FastAPI:
    """The factory that every worker process calls."""
    # A body of 1 MB is copied a few times on its way: 1.36 ms a request with fresh pages each time, 0.14 ms without.
    keep_freed_memory(kept_mib=128, largest_block_mib=32)
    return create_app(hps_settings.load())
