"""The limits of the gateway over the real chain: how many documents are in work, who waits, who is turned away."""

import asyncio
import base64
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import cv2
import httpx
import numpy as np
import pytest

from hps.ports import free_port
from tests.e2e import chain as chains
from tests.e2e.chain import Chain, Process, status_of, wait_for
from tests.fakes.vlm import FakeVlm

pytestmark = pytest.mark.e2e

IN_WORK = 4
CLIENTS = 60
SHORT_LINE = 8
SHORT_TIMEOUT_S = 4.0
_PAGE = cv2.rectangle(np.full((64, 64, 3), 255, np.uint8), (12, 12), (50, 50), (0, 0, 0), 2)
BODY = {
    "file": base64.b64encode(cv2.imencode(".png", _PAGE)[1].tobytes()).decode(),
    "fileType": 1,
    "visualize": False,
}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("chain")
    limits = {"HPS_MAX_CONCURRENT_INFERENCE_REQUESTS": str(IN_WORK), "HPS_MAX_QUEUED_REQUESTS": "64"}
    with chains.running(folder, chains.fixed_layout(folder) | limits, vlm=free_port()) as running:
        yield running


@pytest.fixture(scope="module")
def strict_url(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A second gateway in front of the same Triton, with a short line and little time."""
    port = free_port()
    environ = {
        "HPS_PORT": str(port),
        "HPS_METRICS_GATEWAY_PORT": "0",
        "HPS_MAX_QUEUED_REQUESTS": str(SHORT_LINE),
        "HPS_INFERENCE_TIMEOUT": str(SHORT_TIMEOUT_S),
    }
    first = chain.parts["gateway"]
    log: Path = tmp_path_factory.mktemp("strict") / "gateway.log"
    gateway = Process("strict gateway", first.command, dict(first.environ) | environ, log)
    gateway.start()
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: status_of(f"{url}/health") == 200, "the strict gateway")
        yield url
    finally:
        gateway.stop()


@pytest.fixture
async def vlm(chain: Chain) -> AsyncIterator[FakeVlm]:
    """A page is one block: as many requests here as documents in work."""
    port = httpx.URL(chain.vlm_url).port
    assert port is not None
    async with FakeVlm(port=port, delay_s=0.2) as server:
        yield server


@asynccontextmanager
async def sent(url: str, count: int) -> AsyncIterator[list["asyncio.Task[httpx.Response]"]]:
    """`count` clients that ask at once, each over a connection of its own."""
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits, trust_env=False) as http:
        tasks = [asyncio.create_task(http.post("/layout-parsing", json=BODY)) for _ in range(count)]
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def statuses(tasks: list["asyncio.Task[httpx.Response]"]) -> list[int]:
    return [task.result().status_code for task in tasks if task.done()]


async def test_all_slots_are_in_use_and_never_more(chain: Chain, vlm: FakeVlm) -> None:
    seconds_below = 0.0  # with a slot free while somebody waits
    async with sent(chain.url, CLIENTS) as tasks:
        await vlm.until(lambda counters: counters.in_flight == IN_WORK)
        began = last = time.monotonic()
        while vlm.counters.started < CLIENTS:
            await asyncio.sleep(0.002)
            now = time.monotonic()
            seconds_below += (now - last) * (IN_WORK - vlm.counters.in_flight) / IN_WORK
            last = now
        took = last - began
        await asyncio.wait(tasks)
        assert statuses(tasks) == [200] * CLIENTS
    print(f"{CLIENTS} clients in {took:.1f} s, of which slots between two documents {seconds_below / took:.0%}")
    assert vlm.counters.peak == IN_WORK
    # Between two documents a slot is at the gateway, the decoder and the layout model, not at the VLM.
    assert seconds_below < 0.5 * took


async def test_beyond_the_line_the_answer_is_503_at_once(strict_url: str, vlm: FakeVlm) -> None:
    vlm.gate = asyncio.Event()
    async with sent(strict_url, CLIENTS) as tasks:
        turned_away = CLIENTS - IN_WORK - SHORT_LINE
        async with asyncio.timeout(SHORT_TIMEOUT_S / 2):
            responses = [await first for first in itertools.islice(asyncio.as_completed(tasks), turned_away)]
        assert [response.status_code for response in responses] == [503] * turned_away
        assert all(int(response.headers["Retry-After"]) >= 1 for response in responses)
        assert all(response.json()["errorCode"] == 503 for response in responses)
        vlm.gate.set()
        vlm.gate, vlm.delay_s = None, 0.0
        await asyncio.wait(tasks)
        assert sorted(statuses(tasks)) == [200] * (IN_WORK + SHORT_LINE) + [503] * turned_away
    assert vlm.counters.peak <= IN_WORK


async def test_time_out_is_504_and_gives_the_slots_back(strict_url: str, vlm: FakeVlm) -> None:
    vlm.gate = asyncio.Event()
    async with sent(strict_url, IN_WORK + SHORT_LINE) as tasks:
        began = time.monotonic()
        await asyncio.wait(tasks)
        took = time.monotonic() - began
        assert statuses(tasks) == [504] * (IN_WORK + SHORT_LINE)  # in work or in line
        assert SHORT_TIMEOUT_S - 0.1 <= took < SHORT_TIMEOUT_S + 1
    await vlm.until(lambda counters: counters.in_flight == 0, timeout_s=2)
    assert vlm.counters.disconnected == vlm.counters.started >= IN_WORK
    await works(strict_url, vlm)


async def test_clients_that_leave_give_their_slots_back(chain: Chain, vlm: FakeVlm) -> None:
    vlm.gate = asyncio.Event()
    async with sent(chain.url, 3 * IN_WORK):
        await vlm.until(lambda counters: counters.in_flight == IN_WORK)
    await vlm.until(lambda counters: counters.in_flight == 0, timeout_s=2)
    assert vlm.counters.started == vlm.counters.disconnected
    await works(chain.url, vlm)


async def works(url: str, vlm: FakeVlm) -> None:
    """All slots can be taken again."""
    vlm.gate = asyncio.Event()
    async with sent(url, IN_WORK) as tasks:
        await vlm.until(lambda counters: counters.in_flight == IN_WORK, timeout_s=SHORT_TIMEOUT_S)
        vlm.gate.set()
        await asyncio.wait(tasks)
        assert statuses(tasks) == [200] * IN_WORK
