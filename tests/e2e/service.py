"""`hps up` as a child process: the embedded default, as a newcomer starts it."""

import base64
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from hps.ports import free_port
from tests.e2e.chain import ROOT, status_of, wait_for


@dataclass
class Service:
    url: str
    popen: subprocess.Popen[str]
    state_dir: Path

    def part(self, name: str) -> psutil.Process:
        """The process of recogniser, triton (the launcher) or gateway."""
        marks = {"recogniser": "hps.embedded.chat_api", "triton": "triton", "gateway": "gateway"}
        for process in psutil.Process(self.popen.pid).children():
            if process.cmdline()[-1] == marks[name] or marks[name] in process.cmdline()[:3]:
                return process
        raise AssertionError(f"{name} is not running")

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


def request(file: Path, **fields: Any) -> dict[str, Any]:
    return {"file": base64.b64encode(file.read_bytes()).decode(), "visualize": False} | fields


@contextlib.contextmanager
def up(folder: Path, environ: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Starts it on a free port, waits for its word that it is ready, and stops it."""
    port = free_port()
    base = {name: value for name, value in os.environ.items() if not name.startswith("HPS_")}
    full = base | {"HPS_STATE_DIR": str(folder)} | dict(environ or {})
    with (folder / "up.log").open("w") as log:
        popen = subprocess.Popen(
            [sys.executable, "-m", "hps", "up", "--port", str(port)],
            cwd=ROOT,
            env=full,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    service = Service(f"http://127.0.0.1:{port}", popen, folder)
    try:
        assert popen.stdout is not None
        line = popen.stdout.readline()
        assert line == f"ready {service.url}\n", f"{line!r}\n{(folder / 'up.log').read_text()}"
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
        popen.stdout.close()


def wait_ready(service: Service, timeout_s: float = 40.0) -> float:
    return wait_for(service.ready, "the service to be ready", timeout_s)
