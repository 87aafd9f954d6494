"""A part is killed under load: readiness says so, the part comes back, no client hangs, and retries succeed."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import psutil
import pytest

from tests.e2e.chain import ROOT, fixed_layout, wait_for
from tests.e2e.load import load
from tests.e2e.service import Service, Traces, request, up, wait_ready

pytestmark = pytest.mark.e2e

DEADLINE_S = 20.0
CLIENTS = 6
NOTICED_S = 10.0
BACK_S = 25.0
NOTE = request(ROOT / "tests/documents/note.webp", fileType=1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """With the real recogniser, but fixed boxes: the layout model would take most of the time and prove nothing."""
    folder = tmp_path_factory.mktemp("service")
    with up(folder, fixed_layout(folder) | {"HPS_INFERENCE_TIMEOUT": str(DEADLINE_S)}) as running:
        yield running


@dataclass
class Readiness:
    """What /health/ready says, asked all the time. statuses: (time, HTTP status or None for no answer, message)."""

    said: list[tuple[float, int | None, str]] = field(default_factory=list)

    def first(self, since: float, is_ready: bool) -> float | None:
        """When it first said so after `since`."""
        return next((when for when, status, _ in self.said if when > since and (status == 200) == is_ready), None)

    def messages(self, since: float) -> set[str]:
        return {message for when, status, message in self.said if when > since and status != 200}


@contextmanager
def watched(service: Service) -> Iterator[Readiness]:
    readiness = Readiness()
    stop = threading.Event()

    def watch() -> None:
        with httpx.Client(timeout=10, trust_env=False) as http:
            while not stop.wait(0.05):
                try:
                    response = http.get(f"{service.url}/health/ready")
                    said = (response.status_code, response.json()["errorMsg"])
                except httpx.TransportError as error:
                    said = (None, type(error).__name__)
                readiness.said.append((time.monotonic(), *said))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield readiness
    finally:
        stop.set()
        thread.join()


FAULTS: dict[str, tuple[Callable[[Service], psutil.Process], str]] = {
    "recogniser": (lambda service: service.part("recogniser"), "VLM server"),
    "layout-detection": (lambda service: service.model("layout-detection"), "'layout-parsing'|Triton server"),
    "layout-parsing": (lambda service: service.model("layout-parsing"), "'layout-parsing'|Triton server"),
    "tritonserver": (lambda service: service.server(), "Triton server"),
    "launcher": (lambda service: service.part("triton"), "Triton server"),
    "gateway": (lambda service: service.part("gateway"), "ConnectError"),
}


@pytest.mark.parametrize("part", FAULTS)
def test_a_killed_part_comes_back(service: Service, part: str) -> None:
    find, names = FAULTS[part]
    wait_ready(service)
    with watched(service) as readiness, load(service.url, NOTE, CLIENTS, DEADLINE_S * 2) as under_load:
        wait_for(lambda: len(under_load.answered()) >= CLIENTS, "every client to be served")
        victim = find(service)
        killed = time.monotonic()
        victim.kill()
        noticed_s = wait_for(lambda: readiness.first(killed, False) is not None, "readiness to end", NOTICED_S)
        noticed = readiness.first(killed, False)
        assert noticed is not None
        back_s = wait_for(lambda: readiness.first(noticed, True) is not None, "readiness to return", BACK_S) + noticed_s
        back = readiness.first(noticed, True)
        assert back is not None
        wait_for(lambda: len(under_load.answered(since=back)) >= CLIENTS, "retries to succeed", DEADLINE_S)
    longest = max(outcome.seconds for outcome in under_load.outcomes)
    failures = [outcome for outcome in under_load.outcomes if outcome.status != 200]
    print(
        f"{part}: noticed after {noticed_s:.1f} s ({readiness.messages(killed)}), back after {back_s:.1f} s; "
        f"{len(under_load.answered())} answers, {len(failures)} failures, longest request {longest:.1f} s, "
        f"{ {(outcome.status, outcome.text) for outcome in failures} }"
    )
    assert longest <= DEADLINE_S + 1
    assert any(name in message for message in readiness.messages(killed) for name in names.split("|"))
    assert {outcome.text for outcome in under_load.answered()} == {expected(service)}
    assert {outcome.status for outcome in failures} <= {None, 500, 503, 504}


def expected(service: Service) -> str:
    text: str = service.parse(ROOT / "tests/documents/note.webp", fileType=1).json()["result"]["layoutParsingResults"][
        0
    ]["markdown"]["text"]
    assert "A loaf of rye bread costs three pounds twenty." in text
    return text


def test_killing_the_service_itself_leaves_nothing_running(service: Service) -> None:
    wait_ready(service)
    traces = Traces(service)
    with load(service.url, NOTE, 2, DEADLINE_S * 2) as under_load:
        wait_for(lambda: len(under_load.answered()) >= 2, "both clients to be served")
        service.popen.kill()
        service.popen.wait()
        # What it made itself stays: nobody is left to remove its folder of logs.
        wait_for(lambda: all("/tmp/" in entry for entry in traces.left()), "all parts to end", 15.0)
