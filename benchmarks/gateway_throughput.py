"""How much of a bare Triton's throughput one gateway process passes on, for 1 MB documents.

    python -m benchmarks.gateway_throughput [--seconds 5] [--rounds 3] [--concurrency 16] [--megabytes 1.0]

Starts the real tritonserver with a model that echoes its input, then loads it in turn over gRPC with Triton's own
client library, as whoever calls Triton does, and over HTTP through `python -m gateway`, with the same number of
requests in flight from one client process; both rates and their ratio. "Serialised beforehand" is the rate of a client
that sends one ready message again and again and reads no answer, which no real one could reach. Client, gateway and
Triton share the machine's cores.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import psutil
import tritonclient.grpc.aio as grpcclient
import uvloop
from tritonclient.grpc import service_pb2

from hps import settings as hps_settings
from hps.memory import keep_freed_memory
from hps.ports import free_ports
from hps.settings import Settings
from hps.triton import binary

ROOT = Path(__file__).resolve().parents[1]

ECHO_MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("output", pb_utils.get_input_tensor_by_name(request, "input").as_numpy())]
            )
            for request in requests
        ]
"""
ECHO_CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 8
input [ {{ name: "input" data_type: TYPE_STRING dims: [ 1 ] }} ]
output [ {{ name: "output" data_type: TYPE_STRING dims: [ 1 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""
MODEL = "layout-parsing"

LIMITS = {"through the gateway / bare Triton": 0.6}
AT_LEAST = frozenset(LIMITS)

Send = Callable[[], Awaitable[None]]


@contextmanager
def child(
    command: list[str], environment: dict[str, str], log: Path, ready_url: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A server process from ready to ended; its log is shown when it does not start."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=ROOT)
    try:
        deadline = time.monotonic() + 60
        while not answers(ready_url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.1)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@contextmanager
def triton(settings: Settings, folder: Path) -> Iterator[None]:
    model = folder / "models" / MODEL
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(ECHO_MODEL)
    (model / "config.pbtxt").write_text(ECHO_CONFIG.format(name=MODEL))
    found = binary.find(folder)
    command = [str(found.server), "--model-repository", str(folder / "models")]
    command += ["--backend-directory", str(found.backends), "--http-port", str(settings.triton_http_port)]
    command += ["--grpc-port", str(settings.triton_grpc_port), "--allow-metrics", "false"]
    command += ["--backend-config", f"python,shm-region-prefix-name=hps_bench_{os.getpid()}_"]
    environment = binary.server_environment(found, settings, dict(os.environ))
    ready = f"http://127.0.0.1:{settings.triton_http_port}/v2/health/ready"
    with child(command, environment, folder / "triton.log", ready):
        yield


@contextmanager
def gateway(settings: Settings, folder: Path) -> Iterator[psutil.Process]:
    environment = dict(os.environ) | hps_settings.environment(settings)
    command = [sys.executable, "-m", "gateway"]
    with child(command, environment, folder / "gateway.log", f"http://127.0.0.1:{settings.port}/health") as process:
        yield psutil.Process(process.pid)


async def over_tritonclient(
    settings: Settings, body: bytes, run: Callable[[list[Send]], Awaitable[float]], n: int
) -> float:
    """`n` callers of one client: bytes in, bytes out."""
    wanted = [grpcclient.InferRequestedOutput("output")]
    async with grpcclient.InferenceServerClient(settings.triton_url) as client:

        async def send() -> None:
            tensor = grpcclient.InferInput("input", [1, 1], "BYTES")
            tensor.set_data_from_numpy(np.array([[body]], dtype=np.object_))
            answer = await client.infer(MODEL, [tensor], outputs=wanted)
            assert len(answer.as_numpy("output")[0, 0]) == len(body)

        return await run([send] * n)


async def over_grpc(settings: Settings, body: bytes, run: Callable[[list[Send]], Awaitable[float]], n: int) -> float:
    """`n` callers on one channel; requests are serialised once, answers are not parsed beyond their length."""
    request = service_pb2.ModelInferRequest(model_name=MODEL)
    request.inputs.add(name="input", datatype="BYTES", shape=[1, 1])
    request.raw_input_contents.append(struct.pack("<I", len(body)) + body)
    message = request.SerializeToString()
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(settings.triton_url, options=options) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        async def send() -> None:
            answer = await infer(message)
            assert len(answer) > len(body)

        return await run([send] * n)


class HttpClient(asyncio.BufferedProtocol):
    """One keep-alive connection that sends the same request again and again and reads answers without copying them."""

    def __init__(self, body: bytes) -> None:
        head = f"POST /layout-parsing HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = (head.encode(), body)
        self._buffer = memoryview(bytearray(len(body) + 64 * 1024))
        self._size = len(body)
        self._got = 0
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._got :]

    def buffer_updated(self, nbytes: int) -> None:
        self._got += nbytes
        start = bytes(self._buffer[: min(self._got, 1024)])
        end_of_head = start.find(b"\r\n\r\n")
        if end_of_head >= 0 and not start.startswith(b"HTTP/1.1 200 "):
            self._finish(AssertionError(start))
        elif end_of_head >= 0 and self._got == end_of_head + 4 + self._size:
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(exc or ConnectionError("closed"))

    async def send(self) -> None:
        self._got = 0
        self._done = asyncio.get_running_loop().create_future()
        self._transport.writelines(self._request)
        await self._done

    def close(self) -> None:
        self._transport.close()

    def _finish(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None) if error is None else self._done.set_exception(error)


async def over_http(settings: Settings, body: bytes, run: Callable[[list[Send]], Awaitable[float]], n: int) -> float:
    """`n` keep-alive connections."""
    loop = asyncio.get_running_loop()
    clients = [
        (await loop.create_connection(lambda: HttpClient(body), "127.0.0.1", settings.port))[1] for _ in range(n)
    ]
    rate = await run([client.send for client in clients])
    for client in clients:
        client.close()
    return rate


def closed_loop(seconds: float) -> Callable[[list[Send]], Awaitable[float]]:
    """Every sender sends its next request when it has its answer; requests a second after a short warm-up."""

    async def run(senders: list[Send]) -> float:
        counted = 0
        started = time.perf_counter() + min(1.0, seconds / 4)
        end = started + seconds

        async def loop(send: Send) -> None:
            nonlocal counted
            while (now := time.perf_counter()) < end:
                await send()
                counted += now >= started

        await asyncio.gather(*(loop(send) for send in senders))
        return counted / (time.perf_counter() - started)

    return run


def measured(*, seconds: float, rounds: int, concurrency: int, megabytes: float) -> dict[str, float]:
    """Medians over the rounds."""
    keep_freed_memory(kept_mib=128, largest_block_mib=32)  # for the load generator
    body = json.dumps({"file": "A" * int(megabytes * 1e6), "fileType": 1}).encode()
    http_port, grpc_port, port = free_ports(3)
    settings = hps_settings.load(
        {},
        host="127.0.0.1",
        port=port,
        triton_url=f"127.0.0.1:{grpc_port}",
        triton_http_port=http_port,
        triton_grpc_port=grpc_port,
        log_level="WARNING",
        max_concurrent_inference_requests=concurrency,
    )
    run, direct, serialised, through, cpu_ms = closed_loop(seconds), [], [], [], []
    with (
        tempfile.TemporaryDirectory(prefix="hps-bench-") as name,
        triton(settings, Path(name)),
        gateway(settings, Path(name)) as process,
    ):
        for _ in range(rounds):
            direct.append(uvloop.run(over_tritonclient(settings, body, run, concurrency)))
            serialised.append(uvloop.run(over_grpc(settings, body, run, concurrency)))
            before, started = sum(process.cpu_times()[:2]), time.perf_counter()
            through.append(uvloop.run(over_http(settings, body, run, concurrency)))
            busy_s, wall_s = sum(process.cpu_times()[:2]) - before, time.perf_counter() - started
            cpu_ms.append(busy_s / (through[-1] * wall_s) * 1000)
    return {
        "through the gateway / bare Triton": statistics.median(through) / statistics.median(direct),
        "bare Triton, requests/s": statistics.median(direct),
        "bare Triton, serialised beforehand, requests/s": statistics.median(serialised),
        "through the gateway, requests/s": statistics.median(through),
        "CPU ms of the gateway a request": statistics.median(cpu_ms),
    }


def run() -> dict[str, float]:
    return measured(seconds=5, rounds=3, concurrency=16, megabytes=1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--megabytes", type=float, default=1.0)
    for name, value in measured(**vars(parser.parse_args())).items():
        print(f"{name}: {value:.2f}")


if __name__ == "__main__":
    main()
