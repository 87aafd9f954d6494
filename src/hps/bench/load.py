"""Load on a service: requests in a closed loop (so many in flight) or an open one (so many pages a second)."""

import asyncio
import io
import itertools
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

import aiohttp

from hps.bench.documents import Document

KEEPALIVE_S = 4.0  # below the 5 s of uvicorn, which the gateway and vLLM use
TIMEOUT_S = 3600.0  # of one request, which may be a long document
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
        return self.status == HTTPStatus.OK

    @property
    def seconds(self) -> float:
        return self.ended - self.started


class Service:
    """The service under load. Its client should cost little: it shares the machine with what it measures."""

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        self._url = f"{url}/layout-parsing"
        self._headers = headers(api_key)

    async def __aenter__(self) -> Self:
        self._http = session(self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def post(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """HTTP status and envelope of a request; NO_ANSWER and nothing when the connection failed."""
        try:
            # As a file: aiohttp warns of large bodies.
            async with self._http.post(self._url, data=io.BytesIO(body)) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError):
            return NO_ANSWER, {}
        return response.status, json.loads(content)

    async def parse(self, document: Document, clock: "Clock") -> Outcome:
        started = clock.seconds()
        status, envelope = await self.post(document.body)
        ended = clock.seconds()
        pages = envelope["result"]["layoutParsingResults"] if status == HTTPStatus.OK else []
        blocks = sum(len(page["prunedResult"]["parsing_res_list"]) for page in pages)
        return Outcome(started, ended, status, len(pages), blocks)


def headers(api_key: str | None) -> dict[str, str]:
    """Of JSON requests."""
    key = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return {"Content-Type": "application/json"} | key


def session(common_headers: Mapping[str, str]) -> aiohttp.ClientSession:
    """As many connections as there are requests, none of them through a proxy."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)
    return aiohttp.ClientSession(
        connector=connector, headers=common_headers, timeout=aiohttp.ClientTimeout(total=TIMEOUT_S), trust_env=False
    )


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
