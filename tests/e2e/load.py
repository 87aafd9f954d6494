"""Clients that send the same request over and over, and what became of each."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass(frozen=True)
class Outcome:
    """status: None when the connection failed. text: the Markdown of a 200, else the message."""

    started: float
    seconds: float
    status: int | None
    text: str


@dataclass
class Load:
    """Times are readings of time.monotonic()."""

    outcomes: list[Outcome] = field(default_factory=list)

    def answered(self, *, since: float = 0.0) -> list[Outcome]:
        """The successes among the requests that were sent after `since`."""
        return [o for o in tuple(self.outcomes) if o.started >= since and o.status == 200]


@contextlib.contextmanager
def load(url: str, body: dict[str, Any], clients: int, timeout_s: float) -> Iterator[Load]:
    """`clients` threads that send `body` to /layout-parsing until the end of the block; then every answer is in."""
    result = Load()
    stop = threading.Event()

    def client() -> None:
        with httpx.Client(base_url=url, timeout=timeout_s, trust_env=False) as http:
            while not stop.is_set():
                outcome = send(http, body)
                result.outcomes.append(outcome)
                if outcome.status != 200:
                    stop.wait(0.1)

    threads = [threading.Thread(target=client, name=f"client {i}") for i in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield result
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def send(http: httpx.Client, body: dict[str, Any]) -> Outcome:
    started = time.monotonic()
    try:
        response = http.post("/layout-parsing", json=body)
    except httpx.TransportError as error:
        return Outcome(started, time.monotonic() - started, None, type(error).__name__)
    seconds = time.monotonic() - started
    envelope = response.json()
    if response.status_code == 200:
        pages = envelope["result"]["layoutParsingResults"]
        return Outcome(started, seconds, 200, "\n\n".join(page["markdown"]["text"] for page in pages))
    return Outcome(started, seconds, response.status_code, envelope["errorMsg"])
