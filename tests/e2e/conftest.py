"""The real Triton on free ports, through the launcher that production uses."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import tritonclient.grpc.aio as grpcclient

from hps.ports import free_ports

SHARED_MEMORY = Path("/dev/shm")
MODELS = Path(__file__).parent / "model_repo"
READY_S = 30.0


@dataclass(eq=False)
class RunningTriton:
    """`hps triton` as a child process."""

    process: subprocess.Popen[bytes]
    log: Path
    http_port: int
    grpc_port: int
    metrics_port: int

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def metrics(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}/metrics"

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.http}/v2/health/ready", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = READY_S) -> None:
        """Polls; fails with the log when it takes too long or the launcher ends."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"launcher: {self.process.poll()}\n{self.log.read_text()[-6000:]}")
            time.sleep(0.05)

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def model_processes(self) -> list[psutil.Process]:
        return [process for process in self.descendants() if process.name() == "triton_python_backend_stub"]

    def shared_memory(self) -> list[str]:
        """Entries of this launcher, all its runs."""
        return [entry.name for entry in SHARED_MEMORY.glob(f"hps-*-{self.process.pid}-*")]

    def terminate(self, timeout_s: float = 20) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


StartTriton = Callable[..., RunningTriton]


@pytest.fixture(scope="session")
def start_triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartTriton]:
    """Starts `hps triton` on a model repository with settings (fields by name), ready unless told otherwise."""
    running: list[RunningTriton] = []

    def start(repository: Path, *, wait: bool = True, **settings: Any) -> RunningTriton:
        http_port, grpc_port, metrics_port = free_ports(3)
        values = {
            "model_repository": repository,
            "triton_host": "127.0.0.1",
            "triton_http_port": http_port,
            "triton_grpc_port": grpc_port,
            "triton_metrics_port": metrics_port,
            "metrics_pipeline_port": 0,
            "drain_timeout": 4,
        } | settings
        env = {name: value for name, value in os.environ.items() if not name.startswith("HPS_")}
        env |= {f"HPS_{name.upper()}": str(value) for name, value in values.items()}
        log = tmp_path_factory.mktemp("triton") / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "hps", "triton"], env=env, stdout=file, stderr=subprocess.STDOUT
            )
        triton = RunningTriton(process, log, http_port, grpc_port, metrics_port)
        running.append(triton)
        if wait:
            triton.wait_until(lambda: "Triton ready" in log.read_text())
        return triton

    yield start
    for triton in running:
        if triton.process.poll() is None:
            triton.terminate()


@pytest.fixture(scope="session")
def echo_triton(start_triton: StartTriton) -> RunningTriton:
    """One Triton with the echo model that the tests of a session share; they leave it as it was."""
    return start_triton(MODELS, max_pipeline_requests=100)


@pytest.fixture
async def echo(echo_triton: RunningTriton) -> AsyncIterator["Client"]:
    async with Client(echo_triton.grpc) as client:
        yield client


class Client:
    """A direct gRPC client of a model with the public tensor contract."""

    def __init__(self, address: str, model: str = "echo") -> None:
        self._client = grpcclient.InferenceServerClient(address)
        self._model = model

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def call(self, body: Any, **options: Any) -> dict[str, Any]:
        """The envelope. Raises InferenceServerException for a Triton error."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        envelope: dict[str, Any] = json.loads((await self.infer([[payload]], **options))[0, 0])
        return envelope

    async def infer(self, elements: list[list[bytes]], **options: Any) -> Any:
        values = np.array(elements, dtype=np.object_)
        tensor = grpcclient.InferInput("input", list(values.shape), "BYTES")
        tensor.set_data_from_numpy(values)
        return (await self._client.infer(self._model, [tensor], **options)).as_numpy("output")
