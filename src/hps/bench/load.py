"""Load on a service: requests in a closed loop (so many in flight) or an open one (so many pages a second)."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx

from hps.bench.documents import Document
from hps.vlm_connections import ConnectionStack

KEEPALIVE_S = 4.0  # below the gateway's own
NO_ANSWER = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request. started, ended: seconds since the run began. status: HTTP's, NO_ANSWER for none."""

    started: float
    ended: float
    status: int
    pages: int
    blocks: int

    @property
    def is_success(self) -> bool:
        return self.status == httpx.codes.OK

    @property
    def seconds(self) -> float:
        return self.ended - self.started


class Service:
    """The service under load, as cheap a client as can be: it shares the machine with what it measures."""

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        self._url = httpx.URL(f"{url}/layout-parsing")
        self._headers = httpx.Headers({"Content-Type": "application/json"})
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._transport = ConnectionStack(self._url, idle_s=KEEPALIVE_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.aclose()

    async def post(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """HTTP status and envelope of a request; NO_ANSWER and nothing when the connection failed."""
        request = httpx.Request("POST", self._url, headers=self._headers, content=body)
        try:
            response = await self._transport.handle_async_request(request)
            content = await response.aread()
        except httpx.TransportError:
            return NO_ANSWER, {}
        return response.status_code, json.loads(content)

    async def parse(self, document: Document, clock: "Clock") -> Outcome:
        started = clock.seconds()
        status, envelope = await self.post(document.body)
        ended = clock.seconds()
        pages = envelope["result"]["layoutParsingResults"] if status == httpx.codes.OK else []
        blocks = sum(len(page["prunedResult"]["parsing_res_list"]) for page in pages)
        return Outcome(started, ended, status, len(pages), blocks)


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._zero = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._zero


async def closed_loop(
    service: Service, documents: Sequence[Document], *, in_flight: int, requests: int
) -> list[Outcome]:
    """`requests` requests, the documents over and over, `in_flight` of them at any time."""
    clock = Clock()
    turns = iter(itertools.islice(itertools.cycle(documents), requests))
    outcomes: list[Outcome] = []

    async def worker() -> None:
        for document in turns:
            outcomes.append(await service.parse(document, clock))

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return outcomes


async def open_loop(
    service: Service, documents: Sequence[Document], *, pages_per_s: float, seconds: float, seed: int
) -> list[Outcome]:
    """Requests at random moments (Poisson), `pages_per_s` in the mean, whether earlier ones are answered or not."""
    clock = Clock()
    source = random.Random(seed)
    running: list[asyncio.Task[Outcome]] = []
    due = 0.0
    for document in itertools.cycle(documents):
        due += source.expovariate(pages_per_s / document.pages)
        if due > seconds:
            break
        await asyncio.sleep(max(0.0, due - clock.seconds()))
        running.append(asyncio.create_task(service.parse(document, clock)))
    return list(await asyncio.gather(*running))
