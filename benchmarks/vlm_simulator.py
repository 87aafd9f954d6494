"""vLLM servers that compute nothing: OpenAI's chat API in front of the model of `vlm_engine`, whose docstring says how
it works and how it was calibrated.

    python -m benchmarks.vlm_simulator --port 8118 --servers 4 --slowdown 10 --tokens mix.json

Servers listen on consecutive ports of one process: POST /v1/chat/completions (also as events), GET /v1/models, /health
and /metrics. An answer has as many tokens as the table of `hps.bench.page_mix` says for its picture's size; a picture
of another size has one for each 2,000 pixels. Words are made up. `--loops 0.02` makes two of a hundred blocks repeat a
phrase until their token limit. A hundredth of a core at a tenth of the H200's speed; a fifth at its full speed.
"""

import argparse
import asyncio
import base64
import io
import json
import random
import sys
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from PIL import Image

from benchmarks.vlm_engine import Arrangement, Engine, Generation, Gpu, Hardware
from tests.fakes.server import listen

MODEL = "PaddleOCR-VL-1.6-0.9B"
_HEADER_CHARACTERS = 4096  # of base64: a picture's size stands in them
_PIXELS_A_TOKEN = 2000
_DEFAULT_MAX_TOKENS = 4096
_WORDS = tuple(f"{random.Random(n).choice('bdfklmnprst')}{n:x} " for n in range(997))
_PHRASE = ("again ", "and ", "once ", "more ")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a chat request asks for. is_cut: the token limit ends it."""

    pixels: int
    tokens: int
    is_cut: bool
    is_stream: bool
    has_usage: bool
    words: tuple[str, ...]
    first_word: int

    def text(self, start: int, end: int) -> str:
        """Its tokens from `start` to before `end`."""
        count = len(self.words)
        return "".join([self.words[(self.first_word + n) % count] for n in range(start, end)])


def asked(body: bytes, tokens_by_size: Mapping[str, int], loops: float) -> Asked:
    """Raises ValueError for what is no chat request with a picture."""
    try:
        request = json.loads(body)
        url = next(p["image_url"]["url"] for p in request["messages"][0]["content"] if p["type"] == "image_url")
        head = base64.b64decode(url.partition(",")[2][:_HEADER_CHARACTERS])
        width, height = Image.open(io.BytesIO(head)).size
    except (LookupError, TypeError, StopIteration, OSError) as error:
        raise ValueError("not a chat request with a picture") from error
    limit = int(request.get("max_completion_tokens") or request.get("max_tokens") or _DEFAULT_MAX_TOKENS)
    number = zlib.crc32(head)
    is_loop = number % 10_000 < loops * 10_000
    wanted = tokens_by_size.get(f"{width}x{height}") or max(4, width * height // _PIXELS_A_TOKEN)
    options = request.get("stream_options") or {}
    return Asked(
        pixels=width * height,
        tokens=limit if is_loop else min(limit, wanted),
        is_cut=is_loop or wanted > limit,
        is_stream=bool(request.get("stream")),
        has_usage=bool(options.get("include_usage")),
        words=_PHRASE if is_loop else _WORDS,
        first_word=0 if is_loop else number % len(_WORDS),
    )


class Server:
    """One engine in real time."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.answered = 0
        self.tokens = 0
        self.preparing = 0
        self._is_stepping = False
        self._waiters: dict[Generation, asyncio.Future[None]] = {}
        self._streams: dict[Generation, asyncio.Event] = {}

    async def generate(self, request: Asked, stream_interval: int) -> AsyncIterator[int]:
        """The number of tokens written so far: at the end only, or every `stream_interval` of a stream. When it is
        closed before its end, the engine gives it up."""
        loop = asyncio.get_running_loop()
        generation = Generation(request.pixels, request.tokens)
        self.preparing += 1
        try:
            ready_at = self.engine.prepared_at(loop.time(), request.pixels)
            await asyncio.sleep(ready_at - loop.time())
        finally:
            self.preparing -= 1
        done: asyncio.Future[None] = loop.create_future()
        self._waiters[generation] = done
        self.engine.submit(generation)
        try:
            self._go_on()
            if request.is_stream:
                async for written in self._progress(generation, done, stream_interval):
                    yield written
            await done
            self.answered += 1
            self.tokens += request.tokens
            yield request.tokens
        finally:
            self.engine.give_up(generation)
            del self._waiters[generation]

    async def _progress(self, generation: Generation, done: asyncio.Future[None], interval: int) -> AsyncIterator[int]:
        stepped = self._streams[generation] = asyncio.Event()
        sent = 0
        try:
            while True:
                await stepped.wait()
                stepped.clear()
                if done.done():
                    return
                written = self.engine.written(generation)
                if written - sent >= (interval if sent else 1):
                    sent = written
                    yield written
        finally:
            del self._streams[generation]

    def _go_on(self) -> None:
        if self._is_stepping:
            return
        loop = asyncio.get_running_loop()
        step = self.engine.step(loop.time())
        if step is not None:
            self._is_stepping = True
            loop.call_at(step.ends_at, self._ended, step.finished)

    def _ended(self, finished: tuple[Generation, ...]) -> None:
        self._is_stepping = False
        for generation in finished:
            done = self._waiters.get(generation)
            if done is not None and not done.done():
                done.set_result(None)
        for stepped in self._streams.values():
            stepped.set()
        self._go_on()


class Simulator:
    """The ASGI application of all servers; the port that was called says which."""

    def __init__(
        self,
        first_port: int,
        arrangement: Arrangement,
        *,
        slowdown: float = 1.0,
        tokens_by_size: Mapping[str, int] | None = None,
        loops: float = 0.0,
        stream_interval: int = 1,
        model: str = MODEL,
    ) -> None:
        hardware = Hardware().slowed(slowdown)
        self.gpu = Gpu(hardware, arrangement)
        self._first_port = first_port
        self._tokens_by_size = tokens_by_size or {}
        self._loops = loops
        self._stream_interval = stream_interval
        self._model = model
        self.servers = [Server(Engine(hardware, arrangement, self.gpu)) for _ in range(arrangement.servers)]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        server = self.servers[scope["server"][1] - self._first_port]
        route = (scope["method"], scope["path"])
        if route == ("POST", "/v1/chat/completions"):
            await self._chat(server, receive, send)
        elif route == ("GET", "/health"):
            await _reply(send, 200, b"")
        elif route == ("GET", "/v1/models"):
            model = {"id": self._model, "object": "model", "owned_by": "simulator", "max_model_len": 16384}
            await _reply(send, 200, json.dumps({"object": "list", "data": [model]}).encode())
        elif route == ("GET", "/metrics"):
            await _reply(send, 200, self._metrics(server).encode(), b"text/plain; version=0.0.4")
        else:
            await _reply(send, 404, b'{"error":{"message":"Not Found","code":404}}')

    async def _chat(self, server: Server, receive: Any, send: Any) -> None:
        body = await _body(receive)
        if body is None:
            return
        try:
            request = asked(body, self._tokens_by_size, self._loops)
        except ValueError as error:
            await _reply(send, 400, json.dumps({"error": {"message": str(error), "code": 400}}).encode())
            return
        del body
        answer = self._stream if request.is_stream else self._whole
        work = asyncio.ensure_future(answer(server, request, send))
        departure = asyncio.ensure_future(receive())
        await asyncio.wait({work, departure}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, departure):
            task.cancel()
        await asyncio.gather(work, departure, return_exceptions=True)

    async def _whole(self, server: Server, request: Asked, send: Any) -> None:
        async for _ in server.generate(request, self._stream_interval):
            pass
        message = {"role": "assistant", "content": request.text(0, request.tokens)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(request)}
        whole = self._envelope("chat.completion") | {"choices": [choice], "usage": _usage(request)}
        await _reply(send, 200, json.dumps(whole).encode())

    async def _stream(self, server: Server, request: Asked, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        envelope = json.dumps(self._envelope("chat.completion.chunk"))[:-1]

        async def event(choices: str, more: str = "") -> None:
            data = f'data: {envelope}, "choices": {choices}{more}}}\n\n'.encode()
            await send({"type": "http.response.body", "body": data, "more_body": True})

        await event('[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]')
        sent = 0
        async for written in server.generate(request, self._stream_interval):
            text = json.dumps(request.text(sent, written))
            reason = json.dumps(_reason(request)) if written == request.tokens else "null"
            await event(f'[{{"index": 0, "delta": {{"content": {text}}}, "finish_reason": {reason}}}]')
            sent = written
        if request.has_usage:
            await event("[]", f', "usage": {json.dumps(_usage(request))}')
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-simulated", "object": kind, "created": 0, "model": self._model}

    def _metrics(self, server: Server) -> str:
        label = f'{{engine="0",model_name="{self._model}"}}'
        engine = server.engine
        return (
            f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{label} {engine.running:.1f}\n"
            f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{label} {engine.waiting:.1f}\n"
            f"# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{label} {server.tokens:.1f}\n"
            f"# TYPE vllm:request_success_total counter\nvllm:request_success_total{label} {server.answered:.1f}\n"
        )


def _reason(request: Asked) -> str:
    return "length" if request.is_cut else "stop"


def _usage(request: Asked) -> dict[str, int]:
    prompt = Generation(request.pixels, request.tokens).prompt_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": request.tokens,
        "total_tokens": prompt + request.tokens,
    }


async def _body(receive: Any) -> bytes | None:
    """None: the client left."""
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _reply(send: Any, status: int, body: bytes, kind: bytes = b"application/json") -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vlm_simulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="of the first server")
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--api-processes", type=int, default=1, help="of each server")
    parser.add_argument("--max-sequences", type=int, default=256, help="of each server")
    parser.add_argument("--stock-encoder", action="store_true", help="one vision call a picture, as before vLLM 0.33")
    parser.add_argument("--no-mps", action="store_true", help="servers take turns on the GPU")
    parser.add_argument("--slowdown", type=float, default=1.0, help="how many times slower than an H200")
    parser.add_argument("--tokens", type=Path, help='file whose "tokens" maps picture sizes to tokens')
    parser.add_argument("--loops", type=float, default=0.0, help="share of blocks that repeat themselves")
    parser.add_argument("--stream-interval", type=int, default=1, help="tokens between two events of a stream")
    parser.add_argument("--model", default=MODEL)
    return parser


async def _main() -> None:
    wanted = _parser().parse_args()
    arrangement = Arrangement(
        servers=wanted.servers,
        api_processes=wanted.api_processes,
        max_sequences=wanted.max_sequences,
        is_packed=not wanted.stock_encoder,
        has_mps=not wanted.no_mps,
    )
    simulator = Simulator(
        wanted.port,
        arrangement,
        slowdown=wanted.slowdown,
        tokens_by_size=json.loads(wanted.tokens.read_text())["tokens"] if wanted.tokens else None,
        loops=wanted.loops,
        stream_interval=wanted.stream_interval,
        model=wanted.model,
    )
    listeners = [listen(wanted.host, wanted.port + n) for n in range(wanted.servers)]
    config = uvicorn.Config(
        simulator, log_level="warning", access_log=False, http="httptools", ws="none", loop="uvloop", backlog=2048
    )
    print(f"{wanted.servers} VLM servers from {wanted.host}:{wanted.port}", file=sys.stderr, flush=True)
    await uvicorn.Server(config).serve(listeners)


if __name__ == "__main__":
    import uvloop

    uvloop.run(_main())
