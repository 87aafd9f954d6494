"""A stand-in for the service under load."""

import asyncio
import json
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.fakes.server import Server


def envelope(blocks: list[int]) -> bytes:
    """An answer with so many blocks on its pages."""
    pages = [{"prunedResult": {"parsing_res_list": [{} for _ in range(count)]}} for count in blocks]
    return json.dumps({"errorCode": 0, "result": {"layoutParsingResults": pages}}).encode()


@dataclass
class FakeService:
    """Answers every request after `delay_s` with `status` and, for 200, `blocks` on each page."""

    delay_s: float = 0.0
    status: int = 200
    blocks: tuple[int, ...] = (12,)
    in_flight: int = 0
    peak: int = 0
    requests: int = 0

    async def __aenter__(self) -> Self:
        self._server = Server(self)
        await self._server.__aenter__()
        self.url = self._server.url
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        self.requests += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        await asyncio.sleep(self.delay_s)
        self.in_flight -= 1
        body = envelope(list(self.blocks)) if self.status == 200 else b'{"errorCode": 503}'
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
