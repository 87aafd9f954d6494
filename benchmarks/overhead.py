"""What everything but layout and recognition costs a page.

A scanned A4 page of 150 dpi (1240 x 1754 pixels, a JPEG of about 1 MB) is sent over HTTP through gateway, Triton,
coordinator, decoder and layout model process with fixed boxes (12 blocks, 11 of them for the VLM) to a VLM stub that
answers at once. One request at a time, 120 after 40 to warm up; then, for the CPU time by process, 160 more with eight
in flight. "alone" is what the JPEG's decoding costs by itself, in this process.
"""

import asyncio
import http.client
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks import cpu_times, sample_page
from tests.e2e import chain as chains

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
            sorted(_latencies_ms(chain.url, plain, WARM_UP))
            mark = len((folder / "triton.log").read_bytes())
            waits = sorted(_latencies_ms(chain.url, plain, ALONE))
            figures["page p50 ms"] = statistics.median(waits)
            figures["page p95 ms"] = waits[round(ALONE * 0.95) - 1]
            figures |= _stages((folder / "triton.log").read_bytes()[mark:].decode())
            figures["page with visualize p50 ms"] = statistics.median(_latencies_ms(chain.url, shown, ALONE // 3))
            before, started = cpu_times.by_process(chain), time.perf_counter()
            asyncio.run(_together(chain.url, plain))
            figures["8 in flight: pages/s"] = TOGETHER / (time.perf_counter() - started)
            spent = cpu_times.milliseconds_each(before, cpu_times.by_process(chain), TOGETHER)
            figures["CPU ms a page, all but the stub"] = sum(ms for name, ms in spent.items() if name != "vlm")
            figures |= {f"  CPU ms, {name}": ms for name, ms in spent.items()}
    return figures


def _latencies_ms(url: str, body: bytes, requests: int) -> Iterator[float]:
    """One request after the other over one connection; from the first byte sent to the last received."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    for _ in range(requests):
        started = time.perf_counter()
        connection.request("POST", "/layout-parsing", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        yield (time.perf_counter() - started) * 1000
        assert response.status == 200, answer
    connection.close()


async def _together(url: str, body: bytes) -> None:
    await asyncio.gather(
        *(asyncio.to_thread(list, _latencies_ms(url, body, TOGETHER // IN_FLIGHT)) for _ in range(IN_FLIGHT))
    )


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
    import io

    from PIL import Image

    def once() -> float:
        started = time.perf_counter()
        with Image.open(io.BytesIO(file)) as image:
            image.load()
            image.tobytes("raw", "BGR")
        return (time.perf_counter() - started) * 1000

    return statistics.median(once() for _ in range(20))
