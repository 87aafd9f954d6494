"""The cache by content, over a real Redis: what hits, what must not, and a Redis that is away, slow, full or wrong."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway import cache
from gateway.cache import AnswerCache, CacheUnavailable
from hps import settings as hps_settings
from hps.contract import LayoutParsingRequest
from tests.contract.gateway_stack import DOCUMENT, Stack, assert_error, eventually, stack
from tests.fakes.redis import RedisServer, redis_server
from tests.fakes.triton import Call


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


@pytest.fixture
def redis(server: RedisServer) -> RedisServer:
    """Running and empty."""
    if server.process is None:
        server.start()
    with server.client as client:
        client.flushall()
    return server


async def numbered(call: Call) -> bytes:
    """An answer that no other is like."""
    log_id = json.loads(call.body).get("logId") or call.id
    numbered.count += 1  # type: ignore[attr-defined]
    result = {"number": numbered.count}  # type: ignore[attr-defined]
    return json.dumps(
        {"logId": log_id, "result": result, "errorCode": 0, "errorMsg": "Success"},
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode()


numbered.count = 0  # type: ignore[attr-defined]


async def asked(gateway: Stack, body: Any = DOCUMENT, path: str = "/layout-parsing") -> tuple[str, Any]:
    """What the header says, and the number of the answer."""
    response = await gateway.post(body, path)
    assert response.status_code == 200, response.text
    await eventually(lambda: gateway.parts.cache is None or not gateway.parts.cache._writes)
    return response.headers.get(cache.HEADER, "none"), response.json()["result"]["number"]


async def test_the_same_bytes_and_options_hit_with_their_own_log_id(redis: RedisServer) -> None:
    async with stack(http=False, cache_url=redis.url) as gateway:
        gateway.triton.answer = numbered
        first = await gateway.post(DOCUMENT | {"logId": "первый \ud800".encode("utf-8", "replace").decode()})
        await eventually(lambda: gateway.parts.cache is not None and not gateway.parts.cache._writes)
        second = await gateway.post(b'{ "fileType":1, "logId":"second",\n "file":"QUJD", "useDocUnwarping": null }')
        third = await gateway.post()
        assert [r.headers[cache.HEADER] for r in (first, second, third)] == ["miss", "hit", "hit"]
        assert second.json() == first.json() | {"logId": "second"}
        assert len(third.json()["logId"]) == 36
        assert second.headers["content-type"] == "application/json"
        assert len(gateway.triton.calls) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"file": "QUJE"},
        {"fileType": 0},
        {"useDocUnwarping": True},
        {"promptLabel": "table"},
        {"layoutThreshold": {"22": 0.5}},
        {"vlmExtraArgs": {"a": 1}},
        {"visualize": False},
        {"temperature": 0.1},
    ],
)
async def test_anything_else_does_not(redis: RedisServer, other: dict[str, Any]) -> None:
    async with stack(http=False, cache_url=redis.url) as gateway:
        gateway.triton.answer = numbered
        _, first = await asked(gateway)
        says, second = await asked(gateway, DOCUMENT | other)
        assert says == "miss"
        assert second != first
        assert await asked(gateway, DOCUMENT | other) == ("hit", second)


def test_every_field_of_a_request_but_two_is_part_of_the_key() -> None:
    assert set(LayoutParsingRequest.model_fields) >= cache.INDIFFERENT
    assert {"file", "logId"} == cache.INDIFFERENT


@pytest.mark.parametrize(
    "setting",
    [
        {"pipeline_name": "PaddleOCR-VL-1.5"},
        {"vlm_model_name": "mine"},
        {"pdf_render_scale": 1.0},
        {"layout_backend": "fixed"},
    ],
)
async def test_another_release_or_configuration_has_answers_of_its_own(
    redis: RedisServer, setting: dict[str, Any]
) -> None:
    async with stack(http=False, cache_url=redis.url) as gateway:
        gateway.triton.answer = numbered
        await asked(gateway)
    async with stack(http=False, cache_url=redis.url, **setting) as gateway:
        gateway.triton.answer = numbered
        assert (await asked(gateway))[0] == "miss"


def test_a_pipeline_config_counts_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "pipeline_config.yaml"

    def release() -> bytes:
        return AnswerCache(hps_settings.load({}, cache_url="redis://h", pipeline_config=file))._release

    file.write_text("a: 1")
    first = release()
    file.write_text("a: 2")
    assert release() != first
    file.unlink()
    with pytest.raises(CacheUnavailable, match="HPS_PIPELINE_CONFIG"):
        release()


def test_a_url_that_is_none() -> None:
    with pytest.raises(CacheUnavailable, match="HPS_CACHE_URL"):
        AnswerCache(hps_settings.load({}, cache_url="http://h"))


async def test_what_is_never_kept(redis: RedisServer) -> None:
    async with stack(http=False, cache_url=redis.url) as gateway:
        gateway.triton.answer = numbered
        for _ in range(2):
            assert (await asked(gateway, {"file": "https://example.com/a.pdf"}))[0] == "bypass"
            assert (await asked(gateway, {"pages": []}, "/restructure-pages"))[0] == "none"

        async def failing(call: Call) -> bytes:
            return b'{"logId":"x","errorCode":422,"errorMsg":"no"}'

        gateway.triton.answer = failing
        for _ in range(2):
            assert (await gateway.post()).status_code == 422
    with redis.client as client:
        assert client.dbsize() == 0


async def test_without_a_cache_there_is_no_header() -> None:
    async with stack(http=False) as gateway:
        assert cache.HEADER not in (await gateway.post()).headers


async def test_entries_expire_and_large_answers_are_not_kept(redis: RedisServer) -> None:
    async with stack(http=False, cache_url=redis.url, cache_ttl=100, cache_max_answer_bytes=200) as gateway:
        gateway.triton.answer = numbered
        await asked(gateway)
        with redis.client as client:
            (key,) = client.keys()
            assert 90 < client.ttl(key) <= 100
            client.flushall()

        async def large(call: Call) -> bytes:
            answer = json.loads(await numbered(call))
            return json.dumps(answer | {"more": "x" * 300}, separators=(",", ":")).encode()

        gateway.triton.answer = large
        assert [(await asked(gateway))[0] for _ in range(2)] == ["miss", "miss"]


async def test_a_hit_takes_no_slot(redis: RedisServer) -> None:
    async with stack(cache_url=redis.url, max_concurrent_inference_requests=1) as gateway:
        gateway.triton.answer = numbered
        await asked(gateway)
        gateway.triton.gate = asyncio.Event()
        held = gateway.send({"file": "QUJE"})
        await gateway.triton.until(lambda triton: triton.in_flight == 1)
        assert (await asyncio.wait_for(gateway.post(), 5)).headers[cache.HEADER] == "hit"
        gateway.triton.gate.set()
        await held


async def test_redis_going_away_costs_the_hit_and_its_return_brings_it_back(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "PAUSE_S", 0.3)
    async with stack(http=False, cache_url=redis.url) as gateway:
        gateway.triton.answer = numbered
        await asked(gateway)
        redis.kill()
        started = time.monotonic()
        assert [(await asked(gateway))[0] for _ in range(20)] == ["miss"] * 20
        assert time.monotonic() - started < 3
        redis.start()
        async with asyncio.timeout(5):
            while (await asked(gateway))[0] != "hit":  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_a_redis_that_hangs_costs_half_a_second_once(redis: RedisServer) -> None:
    async with stack(http=False, cache_url=redis.url) as gateway:
        gateway.triton.answer = numbered
        await asked(gateway)
        assert redis.process is not None
        os.kill(redis.process.pid, signal.SIGSTOP)
        try:
            started = time.monotonic()
            responses = [await gateway.post() for _ in range(10)]
            assert {response.status_code for response in responses} == {200}
            assert time.monotonic() - started < cache.READ_S + 1
        finally:
            os.kill(redis.process.pid, signal.SIGCONT)


async def test_nobody_at_the_address(redis: RedisServer) -> None:
    async with stack(http=False, cache_url="redis://127.0.0.1:9/0") as gateway:
        gateway.triton.answer = numbered
        assert [(await asked(gateway))[0] for _ in range(3)] == ["miss"] * 3


@pytest.mark.parametrize("value", [b"", b"garbage", b',"result":{}}', b"hps:answer:other" + b',"result":{"number":0}}'])
async def test_an_entry_that_is_not_this_keys_answer_is_no_hit(redis: RedisServer, value: bytes) -> None:
    async with stack(http=False, cache_url=redis.url) as gateway:
        gateway.triton.answer = numbered
        _, first = await asked(gateway)
        with redis.client as client:
            (key,) = client.keys()
            client.set(key, value)
        says, second = await asked(gateway)
        assert (says, second != first) == ("miss", True)


async def test_many_at_once_never_get_each_others_answers(redis: RedisServer) -> None:
    """Clients that leave in the middle of a look-up included: their connection to Redis must not serve another."""

    async def echo(call: Call) -> bytes:
        body = json.loads(call.body)
        result = {"number": body["file"]}
        answer = {"logId": body.get("logId") or call.id, "result": result, "errorCode": 0, "errorMsg": "Success"}
        return json.dumps(answer, separators=(",", ":")).encode()

    async with stack(cache_url=redis.url, max_queued_requests=500) as gateway:
        gateway.triton.answer = echo

        async def stays(number: int) -> None:
            file = f"QUJ{number % 10}"
            response = await gateway.post({"file": file, "fileType": 1})
            assert response.json()["result"]["number"] == file

        async def leaves(number: int) -> None:
            body = json.dumps({"file": f"QUJ{number % 10}", "fileType": 1}).encode()
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            head = f"POST /layout-parsing HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await asyncio.sleep(0.001 * (number % 13))
            writer.close()
            await writer.wait_closed()

        for _ in range(3):
            await asyncio.gather(*((leaves if number % 5 == 0 else stays)(number) for number in range(100)))


async def test_a_bad_request_is_refused_before_the_cache_is_asked(redis: RedisServer) -> None:
    async with stack(http=False, cache_url=redis.url) as gateway:
        assert_error(await gateway.post({"logId": "bad"}), 422, log_id="bad")
