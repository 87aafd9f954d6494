"""A server with the part of vLLM's interface that the kit uses, answering as the test says.

    python -m tests.fakes.vlm --port 8118 --delay 0.05 --model PaddleOCR-VL-1.6-0.9B --text "Hello"

A plain ASGI application: hundreds of waiting requests cost next to nothing. Its state over HTTP is at GET /counters.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

import uvicorn

from tests.fakes.server import Server, listen

CHAT = "/v1/chat/completions"


@dataclass
class Counters:
    """Chat requests: begun, answered, left by their client before the answer; now in work, and at most at once."""

    started: int = 0
    finished: int = 0
    disconnected: int = 0
    in_flight: int = 0
    peak: int = 0


@dataclass(eq=False)
class FakeVlm:
    """`async with FakeVlm() as vlm:` serves at `vlm.url`. Change any field while it runs.

    `answer`, if given, makes the text of a request's parsed JSON; otherwise bodies are not even parsed and the text is
    `text`. `delay` makes seconds out of a request, in place of `delay_s`. `status` other than 200 fails every
    chat request, `status_of` makes one out of a request; `gate` holds them until it is set. Who asks for a stream gets
    the text a word at a time, `word_s` apart. With `obeys_limits` a text ends at its request's token limit, words being
    tokens. `load`, requests running and waiting, is what /metrics says; None: there is no /metrics.
    """

    text: str = "text"
    delay_s: float = 0.0
    model: str = "PaddleOCR-VL-1.6-0.9B"
    answer: Callable[[dict[str, Any]], str] | None = None
    delay: Callable[[dict[str, Any]], float] | None = None
    status: int = 200
    status_of: Callable[[dict[str, Any]], int] | None = None
    word_s: float = 0.0
    obeys_limits: bool = False
    load: tuple[int, int] | None = None
    finish_reason: str = "stop"
    health_status: int = 200
    health_delay_s: float = 0.0
    gate: asyncio.Event | None = None
    host: str = "127.0.0.1"
    port: int = 0
    counters: Counters = field(default_factory=Counters)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        listener = listen(self.host, self.port)
        self.port = listener.getsockname()[1]
        self._server = Server(self, listener)
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    async def until(self, condition: Callable[[Counters], bool], timeout_s: float = 10) -> None:
        """Waits for a state of the counters. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not condition(self.counters):
                await self._changed.wait()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        route = (scope["method"], scope["path"])
        if route == ("POST", CHAT):
            await self._chat(receive, send)
        elif route == ("GET", "/health"):
            await asyncio.sleep(self.health_delay_s)
            await _reply(send, self.health_status, b"")
        elif route == ("GET", "/v1/models"):
            listed = {"object": "list", "data": [{"id": self.model, "object": "model", "owned_by": "fake"}]}
            await _reply(send, 200, json.dumps(listed).encode())
        elif route == ("GET", "/metrics") and self.load is not None:
            await _reply(send, 200, self._metrics().encode())
        elif route == ("GET", "/counters"):
            await _reply(send, 200, json.dumps(asdict(self.counters)).encode())
        else:
            await _reply(send, 404, b'{"error":{"message":"Not Found","code":404}}')

    async def _chat(self, receive: Any, send: Any) -> None:
        counters = self.counters
        counters.started += 1
        counters.in_flight += 1
        counters.peak = max(counters.peak, counters.in_flight)
        self._notify()
        try:
            body = await _body(receive)
            stayed = body is not None and await self._work(receive, body)
            if body is not None and stayed and await self._answered(body, receive, send):
                counters.finished += 1
            else:
                counters.disconnected += 1
        finally:
            counters.in_flight -= 1
            self._notify()

    async def _work(self, receive: Any, body: bytes) -> bool:
        """Waits as told; False as soon as the client has left."""
        delay_s = self.delay_s if self.delay is None else self.delay(json.loads(body))
        if self.gate is None and not delay_s:
            return True
        left = asyncio.ensure_future(receive())
        work = asyncio.ensure_future(self._wait(delay_s))
        await asyncio.wait({left, work}, return_when=asyncio.FIRST_COMPLETED)
        stayed = not left.done()
        left.cancel()
        work.cancel()
        await asyncio.wait({left, work})
        return stayed

    async def _wait(self, delay_s: float) -> None:
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(delay_s)

    async def _answered(self, body: bytes, receive: Any, send: Any) -> bool:
        """False when the client left during a stream."""
        status = self.status if self.status_of is None else self.status_of(json.loads(body))
        if status != 200:
            error = {"error": {"message": "as the test asked", "code": status}}
            await _reply(send, status, json.dumps(error).encode())
            return True
        text = self.text if self.answer is None else self.answer(json.loads(body))
        reason = self.finish_reason
        if self.obeys_limits:
            words, limit = _words(text), json.loads(body)["max_completion_tokens"]
            text, reason = "".join(words[:limit]), "length" if len(words) > limit else reason
        if b'"stream":true' in body:
            return await self._streamed(text, reason, receive, send)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        completion = self._envelope("chat.completion") | {"choices": [choice], "usage": _usage(text)}
        await _reply(send, 200, json.dumps(completion).encode())
        return True

    async def _streamed(self, text: str, reason: str, receive: Any, send: Any) -> bool:
        left = asyncio.ensure_future(receive())
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        envelope = self._envelope("chat.completion.chunk")
        deltas = [({"content": word}, None) for word in _words(text)]
        for delta, ending in [({"role": "assistant", "content": ""}, None), *deltas, ({}, reason)]:
            await asyncio.sleep(self.word_s)
            if left.done():
                return False
            choice = {"index": 0, "delta": delta, "finish_reason": ending}
            await _event(send, json.dumps(envelope | {"choices": [choice]}))
        await _event(send, json.dumps(envelope | {"choices": [], "usage": _usage(text)}))
        await _event(send, "[DONE]")
        left.cancel()
        await send({"type": "http.response.body", "body": b""})
        return True

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-fake", "object": kind, "created": 0, "model": self.model}

    def _metrics(self) -> str:
        running, waiting = self.load or (0, 0)
        label = f'{{engine="0",model_name="{self.model}"}}'
        return f"vllm:num_requests_running{label} {running:.1f}\nvllm:num_requests_waiting{label} {waiting:.1f}\n"

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+\s*$|\s*\S+", text)


def _usage(text: str) -> dict[str, int]:
    tokens = len(_words(text))
    return {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": 1 + tokens}


async def _event(send: Any, data: str) -> None:
    await send({"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": True})


async def _body(receive: Any) -> bytes | None:
    """The request's body; None if the client left."""
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _reply(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _main() -> None:
    parser = argparse.ArgumentParser(description="A VLM server that knows one text")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds for each block")
    parser.add_argument("--model", default="PaddleOCR-VL-1.6-0.9B")
    parser.add_argument("--text", default="text")
    options = parser.parse_args()
    vlm = FakeVlm(text=options.text, delay_s=options.delay, model=options.model, host=options.host, port=options.port)
    listener = listen(vlm.host, vlm.port)
    config = uvicorn.Config(vlm, log_level="warning", access_log=False, http="httptools", ws="none")
    print(f"fake VLM server at {vlm.url}", file=sys.stderr)
    await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    asyncio.run(_main())
