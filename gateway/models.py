"""The models as seen from here: calls, the status of their answers, and when each last showed that it works."""

import asyncio
import json
import random
import time
import uuid
from dataclasses import dataclass, field

from gateway.backend import Backend
from hps import contract
from hps.errors import BackendError, Unavailable

NEVER = float("-inf")

# Between two tries, doubled each time, with jitter: who waited for the same restart must not come back together.
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0
# A call that ends sooner was not begun; one that took longer may itself be what took the models away.
BEGUN_S = 0.2
MOST_LOSSES = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's envelope as it came, and the HTTP status that it stands for."""

    status: int
    body: bytes | memoryview


@dataclass(slots=True)
class _Record:
    success_at: float = NEVER
    failure_at: float = NEVER
    success: asyncio.Event = field(default_factory=asyncio.Event)


class Models:
    """Calls through `backend`, remembering each model's last success and last failure.

    outage_s: models that go away are waited for so long, for parsing changes nothing and may be begun again. That is
    what a restart looks like, and most crashes.
    """

    def __init__(self, backend: Backend, outage_s: float = 0.0) -> None:
        self._backend = backend
        self._outage_s = outage_s
        self._records: dict[str, _Record] = {}

    async def infer(self, model: str, body: bytes, *, request_id: str, timeout_s: float) -> Answer:
        """The model's answer, of any status. Raises as Backend.infer does; BackendError for a broken envelope too."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        give_up = None  # set by the first failure
        losses = 0
        pause_s = FIRST_PAUSE_S
        while True:
            begun = clock()
            try:
                answer = await self._call(model, body, request_id, deadline - begun, probe=False)
                if answer.status != Unavailable.status:
                    return answer
                failure: Exception | None = None
            except (BackendError, Unavailable) as error:
                failure = error
            losses += isinstance(failure, BackendError) or clock() - begun > BEGUN_S
            give_up = min(deadline, clock() + self._outage_s) if give_up is None else give_up
            wait_s = pause_s * random.uniform(0.5, 1)
            if losses > MOST_LOSSES or clock() + wait_s >= give_up:
                if failure is None:
                    return answer
                raise failure
            await asyncio.sleep(wait_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def is_answering(self, model: str, within_s: float) -> bool:
        """Whether the model works: it did in the last `within_s` seconds and has not failed since, or it does now.

        Asks the model itself only when nobody else's success says so; one that arrives meanwhile counts too.
        """
        if self._answered(model, within_s):
            return True
        probe = asyncio.create_task(self._probe(model, within_s))
        success = asyncio.create_task(self._record(model).success.wait())
        try:
            await asyncio.wait({probe, success}, return_when=asyncio.FIRST_COMPLETED)
            return success.done() or await probe
        finally:
            for task in (probe, success):
                task.cancel()
            await asyncio.gather(probe, success, return_exceptions=True)

    async def _probe(self, model: str, timeout_s: float) -> bool:
        answer = await self._call(model, b"{}", f"probe-{uuid.uuid4()}", timeout_s, probe=True)
        # The official pipeline knows no probe, and finds fault with the request: it works, too.
        return answer.status in (200, 422)

    async def _call(self, model: str, body: bytes, request_id: str, timeout_s: float, *, probe: bool) -> Answer:
        record = self._record(model)
        try:
            envelope = await self._backend.infer(model, body, request_id=request_id, timeout_s=timeout_s, probe=probe)
            answer = Answer(status_of(envelope), envelope)
        except (BackendError, Unavailable):
            record.failure_at = time.monotonic()
            raise
        if answer.status == 200:
            record.success_at = time.monotonic()
            record.success.set()  # wakes who waits now; cleared for who waits later
            record.success.clear()
        return answer

    def _record(self, model: str) -> _Record:
        return self._records.setdefault(model, _Record())

    def _answered(self, model: str, within_s: float) -> bool:
        record = self._record(model)
        return record.success_at > max(record.failure_at, time.monotonic() - within_s)


def status_of(envelope: bytes | memoryview) -> int:
    """The HTTP status of an envelope: its errorCode, 200 for 0. Raises BackendError when it is none.

    The models keep their errors below ERROR_ENVELOPE_LIMIT, so a larger one is a success and is not parsed.
    """
    if len(envelope) >= contract.ERROR_ENVELOPE_LIMIT:
        return 200
    try:
        code = json.loads(bytes(envelope)).get("errorCode", 0)
    except (ValueError, AttributeError) as error:
        raise BackendError from error
    if code == 0:
        return 200
    if not isinstance(code, int) or not 400 <= code <= 599:
        raise BackendError from ValueError("errorCode is no HTTP error status")
    return code
