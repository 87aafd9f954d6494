"""The client of the VLM server's OpenAI chat API: bounded, fair, retrying in time, cancelled with its caller.

It owns the VLM requests of this process: nothing else talks to that server, retries, or limits how many are in flight.
"""

import asyncio
import json
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from hps.context import RequestContext
from hps.errors import BackendError, DeadlineExceeded, HpsError, Unavailable
from hps.fair import FairLimiter
from hps.vlm_connections import ConnectionStack

log = logging.getLogger(__name__)

# Answers that say "not now" rather than "never": worth another try.
TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
FIRST_BACKOFF_S = 0.2
MAX_BACKOFF_S = 2.0
# Below the 5 s after which uvicorn (vLLM's server too) closes an idle connection: reusing one that is just being
# closed costs a retry.
KEEPALIVE_S = 4.0


@dataclass(frozen=True, slots=True)
class VlmAnswer:
    """finish_reason: "stop", or "length" when the token limit cut the text."""

    text: str
    finish_reason: str
    completion_tokens: int


class _Transient(Exception):
    """One try failed in a way that another may mend; `error` is what the caller gets if none does."""

    def __init__(self, reason: str, error: HpsError) -> None:
        super().__init__(reason)
        self.error = error


class VlmClient:
    """`async with VlmClient(...)`; for one event loop."""

    def __init__(
        self,
        base_url: str,
        *,
        max_concurrency: int,
        timeout_s: float,
        retries: int,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.limiter = FairLimiter(max_concurrency)
        self._timeout_s = timeout_s
        self._retries = retries
        self._url = httpx.URL(f"{base_url}/v1/chat/completions")
        self._headers = httpx.Headers({"Content-Type": "application/json"})
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        # The transport alone: what httpx's client adds (redirects, cookies, authentication flows) is not needed here,
        # and with a dozen blocks a page it is a good part of what a page costs.
        self._transport = transport or ConnectionStack(self._url, idle_s=KEEPALIVE_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.aclose()

    async def complete(self, body: bytes, context: RequestContext, rank: Any = 0) -> VlmAnswer:
        """Sends one chat request (JSON bytes) when its turn has come.

        Turns go round robin over `context.id`, lowest `rank` first within one. Raises Unavailable when the server stays
        away, BackendError when it refuses or answers nonsense, DeadlineExceeded when the time is up.
        """
        async with self.limiter.slot(context.id, rank):
            for tries_left in range(self._retries, -1, -1):
                try:
                    return await self._send(body, context)
                except _Transient as failure:
                    if not tries_left:
                        raise failure.error from failure
                    pause = self._pause(self._retries - tries_left)
                    log.warning("vlm request=%s %s; next try in %.1f s", context.id, failure, pause)
                    await asyncio.sleep(min(pause, context.remaining_s()))
        raise AssertionError("unreachable")

    @staticmethod
    def _pause(attempt: int) -> float:
        """Exponential, with jitter so that blocks that failed together do not return together."""
        ceiling: float = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2**attempt)
        return ceiling * random.uniform(0.5, 1.0)

    async def _send(self, body: bytes, context: RequestContext) -> VlmAnswer:
        limit = min(self._timeout_s, context.remaining_s())
        try:
            async with asyncio.timeout(limit):
                request = httpx.Request("POST", self._url, headers=self._headers, content=body)
                response = await self._transport.handle_async_request(request)
                content = await response.aread()
        except TimeoutError:
            context.remaining_s()  # the request's own deadline, not the block's, if that is what has passed
            raise DeadlineExceeded("The VLM server did not answer in time") from None
        except httpx.TransportError as error:
            raise _Transient(type(error).__name__, Unavailable("VLM server unavailable")) from error
        if response.status_code in TRANSIENT_STATUS:
            raise _Transient(f"status {response.status_code}", Unavailable("VLM server unavailable"))
        if response.status_code != 200:
            log.error("vlm request=%s refused with status %d", context.id, response.status_code)
            raise BackendError("The VLM server refused a block")
        return _answer(content)


def _answer(content: bytes) -> VlmAnswer:
    try:
        reply: Mapping[str, Any] = json.loads(content)
        choice = reply["choices"][0]
        text = choice["message"]["content"]
        tokens = (reply.get("usage") or {}).get("completion_tokens") or 0
        reason = choice.get("finish_reason") or "stop"
        if not (isinstance(text, str) or text is None):
            raise TypeError("content is not text")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        failure = BackendError("The VLM server gave an answer that is not a chat completion")
        raise _Transient("unreadable answer", failure) from error
    # JSON may hold halves of surrogate pairs; no answer of ours could carry them.
    return VlmAnswer((text or "").encode("utf-8", "replace").decode(), str(reason), int(tokens))
