"""A VLM stand-in whose text is a fingerprint of the picture it was sent, and that misbehaves on demand.

python -m tests.faults.vlm --port 8118
curl --data '"garbage"' http://127.0.0.1:8118/mode
"""

import argparse
import asyncio
import hashlib
import json
from typing import Any

import uvicorn

from tests.fakes.server import listen
from tests.fakes.vlm import CHAT, FakeVlm

MODES = ("well", "500", "503", "garbage", "half", "nothing", "slow", "reset")
DELAY_S = 0.05
SLOW_S = 3.0


def fingerprint(body: dict[str, Any]) -> str:
    (image, _) = body["messages"][0]["content"]
    return "page " + hashlib.sha256(image["image_url"]["url"].encode()).hexdigest()[:12]


class FaultyVlm:
    """The ASGI application: FakeVlm, unless a mode says otherwise."""

    def __init__(self) -> None:
        self._well = FakeVlm(answer=fingerprint, delay_s=DELAY_S, load=(0, 0))
        self.mode = "well"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/mode":
            self.mode = json.loads((await receive())["body"])
            assert self.mode in MODES
            await _answer(send, 200, b"{}")
        elif scope["type"] != "http" or scope["path"] != CHAT or self.mode == "well":
            await self._well(scope, receive, send)
        else:
            await self._misbehave(scope, receive, send)

    async def _misbehave(self, scope: Any, receive: Any, send: Any) -> None:
        if self.mode in ("500", "503"):
            await _answer(send, int(self.mode), b'{"error":{"message":"as asked"}}')
        elif self.mode == "garbage":
            await _answer(send, 200, b'{"choices": [{"mess')
        elif self.mode == "half":
            await _answer(send, 200, b'{"choices": [{"mess', announced=10_000)
            _transport(receive).close()
        elif self.mode == "nothing":
            while (await receive())["type"] != "http.disconnect":
                pass
        elif self.mode == "reset":
            _transport(receive).abort()
        else:
            await asyncio.sleep(SLOW_S)
            await self._well(scope, receive, send)


def _transport(receive: Any) -> asyncio.Transport:
    """The connection: what no ASGI application may touch, and this one is here to break."""
    transport: asyncio.Transport = receive.__self__.transport
    return transport


async def _answer(send: Any, status: int, body: bytes, *, announced: int | None = None) -> None:
    length = str(len(body) if announced is None else announced).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": announced is not None})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    listener = listen("127.0.0.1", parser.parse_args().port)
    config = uvicorn.Config(FaultyVlm(), log_level="error", access_log=False, http="httptools", ws="none")
    asyncio.run(uvicorn.Server(config).serve([listener]))


if __name__ == "__main__":
    main()
