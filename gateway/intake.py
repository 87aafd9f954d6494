"""Reading and checking a request: bytes in, bytes and id out; the body is parsed once and never written again."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from gateway.body_memory import Account
from hps import contract
from hps.errors import BodyTooSlow, Cancelled, HpsError, InvalidRequest, PayloadTooLarge

# A request that was refused unread is read after all for its logId if the body is this small and here this soon.
REFUSED_BODY_LIMIT = 64 * 1024
REFUSED_BODY_WAIT_S = 0.05

# Beyond its first seconds a body must have come at this pace, in bytes a second, on the average.
SLOWEST_BODY = 32 * 1024


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """max_bytes: of one body. timeout_s: for a body of no size; SLOWEST_BODY says how much more a large one gets."""

    max_bytes: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Intake:
    """A valid request: its logId (the body's, else a UUID4) and its body as it came.

    cache_key: where its answer is kept; None: nowhere.
    """

    log_id: str
    body: bytes
    cache_key: str | None = None


async def receive(
    request: Request,
    schema: type[contract.R],
    limits: BodyLimits,
    account: Account,
    cache_key: Callable[[Any], Awaitable[str | None]] | None = None,
) -> Intake:
    """Reads and validates. The body's bytes are booked on `account`.

    cache_key: makes the key of a valid request, from what was parsed, for that is the only time it is.

    Raises PayloadTooLarge, BodyTooSlow, Overloaded (no memory for the body), MalformedJson, InvalidRequest, or
    Cancelled when the client leaves meanwhile. The id of the request, valid or not, is at `request.state.log_id`
    afterwards.
    """
    if (announced := _announced(request)) > limits.max_bytes:
        raise _too_large(limits.max_bytes)
    account.check(announced)
    body = await read_body(request, limits, account)
    try:
        parsed = _parsed(request, schema, body)
    except HpsError:
        request.state.log_id = named(contract.log_id_of(body))
        raise
    request.state.log_id = named(parsed.logId)
    key = None if cache_key is None else await cache_key(parsed)
    return Intake(request.state.log_id, body, key)


async def read_body(request: Request, limits: BodyLimits, account: Account | None = None) -> bytes:
    """The whole body. Raises PayloadTooLarge, BodyTooSlow or Overloaded as soon as it is known, Cancelled at a
    disconnect."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    chunks: list[bytes] = []
    size = 0
    more = True
    timer: asyncio.TimerHandle

    def look_at_the_clock() -> None:
        """One timer a body: a new one for each chunk would cost more than the chunk."""
        nonlocal timer
        due = started + limits.timeout_s + size / SLOWEST_BODY
        if due > loop.time():
            timer = loop.call_at(due, look_at_the_clock)
        else:
            patience.reschedule(loop.time())

    try:
        async with asyncio.timeout(None) as patience:
            look_at_the_clock()
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Cancelled
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > limits.max_bytes:
                    raise _too_large(limits.max_bytes)
                if account is not None:
                    account.take(len(chunk))
                chunks.append(chunk)
                more = message.get("more_body", False)
    except TimeoutError:
        took_s = loop.time() - started
        raise BodyTooSlow(f"The request body did not come in time: {size} bytes in {took_s:.0f} s") from None
    finally:
        timer.cancel()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def identify_refused(request: Request) -> None:
    """Sets `request.state.log_id` of a request that was refused unread, if its body is small and comes at once."""
    if not 0 < _announced(request) <= REFUSED_BODY_LIMIT:
        return
    with suppress(HpsError):  # then the answer carries an id of our own
        body = await read_body(request, BodyLimits(REFUSED_BODY_LIMIT, REFUSED_BODY_WAIT_S))
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
