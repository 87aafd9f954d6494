"""How long a random-weight model answers: as long as the page mix says for a crop of that size.

Middleware of vLLM's HTTP server (`vllm serve --middleware benchmarks.gpu.token_counts.TokenCounts`). HPS_BENCH_TOKENS
names the page mix's table; a crop is known by its size, which its file says in the first bytes.
"""

import base64
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

UNKNOWN = 64  # tokens of a crop that the mix does not have, where the request sets no limit of its own; said once
UNLIMITED = 4096  # what a request of the pipeline, or of PaddleX, allows a block when its client sets no limit
_HEAD = 4096  # characters of Base64; the tables in front of a JPEG's size take about 800
_IMAGE = re.compile(rb'"data:image/(jpeg|png);base64,([A-Za-z0-9+/]{1,%d})' % _HEAD)
_LIMIT = re.compile(rb'"max(?:_completion)?_tokens"\s*:\s*(\d+)')
_SIZED = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


class TokenCounts:
    """ASGI middleware."""

    def __init__(self, app: App) -> None:
        self._app = app
        table = json.loads(Path(os.environ["HPS_BENCH_TOKENS"]).read_bytes())
        self._tokens: Mapping[str, int] = table["tokens"]
        self._unknown: set[str] = set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/v1/chat/completions":
            return await self._app(scope, receive, send)
        parts, more = [], True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        body = self.limited(b"".join(parts))
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        bodies = [{"type": "http.request", "body": body, "more_body": False}]

        async def whole() -> Message:
            return bodies.pop() if bodies else await receive()

        await self._app({**scope, "headers": headers}, whole, send)

    def limited(self, body: bytes) -> bytes:
        """The request with its number of tokens, which it will have exactly."""
        found = _IMAGE.search(body)
        size = "{}x{}".format(*size_of(found[1], found[2])) if found else "no image"
        tokens = self._tokens.get(size)
        if tokens is None:
            limit = _LIMIT.search(body)
            tokens = int(limit[1]) if limit and int(limit[1]) < UNLIMITED else UNKNOWN
            if size not in self._unknown:
                self._unknown.add(size)
                print(f"token counts: {size} is not in the page mix", file=sys.stderr, flush=True)
        return _LIMIT.sub(b'"max_completion_tokens":%d,"ignore_eos":true' % tokens, body, count=1)


def size_of(kind: bytes, characters: bytes) -> tuple[int, int]:
    """Width and height from the beginning of an image file in Base64; (0, 0) when it does not say."""
    head = base64.b64decode(characters[: len(characters) // 4 * 4])
    if kind == b"png":
        return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    place = 2
    while place + 9 <= len(head) and head[place] == 0xFF:
        if head[place + 1] in _SIZED:
            return int.from_bytes(head[place + 7 : place + 9]), int.from_bytes(head[place + 5 : place + 7])
        place += 2 + int.from_bytes(head[place + 2 : place + 4])
    return 0, 0
