"""Every request ends in exactly one FINAL response, whatever its handler, its client and its neighbours do."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hps import contract
from hps.context import RequestContext
from hps.errors import InvalidInput, Unavailable
from hps.triton.serving import RequestServer
from tests.unit.triton import fake_pb_utils as fake
from tests.unit.triton.fake_pb_utils import PbUtils, Request, Sender, json_request

WAIT_S = 5.0


class Scripted:
    """Does what the body says: `{"do": "answer" | "fail" | "raise" | "hang" | "cling", "sleep": s}`."""

    def __init__(self) -> None:
        self.contexts: list[RequestContext] = []
        self.events: list[str] = []
        self.let_go = threading.Event()
        self.probe_error: Exception | None = None

    async def start(self) -> None:
        self.events.append("start")

    async def handle(self, body: bytes, context: RequestContext) -> bytes:
        self.contexts.append(context)
        request = json.loads(body)
        await asyncio.sleep(request.get("sleep", 0))
        match request.get("do", "answer"):
            case "fail":
                raise InvalidInput("Input file is invalid: asked to")
            case "raise":
                raise RuntimeError(request["text"])
            case "hang":
                try:
                    await asyncio.sleep(3600)
                finally:
                    self.events.append("cancelled")
            case "cling":
                try:
                    await asyncio.sleep(3600)
                finally:
                    await asyncio.to_thread(self.let_go.wait)
        return contract.success(request.get("logId", context.id), {"n": request.get("n")})

    async def probe(self) -> None:
        if self.probe_error:
            raise self.probe_error

    async def close(self) -> None:
        self.events.append("close")


@contextmanager
def serving(
    handler: Any = None, *, max_requests: int = 10, timeout_s: float = WAIT_S, drain_timeout_s: float = WAIT_S
) -> Iterator[RequestServer]:
    server = RequestServer(
        PbUtils(),
        handler or Scripted(),
        max_requests=max_requests,
        timeout_s=timeout_s,
        drain_timeout_s=drain_timeout_s,
    )
    try:
        yield server
    finally:
        server.close()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "took too long"
        time.sleep(0.001)


def answered(*senders: Sender) -> None:
    wait_for(lambda: all(sender.sent for sender in senders))


def test_a_request_is_answered_with_the_handlers_envelope() -> None:
    request = json_request({"n": 1}, request_id="mine")
    with serving() as server:
        server.submit([request])
        answered(request.sender)
    assert request.sender.envelope() == {"logId": "mine", "result": {"n": 1}, "errorCode": 0, "errorMsg": "Success"}


def test_a_bad_request_between_good_ones_fails_alone() -> None:
    requests = [json_request({"n": 1}), json_request({"do": "fail"}), json_request({"n": 3})]
    with serving() as server:
        server.submit(requests)
        answered(*(request.sender for request in requests))
    assert [request.sender.envelope()["errorCode"] for request in requests] == [0, 422, 0]


def test_a_fast_request_does_not_wait_for_a_slow_one() -> None:
    slow, fast = json_request({"do": "hang"}), json_request({"n": 2})
    with serving(drain_timeout_s=0.01) as server:
        server.submit([slow, fast])
        answered(fast.sender)
        assert not slow.sender.sent


def test_an_expected_failure_carries_the_body_s_log_id() -> None:
    request = json_request({"do": "fail", "logId": "the body's"}, request_id="mine")
    with serving() as server:
        server.submit([request])
        answered(request.sender)
    assert request.sender.envelope() == {
        "logId": "the body's",
        "errorCode": 422,
        "errorMsg": "Input file is invalid: asked to",
    }


def test_an_unexpected_exception_is_a_500_envelope_and_its_text_stays_out_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request = json_request({"do": "raise", "text": "text of a document"})
    with serving() as server:
        server.submit([request])
        answered(request.sender)
    envelope = request.sender.envelope()
    assert (envelope["errorCode"], envelope["errorMsg"]) == (500, "Internal server error")
    assert "RuntimeError" in caplog.text
    assert "in handle" in caplog.text
    assert "text of a document" not in caplog.text


def test_a_body_that_is_not_json_still_gets_its_envelope() -> None:
    request = json_request(b"\xff{", request_id="mine")
    with serving() as server:
        server.submit([request])
        answered(request.sender)
    assert request.sender.envelope()["logId"] == "mine"


def test_the_handler_gets_the_time_left_of_the_parameter() -> None:
    handler = Scripted()
    request = json_request({}, parameters={contract.TIMEOUT_PARAMETER: 2_000_000})
    with serving(handler, timeout_s=600) as server:
        server.submit([request])
        answered(request.sender)
    assert handler.contexts[0].deadline == pytest.approx(time.monotonic() + 2, abs=1)


def test_a_request_past_its_deadline_is_cancelled_and_gets_504() -> None:
    handler = Scripted()
    request = json_request({"do": "hang"}, parameters={contract.TIMEOUT_PARAMETER: 10_000})
    with serving(handler) as server:
        server.submit([request])
        answered(request.sender)
        wait_for(lambda: "cancelled" in handler.events)
    assert request.sender.envelope()["errorCode"] == 504


def test_a_request_that_comes_too_late_is_not_begun() -> None:
    handler = Scripted()
    request = json_request({}, parameters={contract.TIMEOUT_PARAMETER: 0})
    with serving(handler) as server:
        server.submit([request])
        answered(request.sender)
    assert request.sender.envelope()["errorCode"] == 504
    assert not handler.contexts


@pytest.mark.parametrize("value", ["soon", True, 1.5])
def test_a_timeout_of_the_wrong_kind_is_refused(value: object) -> None:
    request = json_request({}, parameters={contract.TIMEOUT_PARAMETER: value})
    with serving() as server:
        server.submit([request])
        answered(request.sender)
    assert request.sender.envelope()["errorCode"] == 422


def test_a_client_that_leaves_cancels_its_handler_only() -> None:
    handler = Scripted()
    leaving, staying = json_request({"do": "hang"}), json_request({"sleep": 0.15})
    with serving(handler) as server:
        server.submit([leaving, staying])
        wait_for(lambda: len(handler.contexts) == 2)
        leaving.sender.client_left = True
        answered(leaving.sender, staying.sender)
    error = leaving.sender.response().error()
    assert error is not None
    assert error.code() == fake.TritonError.CANCELLED
    assert handler.events.count("cancelled") == 1
    assert staying.sender.envelope()["errorCode"] == 0


def test_requests_beyond_the_limit_are_refused_until_a_place_is_free() -> None:
    first, second, third = json_request({"do": "hang"}), json_request({}), json_request({"n": 3})
    with serving(max_requests=1) as server:
        server.submit([first, second])
        answered(second.sender)
        assert second.sender.envelope()["errorCode"] == 503
        first.sender.client_left = True
        wait_for(lambda: server.in_work == 0)
        server.submit([third])
        answered(third.sender)
    assert third.sender.envelope()["result"] == {"n": 3}


def test_a_handler_that_clings_keeps_its_place_but_not_its_client() -> None:
    handler = Scripted()
    clinging = json_request({"do": "cling"}, parameters={contract.TIMEOUT_PARAMETER: 20_000})
    with serving(handler, max_requests=1) as server:
        server.submit([clinging])
        answered(clinging.sender)
        assert clinging.sender.envelope()["errorCode"] == 504
        assert server.in_work == 1
        handler.let_go.set()
        wait_for(lambda: server.in_work == 0)
    clinging.sender.response()


def test_a_probe_needs_no_place_and_tells_what_is_broken() -> None:
    handler = Scripted()
    parameters = {contract.PROBE_PARAMETER: True}
    busy = json_request({"do": "hang"})
    well, broken = json_request(b"", parameters=parameters), json_request(b"", parameters=parameters)
    with serving(handler, max_requests=1, drain_timeout_s=0.01) as server:
        server.submit([busy, well])
        answered(well.sender)
        handler.probe_error = Unavailable("Layout detection is not available")
        server.submit([broken])
        answered(broken.sender)
    assert well.sender.envelope()["errorCode"] == 0
    assert (broken.sender.envelope()["errorCode"], broken.sender.envelope()["errorMsg"]) == (
        503,
        "Layout detection is not available",
    )


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (1,), (0, 1)])
def test_another_shape_than_one_by_one_is_a_triton_error(shape: tuple[int, ...]) -> None:
    good, bad = json_request({}), Request({"input": np.full(shape, b"{}", dtype=np.object_)})
    with serving() as server:
        server.submit([bad, good])
        answered(bad.sender, good.sender)
    error = bad.sender.response().error()
    assert error is not None
    assert error.code() == fake.TritonError.INVALID_ARG
    assert good.sender.envelope()["errorCode"] == 0


def test_close_waits_for_the_requests_in_work() -> None:
    handler = Scripted()
    request = json_request({"sleep": 0.1, "n": 1})
    with serving(handler) as server:
        server.submit([request])
    assert request.sender.envelope()["result"] == {"n": 1}
    assert handler.events == ["start", "close"]


def test_close_ends_with_503_what_does_not_end_in_time() -> None:
    request = json_request({"do": "hang"})
    with serving(drain_timeout_s=0.05) as server:
        server.submit([request])
    assert request.sender.envelope()["errorCode"] == 503


def test_a_handler_that_cannot_start_fails_the_model() -> None:
    class Broken(Scripted):
        async def start(self) -> None:
            raise RuntimeError("no weights")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="no weights"), serving(Broken()):
        pass
    assert threading.active_count() == before


def test_an_answer_that_cannot_be_made_is_a_triton_error() -> None:
    class NoMemory(PbUtils):
        @staticmethod
        def Tensor(name: str, values: Any) -> Any:
            raise RuntimeError("Failed to increase the shared memory pool size")

    request = json_request({})
    server = RequestServer(NoMemory(), Scripted(), max_requests=1, timeout_s=WAIT_S, drain_timeout_s=WAIT_S)
    server.submit([request])
    server.close()
    assert request.sender.response().has_error()


def test_a_sender_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Sender):
        def send(self, response: Any, flags: int = 0) -> None:
            raise RuntimeError("gone")

        def is_cancelled(self) -> bool:
            raise RuntimeError("gone")

    broken, good = json_request({"sleep": 0.1}), json_request({"sleep": 0.15})
    broken.sender = Broken()
    with caplog.at_level(logging.ERROR), serving() as server:
        server.submit([broken, good])
        answered(good.sender)
    assert good.sender.envelope()["errorCode"] == 0
    assert "could not be sent" in caplog.text


BODIES = st.fixed_dictionaries(
    {
        "do": st.sampled_from(["answer", "fail", "raise", "hang", "not json"]),
        "sleep": st.sampled_from([0, 0.001, 0.02]),
        "timeout_us": st.sampled_from([0, 1000, 20_000, 60_000]),
        "leaves": st.booleans(),
        "probe": st.booleans(),
    }
)


@settings(max_examples=25, deadline=None)
@given(st.lists(BODIES, max_size=12), st.integers(1, 4), st.booleans())
def test_whatever_comes_each_request_is_answered_exactly_once(
    bodies: list[dict[str, Any]], limit: int, close_early: bool
) -> None:
    requests = []
    for body in bodies:
        parameters = {contract.TIMEOUT_PARAMETER: body["timeout_us"], contract.PROBE_PARAMETER: body["probe"]}
        request = json_request(b"{" if body["do"] == "not json" else body, parameters=parameters)
        request.sender.client_left = body["leaves"]
        requests.append(request)
    with serving(max_requests=limit, drain_timeout_s=0.02) as server:
        for request in requests:
            server.submit([request])
        if not close_early:
            answered(*(request.sender for request in requests))
    for request in requests:
        request.sender.response()
    assert server.in_work == 0
