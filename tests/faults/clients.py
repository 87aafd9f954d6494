"""Clients that know the right answer: steady load, every attempt judged, and ordinary retries."""

import base64
import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import cv2
import httpx
import numpy as np

Verdict = Literal["right", "wrong", "error", "hung"]
DEADLINE_S = 20.0  # HPS_INFERENCE_TIMEOUT of the chain
HUNG_S = DEADLINE_S + 1
TRIES = 10
THINKS_S = 0.1


@dataclass(frozen=True)
class Attempt:
    """Times are readings of time.monotonic(). what: status and message of an error, or how the connection ended."""

    began: float
    ended: float
    verdict: Verdict
    what: str = ""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass
class Tally:
    """gave_up: requests that no retry helped."""

    attempts: list[Attempt] = field(default_factory=list)
    requests: int = 0
    gave_up: int = 0

    def count(self, verdict: Verdict) -> int:
        return sum(attempt.verdict == verdict for attempt in self.attempts)

    def errors(self) -> set[str]:
        return {attempt.what for attempt in self.attempts if attempt.verdict != "right"}


def documents(count: int) -> list[dict[str, Any]]:
    """Requests that differ in their page, so that an answer of another one is seen."""
    made = []
    for number in range(count):
        page = np.full((80, 120, 3), 255, np.uint8)
        cv2.putText(page, str(number), (30, 55), cv2.FONT_HERSHEY_SIMPLEX, 1, (0, 0, 0), 2)
        file = base64.b64encode(cv2.imencode(".png", page)[1].tobytes()).decode()
        made.append({"file": file, "fileType": 1, "visualize": False})
    return made


def text_of(response: httpx.Response) -> str:
    return "\n".join(page["markdown"]["text"] for page in response.json()["result"]["layoutParsingResults"])


@contextlib.contextmanager
def load(url: str, answers: Mapping[str, str], clients: int, *, repeat: bool = False) -> Iterator[Tally]:
    """answers: request as JSON → its right text. repeat: the same requests again and again, which a cache may answer;
    otherwise each has an option of its own that changes nothing but its key there."""
    tally = Tally()
    stop = threading.Event()
    lock = threading.Lock()

    def client() -> None:
        while not stop.is_set():
            request, right = random.choice(list(answers.items()))
            body = json.loads(request) | ({} if repeat else {"temperature": random.random()})
            done = _asked(url, body, right, tally, lock)
            with lock:
                tally.requests += 1
                tally.gave_up += not done
            stop.wait(THINKS_S)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield tally
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _asked(url: str, body: dict[str, Any], right: str, tally: Tally, lock: threading.Lock) -> bool:
    """With retries as an ordinary client makes them: what was refused or lost is sent again, later each time."""
    for number in range(TRIES):
        attempt = _attempt(url, body, right)
        with lock:
            tally.attempts.append(attempt)
        if attempt.verdict == "right":
            return True
        time.sleep(min(4.0, 0.25 * 2**number) * random.uniform(0.5, 1))
    return False


def _attempt(url: str, body: dict[str, Any], right: str) -> Attempt:
    began = time.monotonic()
    try:
        response = httpx.post(f"{url}/layout-parsing", json=body, timeout=httpx.Timeout(HUNG_S + 4), trust_env=False)
    except httpx.TimeoutException:
        return Attempt(began, time.monotonic(), "hung", "no answer")
    except httpx.TransportError as error:
        return Attempt(began, time.monotonic(), "error", type(error).__name__)
    ended = time.monotonic()
    if ended - began > HUNG_S:
        return Attempt(began, ended, "hung", f"{response.status_code} after {ended - began:.0f} s")
    if response.status_code != 200:
        return Attempt(began, ended, "error", f"{response.status_code} {_message(response)}")
    return Attempt(began, ended, "right" if text_of(response) == right else "wrong", text_of(response)[:80])


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["errorMsg"])
    except (ValueError, KeyError):
        return "without an envelope"
