"""What everything but layout and recognition costs a page.

A scanned A4 page of 150 dpi (1240 x 1754 pixels, a JPEG of about 1 MB) is sent over HTTP through gateway, Triton,
coordinator, decoder and layout model process with fixed boxes (12 blocks, 11 of them for the VLM) to a VLM stub that
answers at once. One request at a time, 120 after 40 to warm up; then, for the CPU time by process, 160 more with eight
in flight. "alone" is what the JPEG's decoding costs by itself, in this process.
"""

import asyncio
import io
import re
import statistics
import tempfile
import time
from pathlib import Path

from PIL import Image

from benchmarks import cpu_times, sample_page
from benchmarks.http_load import Client
from tests.e2e import chain as chains
from tests.e2e.chain import Chain

LIMITS = {"page p50 ms": 40.0}

WARM_UP, ALONE, TOGETHER, IN_FLIGHT = 40, 120, 160, 8
_STAGE = re.compile(r"(\w+)_ms=(\d+)")


def run() -> dict[str, float]:
    file = sample_page.jpeg(sample_page.scanned(150), 1_000_000)
    plain, shown = sample_page.request_body(file), sample_page.request_body(file, visualize=True)
    figures = {"file kB": len(file) / 1000, "decoding alone p50 ms": _decoding_ms(file)}
    with tempfile.TemporaryDirectory(prefix="hps-bench-") as name:
        folder = Path(name)
        layout = chains.fixed_layout(folder, sample_page.TWELVE_BLOCKS)
        with chains.running(folder, layout, vlm=chains.stub_vlm(0.0)) as chain:
            figures |= asyncio.run(_measured(chain, plain, shown))
    return figures


async def _measured(chain: Chain, plain: bytes, shown: bytes) -> dict[str, float]:
    clients = [await Client.connected(chain.url) for _ in range(IN_FLIGHT)]
    await _latencies_ms(clients[0], plain, WARM_UP)
    seen = len(_log(chain))
    waits = await _latencies_ms(clients[0], plain, ALONE)
    stages = _stages(_log(chain)[seen:])
    visualized = await _latencies_ms(clients[0], shown, ALONE // 3)
    before, started = cpu_times.by_process(chain), time.perf_counter()
    await asyncio.gather(*(_latencies_ms(client, plain, TOGETHER // IN_FLIGHT) for client in clients))
    rate = TOGETHER / (time.perf_counter() - started)
    spent = cpu_times.milliseconds_each(before, cpu_times.by_process(chain), TOGETHER)
    for client in clients:
        client.close()
    return {
        "page p50 ms": statistics.median(waits),
        "page p95 ms": waits[round(ALONE * 0.95) - 1],
        "page fastest ms": waits[0],
        **stages,
        "page with visualize p50 ms": statistics.median(visualized),
        "8 in flight: pages/s": rate,
        "CPU ms a page, all but the stub": sum(ms for name, ms in spent.items() if name != "vlm"),
        **{f"  CPU ms, {name}": ms for name, ms in spent.items()},
    }


async def _latencies_ms(client: Client, body: bytes, requests: int) -> list[float]:
    """One request after the other, from the first byte sent to the last received; sorted."""
    return sorted([await client.parse(body) * 1000 for _ in range(requests)])


def _log(chain: Chain) -> str:
    return chain.parts["triton"].log_file.read_text()


def _stages(log: str) -> dict[str, float]:
    """Mean of each stage of the requests in the pipeline's log lines."""
    values: dict[str, list[int]] = {}
    for line in log.splitlines():
        if "hps.pipeline request=" in line:
            for name, value in _STAGE.findall(line):
                values.setdefault(name, []).append(int(value))
    return {f"  stage {name}, mean ms": statistics.fmean(times) for name, times in values.items()}


def _decoding_ms(file: bytes) -> float:
    """With Pillow, as the decoders do."""

    def once() -> float:
        started = time.perf_counter()
        with Image.open(io.BytesIO(file)) as image:
            image.load()
            image.tobytes("raw", "BGR")
        return (time.perf_counter() - started) * 1000

    return statistics.median(once() for _ in range(20))
