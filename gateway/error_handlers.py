"""The one mapping from errors to HTTP answers: every error is an envelope (SPEC A.2, A.6)."""

import logging

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from gateway import intake, security_headers
from hps import contract
from hps.errors import (
    BackendError,
    Cancelled,
    HpsError,
    InvalidRequest,
    Overloaded,
    PayloadTooLarge,
    ServerError,
    TooManyForKey,
    UnknownPath,
    WrongMethod,
)

log = logging.getLogger(__name__)

# Errors of the framework itself, by status.
FRAMEWORK_ERRORS: dict[int, type[HpsError]] = {404: UnknownPath, 405: WrongMethod, 413: PayloadTooLarge}


def install(app: FastAPI) -> None:
    app.add_exception_handler(HpsError, _ours)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(Exception, _unexpected)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, HpsError)
    headers = {}
    if isinstance(error, Overloaded | TooManyForKey):
        await intake.identify_refused(request)
        headers["Retry-After"] = str(error.retry_after_s)
    log_id = _log_id(request)
    if isinstance(error, ServerError):
        log.warning("request %.256s: %d %s%s", log_id, error.status, error.message, _cause(error))
    elif isinstance(error, Cancelled):
        log.info("request %.256s: the client left", log_id)
    return envelope(request, error, headers)


async def _framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = FRAMEWORK_ERRORS.get(error.status_code, InvalidRequest if error.status_code < 500 else BackendError)
    return envelope(request, kind(), dict(error.headers or {}))


async def _unexpected(request: Request, error: Exception) -> Response:
    # The server logs it with its traceback once this answer is out.
    answer = envelope(request, BackendError(), {})
    security_headers.add(answer.headers, request.url.path)  # answered outside of the middleware that adds them
    return answer


def envelope(request: Request, error: HpsError, headers: dict[str, str]) -> Response:
    """The answer of a request that failed."""
    return Response(contract.failure(_log_id(request), error), error.status, headers, media_type="application/json")


def _log_id(request: Request) -> str:
    """The request's own logId where it is known, else a new one, which it then keeps."""
    if getattr(request.state, "log_id", None) is None:
        request.state.log_id = intake.named(None)
    return str(request.state.log_id)


def _cause(error: HpsError) -> str:
    """Only the type: an exception's text may hold what was sent."""
    return f" ({type(error.__cause__).__name__})" if error.__cause__ is not None else ""
