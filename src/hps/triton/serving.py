"""Hosts a handler in a Triton model process: one asyncio loop that holds many requests and answers each on its own.

`execute()` hands every request's response sender to the loop and returns; the model is not decoupled. So no request
waits for another, and one process keeps hundreds in flight. What Triton needs for that, and what this module holds to:
each request ends in exactly one response with the FINAL flag, whatever happens, or its client would hang for ever.
"""

import asyncio
import gc
import json
import logging
import threading
import uuid
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from hps import contract
from hps.context import RequestContext
from hps.errors import (
    BackendError,
    Cancelled,
    DeadlineExceeded,
    HpsError,
    InvalidRequest,
    Overloaded,
    ServerError,
    Unavailable,
)
from hps.metrics import RequestMetrics
from hps.settings import Settings
from hps.triton.reply import Reply
from hps.triton.stack import stack_of

log = logging.getLogger(__name__)

# A waiting BLS call blocks a thread of the loop's default executor; asyncio's own default (cores + 4) would make pages
# queue there instead of meeting in the detector's batches.
EXECUTOR_THREADS = 128
CANCEL_POLL_S = 0.05
HANDLER_CLOSE_S = 5.0


class Handler(Protocol):
    """What a public model does with a request. All methods run on the server's loop."""

    async def start(self) -> None:
        """Opens what it needs. An exception here makes the model fail to load."""

    async def handle(self, body: bytes, context: RequestContext) -> bytes:
        """The envelope of an answer to a body in UTF-8 JSON. Raises HpsError for every expected failure."""

    async def probe(self) -> None:
        """Touches every stage but the VLM. Raises HpsError when one does not work."""

    async def close(self) -> None:
        """Closes what `start` opened; no request is in work any more."""


class MalformedTensor(Exception):
    """The input is not one (1, 1) element of bytes; such a client knows nothing of envelopes."""


@dataclass(eq=False)
class _Job:
    """A request in work. `stop` is resolved with the reason when it must end before its handler does."""

    reply: Reply
    body: bytes
    context: RequestContext
    probe: bool
    stop: asyncio.Future[HpsError] = field(init=False)


class RequestServer:
    """Serves one model process. `pb_utils` is the module that Triton gives to models."""

    def __init__(
        self,
        pb_utils: Any,
        handler: Handler,
        *,
        max_requests: int,
        timeout_s: float,
        drain_timeout_s: float,
        metrics: RequestMetrics | None = None,
    ) -> None:
        """Starts loop and handler; an exception of `handler.start()` goes to the caller.

        max_requests: requests in work at once; those beyond get the 503 envelope. Probes take no part.
        timeout_s: time of a request that brings no deadline of its own.
        drain_timeout_s: time that `close` gives the requests in work.
        """
        self._pb_utils = pb_utils
        self._handler = handler
        self._max_requests = max_requests
        self._timeout_s = timeout_s
        self._drain_timeout_s = drain_timeout_s
        self._metrics = metrics or RequestMetrics("")
        self._jobs: set[_Job] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots_taken = 0
        self._closed = False
        self._executor = ThreadPoolExecutor(EXECUTOR_THREADS, thread_name_prefix="serving")
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(self._executor)
        self._thread = threading.Thread(target=self._loop.run_forever, name="serving-loop", daemon=True)
        self._thread.start()
        try:
            self._call(self._start())
        except BaseException:
            self._stop_loop()
            raise
        gc.freeze()  # a full collection need not walk through modules that stay: tens of milliseconds each time

    @classmethod
    def of(cls, pb_utils: Any, handler: Handler, settings: Settings, model: str = "") -> Self:
        """The server of a public model, with the limits of the settings. model: its name in metrics."""
        return cls(
            pb_utils,
            handler,
            max_requests=settings.max_pipeline_requests,
            timeout_s=settings.inference_timeout,
            drain_timeout_s=settings.drain_timeout,
            metrics=RequestMetrics(model),
        )

    @property
    def in_work(self) -> int:
        """Requests whose handler has not ended, probes left out."""
        return self._slots_taken

    def submit(self, requests: Iterable[Any]) -> None:
        """Takes over the requests of an `execute()` call and returns at once (None is what Triton wants to see)."""
        for request in requests:
            self._take(request)
        # The caller drops the requests now, and with them their inputs in shared memory; senders are enough to answer.

    def close(self) -> None:
        """Lets the requests in work end within the drain time, ends the others with 503, closes the handler."""
        if self._closed:
            return
        self._closed = True
        try:
            self._call(self._shut())
        finally:
            self._stop_loop()

    # --- on Triton's thread ---

    def _take(self, request: Any) -> None:
        reply = Reply(self._pb_utils, request.get_response_sender())
        try:
            body = self._body(request)
            job = self._job(request, reply, body)
        except MalformedTensor as error:
            reply.triton_error(str(error), "INVALID_ARG")
            return
        except HpsError as error:  # a parameter of the wrong kind
            reply.envelope(contract.failure(contract.log_id_of(body) or _request_id(request), error))
            return
        except Exception as error:
            log.error("request could not be read: %s", stack_of(error))
            reply.triton_error("The request could not be read", "INTERNAL")
            return
        if self._closed:
            reply.envelope(contract.failure(job.context.id, Unavailable("The service is stopping")))
            return
        self._loop.call_soon_threadsafe(self._admit, job)

    def _body(self, request: Any) -> bytes:
        tensor = self._pb_utils.get_input_tensor_by_name(request, contract.INPUT_TENSOR)
        if tensor is None:
            raise MalformedTensor(f"input tensor {contract.INPUT_TENSOR!r} is missing")
        elements = tensor.as_numpy()
        if elements.shape != (1, 1):
            raise MalformedTensor(f"input tensor must have the shape [1, 1]; got: {list(elements.shape)}")
        element = elements[0, 0]
        return element if isinstance(element, bytes) else bytes(element)

    def _job(self, request: Any, reply: Reply, body: bytes) -> _Job:
        parameters = json.loads(request.parameters() or "{}")
        timeout_us = parameters.get(contract.TIMEOUT_PARAMETER)
        if timeout_us is not None and (not isinstance(timeout_us, int) or isinstance(timeout_us, bool)):
            raise InvalidRequest(f"request parameter {contract.TIMEOUT_PARAMETER!r} must be an integer")
        timeout_s = self._timeout_s if timeout_us is None else timeout_us / 1e6
        context = RequestContext.within(_request_id(request), timeout_s)
        return _Job(reply, body, context, bool(parameters.get(contract.PROBE_PARAMETER)))

    # --- on the loop ---

    def _admit(self, job: _Job) -> None:
        job.stop = self._loop.create_future()
        self._jobs.add(job)
        if job.probe:
            self._spawn(self._serve(job, self._probe(job)))
        elif self._slots_taken >= self._max_requests:
            self._spawn(self._serve(job, _refuse()))
        else:
            self._slots_taken += 1
            self._metrics.in_work(self._slots_taken)
            self._spawn(self._serve_in_slot(job))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_in_slot(self, job: _Job) -> None:
        try:
            await self._serve(job, self._handler.handle(job.body, job.context))
        finally:
            self._slots_taken -= 1
            self._metrics.in_work(self._slots_taken)

    async def _probe(self, job: _Job) -> bytes:
        await self._handler.probe()
        return contract.success(job.context.id, {})

    async def _serve(self, job: _Job, handling: Coroutine[Any, Any, bytes]) -> None:
        """Answers once, when the handler ends or must; returns when the handler has really ended."""
        work = self._loop.create_task(handling)
        try:
            outcome = await self._outcome(job, work)
        finally:
            self._jobs.discard(job)
        self._answer(job, outcome)
        # A handler may take a moment to let go after its cancellation. Its slot waits for that, its client does not.
        work.cancel()
        await asyncio.wait({work})
        if not work.cancelled() and (late := work.exception()) is not None and late is not outcome:
            log.warning("request %s: after its end: %s", job.context.id, stack_of(late))

    async def _outcome(self, job: _Job, work: asyncio.Task[bytes]) -> bytes | BaseException:
        try:
            timeout_s = job.context.remaining_s()
        except DeadlineExceeded as error:
            return error
        ends: set[asyncio.Future[Any]] = {work, job.stop}
        await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if work.done() and not work.cancelled():
            return work.exception() or work.result()
        if job.stop.done():
            return job.stop.result()
        return BackendError() if work.done() else DeadlineExceeded()

    def _answer(self, job: _Job, outcome: bytes | BaseException) -> None:
        if not job.probe:
            self._metrics.answered(_status(outcome))
        if isinstance(outcome, bytes):
            job.reply.envelope(outcome)
            return
        # The body's own id wins. A body that cannot be parsed has none.
        log_id = contract.log_id_of(job.body) or job.context.id
        if isinstance(outcome, Cancelled):
            log.info("request %s: status 499, the client left", log_id)
            job.reply.triton_error(outcome.message, "CANCELLED")
            return
        if not isinstance(outcome, HpsError):
            log.error("request %s: status 500, unexpected: %s", log_id, stack_of(outcome))
            outcome = BackendError()
        elif isinstance(outcome, ServerError):
            cause = f"\ncaused by {stack_of(outcome.__cause__)}" if outcome.__cause__ else ""
            log.warning("request %s: status %d, %s%s", log_id, outcome.status, outcome.message, cause)
        job.reply.envelope(contract.failure(log_id, outcome))

    async def _watch_clients(self) -> None:
        """Only asking each sender tells that a client has left; Triton calls nobody.

        Asking blocks for a round trip to the server, without the GIL: that is for a thread of its own.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="serving-watch") as thread:
            while True:
                await asyncio.sleep(CANCEL_POLL_S)
                if jobs := tuple(self._jobs):
                    for job in await self._loop.run_in_executor(thread, _left_by_their_clients, jobs):
                        if not job.stop.done():
                            job.stop.set_result(Cancelled())

    async def _start(self) -> None:
        await self._handler.start()
        self._watcher = self._loop.create_task(self._watch_clients())
        self._watcher.add_done_callback(_report_end)

    async def _shut(self) -> None:
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._drain_timeout_s)
        for job in tuple(self._jobs):
            if not job.stop.done():
                job.stop.set_result(Unavailable("The service is stopping"))
        if self._tasks:
            # Answers go out at once; handlers that do not let go of their work end with the process.
            await asyncio.wait(set(self._tasks), timeout=1)
        self._watcher.cancel()
        try:
            async with asyncio.timeout(HANDLER_CLOSE_S):
                await self._handler.close()
        except Exception as error:  # the process ends anyway, and Triton waits for it
            log.error("the handler did not close: %s", stack_of(error))

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._loop.close()


def _status(outcome: bytes | BaseException) -> int:
    if isinstance(outcome, bytes):
        return 200
    return outcome.status if isinstance(outcome, HpsError) else BackendError.status


async def _refuse() -> bytes:
    raise Overloaded


def _request_id(request: Any) -> str:
    return request.request_id() or str(uuid.uuid4())


def _left_by_their_clients(jobs: tuple[_Job, ...]) -> list[_Job]:
    return [job for job in jobs if job.reply.client_left()]


def _report_end(watcher: asyncio.Task[None]) -> None:
    if not watcher.cancelled() and (error := watcher.exception()) is not None:
        log.error("clients that leave are no longer noticed: %s", stack_of(error))
