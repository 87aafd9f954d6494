"""`hps triton` with the real Triton: what dies comes back, what stops leaves nothing behind."""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tritonclient.utils import InferenceServerException

from tests.e2e.conftest import MODELS, SHARED_MEMORY, Client, RunningTriton, StartTriton

pytestmark = pytest.mark.e2e


def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


@pytest.fixture
def triton(start_triton: StartTriton) -> Iterator[RunningTriton]:
    running = start_triton(MODELS)
    yield running
    if running.process.poll() is None:
        running.terminate()


async def test_a_killed_model_process_brings_a_new_triton(triton: RunningTriton) -> None:
    old_memory = set(triton.shared_memory())
    old = triton.descendants()
    assert old_memory
    async with Client(triton.grpc) as client:
        in_flight = asyncio.create_task(client.call({"sleep": 30}))
        await asyncio.sleep(0.3)
        killed = time.monotonic()
        triton.model_processes()[0].kill()
        # The client of a dead process does not hang.
        with pytest.raises(InferenceServerException):
            await asyncio.wait_for(in_flight, 10)
        triton.wait_until(lambda: triton.log.read_text().count("Triton ready") == 2)
        back_s = time.monotonic() - killed
        assert (await client.call({"echo": "again"}, client_timeout=5))["result"]["echo"] == "again"
    assert back_s < 8
    assert gone(old)
    assert not old_memory & set(triton.shared_memory())
    # And it works a second time, after a moment.
    triton.model_processes()[0].kill()
    triton.wait_until(lambda: triton.log.read_text().count("Triton ready") == 3)


async def test_a_killed_server_brings_a_new_one(triton: RunningTriton) -> None:
    old = triton.descendants()
    old_memory = set(triton.shared_memory())
    next(process for process in old if process.name() == "tritonserver").kill()
    triton.wait_until(lambda: triton.log.read_text().count("Triton ready") == 2)
    assert gone(old)
    assert not old_memory & set(triton.shared_memory())
    async with Client(triton.grpc) as client:
        assert (await client.call({}))["errorCode"] == 0


async def test_sigterm_drains_and_leaves_nothing(triton: RunningTriton) -> None:
    children = triton.descendants()
    async with Client(triton.grpc) as client:
        in_flight = [asyncio.create_task(client.call({"sleep": 1.5, "echo": i})) for i in range(8)]
        await asyncio.sleep(0.3)
        started = time.monotonic()
        triton.process.send_signal(signal.SIGTERM)
        answers = await asyncio.gather(*in_flight)
        assert [answer["result"]["echo"] for answer in answers] == list(range(8))
    assert await asyncio.to_thread(triton.process.wait, 12) == 0
    assert time.monotonic() - started < 8
    assert gone(children)
    assert not triton.shared_memory()


async def test_a_request_that_does_not_end_is_ended_with_the_drain_time(start_triton: StartTriton) -> None:
    triton = start_triton(MODELS, drain_timeout=1.5)
    children = triton.descendants()
    async with Client(triton.grpc) as client:
        in_flight = asyncio.create_task(client.call({"sleep": 60}))
        await asyncio.sleep(0.3)
        started = time.monotonic()
        triton.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(triton.process.wait, 12) == 0
        assert time.monotonic() - started < 5
        with pytest.raises(InferenceServerException):
            await asyncio.wait_for(in_flight, 5)
    assert gone(children)
    assert not triton.shared_memory()


def test_sigterm_during_the_start_stops_it(start_triton: StartTriton) -> None:
    triton = start_triton(MODELS, wait=False)
    triton.wait_until(lambda: "loading: echo" in triton.log.read_text())
    children = triton.descendants()
    assert triton.terminate() == 0
    assert gone(children)
    assert not triton.shared_memory()


def test_a_killed_launcher_takes_triton_along(start_triton: StartTriton) -> None:
    triton = start_triton(MODELS)
    workers = [process for process in triton.descendants() if process.name() == "sleep"]
    server = [process for process in triton.descendants() if process.name() != "sleep"]
    memory = triton.shared_memory()
    triton.process.kill()
    triton.process.wait()
    _, alive = psutil.wait_procs(server, timeout=5)
    for worker in workers:  # real ones end when their pipe closes
        worker.kill()
    assert not alive
    # The next launcher sweeps what the killed one could not.
    start_triton(MODELS)
    assert not [entry for entry in memory if (SHARED_MEMORY / entry).exists()]


def test_a_model_that_fails_to_load_stops_the_start_with_its_reason(
    start_triton: StartTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHO_FAILS", "1")
    triton = start_triton(MODELS, wait=False)
    assert triton.process.wait(20) == 1
    assert "no weights" in triton.log.read_text().split("Triton did not start")[1]
    assert not triton.shared_memory()


def test_a_port_in_use_stops_the_start(start_triton: StartTriton, echo_triton: RunningTriton) -> None:
    triton = start_triton(MODELS, wait=False, triton_grpc_port=echo_triton.grpc_port)
    assert triton.process.wait(20) == 1
    assert f"port {echo_triton.grpc_port} of 127.0.0.1 cannot be used" in triton.log.read_text()


def test_an_unreadable_configuration_stops_the_start(start_triton: StartTriton, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.pbtxt").write_text('name: "broken"\nmax_batch_size: eight\n')
    triton = start_triton(tmp_path, wait=False)
    assert triton.process.wait(20) == 2
    assert "broken/config.pbtxt: 2:17" in triton.log.read_text()
