"""One block on its way to servers that answer, fail, vanish and come back. All of them are real servers on loopback."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hps.context import RequestContext
from hps.errors import BackendError, DeadlineExceeded, Unavailable
from hps.vlm.client import VlmAnswer, VlmClient, VlmOptions
from hps.vlm.replicas import State
from hps.vlm.requests import BlockRequest
from tests.fakes.server import listen
from tests.fakes.vlm import FakeVlm

LOOP = "and so it goes on "
DEFAULT = (112_896, 1_003_520)


def block(
    *,
    is_long: bool = False,
    is_greedy: bool = True,
    max_tokens: int = 4096,
    budget: tuple[int, int] = DEFAULT,
    n: int = 0,
) -> BlockRequest:
    head = json.dumps({"model": "m", "n": n})[:-1].encode()
    return BlockRequest(head, "max_completion_tokens", max_tokens, is_greedy, is_long, 50, budget)


def client(url: str, **options: Any) -> VlmClient:
    return VlmClient(VlmOptions(url, "m", **({"timeout_s": 5.0, "retries": 2, "outage_s": 5.0} | options)))


def context(timeout_s: float = 10.0, request_id: str = "r") -> RequestContext:
    return RequestContext.within(request_id, timeout_s)


def recorded(vlm: FakeVlm) -> list[dict[str, Any]]:
    """The requests that it gets from now on."""
    seen: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> str:
        seen.append(body)
        return vlm.text

    vlm.answer = answer
    return seen


@asynccontextmanager
async def raw_server(reply: Callable[[bytes], bytes]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answers each chat request with these bytes and closes its connection; everything else is well."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.read(65536)
        if request.startswith(b"POST"):
            seen.append(request)
            writer.write(reply(request))
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, sock=listen("127.0.0.1"))
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


async def until(condition: Callable[[], bool], timeout_s: float = 15) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 -- many things that nobody announces
            await asyncio.sleep(0.005)


# --- a server that answers ---


async def test_the_body_goes_out_and_the_text_comes_back() -> None:
    async with FakeVlm(text="Hello all") as vlm, client(vlm.url) as reader:
        seen = recorded(vlm)
        assert await reader.read(block(), context()) == VlmAnswer("Hello all", 2)
    assert seen[0]["mm_processor_kwargs"] == {"min_pixels": 112_896, "max_pixels": 1_003_520}


async def test_a_path_and_a_key_are_used() -> None:
    answer = b'{"choices":[{"message":{"content":null}}]}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
    async with raw_server(lambda _: head + answer) as (url, seen), client(f"{url}/below", api_key="sesame") as reader:
        assert (await reader.read(block(), context())).text == ""
    assert seen[0].startswith(b"POST /below/v1/chat/completions HTTP/1.1\r\n")
    assert b"Bearer sesame" in seen[0]


async def test_text_that_utf8_cannot_carry_is_made_to() -> None:
    answer = b'{"choices":[{"message":{"content":"a\\ud800b"}}]}'
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer)
    async with raw_server(lambda _: head + answer) as (url, _), client(url) as reader:
        assert (await reader.read(block(), context())).text == "a?b"


async def test_a_name_is_resolved_and_sent_as_host() -> None:
    answer = b'{"choices":[{"message":{"content":"x"}}]}'
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer)
    async with raw_server(lambda _: head + answer) as (url, seen):
        port = url.rpartition(":")[2]
        async with client(f"http://localhost:{port}") as reader:
            assert (await reader.read(block(), context())).text == "x"
            assert [replica.address.host for replica in reader.replicas] == ["127.0.0.1"]
    assert f"Host: localhost:{port}".encode() in seen[-1]


# --- a server that fails ---


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_a_transient_status_is_tried_again(status: int) -> None:
    statuses = iter([status, 200])
    async with FakeVlm(text="second", status_of=lambda _: next(statuses)) as vlm, client(vlm.url) as reader:
        assert (await reader.read(block(), context())).text == "second"
        assert (vlm.counters.started, reader.retries) == (2, 1)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\ngarbage",
        b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"choices":[]}',
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n[1]",
        b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {"choices":[]}\n\n',
    ],
    ids=["nothing", "half a body", "no HTTP", "no JSON", "no choice", "no object", "half a stream"],
)
async def test_a_broken_answer_is_tried_again(first: bytes) -> None:
    good = b'{"choices":[{"message":{"content":"second"}}]}'
    answers = iter([first, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(good) + good])
    async with raw_server(lambda _: next(answers)) as (url, seen), client(url) as reader:
        assert (await reader.read(block(), context())).text == "second"
    assert len(seen) == 2


async def test_a_server_that_goes_on_failing_is_unavailable() -> None:
    async with FakeVlm(status=500) as vlm, client(vlm.url) as reader:
        with pytest.raises(Unavailable):
            await reader.read(block(), context())
        assert vlm.counters.started == 3


async def test_retries_are_no_more_than_a_share_of_the_blocks() -> None:
    async with FakeVlm(status=503) as vlm, client(vlm.url, retries=10, outage_s=30) as reader:
        reader._retry_budget = 2.0
        with pytest.raises(Unavailable):
            await reader.read(block(), context())
        assert vlm.counters.started == 3


async def test_a_refusal_is_final() -> None:
    async with FakeVlm(status=404) as vlm, client(vlm.url) as reader:
        with pytest.raises(BackendError, match="refused"):
            await reader.read(block(), context())
        assert vlm.counters.started == 1


async def test_the_deadline_ends_a_silent_server() -> None:
    async with FakeVlm(gate=asyncio.Event()) as vlm, client(vlm.url) as reader:
        with pytest.raises(DeadlineExceeded):
            await reader.read(block(), context(0.2))
        assert reader.limiter.held == 0
        await vlm.until(lambda counters: counters.disconnected == 1)


async def test_a_block_has_its_own_time() -> None:
    async with FakeVlm(gate=asyncio.Event()) as vlm, client(vlm.url, timeout_s=0.1) as reader:
        with pytest.raises(DeadlineExceeded, match="in time"):
            await reader.read(block(), context())


async def test_cancelling_the_caller_gives_the_slot_back() -> None:
    async with FakeVlm(gate=asyncio.Event()) as vlm, client(vlm.url) as reader:
        reading = asyncio.create_task(reader.read(block(), context()))
        await vlm.until(lambda counters: counters.in_flight == 1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert reader.limiter.held == 0
        assert not any(replica.in_flight for replica in reader.replicas)
        await vlm.until(lambda counters: counters.disconnected == 1)


async def test_no_more_than_the_limit_is_in_flight_and_requests_take_turns() -> None:
    async with FakeVlm(delay_s=0.02) as vlm, client(vlm.url, max_concurrency=2) as reader:
        seen = recorded(vlm)
        many = [reader.read(block(n=0), context(request_id="many"), page) for page in range(10)]
        await asyncio.gather(*many, reader.read(block(n=1), context(request_id="one")))
        assert vlm.counters.peak == 2
    assert [body["n"] for body in seen].index(1) <= 4


# --- pixel budgets ---


def refuses_budgets(body: dict[str, Any]) -> int:
    return 400 if "mm_processor_kwargs" in body else 200


async def test_a_server_that_refuses_budgets_gets_none_where_they_are_the_default() -> None:
    async with FakeVlm(text="x", status_of=refuses_budgets) as vlm, client(vlm.url) as reader:
        assert (await reader.read(block(), context())).text == "x"
        assert (await reader.read(block(), context())).text == "x"
        assert vlm.counters.started == 3
        with pytest.raises(BackendError, match="refused"):
            await reader.read(block(budget=(1, 2)), context())


async def test_what_is_refused_for_another_reason_changes_nothing() -> None:
    async with FakeVlm(status=400) as vlm, client(vlm.url) as reader:
        with pytest.raises(BackendError, match="refused"):
            await reader.read(block(), context())
        vlm.status = 200
        seen = recorded(vlm)
        await reader.read(block(), context())
    assert "mm_processor_kwargs" in seen[0]


async def test_default_budgets_can_be_left_out_from_the_start() -> None:
    async with FakeVlm() as vlm, client(vlm.url, pixel_budget="differing") as reader:
        seen = recorded(vlm)
        await reader.read(block(), context())
        await reader.read(block(budget=(1, 2)), context())
    assert ["mm_processor_kwargs" in body for body in seen] == [False, True]


# --- blocks that do not end ---


@pytest.mark.parametrize("text", ["", "One line.", "Zwei\nZeilen, 文字 und \U0001f600.\n", " leading and trailing "])
async def test_a_watched_block_says_what_an_unwatched_one_says(text: str) -> None:
    async with FakeVlm(text=text) as vlm:
        async with client(vlm.url, guard="off") as reader:
            plain = await reader.read(block(), context())
        async with client(vlm.url, guard="always") as reader:
            seen = recorded(vlm)
            assert await reader.read(block(), context()) == plain
    assert seen[0]["stream"] is True


async def test_a_long_block_is_left_when_it_repeats_itself() -> None:
    async with FakeVlm(text=LOOP * 4000, word_s=0.001) as vlm, client(vlm.url) as reader:
        answer = await reader.read(block(is_long=True), context())
        await vlm.until(lambda counters: counters.disconnected == 1)
    assert answer.stopped == "repetition"
    assert 1000 < len(answer.text) < 3000


async def test_a_short_block_is_asked_for_few_tokens_and_needs_no_stream_to_be_left() -> None:
    async with FakeVlm(text=LOOP * 4000, obeys_limits=True) as vlm, client(vlm.url) as reader:
        seen = recorded(vlm)
        answer = await reader.read(block(), context())
    assert (answer.stopped, answer.completion_tokens) == ("repetition", 1024)
    assert [body["max_completion_tokens"] for body in seen] == [1024]


async def test_a_short_block_that_turns_out_long_is_read_to_its_end() -> None:
    text = " ".join(map(str, range(1500)))
    async with FakeVlm(text=text, obeys_limits=True) as vlm, client(vlm.url) as reader:
        seen = recorded(vlm)
        assert await reader.read(block(), context()) == VlmAnswer(text, 1500)
    assert [(body["max_completion_tokens"], body.get("stream")) for body in seen] == [(1024, None), (4096, True)]


async def test_what_is_drawn_at_random_is_not_drawn_twice() -> None:
    async with FakeVlm(text="x") as vlm, client(vlm.url) as reader:
        seen = recorded(vlm)
        await reader.read(block(is_greedy=False), context())
        await reader.read(block(max_tokens=500), context())
    assert [(body["max_completion_tokens"], body.get("stream")) for body in seen] == [(4096, True), (500, None)]


async def test_a_server_with_a_lower_limit_is_not_asked_again() -> None:
    async with FakeVlm(text="a b c", finish_reason="length") as vlm, client(vlm.url) as reader:
        assert await reader.read(block(), context()) == VlmAnswer("a b c", 3, "tokens")
        assert vlm.counters.started == 1


@pytest.mark.parametrize("guard", ["off", "auto", "always"])
async def test_a_text_that_its_token_limit_cuts_says_so(guard: str) -> None:
    text = " ".join(map(str, range(900)))
    async with FakeVlm(text=text, obeys_limits=True) as vlm, client(vlm.url, guard=guard) as reader:
        answer = await reader.read(block(max_tokens=100), context())
    assert (answer.stopped, answer.completion_tokens) == ("tokens", 100)


async def test_a_watched_block_keeps_what_it_has_when_its_time_is_up() -> None:
    text = " ".join(map(str, range(9000)))
    async with FakeVlm(text=text, word_s=0.01) as vlm, client(vlm.url, block_time_s=0.2) as reader:
        answer = await reader.read(block(is_long=True), context())
        await vlm.until(lambda counters: counters.disconnected == 1)
    assert answer.stopped == "time"
    assert answer.text and text.startswith(answer.text)


# --- several servers ---


@asynccontextmanager
async def consecutive(count: int, **options: Any) -> AsyncIterator[list[FakeVlm]]:
    """Servers on consecutive ports."""
    first = _free_run(count)
    servers = [FakeVlm(port=first + n, model="m", **options) for n in range(count)]
    for server in servers:
        await server.__aenter__()
    try:
        yield servers
    finally:
        for server in servers:
            await server.__aexit__(None, None, None)


def _free_run(count: int) -> int:
    for first in range(20000, 60000, count + 1):
        taken: list[socket.socket] = []
        try:
            for n in range(count):
                taken.append(socket.socket())
                taken[-1].bind(("127.0.0.1", first + n))
            return first
        except OSError:
            continue
        finally:
            for one in taken:
                one.close()
    raise AssertionError("no run of free ports")


async def test_each_block_goes_to_the_least_loaded_server() -> None:
    async with consecutive(3, gate=asyncio.Event()) as servers, client(servers[0].url, replicas=3) as reader:
        reading = [asyncio.create_task(reader.read(block(), context())) for _ in range(9)]
        for server in servers:
            await server.until(lambda counters: counters.in_flight == 3)
        servers[1].gate.set()  # type: ignore[union-attr]
        await asyncio.gather(*reading)
        assert [server.counters.finished for server in servers] == [3, 3, 3]


async def test_auto_finds_the_servers_that_serve_the_model() -> None:
    async with consecutive(4) as servers:
        servers[3].model = "another"
        async with client(servers[0].url, replicas="auto") as reader:
            await asyncio.gather(*(reader.read(block(), context()) for _ in range(6)))
            assert len(list(reader.replicas)) == 3
        assert [server.counters.finished for server in servers] == [2, 2, 2, 0]


async def test_a_server_that_dies_loses_nothing_and_is_used_again_when_it_is_back() -> None:
    async with consecutive(2, delay_s=0.05) as servers, client(servers[0].url, replicas=2) as reader:
        reading = [asyncio.create_task(reader.read(block(), context())) for _ in range(40)]
        await servers[1].until(lambda counters: counters.in_flight > 5)
        await servers[1].__aexit__(None, None, None)
        assert {answer.text for answer in await asyncio.gather(*reading)} == {"text"}
        down = next(replica for replica in reader.replicas if replica.address.port == servers[1].port)
        await asyncio.gather(*(reader.read(block(), context()) for _ in range(4)))
        assert reader.replicas.up == 1
        servers[1].counters.finished = 0
        await servers[1].__aenter__()
        await until(lambda: down.state is State.ON_TRIAL)
        await asyncio.gather(*(reader.read(block(), context()) for _ in range(20)))
        assert servers[1].counters.finished > 0
        assert reader.replicas.up == 2


async def test_the_only_server_may_be_away_for_a_while() -> None:
    vlm = FakeVlm(port=_free_run(1), model="m")
    async with client(vlm.url, outage_s=30) as reader:
        reading = [asyncio.create_task(reader.read(block(), context())) for _ in range(20)]
        await until(lambda: reader.replicas.up == 0 and bool(list(reader.replicas)))
        async with vlm:
            assert {answer.text for answer in await asyncio.gather(*reading)} == {"text"}


async def test_a_long_outage_fails_all_at_once() -> None:
    async with client(f"http://127.0.0.1:{_free_run(1)}", outage_s=0.5) as reader:
        started = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(reader.read(block(), context()) for _ in range(300)), return_exceptions=True)
        assert {type(answer) for answer in answers} == {Unavailable}
        again = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable):
            await reader.read(block(), context())
        assert asyncio.get_running_loop().time() - again < 0.5 < again - started


async def test_a_server_that_answers_nothing_but_errors_is_taken_out() -> None:
    async with consecutive(2) as servers, client(servers[0].url, replicas=2) as reader:
        servers[0].status = 500
        answers = await asyncio.gather(*(reader.read(block(), context()) for _ in range(30)))
        assert {answer.text for answer in answers} == {"text"}
        bad = next(replica for replica in reader.replicas if replica.address.port == servers[0].port)
        assert bad.state in (State.DOWN, State.ON_TRIAL)


async def test_a_server_that_hangs_is_left_and_its_blocks_go_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hps.vlm.watch._SILENCE_S", 0.2)
    monkeypatch.setattr("hps.vlm.watch._LOOK_S", 0.05)
    monkeypatch.setattr("hps.vlm.calls._PROBE_S", 0.1)
    hung = listen("127.0.0.1", _free_run(2))
    port = hung.getsockname()[1]
    async with FakeVlm(port=port + 1, model="m") as vlm:
        async with client(f"http://127.0.0.1:{port}", replicas=2, timeout_s=60) as reader:
            answers = await asyncio.gather(*(reader.read(block(), context(20)) for _ in range(10)))
            assert {answer.text for answer in answers} == {"text"}
        assert vlm.counters.finished == 10
    hung.close()


async def test_fewer_blocks_are_sent_while_a_server_says_that_they_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hps.vlm.watch._LOOK_S", 0.05)
    async with FakeVlm(delay_s=0.05, load=(8, 56)) as vlm, client(vlm.url, max_concurrency=64) as reader:

        async def endless() -> None:
            while True:
                await reader.read(block(), context(60))

        load = [asyncio.create_task(endless()) for _ in range(100)]
        await vlm.until(lambda counters: counters.in_flight == 64)
        await vlm.until(lambda counters: counters.in_flight <= 16)
        vlm.load = (16, 0)
        await vlm.until(lambda counters: counters.in_flight == 64)
        for one in load:
            one.cancel()
        await asyncio.gather(*load, return_exceptions=True)
