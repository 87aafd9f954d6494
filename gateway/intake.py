"""Reading and checking a request: bytes in, bytes and id out; the body is parsed once and never written again."""

import asyncio
import uuid
from contextlib import suppress
from dataclasses import dataclass

from starlette.requests import Request

from hps import contract
from hps.errors import Cancelled, HpsError, InvalidRequest, PayloadTooLarge

# A request that was refused unread is read after all for its logId if the body is this small and here this soon.
REFUSED_BODY_LIMIT = 64 * 1024
REFUSED_BODY_WAIT_S = 0.5


@dataclass(frozen=True, slots=True)
class Intake:
    """A valid request: its logId (the body's, else a UUID4) and its body as it came."""

    log_id: str
    body: bytes


async def receive(request: Request, schema: type[contract.R], max_bytes: int) -> Intake:
    """Reads and validates.

    Raises PayloadTooLarge, MalformedJson, InvalidRequest, or Cancelled when the client leaves meanwhile. The id of
    the request, valid or not, is at `request.state.log_id` afterwards.
    """
    body = await read_body(request, max_bytes)
    try:
        log_id = _parsed(request, schema, body).logId
    except HpsError:
        request.state.log_id = named(contract.log_id_of(body))
        raise
    request.state.log_id = named(log_id)
    return Intake(request.state.log_id, body)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. Raises PayloadTooLarge as soon as it is known to be too large, Cancelled at a disconnect."""
    if _announced(request) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Cancelled
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        chunks.append(chunk)
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def identify_refused(request: Request) -> None:
    """Sets `request.state.log_id` of a request that was refused unread, if its body is small and comes at once."""
    if not 0 < _announced(request) <= REFUSED_BODY_LIMIT:
        return
    with suppress(TimeoutError, HpsError):  # then the answer carries an id of our own
        async with asyncio.timeout(REFUSED_BODY_WAIT_S):
            body = await read_body(request, REFUSED_BODY_LIMIT)
            request.state.log_id = named(contract.log_id_of(body))


def named(log_id: str | None) -> str:
    """`log_id`, or a new UUID4 for none; always text that UTF-8 can carry (JSON may hold lone surrogates)."""
    return log_id.encode(errors="replace").decode() if log_id else str(uuid.uuid4())


def _parsed(request: Request, schema: type[contract.R], body: bytes) -> contract.R:
    if not _is_json(request.headers.get("content-type")) and body.strip():
        raise InvalidRequest("body: Input should be a valid dictionary")
    return contract.parse_request(schema, body)


def _is_json(content_type: str | None) -> bool:
    """No Content-Type counts as JSON, as it always has in this API; curl's form default does not."""
    if content_type is None:
        return True
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json"))


def _announced(request: Request) -> int:
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"Request body is larger than {max_bytes} bytes")
