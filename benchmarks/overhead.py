"""What everything but layout and recognition costs a page.

A scanned A4 page of 150 dpi (1240 x 1754 pixels, a JPEG of about 1 MB) is sent over HTTP through gateway, Triton,
coordinator, decoder and layout model process with fixed boxes (12 blocks, 11 of them for the VLM) to a VLM stub that
answers at once. One request at a time, five rounds of 60 after 40 to warm up; machines are noisy, so the p50 is that of
the least disturbed round, with the worst beside it. Then, for the CPU time by process, 160 more with eight in flight.
"alone" is what the JPEG's decoding costs by itself, in this process, with the library that the decoders use.
"""

import asyncio
import itertools
import re
import statistics
import tempfile
import time
from pathlib import Path

import simplejpeg

from benchmarks import cpu_times, sample_page
from benchmarks.http_load import Client
from tests.e2e import chain as chains
from tests.e2e.chain import Chain

LIMITS = {"page p50 ms": 40.0}

WARM_UP, ROUNDS, ALONE, TOGETHER, IN_FLIGHT = 40, 5, 60, 160, 8
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
    first = await Client.connected(chain.url)
    await _latencies_ms(first, plain, WARM_UP)
    seen = len(_log(chain))
    rounds = [await _latencies_ms(first, plain, ALONE) for _ in range(ROUNDS)]
    stages = _stages(_log(chain)[seen:])
    visualized = [await _latencies_ms(first, shown, ALONE // 3) for _ in range(ROUNDS)]
    clients = [first, *[await Client.connected(chain.url) for _ in range(IN_FLIGHT - 1)]]
    before, started = cpu_times.by_process(chain), time.perf_counter()
    await asyncio.gather(*(_latencies_ms(client, plain, TOGETHER // IN_FLIGHT) for client in clients))
    rate = TOGETHER / (time.perf_counter() - started)
    spent = cpu_times.milliseconds_each(before, cpu_times.by_process(chain), TOGETHER)
    for client in clients:
        client.close()
    return {
        "page p50 ms": min(map(statistics.median, rounds)),
        "page p50 of the worst round ms": max(map(statistics.median, rounds)),
        "page p95 ms": sorted(itertools.chain.from_iterable(rounds))[round(ROUNDS * ALONE * 0.95) - 1],
        **stages,
        "page with visualize p50 ms": min(map(statistics.median, visualized)),
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
    def once() -> float:
        started = time.perf_counter()
        simplejpeg.decode_jpeg(file, colorspace="BGR")
        return (time.perf_counter() - started) * 1000

    return statistics.median(once() for _ in range(20))
