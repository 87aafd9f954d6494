"""`hps up` from the outside: what it says, how it stops, what it leaves behind, what it does when it cannot start."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e.chain import ROOT, fixed_layout, wait_for
from tests.e2e.service import Service, Traces, ended, said_ready, start

pytestmark = pytest.mark.e2e

STOP_S = 12.0
NOTE = ROOT / "tests/documents/note.webp"
TWELVE_PAGES = ROOT / "tests/documents/numbered-12-pages.pdf"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Service]]:
    """Two services that start at the same moment, one of each quality; each test stops one."""
    with ExitStack() as stack:
        services = [
            stack.enter_context(ended(start(tmp_path_factory.mktemp("up"), None, "--quality", quality)))
            for quality in ("fast", "better")
        ]
        for service in services:
            said_ready(service)
        yield services


def stopped_within(service: Service, number: int) -> float:
    """Seconds until it had ended, with exit code 0."""
    began = time.monotonic()
    service.popen.send_signal(number)
    try:
        code = service.popen.wait(STOP_S + 20)
    except subprocess.TimeoutExpired:
        pytest.fail(f"still running\n{service.log()}")
    assert code == 0, service.log()
    return time.monotonic() - began


def check_answer(sent: Future[httpx.Response]) -> int:
    """An answer in the service's own form: the result, or word that it stops; no broken connection."""
    response = sent.result(1)
    envelope = response.json()
    assert response.status_code in (200, 503), envelope
    assert envelope["errorCode"] == (0 if response.status_code == 200 else 503)
    return response.status_code


def test_both_answer_each_with_its_own_recogniser(two: list[Service]) -> None:
    for service, quality in zip(two, ("fast", "better"), strict=True):
        assert service.ready()
        assert quality in service.part("recogniser").cmdline()
        response = service.parse(NOTE, fileType=1)
        assert response.status_code == 200
        text = response.json()["result"]["layoutParsingResults"][0]["markdown"]["text"]
        assert "A loaf of rye bread costs three pounds twenty." in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_it_stops_with_requests_in_work_and_leaves_nothing(two: list[Service], number: int) -> None:
    service = two.pop(0)
    traces = Traces(service)
    assert len(traces.processes) >= 9  # itself, recogniser, launcher, Triton, three models, two decoders
    with ThreadPoolExecutor(8) as pool:
        short = [pool.submit(service.parse, NOTE, fileType=1) for _ in range(2)]
        long = [pool.submit(service.parse, TWELVE_PAGES, fileType=0) for _ in range(2)]
        neighbours = [pool.submit(other.parse, NOTE, fileType=1) for other in two]
        wait_for(lambda: vlm_requests(service) > 0, "requests in work")
        seconds = stopped_within(service, number)
        statuses = [check_answer(sent) for sent in short + long]
        assert all(sent.result(60).status_code == 200 for sent in neighbours)
    print(f"stopped in {seconds:.1f} s, answers {statuses}")
    assert seconds < STOP_S
    assert traces.left() == []


def vlm_requests(service: Service) -> float:
    """Blocks in work at the recogniser."""
    arguments = service.part("recogniser").cmdline()
    port = arguments[arguments.index("--port") + 1]
    metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text.splitlines()
    return sum(float(line.split()[-1]) for line in metrics if line.startswith("vllm:num_requests_running{"))


def test_it_can_be_stopped_while_it_starts(tmp_path: Path) -> None:
    with ended(start(tmp_path)) as service:
        wait_for(lambda: len(service.processes()) >= 3, "the first parts")
        traces = Traces(service)
        assert stopped_within(service, signal.SIGTERM) < STOP_S
        assert service.popen.stdout is not None
        assert service.popen.stdout.read() == ""
    assert traces.left() == []


def test_a_port_in_use_is_named_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        began = time.monotonic()
        with ended(start(tmp_path, port=port)) as service:
            assert service.popen.wait(20) == 1
    assert time.monotonic() - began < 10
    assert f"port {port} of 127.0.0.1 cannot be used: Address already in use" in service.log()
    assert "Traceback" not in service.log()
    assert not list((tmp_path / "tmp").iterdir())


def test_a_part_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    layout = fixed_layout(tmp_path) | {"HPS_LAYOUT_FIXED_FILE": str(tmp_path / "missing.json")}
    with ended(start(tmp_path, layout)) as service:
        wait_for(lambda: len(service.processes()) >= 3, "the first parts")
        traces = Traces(service)
        assert service.popen.wait(60) == 1
        assert service.popen.stdout is not None
        assert service.popen.stdout.read() == ""
    message = service.log()[service.log().index("hps: triton does not start; the end of its log:") :]
    assert "missing.json" in message
    assert traces.left() == []


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    with ended(start(tmp_path, {"HPS_PROT": "8081"})) as service:
        assert service.popen.wait(20) == 2
    assert service.log() == "hps: unknown setting: HPS_PROT\n"
