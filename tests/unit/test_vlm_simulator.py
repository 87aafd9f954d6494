"""The stand-in for vLLM on a GPU: its rates are those that were measured, its wire is vLLM's."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable

import cv2
import httpx
import numpy as np
import pytest

from benchmarks.vlm_engine import MEASURED, Arrangement, Engine, Generation, Gpu, Hardware, VirtualRun
from benchmarks.vlm_simulator import MODEL, Simulator
from hps.bench import page_mix
from tests.fakes.server import Server, listen

SIZES = [(block.size[0] * block.size[1], block.tokens) for page in page_mix.pages(300) for block in page.blocks]
FAST = 0.01  # of the H200's times


@pytest.mark.parametrize(("arrangement", "in_flight", "pages_per_s"), MEASURED)
def test_the_model_makes_the_rates_that_were_measured(
    arrangement: Arrangement, in_flight: int, pages_per_s: float
) -> None:
    seconds = VirtualRun(Hardware(), arrangement).seconds(SIZES, in_flight)
    assert 300 / seconds == pytest.approx(pages_per_s, rel=0.09)


def test_a_generation_that_is_given_up_takes_no_more_steps() -> None:
    arrangement = Arrangement(servers=1, max_sequences=1)
    engine = Engine(Hardware(), arrangement, Gpu(Hardware(), arrangement))
    first, second = Generation(10_000, 1000), Generation(10_000, 2)
    engine.submit(first)
    engine.submit(second)
    assert engine.step(0.0) is not None
    assert (engine.running, engine.waiting) == (1, 1)
    engine.give_up(first)
    step = engine.step(1.0)
    assert step is not None and not step.finished
    step = engine.step(2.0)
    assert step is not None and step.finished == (second,)
    assert engine.step(3.0) is None
    assert (engine.running, engine.waiting) == (0, 0)


def body(width: int = 600, height: int = 40, **more: object) -> bytes:
    ok, picture = cv2.imencode(".jpg", np.full((height, width, 3), 200, np.uint8))
    assert ok
    url = "data:image/jpeg;base64," + base64.b64encode(picture.tobytes()).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "OCR:"}]
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": content}]} | more).encode()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 -- the simulator tells nobody
            await asyncio.sleep(0.005)


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, Simulator]]:
    listener = listen("127.0.0.1")
    arrangement = Arrangement(servers=1)
    tokens = {"600x40": 37}
    simulator = Simulator(listener.getsockname()[1], arrangement, slowdown=FAST, tokens_by_size=tokens, loops=0.0)
    async with Server(simulator, listener) as running:
        yield running.url, simulator


async def test_an_answer_has_the_tokens_that_the_table_says(server: tuple[str, Simulator]) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = (await http.post(f"{server[0]}/v1/chat/completions", content=body())).json()
        cut = (await http.post(f"{server[0]}/v1/chat/completions", content=body(max_completion_tokens=5))).json()
    assert answer["usage"]["completion_tokens"] == 37
    assert len(answer["choices"][0]["message"]["content"].split()) == 37
    assert (cut["usage"]["completion_tokens"], cut["choices"][0]["finish_reason"]) == (5, "length")


async def test_a_stream_says_the_same_as_the_whole_answer(server: tuple[str, Simulator]) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        url = f"{server[0]}/v1/chat/completions"
        whole = (await http.post(url, content=body())).json()["choices"][0]["message"]["content"]
        events = (await http.post(url, content=body(stream=True, stream_options={"include_usage": True}))).text
    lines = [line.removeprefix("data: ") for line in events.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    deltas = [choice for chunk in chunks for choice in chunk["choices"]]
    assert "".join(choice["delta"].get("content", "") for choice in deltas) == whole
    assert [choice["finish_reason"] for choice in deltas if choice["finish_reason"]] == ["stop"]
    assert chunks[-1]["usage"]["completion_tokens"] == 37


async def test_who_leaves_takes_the_work_along(server: tuple[str, Simulator]) -> None:
    url, simulator = server
    engine = simulator.servers[0].engine
    async with httpx.AsyncClient(trust_env=False) as http:
        asking = asyncio.create_task(http.post(f"{url}/v1/chat/completions", content=body(3000, 2999)))
        await until(lambda: engine.running == 1)
        metrics = (await http.get(f"{url}/metrics")).text
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: engine.running == 0)
    assert f'vllm:num_requests_running{{engine="0",model_name="{MODEL}"}} 1.0' in metrics


async def test_what_is_no_question_is_refused(server: tuple[str, Simulator]) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.post(f"{server[0]}/v1/chat/completions", content=b"{}")).status_code == 400
        assert (await http.get(f"{server[0]}/nothing")).status_code == 404
        assert (await http.get(f"{server[0]}/v1/models")).json()["data"][0]["id"] == MODEL
