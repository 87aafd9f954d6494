"""The OpenAI chat API, as vLLM offers it, over the embedded recogniser.

    python -m hps.embedded.chat_api --port 8118 --quality fast --model-name PP-OCRv6-tiny-cpu --threads 2

POST /v1/chat/completions, GET /v1/models, GET /health, GET /metrics. Errors have OpenAI's form.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import cv2
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from hps.embedded.chat_wire import ChatError, Question, completion, completion_events, question
from hps.embedded.models import ModelFileError, Quality
from hps.embedded.recogniser import load_recogniser
from hps.embedded.recognition_pool import ByteBudget, RecognisesPictures, RecognitionPool

log = logging.getLogger("hps.embedded")

DEFAULT_NAMES = {Quality.FAST: "PP-OCRv6-tiny-cpu", Quality.BETTER: "PP-OCRv6-small-cpu"}
DESCRIPTION = (
    "A small CPU recogniser (PP-OCRv6 text lines, SLANet-plus table structure), not PaddleOCR-VL: "
    "no formulas, seals or charts; no Arabic, Korean or handwriting."
)
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_HELD_BYTES = 256 * 1024 * 1024
CLIENT_CLOSED_REQUEST = 499
# Together under the 2 s in which a supervisor expects the process to be gone.
GRACEFUL_SHUTDOWN_S = 1
CLOSE_S = 0.5
# Longer than any client keeps an idle connection, so that none is closed while a request is on its way.
KEEP_ALIVE_S = 75


def create_app(recogniser: RecognisesPictures, model_name: str, threads: int) -> FastAPI:
    """`threads` recognitions run at once; more requests wait, with at most MAX_HELD_BYTES of pictures."""
    pool = RecognitionPool(recogniser, threads)
    budget = ByteBudget(MAX_HELD_BYTES)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.is_idle = await pool.close(CLOSE_S)

    app = FastAPI(title="hps embedded recogniser", description=DESCRIPTION, lifespan=lifespan)
    app.add_exception_handler(ChatError, _chat_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request) -> Response:
        with budget.lease() as hold:
            body = bytearray()
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise ChatError(400, f"The body has more than {MAX_BODY_BYTES} bytes")
                hold(len(body))
            asked = question(bytes(body))
            body.clear()
            hold(len(asked.picture))
            if asked.model != model_name:
                raise ChatError(404, f"The model {asked.model!r} does not exist", "model_not_found", "model")
            text = await _while_connected(request, pool, asked)
        return Response(status_code=CLIENT_CLOSED_REQUEST) if text is None else _answer(asked, text)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        model = {"id": model_name, "object": "model", "created": 0, "owned_by": "hps", "description": DESCRIPTION}
        return {"object": "list", "data": [model]}

    @app.get("/health")
    async def health() -> Response:
        return Response()

    @app.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(_metrics(pool, model_name), media_type="text/plain; version=0.0.4")

    return app


async def _while_connected(request: Request, pool: RecognitionPool, asked: Question) -> str | None:
    """The text, or None when the client left before it was there; its work is then given up."""
    work = asyncio.create_task(pool.recognise(asked.picture, asked.prompt))
    departure = asyncio.create_task(_departure(request))
    try:
        await asyncio.wait({work, departure}, return_when=asyncio.FIRST_COMPLETED)
        return await work if work.done() else None
    except asyncio.CancelledError as error:
        # Only the server does this, at its end; the client should hear why.
        raise ChatError(503, "The recogniser is shutting down", code="closing") from error
    finally:
        departure.cancel()
        work.cancel()


async def _departure(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer(asked: Question, text: str) -> Response:
    request_id = uuid.uuid4().hex
    if asked.is_stream:
        return Response(completion_events(asked, request_id, text), media_type="text/event-stream")
    return JSONResponse(completion(asked, request_id, text))


async def _chat_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ChatError)
    headers = {"Retry-After": "1"} if error.status == 503 else None
    return JSONResponse(error.body(), error.status, headers=headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(ChatError(error.status_code, str(error.detail)).body(), error.status_code, error.headers)


async def _unexpected_error(request: Request, error: Exception) -> Response:
    # Starlette logs the traceback itself; the client gets nothing of it.
    return JSONResponse(ChatError(500, "The recogniser failed").body(), 500)


def _metrics(pool: RecognitionPool, model_name: str) -> str:
    label = model_name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    counters = pool.counters
    lines = [
        "# TYPE vllm:num_requests_running gauge",
        f'vllm:num_requests_running{{model_name="{label}"}} {pool.running}',
        "# TYPE vllm:num_requests_waiting gauge",
        f'vllm:num_requests_waiting{{model_name="{label}"}} {pool.waiting}',
        "# TYPE hps_recogniser_requests_total counter",
        f'hps_recogniser_requests_total{{outcome="succeeded"}} {counters.succeeded}',
        f'hps_recogniser_requests_total{{outcome="failed"}} {counters.failed}',
        f'hps_recogniser_requests_total{{outcome="cancelled"}} {counters.cancelled}',
        "# TYPE hps_recogniser_seconds_total counter",
        f"hps_recogniser_seconds_total {counters.seconds:.3f}",
    ]
    return "\n".join(lines) + "\n"


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hps.embedded.chat_api", description=DESCRIPTION)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--quality", type=Quality, choices=list(Quality), default=Quality.FAST)
    parser.add_argument("--model-name", help="the name it is served under (default: what it is)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="recognitions at once")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # Before the server takes the signals over, and when it hands them back, they end the process with status 0.
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    # Requests are the parallelism; each one computes in its own thread alone.
    cv2.setNumThreads(1)
    model_name = options.model_name or DEFAULT_NAMES[options.quality]
    try:
        app = create_app(load_recogniser(options.quality), model_name, options.threads)
    except ModelFileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    log.info("serving %s (quality %s, %d threads)", model_name, options.quality, options.threads)
    try:
        uvicorn.run(
            app,
            host=options.host,
            port=options.port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
    finally:
        if not getattr(app.state, "is_idle", True):
            # A thread deep inside a network cannot be stopped, and the interpreter would wait for it.
            log.info("leaving a recognition unfinished")
            os._exit(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
