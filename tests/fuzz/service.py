"""The real gateway over the real handlers in one process, with stand-ins for the models: what the API fuzzer talks to.

python -m tests.fuzz.service PORT
"""

import asyncio
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

import uvicorn

from gateway.app import create_app
from gateway.connection import Connection
from hps import contract
from hps import settings as hps_settings
from hps.context import RequestContext
from hps.errors import BackendError, HpsError
from hps.handlers import Parser, Restructurer
from hps.inputs.fetch import UrlFetcher
from hps.inputs.pool import DecodePool
from hps.triton.serving import Handler
from tests.fakes.vlm import FakeVlm
from tests.unit.pipeline_parts import assembled


class Handlers:
    """A gateway.backend.Backend that calls the handlers as Triton's models do."""

    def __init__(self, handlers: dict[str, Handler]) -> None:
        self._handlers = handlers

    async def infer(
        self, model: str, body: bytes, *, request_id: str, timeout_s: float, probe: bool = False
    ) -> bytes | memoryview:
        if probe:
            return contract.success(request_id, {})
        try:
            return await self._handlers[model].handle(body, RequestContext.within(request_id, timeout_s))
        except HpsError as error:
            return contract.failure(request_id, error)
        except Exception:  # as in the models: a border that tells the operator
            traceback.print_exc()
            return contract.failure(request_id, BackendError())

    async def server_ready(self, timeout_s: float) -> bool:
        return True

    async def model_ready(self, model: str, timeout_s: float) -> bool:
        return True

    async def close(self) -> None:
        """Nothing is open."""


async def serve(port: int) -> None:
    decoder = DecodePool(2, page_timeout_s=10)
    await decoder.start()
    async with FakeVlm() as vlm, assembled(decoder) as parts:
        restructurer = Restructurer("PaddleOCR-VL-1.6", ThreadPoolExecutor(1), UrlFetcher("off"), None)
        backend = Handlers(
            {
                contract.LAYOUT_PARSING: Parser(parts.pipeline, parts.stages),
                contract.RESTRUCTURE_PAGES: restructurer,
            }
        )
        app = create_app(hps_settings.load({}, vlm_url=vlm.url), backend)
        config = uvicorn.Config(app, host="127.0.0.1", port=port, http=Connection, ws="none", log_level="warning")
        await uvicorn.Server(config).serve()
    await decoder.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
