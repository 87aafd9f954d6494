"""The endpoints. Errors are raised where they arise and become answers in error_handlers."""

import asyncio
import uuid
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from gateway import intake, openapi
from gateway.admission import Admission, Place
from gateway.body_memory import BodyMemory
from gateway.cache import BYPASS, HEADER, HIT, MISS, AnswerCache
from gateway.health import Readiness
from gateway.intake import BodyLimits, Intake
from gateway.keys import PerKey
from gateway.lifetime import until, while_connected, while_running
from gateway.models import Answer, Models
from gateway.stopping import Stopping
from hps import contract
from hps.settings import Settings

JSON = "application/json"

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Parts:
    """What the endpoints work with; one a process, at `app.state.parts`."""

    settings: Settings
    models: Models
    inference: Admission
    non_inference: Admission
    bodies: BodyMemory
    per_key: PerKey
    readiness: Readiness
    stopping: Stopping
    cache: AnswerCache | None = None


@router.post("/layout-parsing", operation_id="infer", **openapi.LAYOUT_PARSING)
async def layout_parsing(request: Request) -> Response:
    """Parse a document: one image, or a PDF or TIFF of many pages."""
    parts = _parts(request)
    return await _answer(request, contract.LAYOUT_PARSING, contract.LayoutParsingRequest, parts.inference, parts.cache)


@router.post("/restructure-pages", operation_id="restructurePages", **openapi.RESTRUCTURE_PAGES)
async def restructure_pages(request: Request) -> Response:
    """Join tables over pages, find heading levels and concatenate the pages of a parsed document."""
    admission = _parts(request).non_inference
    return await _answer(request, contract.RESTRUCTURE_PAGES, contract.RestructurePagesRequest, admission)


@router.get("/health", operation_id="checkHealth", **openapi.HEALTH)
async def health(request: Request) -> Response:
    """Whether the gateway process is alive, and is to stay so."""
    _parts(request).stopping.check()
    return _status("Healthy")


@router.get("/health/ready", operation_id="checkReady", **openapi.READY)
async def ready(request: Request) -> Response:
    """Whether documents can be parsed: Triton, its models and the VLM server all answer."""
    _parts(request).stopping.check()
    await _parts(request).readiness.check()
    return _status("Ready")


async def _answer(
    request: Request,
    model: str,
    schema: type[contract.R],
    admission: Admission,
    cache: AnswerCache | None = None,
) -> Response:
    parts = _parts(request)
    deadline = asyncio.get_running_loop().time() + parts.settings.inference_timeout
    limits = BodyLimits(parts.settings.max_body_bytes, parts.settings.body_timeout)
    with (
        parts.per_key.place(request, lambda limit: admission.retry_after_s(1, limit)),
        admission.place() as place,
        parts.bodies.account(admission.retry_after_s) as account,
    ):
        async with while_running(), until(deadline):
            taken = await intake.receive(request, schema, limits, account, cache.key_of if cache else None)
            async with while_connected(request):
                headers: dict[str, str] = {}
                if cache is None:
                    answer = await _inferred(parts, model, taken, place, deadline)
                else:
                    answer, headers = await _cached(parts, model, taken, place, deadline, cache)
    return Response(answer.body, answer.status, headers, media_type=JSON)


async def _inferred(parts: Parts, model: str, taken: Intake, place: Place, deadline: float) -> Answer:
    async with place.slot():
        left_s = deadline - asyncio.get_running_loop().time()
        return await parts.models.infer(model, taken.body, request_id=taken.log_id, timeout_s=left_s)


async def _cached(
    parts: Parts, model: str, taken: Intake, place: Place, deadline: float, cache: AnswerCache
) -> tuple[Answer, dict[str, str]]:
    """A hit takes no slot."""
    key = taken.cache_key
    if key is None:
        return await _inferred(parts, model, taken, place, deadline), {HEADER: BYPASS}
    if (found := await cache.get(key, taken.log_id)) is not None:
        return Answer(200, found), {HEADER: HIT}
    answer = await _inferred(parts, model, taken, place, deadline)
    if answer.status == 200:
        cache.put(key, taken.log_id, answer.body)
    return answer, {HEADER: MISS}


def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


def _status(message: str) -> Response:
    envelope = contract.ErrorEnvelope(logId=str(uuid.uuid4()), errorCode=0, errorMsg=message)
    return Response(envelope.model_dump_json(), media_type=JSON)
