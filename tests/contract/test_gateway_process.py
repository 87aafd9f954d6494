"""`python -m gateway` as it runs in production: start-up log, access log, settings, orderly end."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from hps.ports import free_port
from tests.fakes.triton import FakeTriton


@contextmanager
def process(**variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    port = free_port()
    environment = os.environ | {"HPS_HOST": "127.0.0.1", "HPS_PORT": str(port), "HPS_TRITON_URL": "127.0.0.1:9"}
    environment |= {
        "HPS_VLM_URL": "http://127.0.0.1:9",
        "HPS_METRICS_GATEWAY_PORT": "0",
        "HPS_TRITON_OUTAGE": "0",
    } | variables
    running = subprocess.Popen([sys.executable, "-m", "gateway"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield running, f"http://127.0.0.1:{port}"
    finally:
        if running.poll() is None:
            running.kill()
        if running.stderr is not None and not running.stderr.closed:
            running.communicate()


def wait_for(url: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
            return
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_it_logs_what_it_runs_with_and_ends_on_sigterm() -> None:
    with process(HPS_VLM_API_KEY="secret-key") as (running, url):
        wait_for(url)
        assert httpx.get(f"{url}/health/ready", trust_env=False).status_code == 503
        assert httpx.get(f"{url}/nowhere", trust_env=False).status_code == 404
        running.send_signal(signal.SIGTERM)
        _, log = running.communicate(timeout=15)
    assert running.returncode == 0
    assert "HPS_MAX_CONCURRENT_INFERENCE_REQUESTS=16" in log
    assert "HPS_VLM_API_KEY=***" in log
    assert "secret-key" not in log
    assert '"GET /nowhere HTTP/1.1" 404' in log
    assert "/health" not in re.sub(r"settings: .*", "", log)


def test_several_workers_say_what_their_limits_add_up_to() -> None:
    with process(HPS_UVICORN_WORKERS="2", HPS_FILTER_HEALTH_ACCESS_LOG="false") as (running, url):
        wait_for(url)
        running.send_signal(signal.SIGTERM)
        _, log = running.communicate(timeout=15)
    assert "2 workers, each with its own limits: together up to 32 inference and 128 other requests" in log
    assert '"GET /health HTTP/1.1" 200' in log


@pytest.mark.parametrize(("name", "value"), [("HPS_NO_SUCH_THING", "1"), ("HPS_PORT", "many")])
def test_a_setting_it_does_not_know_stops_the_start(name: str, value: str) -> None:
    with process(**{name: value}) as (running, _):
        _, log = running.communicate(timeout=15)
    assert running.returncode == 2
    assert name in log
    assert "Traceback" not in log


async def test_requests_in_work_are_answered_after_sigterm() -> None:
    async with FakeTriton(gate=asyncio.Event()) as triton:
        with process(HPS_TRITON_URL=triton.address, HPS_DRAIN_TIMEOUT="20") as (running, url):
            await asyncio.to_thread(wait_for, url)
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
                request = asyncio.create_task(client.post("/layout-parsing", json={"file": "QUJD", "logId": "mine"}))
                await triton.until(lambda triton: triton.in_flight == 1)
                running.send_signal(signal.SIGTERM)
                async with asyncio.timeout(10):
                    while await accepts(url):
                        pass
                assert triton.gate is not None
                triton.gate.set()
                response = await request
            assert (response.status_code, response.json()["logId"]) == (200, "mine")
            assert await asyncio.to_thread(running.wait, 15) == 0


async def test_requests_that_outlive_the_drain_time_are_told_so() -> None:
    async with FakeTriton(gate=asyncio.Event()) as triton:
        with process(HPS_TRITON_URL=triton.address, HPS_DRAIN_TIMEOUT="1") as (running, url):
            await asyncio.to_thread(wait_for, url)
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
                request = asyncio.create_task(client.post("/layout-parsing", json={"file": "QUJD", "logId": "mine"}))
                await triton.until(lambda triton: triton.in_flight == 1)
                running.send_signal(signal.SIGTERM)
                response = await request
            assert response.status_code == 503
            assert response.json() == {"logId": "mine", "errorCode": 503, "errorMsg": "The service is stopping"}
            await triton.until(lambda triton: triton.cancelled == 1)
            assert await asyncio.to_thread(running.wait, 15) == 0


async def test_a_stop_with_a_delay_is_told_before_it_takes_effect() -> None:
    """What a proxy needs: health checks fail while requests are still answered."""
    async with FakeTriton() as triton:
        with process(HPS_TRITON_URL=triton.address, HPS_STOP_DELAY="3") as (running, url):
            await asyncio.to_thread(wait_for, url)
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
                running.send_signal(signal.SIGTERM)
                for path in ("/health", "/health/ready"):
                    async with asyncio.timeout(2):
                        while (told := await client.get(path)).status_code == 200:
                            pass
                    assert (told.status_code, told.json()["errorMsg"]) == (503, "The service is stopping")
                assert (await client.post("/layout-parsing", json={"file": "QUJD"})).status_code == 200
            assert await accepts(url)
            assert await asyncio.to_thread(running.wait, 15) == 0


async def test_a_second_signal_ends_the_delay() -> None:
    with process(HPS_STOP_DELAY="60") as (running, url):
        await asyncio.to_thread(wait_for, url)
        running.send_signal(signal.SIGTERM)
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            while (await client.get("/health")).status_code == 200:
                pass
        running.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(running.wait, 15) == 0


async def accepts(url: str) -> bool:
    """Whether new connections are still taken."""
    try:
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.get(f"{url}/health")
        return True
    except httpx.TransportError:
        return False
