"""`hps up` as a child process: the embedded default, as a newcomer starts it."""

import base64
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from hps.ports import free_port
from hps.processes import is_dead
from tests.e2e.chain import ROOT, STUB, status_of, wait_for

SHARED_MEMORY = Path("/dev/shm")


@dataclass
class Service:
    """folder: for its logs and the temporary files of all its processes."""

    url: str
    popen: subprocess.Popen[str]
    folder: Path

    def part(self, name: str) -> psutil.Process:
        """The process of recogniser, triton (the launcher) or gateway."""
        marks = {"recogniser": "hps.embedded.chat_api", "triton": "triton", "gateway": "gateway"}
        for process in psutil.Process(self.popen.pid).children():
            if process.cmdline()[-1] == marks[name] or marks[name] in process.cmdline()[:3]:
                return process
        raise AssertionError(f"{name} is not running")

    def server(self) -> psutil.Process:
        """The process of tritonserver."""
        return next(process for process in self.processes() if process.name() == "tritonserver")

    def model(self, name: str) -> psutil.Process:
        """The process of a Triton model."""
        stubs = [process for process in self.processes() if process.name() in (STUB, STUB[:15])]
        return next(process for process in stubs if any(f"/{name}/1/" in word for word in process.cmdline()))

    def processes(self) -> list[psutil.Process]:
        parent = psutil.Process(self.popen.pid)
        return [parent, *parent.children(recursive=True)]

    def ready(self) -> bool:
        return status_of(f"{self.url}/health/ready") == 200

    def parse(self, file: Path, **fields: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/layout-parsing", json=request(file, **fields), timeout=600, trust_env=False)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(30)

    def log(self) -> str:
        return (self.folder / "up.log").read_text()


@dataclass
class Traces:
    """What a running service could leave behind: its processes, their shared memory, temporary files."""

    service: Service
    processes: list[psutil.Process] = field(init=False)

    def __post_init__(self) -> None:
        self.processes = self.service.processes()

    def left(self) -> list[str]:
        running = [f"process {process.pid}" for process in self.processes if not is_dead(process)]
        owners = {str(process.pid) for process in self.processes}
        memory = [f"{entry}" for entry in SHARED_MEMORY.iterdir() if owners & set(entry.name.split("-"))]
        return running + memory + [str(entry) for entry in (self.service.folder / "tmp").iterdir()]


def request(file: Path, **fields: Any) -> dict[str, Any]:
    return {"file": base64.b64encode(file.read_bytes()).decode(), "visualize": False} | fields


def start(folder: Path, environ: Mapping[str, str] | None = None, *arguments: str, port: int | None = None) -> Service:
    """Starts it, on a free port unless one is given, and does not wait."""
    port = free_port() if port is None else port
    base = {name: value for name, value in os.environ.items() if not name.startswith("HPS_")}
    (folder / "tmp").mkdir()
    with (folder / "up.log").open("w") as log:
        popen = subprocess.Popen(
            [sys.executable, "-m", "hps", "up", "--port", str(port), *arguments],
            cwd=ROOT,
            env=base | {"TMPDIR": str(folder / "tmp")} | dict(environ or {}),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    return Service(f"http://127.0.0.1:{port}", popen, folder)


@contextlib.contextmanager
def up(folder: Path, environ: Mapping[str, str] | None = None, arguments: Sequence[str] = ()) -> Iterator[Service]:
    """Starts it on a free port, waits for its word that it is ready, and stops it."""
    with ended(start(folder, environ, *arguments)) as service:
        said_ready(service)
        yield service


def said_ready(service: Service) -> None:
    assert service.popen.stdout is not None
    line = service.popen.stdout.readline()
    assert line == f"ready {service.url}\n", f"{line!r}\n{service.log()}"


@contextlib.contextmanager
def ended(service: Service) -> Iterator[Service]:
    """Stops it at the end, if it still runs, by force if need be."""
    popen = service.popen
    try:
        yield service
    finally:
        if popen.poll() is None:
            popen.terminate()
            try:
                popen.wait(30)
            except subprocess.TimeoutExpired:
                for process in reversed(service.processes()):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                raise
        if popen.stdout is not None:
            popen.stdout.close()


def wait_ready(service: Service, timeout_s: float = 40.0) -> float:
    return wait_for(service.ready, "the service to be ready", timeout_s)
