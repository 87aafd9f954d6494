import asyncio
import json
from collections.abc import Awaitable, Callable

import httpx
import pytest

from hps.context import RequestContext
from hps.errors import BackendError, DeadlineExceeded, Unavailable
from hps.vlm.client import VlmAnswer, VlmClient

Reply = Callable[[httpx.Request], Awaitable[httpx.Response]]


def chat(text: str | None, reason: str = "stop") -> httpx.Response:
    choice = {"message": {"content": text}, "finish_reason": reason}
    return httpx.Response(200, json={"choices": [choice], "usage": {"completion_tokens": 7}})


def client(reply: Reply, **changes: float) -> VlmClient:
    options = {"max_concurrency": 4, "timeout_s": 5.0, "retries": 2} | changes
    return VlmClient("http://vlm", transport=httpx.MockTransport(reply), **options)  # type: ignore[arg-type]


def context(timeout_s: float = 5.0, request_id: str = "r") -> RequestContext:
    return RequestContext.within(request_id, timeout_s)


def replies(*answers: httpx.Response | Exception) -> tuple[Reply, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    async def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        answer = answers[min(len(seen), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return reply, seen


async def test_the_body_goes_out_as_it_came_and_the_text_comes_back() -> None:
    reply, seen = replies(chat("Hello"))
    async with client(reply) as vlm:
        assert await vlm.complete(b'{"model": "m"}', context()) == VlmAnswer("Hello", "stop", 7)
    assert seen[0].url.path == "/v1/chat/completions"
    assert json.loads(seen[0].content) == {"model": "m"}


async def test_no_text_is_an_empty_text() -> None:
    reply, _ = replies(chat(None))
    async with client(reply) as vlm:
        assert (await vlm.complete(b"{}", context())).text == ""


async def test_text_that_utf8_cannot_carry_is_made_to() -> None:
    half_a_pair = json.dumps({"choices": [{"message": {"content": "a\ud800b 文"}}]}).encode()
    reply, _ = replies(httpx.Response(200, content=half_a_pair))
    async with client(reply) as vlm:
        assert (await vlm.complete(b"{}", context())).text == "a?b 文"


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadError("reset"),
        httpx.RemoteProtocolError("closed"),
        httpx.Response(500),
        httpx.Response(503),
        httpx.Response(429),
        httpx.Response(200, content=b"garbage"),
        httpx.Response(200, json={"choices": []}),
        httpx.Response(200, json=[1]),
    ],
    ids=str,
)
async def test_a_transient_failure_is_tried_again(failure: httpx.Response | Exception) -> None:
    reply, seen = replies(failure, chat("second"))
    async with client(reply) as vlm:
        assert (await vlm.complete(b"{}", context())).text == "second"
    assert len(seen) == 2


async def test_a_server_that_stays_away_is_unavailable() -> None:
    reply, seen = replies(httpx.ConnectError("refused"))
    async with client(reply) as vlm:
        with pytest.raises(Unavailable):
            await vlm.complete(b"{}", context())
    assert len(seen) == 3


async def test_a_refusal_is_final() -> None:
    reply, seen = replies(httpx.Response(400, json={"error": {"message": "secret text"}}))
    async with client(reply) as vlm:
        with pytest.raises(BackendError) as caught:
            await vlm.complete(b"{}", context())
    assert len(seen) == 1
    assert "secret" not in caught.value.message


async def test_the_deadline_ends_a_silent_server() -> None:
    async def silent(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with client(silent) as vlm:
        with pytest.raises(DeadlineExceeded):
            await vlm.complete(b"{}", context(0.05))
    assert vlm.limiter.held == 0


async def test_no_more_than_the_limit_is_in_flight_and_requests_take_turns() -> None:
    running, most, order = 0, 0, []

    async def slow(request: httpx.Request) -> httpx.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        order.append(json.loads(request.content)["n"])
        await asyncio.sleep(0)
        running -= 1
        return chat("x")

    async with client(slow, max_concurrency=2) as vlm:
        many = [vlm.complete(b'{"n": "many"}', context(request_id="many"), page) for page in range(10)]
        await asyncio.gather(*many, vlm.complete(b'{"n": "one"}', context(request_id="one")))
    assert most == 2
    assert order.index("one") <= 4


async def test_cancelling_the_caller_gives_the_slot_back() -> None:
    started = asyncio.Event()

    async def silent(request: httpx.Request) -> httpx.Response:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with client(silent) as vlm:
        task = asyncio.create_task(vlm.complete(b"{}", context()))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert vlm.limiter.held == 0
