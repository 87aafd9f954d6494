import asyncio
import base64
import io
import json
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from PIL import Image as PillowImage

from hps.embedded.chat_api import create_app
from hps.embedded.chat_wire import ChatError
from hps.embedded.recognition_pool import ByteBudget, RecognitionPool
from hps.embedded.text_lines import RecognitionCancelled

MODEL = "small-model"


class Scripted:
    """Answers with the prompt; `slow` waits until it is released or cancelled, `broken` fails."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked: list[str] = []
        self.gave_up: list[str] = []

    def recognise(self, image: np.ndarray, prompt: str, is_cancelled: Callable[[], bool]) -> str:
        self.asked.append(prompt)
        if prompt == "broken":
            raise RuntimeError("weights on fire")
        while prompt.startswith("slow") and not self.release.wait(0.005):
            if is_cancelled():
                self.gave_up.append(prompt)
                raise RecognitionCancelled
        return f"read for {prompt}"


def picture() -> bytes:
    buffer = io.BytesIO()
    PillowImage.new("RGB", (8, 8), "white").save(buffer, "JPEG")
    return buffer.getvalue()


def request(prompt: str = "OCR:", **fields: Any) -> dict[str, Any]:
    url = f"data:image/jpeg;base64,{base64.b64encode(picture()).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": prompt}]
    return {"model": MODEL, "messages": [{"role": "user", "content": content}]} | fields


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in a thread
            await asyncio.sleep(0.002)


@pytest.fixture
def recogniser() -> Scripted:
    return Scripted()


@pytest.fixture
async def app(recogniser: Scripted) -> AsyncIterator[FastAPI]:
    app = create_app(recogniser, MODEL, threads=1)
    async with app.router.lifespan_context(app):
        yield app
        recogniser.release.set()


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://embedded") as client:
        yield client


async def ask(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post("/v1/chat/completions", json=request(**fields))


async def test_answer_has_openais_form(client: httpx.AsyncClient) -> None:
    answer = (await ask(client)).json()
    assert answer["object"] == "chat.completion" and answer["model"] == MODEL
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "read for OCR:"}
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["total_tokens"] == len("OCR:") + len("read for OCR:")


async def test_stream_sends_one_delta_and_the_end(client: httpx.AsyncClient) -> None:
    response = await ask(client, stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert json.loads(events[0])["choices"][0]["delta"]["content"] == "read for OCR:"
    assert json.loads(events[1])["choices"][0]["finish_reason"] == "stop"
    assert events[2] == "[DONE]"


async def test_a_stream_says_its_usage_when_asked(client: httpx.AsyncClient) -> None:
    plain = (await ask(client)).json()
    response = await ask(client, stream=True, stream_options={"include_usage": True})
    events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert json.loads(events[2])["usage"] == plain["usage"]
    assert events[3] == "[DONE]"


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/v1/chat/completions", json.dumps(request(model="gpt-9")), 404),
        ("/v1/chat/completions", "{}", 400),
        ("/v1/chat/completions", json.dumps(request("broken")), 500),
        ("/v1/embeddings", "{}", 404),
        ("/health", "{}", 405),
    ],
)
async def test_errors_have_openais_form(client: httpx.AsyncClient, path: str, content: str, status: int) -> None:
    response = await client.post(path, content=content)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert "fire" not in response.text


async def test_undecodable_picture_is_the_clients_mistake(client: httpx.AsyncClient) -> None:
    broken = request()
    broken["messages"][0]["content"][0]["image_url"]["url"] = "data:image/png;base64,AAAA"
    response = await client.post("/v1/chat/completions", json=broken)
    assert response.status_code == 400 and "decoded" in response.json()["error"]["message"]


async def test_models_says_what_it_is(client: httpx.AsyncClient) -> None:
    (model,) = (await client.get("/v1/models")).json()["data"]
    assert model["id"] == MODEL and "not PaddleOCR-VL" in model["description"]


async def test_health(client: httpx.AsyncClient) -> None:
    assert (await client.get("/health")).status_code == 200


async def test_metrics_show_running_and_waiting(client: httpx.AsyncClient, recogniser: Scripted) -> None:
    asked = [asyncio.create_task(ask(client, prompt="slow")) for _ in range(3)]
    await until(lambda: bool(recogniser.asked))
    text = ""
    async with asyncio.timeout(5):
        while "waiting{" not in text or f'waiting{{model_name="{MODEL}"}} 2' not in text:
            await asyncio.sleep(0)  # this transport never yields by itself
            text = (await client.get("/metrics")).text
    assert f'vllm:num_requests_running{{model_name="{MODEL}"}} 1' in text
    recogniser.release.set()
    assert {response.status_code for response in await asyncio.gather(*asked)} == {200}
    assert 'hps_recogniser_requests_total{outcome="succeeded"} 3' in (await client.get("/metrics")).text


async def leaving(app: FastAPI, prompt: str, left: asyncio.Event) -> list[dict[str, Any]]:
    """A client by bare ASGI, who closes the connection once `left` is set; returns what was sent to it."""
    body = json.dumps(request(prompt)).encode()
    incoming = iter([{"type": "http.request", "body": body, "more_body": False}])
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        for message in incoming:
            return message
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
    await app(scope, receive, send)
    return sent


async def test_running_work_of_a_departed_client_is_given_up(app: FastAPI, recogniser: Scripted) -> None:
    left = asyncio.Event()
    call = asyncio.create_task(leaving(app, "slow", left))
    await until(lambda: recogniser.asked == ["slow"])
    left.set()
    await call
    await until(lambda: recogniser.gave_up == ["slow"])


async def test_waiting_work_of_a_departed_client_never_starts(
    app: FastAPI, client: httpx.AsyncClient, recogniser: Scripted
) -> None:
    running = asyncio.create_task(ask(client, prompt="slow"))
    await until(lambda: recogniser.asked == ["slow"])
    left = asyncio.Event()
    call = asyncio.create_task(leaving(app, "never", left))
    async with asyncio.timeout(5):
        while " 1\n" not in (await client.get("/metrics")).text.split("num_requests_waiting{")[1]:  # noqa: ASYNC110
            await asyncio.sleep(0)  # this transport never yields by itself
    left.set()
    await call
    recogniser.release.set()
    assert (await running).status_code == 200
    assert (await ask(client)).status_code == 200
    assert recogniser.asked == ["slow", "OCR:"]


async def test_closing_stops_the_work(recogniser: Scripted) -> None:
    pool = RecognitionPool(recogniser, threads=1)
    call = asyncio.create_task(pool.recognise(picture(), "slow"))
    await until(lambda: recogniser.asked == ["slow"])
    assert await pool.close(timeout_s=5)
    with pytest.raises(ChatError, match="shutting down"):
        await call
    with pytest.raises(ChatError, match="shutting down"):
        await pool.recognise(picture(), "late")


def test_budget_is_returned() -> None:
    budget = ByteBudget(10)
    with budget.lease() as hold:
        hold(10)
        hold(4)
        with pytest.raises(ChatError) as caught, budget.lease() as other:
            other(7)
    assert caught.value.status == 503
    with budget.lease() as hold:
        hold(10)
