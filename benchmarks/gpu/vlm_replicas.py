"""Pages a second of the VLM tier on one GPU: the official kit's one server against ours, by vlm/entrypoint.sh.

    python3 -m benchmarks.gpu.vlm_replicas --checkpoint CKPT --site SITE --out OUT official 1 2 4 4+mps

Needs vLLM 0.26.0 laid out in SITE (packages in SITE.deps), `supervisor` in either, and a checkpoint without weights.
Random weights and forced token counts: speed is comparable, text is not. The page mix is that of `hps bench`.
"""

import argparse
import asyncio
import base64
import contextlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from hps.bench import page_mix

ROOT = Path(__file__).parents[2]
NAME = "PaddleOCR-VL-1.6-0.9B"
FIRST_PORT = 8118
START_TIMEOUT_S = 280.0
WARM_PAGES = 16
# What the official kit passes, less --trust-remote-code, with which this vLLM does not start.
OFFICIAL = ["--gpu-memory-utilization", "0.5", "--max-model-len", "16384", "--max-num-batched-tokens", "131072"]
OFFICIAL += ["--api-server-count", "4", "--load-format", "dummy"]


@dataclass(frozen=True)
class Arrangement:
    """label: "official", or the number of our servers, with "+mps"."""

    label: str

    @property
    def servers(self) -> int:
        return 1 if self.label == "official" else int(self.label.partition("+")[0])

    @property
    def is_ours(self) -> bool:
        return self.label != "official"

    @property
    def has_mps(self) -> bool:
        return self.label.endswith("+mps")


# --- what is sent ---


def bodies(pages: Sequence[page_mix.MixPage]) -> list[bytes]:
    """A chat request for each block of each page, JPEG of quality 75 as the pipeline sends it."""
    found = []
    for page in pages:
        picture = page_mix.picture(page)
        for block in page.blocks:
            buffer = io.BytesIO()
            picture.crop(block.box).save(buffer, "JPEG", quality=75)
            url = "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
            content = [
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "text", "text": page_mix.PROMPTS[block.label]},
            ]
            body = {"model": NAME, "messages": [{"role": "user", "content": content}], "temperature": 0}
            found.append(json.dumps(body | {"max_completion_tokens": block.tokens, "ignore_eos": True}).encode())
    return found


async def send(requests: Sequence[bytes], in_flight: int, servers: int) -> tuple[float, int, int]:
    """Seconds, output tokens, errors; each request to the server with the fewest outstanding."""
    outstanding, left = [0] * servers, iter(requests)
    tokens = errors = 0

    async def worker(session: aiohttp.ClientSession) -> None:
        nonlocal tokens, errors
        for body in left:
            server = outstanding.index(min(outstanding))
            outstanding[server] += 1
            try:
                url = f"http://127.0.0.1:{FIRST_PORT + server}/v1/chat/completions"
                async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
                    answer = await response.json()
                    tokens += answer["usage"]["completion_tokens"]
            except (aiohttp.ClientError, KeyError, TimeoutError) as error:
                errors += 1
                print("error:", repr(error)[:300], flush=True)
            finally:
                outstanding[server] -= 1

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(300)
    ) as session:
        started = time.perf_counter()
        await asyncio.gather(*(worker(session) for _ in range(in_flight)))
        return time.perf_counter() - started, tokens, errors


# --- servers ---


@contextlib.contextmanager
def running(arrangement: Arrangement, options: argparse.Namespace, tokens: Path | None = None) -> Iterator[float]:
    """Starts the servers; gives the seconds until all were healthy. tokens: the page mix's table, which then says how
    long each answer is (token_counts.py)."""
    with tempfile.TemporaryDirectory(prefix="hps-") as name:
        folder = Path(name)
        shim = folder / "vllm"
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m vllm.entrypoints.cli.main "$@"\n')
        shim.chmod(0o755)
        middleware = ["--middleware", "benchmarks.gpu.token_counts.TokenCounts"] if tokens else []
        environ = dict(os.environ) | {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PYTHONPATH": f"{options.site}:{options.site}.deps:{ROOT}",
            "PYTHON": sys.executable,
            "TMPDIR": str(folder),
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_USE_FLASHINFER_SAMPLER": "0",
            "VLLM_CACHE_ROOT": str(options.cache),
            "HPS_VLM_MODEL": options.checkpoint,
            "HPS_VLM_MODEL_NAME": NAME,
            "HPS_VLM_PORT": str(FIRST_PORT),
            "HPS_VLM_REPLICAS": str(arrangement.servers),
            "HPS_VLM_MPS": str(arrangement.has_mps).lower(),
            "HPS_VLM_EXTRA_ARGS": shlex.join(["--load-format", "dummy", *middleware]),
            "HPS_BENCH_TOKENS": str(tokens),
        }
        if arrangement.is_ours:
            command = [str(ROOT / "vlm" / "entrypoint.sh")]
            environ["HPS_BENCH_PACKED"] = "1"
        else:
            official = ["serve", options.checkpoint, "--served-model-name", NAME, "--port", str(FIRST_PORT)]
            command = ["vllm", *official, *OFFICIAL, *middleware]
        log = options.out / f"servers-{arrangement.label}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environ, stdout=output, stderr=output, start_new_session=True)
        try:
            yield _wait_healthy(process, arrangement.servers, log)
        finally:
            _stop(process)


def _wait_healthy(process: subprocess.Popen[bytes], servers: int, log: Path) -> float:
    started = time.monotonic()
    waiting = set(range(FIRST_PORT, FIRST_PORT + servers))
    while waiting:
        if process.poll() is not None or time.monotonic() - started > START_TIMEOUT_S:
            raise RuntimeError(f"servers {sorted(waiting)} not healthy:\n" + log.read_text()[-4000:])
        for port in sorted(waiting):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
                waiting.discard(port)
        time.sleep(0.5)
    return time.monotonic() - started


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGTERM)
        _, left = psutil.wait_procs(tree, timeout=40)
        for each in left:
            each.kill()
    process.wait()


class GpuSampler:
    """Mean busy share (%) and power (W), from nvidia-smi twice a second."""

    def __enter__(self) -> "GpuSampler":
        query = "--query-gpu=utilization.gpu,power.draw"
        command = ["nvidia-smi", query, "--format=csv,noheader,nounits", "-lms", "500"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        lines = self._process.communicate()[0].splitlines()
        samples = [tuple(map(float, line.split(","))) for line in lines[1:-1]] or [(0.0, 0.0)]
        self.busy, self.watts = (sum(column) / len(samples) for column in zip(*samples, strict=True))


# --- the run ---


def measured(arrangement: Arrangement, options: argparse.Namespace, warm: list[bytes], crops: list[bytes]) -> list[Any]:
    rows = []
    with running(arrangement, options) as start_s:
        asyncio.run(send(warm, 64 * arrangement.servers, arrangement.servers))
        pages = options.pages if arrangement.servers > 1 else options.pages // 2
        share = crops[: len(crops) * pages // options.pages]
        for in_flight in [128 * arrangement.servers] if arrangement.servers > 1 else [256]:
            psutil.cpu_percent(None)
            with GpuSampler() as gpu:
                seconds, tokens, errors = asyncio.run(send(share, in_flight, arrangement.servers))
            row = {
                "arrangement": arrangement.label,
                "in_flight": in_flight,
                "pages_per_s": round(pages / seconds, 2),
                "blocks_per_s": round(len(share) / seconds, 1),
                "tokens_per_s": round(tokens / seconds),
                "errors": errors,
                "gpu_busy_percent": round(gpu.busy),
                "gpu_watts": round(gpu.watts),
                "cpu_percent_of_all_cores": round(psutil.cpu_percent(None)),
                "start_s": round(start_s),
            }
            print(json.dumps(row), flush=True)
            rows.append(row)
    return rows


def install_plugin(site: Path) -> None:
    """So that every process of vLLM loads packed_encoder."""
    info = site / "hps_packed_encoder-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hps-packed-encoder\nVersion: 0\n")
    entry = "[vllm.general_plugins]\nhps_packed_encoder = benchmarks.gpu.packed_encoder:register\n"
    (info / "entry_points.txt").write_text(entry)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arrangements", nargs="+", type=Arrangement)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--site", required=True)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--cache", type=Path, default=Path("/tmp/vllm-cache"))
    parser.add_argument("--pages", type=int, default=240)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    install_plugin(Path(options.site))
    mix = page_mix.pages(WARM_PAGES + options.pages)
    warm, crops = bodies(mix[:WARM_PAGES]), bodies(mix[WARM_PAGES:])
    print(json.dumps({"pages": options.pages, "blocks": len(crops)}), flush=True)
    rows: list[Any] = []
    for arrangement in options.arrangements:
        try:
            rows += measured(arrangement, options, warm, crops)
        except RuntimeError as error:
            print(f"{arrangement.label}: {error}", flush=True)
    (options.out / "vlm_replicas.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
