"""Reads blocks with the VLM servers: bounded, fair, on the least loaded server, tried again in time, left when enough.

It owns the VLM requests of this process: nothing else talks to those servers, tries again, or limits how many.
"""

import asyncio
import logging
import random
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self

from hps.context import RequestContext
from hps.errors import BackendError, DeadlineExceeded, HpsError, Unavailable
from hps.fair import FairLimiter
from hps.vlm import chat
from hps.vlm.calls import Calls, Endpoint, Lost, NotConnected, Reply
from hps.vlm.chat import Completion, Transcript, Unreadable
from hps.vlm.guard import LoopWatch, Stop, is_loop
from hps.vlm.replicas import Replica, Replicas
from hps.vlm.requests import BlockRequest
from hps.vlm.watch import Watch

log = logging.getLogger(__name__)

# Answers that say "not now" rather than "never": worth another try.
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_REFUSED: Final = 400
_FIRST_BACKOFF_S: Final = 0.2
_MAX_BACKOFF_S: Final = 2.0
# Second tries because of bad answers: a tenth of the blocks, and so many at once. Beyond that the servers are
# overloaded or broken, and more requests would keep them so.
_RETRY_SHARE: Final = 0.1
_RETRIES_AT_ONCE: Final = 100.0
# So far a short block is read without being watched; one that is longer, and no loop, is read again under watch.
_UNWATCHED_TOKENS: Final = 1024

_UNAVAILABLE: Final = "VLM server unavailable"


@dataclass(frozen=True, slots=True)
class VlmOptions:
    """replicas: servers on consecutive ports of the URL's host, or "auto". max_concurrency: blocks in flight at most.
    timeout_s: for a block. outage_s: for so long may no server be up before blocks fail. guard: which blocks are
    watched while they are read: long ones, all, none. block_time_s: for a watched block, from its first token.
    pixel_budget: "differing" sends a budget only where it is not the default; "auto" does so where it is refused."""

    url: str
    model: str | None = None
    replicas: int | Literal["auto"] = 1
    max_concurrency: int = 200
    timeout_s: float = 600.0
    retries: int = 4
    outage_s: float = 120.0
    guard: Literal["auto", "always", "off"] = "auto"
    block_time_s: float = 240.0
    pixel_budget: Literal["auto", "differing"] = "auto"
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class VlmAnswer:
    """stopped: why the text ends before its model wanted to, if so."""

    text: str
    completion_tokens: int
    stopped: Stop | None = None


class ReadsBlocks(Protocol):
    """What the pipeline needs of a VLM."""

    async def read(self, block: BlockRequest, context: RequestContext, rank: Any = 0) -> VlmAnswer: ...
    async def close(self) -> None: ...


class _Failed(Exception):
    """One try failed in a way that another may mend; `error` is what the caller gets if none does. is_bad_answer:
    the server did answer, so a pause and the retry budget are in place; else it has only gone away."""

    def __init__(self, reason: str, error: HpsError, *, is_bad_answer: bool) -> None:
        super().__init__(reason)
        self.error = error
        self.is_bad_answer = is_bad_answer


class _Refused(Exception):
    """The server will not read this request as it is."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How a block is asked for. is_watched: as a stream that is left when it is enough."""

    max_tokens: int
    is_watched: bool


class VlmClient:
    """`async with VlmClient(...)`; for one event loop. Connects, and looks for servers, with the first block."""

    def __init__(self, options: VlmOptions) -> None:
        self._options = options
        self.limiter = FairLimiter(options.max_concurrency)
        self.replicas = Replicas(options.max_concurrency, options.outage_s, self._resize)
        self.retries = 0
        self._retry_budget = _RETRIES_AT_ONCE
        self._sends_default_budget = options.pixel_budget == "auto"
        self._started: asyncio.Task[tuple[Calls, Watch]] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> Calls:
        """Looks for the servers, a few seconds at most. `read` does it if nobody else has."""
        if self._started is None:
            self._started = asyncio.create_task(self._start())
        # Shielded: who waits for it may be cancelled, and others wait too.
        calls, _ = await asyncio.shield(self._started)
        return calls

    async def _start(self) -> tuple[Calls, Watch]:
        options = self._options
        endpoint = Endpoint.of(options.url)
        calls = Calls(endpoint, options.api_key)
        watch = Watch(endpoint, calls, self.replicas, count=options.replicas, model=options.model)
        await watch.start()
        return calls, watch

    async def close(self) -> None:
        if self._started is not None:
            calls, watch = await self._started
            await watch.close()
            await calls.close()

    def _resize(self) -> None:
        self.limiter.resize(self.replicas.limit)

    # --- one block ---

    async def read(self, block: BlockRequest, context: RequestContext, rank: Any = 0) -> VlmAnswer:
        """The block's text, when its turn has come.

        Turns go round robin over `context.id`, lowest `rank` first within one. Raises Unavailable when the servers stay
        away, BackendError when they refuse or answer nonsense, DeadlineExceeded when the time is up.
        """
        calls = await self.start()
        async with self.limiter.slot(context.id, rank):
            for way in self._ways(block):
                answer = await self._persistently(calls, block, way, context)
                # Cut by the server's own limit, it would be so again.
                if answer.stopped != "tokens" or 0 < answer.completion_tokens < way.max_tokens:
                    break
        return answer

    def _ways(self, block: BlockRequest) -> tuple[_Way, ...]:
        """The next one if the one before ended at its tokens. Only what a model would write again in the same words may
        be begun without being watched."""
        watched, unwatched = _Way(block.max_tokens, is_watched=True), _Way(block.max_tokens, is_watched=False)
        if self._options.guard == "off":
            return (unwatched,)
        is_short = self._options.guard == "auto" and block.is_greedy and not block.is_long
        if not is_short:
            return (watched,)
        if block.max_tokens <= _UNWATCHED_TOKENS:
            return (unwatched,)
        return _Way(_UNWATCHED_TOKENS, is_watched=False), watched

    async def _persistently(self, calls: Calls, block: BlockRequest, way: _Way, context: RequestContext) -> VlmAnswer:
        """Tries until it works, on another server if there is one, as long as tries and time are left."""
        with_budget = self._sends_default_budget or not block.has_default_budget
        avoid: Replica | None = None
        tries = 0
        while True:
            replica = await self.replicas.available(context, avoid)
            body = block.body(way.max_tokens, is_stream=way.is_watched, with_pixel_budget=with_budget)
            try:
                answer = await self._try(calls, replica, body, block, context)
            except NotConnected as error:
                self.replicas.eject(replica, str(error))
            except _Refused:
                if not (with_budget and block.has_default_budget):
                    raise BackendError("The VLM server refused a block") from None
                with_budget = False
            except _Failed as failure:
                if failure.is_bad_answer:
                    self.replicas.failed(replica, str(failure))
                else:
                    self.replicas.lost(replica)
                tries += 1
                await self._before_next(tries, failure, context)
            else:
                if not with_budget and block.has_default_budget and self._sends_default_budget:
                    log.warning("vlm servers refuse pixel budgets: they are sent no more where they are the default")
                    self._sends_default_budget = False
                return answer
            avoid = replica

    async def _before_next(self, tries: int, failure: _Failed, context: RequestContext) -> None:
        """Raises the failure's error when there is to be no next try."""
        if tries > self._options.retries or (failure.is_bad_answer and self._retry_budget < 1):
            raise failure.error from failure
        self.retries += 1
        pause = 0.0
        if failure.is_bad_answer:
            self._retry_budget -= 1
        if failure.is_bad_answer or self.replicas.up < 2:
            ceiling = min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (tries - 1))
            pause = ceiling * random.uniform(0.5, 1.0)  # so that blocks that failed together do not return together
        level = logging.WARNING if failure.is_bad_answer else logging.INFO
        log.log(level, "vlm request=%s %s; next try in %.1f s", context.id, failure, pause)
        await asyncio.sleep(min(pause, context.remaining_s()))

    async def _try(
        self, calls: Calls, replica: Replica, body: bytes, block: BlockRequest, context: RequestContext
    ) -> VlmAnswer:
        started = monotonic()
        limit = min(self._options.timeout_s, context.remaining_s())
        try:
            async with asyncio.timeout(limit) as waiting:
                replica.in_flight.add(waiting)
                try:
                    async with calls.chat(replica.address, body) as reply:
                        answer = await self._received(reply, block, context)
                finally:
                    replica.in_flight.discard(waiting)
                    self.replicas.released()
        except TimeoutError:
            if monotonic() - started < limit:  # ended by `Replicas.abandon`
                raise _Failed("silent server", Unavailable(_UNAVAILABLE), is_bad_answer=False) from None
            context.remaining_s()  # the request's own deadline, not the block's, if that is what has passed
            raise DeadlineExceeded("The VLM server did not answer in time") from None
        except Lost as error:
            raise _Failed(str(error), Unavailable(_UNAVAILABLE), is_bad_answer=False) from error
        except Unreadable as error:
            failure = BackendError("The VLM server gave an answer that is not a chat completion")
            raise _Failed("unreadable answer", failure, is_bad_answer=True) from error
        self.replicas.succeeded(replica, monotonic() - started)
        self._retry_budget = min(_RETRIES_AT_ONCE, self._retry_budget + _RETRY_SHARE)
        return answer

    async def _received(self, reply: Reply, block: BlockRequest, context: RequestContext) -> VlmAnswer:
        if reply.status in _TRANSIENT_STATUS:
            raise _Failed(f"status {reply.status}", Unavailable(_UNAVAILABLE), is_bad_answer=True)
        if reply.status != 200:
            log.error("vlm request=%s refused with status %d", context.id, reply.status)
            if reply.status == _REFUSED:
                raise _Refused
            raise BackendError("The VLM server refused a block")
        if reply.is_stream:
            return await self._watched(reply, block)
        return _answer(chat.completion(await reply.content()), block)

    async def _watched(self, reply: Reply, block: BlockRequest) -> VlmAnswer:
        transcript, watch = Transcript(), LoopWatch(block.loop_chars)
        began: float | None = None
        async for data in reply.chunks():
            transcript.feed(data)
            if watch.sees_loop(transcript.length, lambda: transcript.text):
                return VlmAnswer(transcript.text, transcript.completion_tokens, "repetition")
            if began is None:
                began = monotonic() if transcript.length else None
            elif monotonic() - began > self._options.block_time_s and not transcript.is_finished:
                return VlmAnswer(transcript.text, transcript.completion_tokens, "time")
        return _answer(transcript.completion(), block)


def _answer(completion: Completion, block: BlockRequest) -> VlmAnswer:
    stopped: Stop | None = None
    if completion.finish_reason == "length":
        stopped = "repetition" if is_loop(completion.text, block.loop_chars) else "tokens"
    return VlmAnswer(completion.text, completion.completion_tokens, stopped)
