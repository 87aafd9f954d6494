"""The chain as real processes on loopback, with the parts that a test chooses: gateway → Triton → VLM server or stub.

Used by the end-to-end tests and by benchmarks. Every wait is for a condition with a deadline, and every process that
was started is stopped by pid; a part that does not come up fails with the end of its log.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from hps.ports import LOOPBACK, reserved

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
STUB = "triton_python_backend_stub"
# One text block over most of the page: class, score, x1, y1, x2, y2 (fractions of the page), reading order.
ONE_BLOCK = [[22, 0.9, 0.05, 0.05, 0.95, 0.95, 0]]


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 30.0, poll_s: float = 0.05) -> float:
    """Seconds until `condition` held; fails naming `what` when it does not within `timeout_s`."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise AssertionError(f"waited {timeout_s:.0f} s in vain for: {what}")
        time.sleep(poll_s)
    return time.monotonic() - started


def status_of(url: str, timeout_s: float = 10.0) -> int | None:
    """HTTP status of a GET; None when nobody answers."""
    try:
        return httpx.get(url, timeout=timeout_s, trust_env=False).status_code
    except httpx.HTTPError:
        return None


@dataclass
class Process:
    """One part of the chain."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    log_file: Path
    popen: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        with self.log_file.open("ab") as output:
            self.popen = subprocess.Popen(
                self.command, cwd=ROOT, env=dict(self.environ), stdout=output, stderr=output, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def tree(self) -> list[psutil.Process]:
        try:
            parent = psutil.Process(self.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        try:
            return self.popen.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            for process in reversed(self.tree()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self.popen.wait()
            raise AssertionError(f"{self.name} did not stop; end of its log:\n{self.log_tail()}") from None

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


@dataclass
class Chain:
    """url: the gateway; triton_http, vlm_url: the parts behind it. metrics: of gateway and pipeline."""

    url: str
    triton_http: str
    triton_grpc: str
    vlm_url: str
    metrics: tuple[str, str]
    parts: dict[str, Process]

    def rss_bytes(self) -> int:
        """Memory of all processes but the VLM server's, shared pages counted once a process (PSS)."""
        total = 0
        for name, part in self.parts.items():
            for process in part.tree() if name != "vlm" else ():
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    total += process.memory_full_info().pss
        return total

    def stubs(self) -> dict[str, int]:
        """Triton model → pid of its (first) model process."""
        found: dict[str, int] = {}
        for process in self.parts["triton"].tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == STUB[:15] or process.name() == STUB:
                    # A process that is just ending has no command line any more.
                    for model in [a.split("/")[-3] for a in process.cmdline() if "/1/model.py" in a]:
                        found.setdefault(model, process.pid)
        return found

    def ready(self) -> bool:
        return status_of(f"{self.url}/health/ready") == 200


MODEL = "PaddleOCR-VL-1.6-0.9B"


def stub_vlm(delay_s: float = 0.0, text: str = "text") -> list[str]:
    """Command of the VLM stand-in, for `running`, which adds its port."""
    return [sys.executable, "-m", "tests.fakes.vlm", "--model", MODEL, "--delay", str(delay_s), "--text", text]


def fixed_layout(folder: Path, boxes: Sequence[Sequence[float]] = ONE_BLOCK) -> dict[str, str]:
    """Settings of the layout backend that finds the same boxes on every page."""
    file = folder / "boxes.json"
    file.write_text(json.dumps({"boxes": boxes}))
    return {"HPS_LAYOUT_BACKEND": "fixed", "HPS_LAYOUT_FIXED_FILE": str(file)}


@contextlib.contextmanager
def running(folder: Path, environ: Mapping[str, str], *, vlm: Sequence[str] | int) -> Iterator[Chain]:
    """Starts the parts in order of health and stops them in reverse order.

    environ: settings (HPS_…) of Triton and gateway. vlm: command of the VLM server without its `--port`, or the port of
    one that the test runs itself; readiness is then not waited for, as it needs that server.
    """
    command = [] if isinstance(vlm, int) else vlm
    stack = contextlib.ExitStack()
    gateway_port, http_port, grpc_port, metrics_port, *own_metrics, free = stack.enter_context(reserved(7))
    gateway_metrics, pipeline_metrics = own_metrics
    vlm_port = vlm if isinstance(vlm, int) else free
    settings = {
        "HPS_HOST": LOOPBACK,
        "HPS_PORT": str(gateway_port),
        "HPS_TRITON_HOST": LOOPBACK,
        "HPS_TRITON_HTTP_PORT": str(http_port),
        "HPS_TRITON_GRPC_PORT": str(grpc_port),
        "HPS_TRITON_METRICS_PORT": str(metrics_port),
        "HPS_TRITON_URL": f"{LOOPBACK}:{grpc_port}",
        "HPS_VLM_URL": f"http://{LOOPBACK}:{vlm_port}",
        "HPS_VLM_MODEL_NAME": MODEL,
        "HPS_DRAIN_TIMEOUT": "4",
        "HPS_METRICS_HOST": LOOPBACK,
        "HPS_METRICS_GATEWAY_PORT": str(gateway_metrics),
        "HPS_METRICS_PIPELINE_PORT": str(pipeline_metrics),
    }
    base = {name: value for name, value in os.environ.items() if not name.startswith("HPS_")}
    full = base | settings | dict(environ) | {"PYTHONUNBUFFERED": "1"}
    chain = Chain(
        url=f"http://{LOOPBACK}:{gateway_port}",
        triton_http=f"http://{LOOPBACK}:{http_port}",
        triton_grpc=f"{LOOPBACK}:{grpc_port}",
        vlm_url=f"http://{LOOPBACK}:{vlm_port}",
        metrics=(f"http://{LOOPBACK}:{gateway_metrics}/metrics", f"http://{LOOPBACK}:{pipeline_metrics}/metrics"),
        parts={},
    )
    starts = {
        "vlm": ([*command, "--port", str(vlm_port)], f"{chain.vlm_url}/health"),
        "triton": ([sys.executable, "-m", "hps", "triton"], f"{chain.triton_http}/v2/health/ready"),
        "gateway": (
            [sys.executable, "-m", "gateway"],
            f"{chain.url}/health/ready" if command else f"{chain.url}/health",
        ),
    }
    if not command:
        del starts["vlm"]
    with stack:
        for name, (arguments, _) in starts.items():
            part = Process(name, arguments, full, folder / f"{name}.log")
            part.start()
            stack.callback(part.stop)  # every part is stopped, also when one refuses
            chain.parts[name] = part
        for name, part in chain.parts.items():
            _wait_healthy(part, starts[name][1])
        yield chain


def _wait_healthy(part: Process, url: str) -> None:
    def healthy() -> bool:
        if part.popen.poll() is not None:
            raise AssertionError(f"{part.name} ended with code {part.popen.returncode}:\n{part.log_tail()}")
        return status_of(url) == 200

    try:
        wait_for(healthy, f"{part.name} to be healthy", START_TIMEOUT_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{part.log_tail()}") from None
