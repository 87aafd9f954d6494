"""Readiness that is true: every part answers now, or has just answered (SPEC A.8)."""

import asyncio
import logging
from collections.abc import Awaitable

import httpx

from gateway.backend import Backend
from gateway.models import Models
from hps import contract
from hps.errors import DeadlineExceeded, HpsError, Unavailable

log = logging.getLogger(__name__)

# How long a finished check speaks for all who ask.
CACHE_S = 0.5

MODELS = (contract.LAYOUT_PARSING, contract.RESTRUCTURE_PAGES)


class VlmServer:
    """The server that recognises blocks: whether it is healthy and has the model that we ask it for."""

    def __init__(self, url: str, model: str, *, api_key: str | None, timeout_s: float) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # No proxy of the environment: the server is ours and near.
        self._client = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout_s, trust_env=False)
        self._model = model

    async def problem(self) -> str | None:
        """What is wrong, or None. Raises httpx.TimeoutException."""
        try:
            health, models = await asyncio.gather(self._client.get("/health"), self._client.get("/v1/models"))
        except httpx.TimeoutException:
            raise
        except httpx.HTTPError as error:
            log.warning("VLM server not ready: %s", type(error).__name__)
            return "VLM server not ready"
        if health.status_code != 200 or models.status_code != 200:
            log.warning("VLM server not ready: /health %d, /v1/models %d", health.status_code, models.status_code)
            return "VLM server not ready"
        if self._model not in _served(models):
            return f"VLM server not ready: it does not serve the model '{self._model}'"
        return None

    async def close(self) -> None:
        await self._client.aclose()


class Readiness:
    """The checks of /health/ready; everyone who asks within CACHE_S shares one result."""

    def __init__(self, backend: Backend, models: Models, vlm: VlmServer, timeout_s: float) -> None:
        self._backend = backend
        self._models = models
        self._vlm = vlm
        self._timeout_s = timeout_s
        self._shared: asyncio.Task[str | None] | None = None
        self._fresh_until = 0.0

    async def check(self) -> None:
        """Raises Unavailable that names the first part that is not ready."""
        now = asyncio.get_running_loop().time()
        if self._shared is None or (self._shared.done() and now >= self._fresh_until):
            self._shared = asyncio.create_task(self._run())
        # Shielded: one prober that leaves does not take the result from the others.
        problem = await asyncio.shield(self._shared)
        if problem is not None:
            raise Unavailable(problem)

    async def close(self) -> None:
        if self._shared is not None:
            self._shared.cancel()
            await asyncio.wait([self._shared])

    async def _run(self) -> str | None:
        problems = await asyncio.gather(
            self._part("Triton server", self._triton()),
            *(self._part(f"Model '{model}'", self._model(model)) for model in MODELS),
            self._part("VLM server", self._vlm.problem()),
        )
        self._fresh_until = asyncio.get_running_loop().time() + CACHE_S
        return next(filter(None, problems), None)

    async def _part(self, name: str, check: Awaitable[str | None]) -> str | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await check
        except (TimeoutError, DeadlineExceeded, httpx.TimeoutException):
            return f"Health check timed out: {name}"
        except HpsError as error:
            log.warning("%s not ready: %s", name, error.message)
            return f"{name} not ready"

    async def _triton(self) -> str | None:
        return None if await self._backend.server_ready(self._timeout_s) else "Triton server not ready"

    async def _model(self, model: str) -> str | None:
        loaded = await self._backend.model_ready(model, self._timeout_s)
        if loaded and await self._models.is_answering(model, self._timeout_s):
            return None
        return f"Model '{model}' not ready"


def _served(models: httpx.Response) -> list[str]:
    """Ids in an answer of /v1/models; none if it is no such answer."""
    try:
        return [entry["id"] for entry in models.json()["data"]]
    except (ValueError, LookupError, TypeError):
        return []
