"""`hps triton`: renders the model repository, runs tritonserver, and keeps it whole.

Triton does not restart a model process that died, goes on saying ready, and leaves the requests of that process
unanswered. So the launcher watches the model processes itself and, when one is gone, starts the whole server anew. It
works as PID 1 of a container and as a child of `hps up` alike.
"""

import http.client
import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

import hps
from hps import metrics, ports, processes
from hps.settings import Settings
from hps.triton import binary, check, repository, shared_memory
from hps.triton.output import Output

log = logging.getLogger(__name__)

WATCH_S = 0.2
READY_POLL_S = 0.05
KILL_GRACE_S = 2.0  # for a server that has lost a model process and can only fail
STABLE_S = 10.0  # after this long the next fault counts as the first again
LONGEST_BACKOFF_S = 30.0
FAILED_STARTS = 5  # in a row, of a server that has run before

STOPPED, FAILED, UNUSABLE = 0, 1, 2  # exit codes


class StartFailed(Exception):
    """Triton did not become ready; the message says why."""


def main(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT; the exit code. 0 after such a signal, 1 when Triton fails, 2 when it cannot start
    at all (no server, no usable model repository)."""
    logging.basicConfig(
        stream=sys.stdout, level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    processes.adopt_orphans()
    if stale := shared_memory.remove_orphaned():
        log.info("removed %d shared memory entries of a launcher that was killed", stale)
    try:
        with _state_dir(settings.state_dir) as state:
            return Launcher(settings, state, stop).run()
    except (repository.RepositoryError, binary.TritonNotFound) as error:
        log.error("%s", error)
        return UNUSABLE


@dataclass(slots=True)
class _Server:
    """One run of tritonserver."""

    process: subprocess.Popen[bytes]
    output: Output
    memory: str
    started: float
    models: tuple[psutil.Process, ...] = ()


class Launcher:
    """Starts, watches, restarts and stops tritonserver. `stop` is set from outside (a signal)."""

    def __init__(self, settings: Settings, state: Path, stop: threading.Event) -> None:
        """Raises RepositoryError or TritonNotFound."""
        self._settings = settings
        self._stop = stop
        self._gpu = repository.gpu_present()
        self._binary = binary.find(state)
        self._models = state / "models"
        self._metrics = state / "metrics"
        names = repository.render(_source(settings), self._models, settings, gpu=self._gpu)
        self._public = [name for name in check.MODELS if name in names]
        log.info("models %s, %s", ", ".join(names), "GPU" if self._gpu else "CPU only")
        self._starts = 0

    def run(self) -> int:
        """Until `stop` is set; the exit code."""
        if port := self._settings.metrics_pipeline_port:
            metrics.clear(self._metrics)
            metrics.serve(self._metrics, self._settings.metrics_host, port)
        backoff = Backoff()
        has_served = False
        while not self._stop.is_set():
            server = None
            try:
                server = self._start()
                self._wait_until_ready(server)
                if self._stop.is_set():
                    break
                has_served = True
                backoff.succeeded()
                if (fault := self._watch(server)) is None:
                    self._drain(server)
                    break
                log.error("%s; Triton is started anew", fault)
            except StartFailed as error:
                log.error("Triton did not start: %s", error)
                if not has_served or backoff.failed_starts >= FAILED_STARTS:
                    return FAILED
                backoff.failed()
            finally:
                if server is not None:
                    self._end(server)
            self._stop.wait(backoff.next_delay_s())
        log.info("stopped")
        return STOPPED

    def _start(self) -> _Server:
        settings = self._settings
        for port in (settings.triton_http_port, settings.triton_grpc_port, settings.triton_metrics_port):
            try:
                ports.check_free(settings.triton_host, port)  # another server's answer there must not pass for ours
            except OSError as error:
                raise StartFailed(error.strerror) from error
        self._starts += 1
        metrics.clear(
            self._metrics
        )  # the processes that counted there are gone; Prometheus knows counters that restart
        environ = binary.server_environment(self._binary, settings, os.environ)
        environ["PROMETHEUS_MULTIPROC_DIR"] = str(self._metrics)
        memory = shared_memory.prefix(self._starts)
        process = subprocess.Popen(
            self._command(memory),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C in a terminal reaches a whole process group, but it is for us to pass on.
            start_new_session=True,
            preexec_fn=partial(processes.die_with_parent, signal.SIGKILL),
        )
        assert process.stdout is not None
        output = Output(process.stdout, gpu=self._gpu, detailed=settings.log_level == "DEBUG")
        return _Server(process, output, memory, time.monotonic())

    def _command(self, memory: str) -> list[str]:
        settings = self._settings
        options: dict[str, object] = {
            "model-repository": self._models,
            "backend-directory": self._binary.backends,
            "http-address": settings.triton_host,
            "http-port": settings.triton_http_port,
            "grpc-address": settings.triton_host,
            "grpc-port": settings.triton_grpc_port,
            "metrics-address": settings.triton_host,
            "metrics-port": settings.triton_metrics_port,
            "exit-timeout-secs": max(1, math.ceil(settings.drain_timeout)),
            "backend-config": f"python,shm-region-prefix-name={memory}",
            "log-verbose": int(settings.log_level == "DEBUG"),
            "log-info": settings.log_level in ("DEBUG", "INFO"),
            "log-warning": settings.log_level not in ("ERROR", "CRITICAL"),
        }
        if not self._gpu:
            options |= {"allow-gpu-metrics": False, "pinned-memory-pool-byte-size": 0}
        arguments = [f"--{name}={_option(value)}" for name, value in options.items()]
        # The configurations are complete, and completing them would start every model process twice.
        return [str(self._binary.server), *arguments, "--disable-auto-complete-config"]

    def _wait_until_ready(self, server: _Server) -> None:
        """Returns when Triton is ready or `stop` is set. Raises StartFailed when it ends instead."""
        while not self._stop.is_set():
            if (code := server.process.poll()) is not None:
                server.output.join(1)
                errors = server.output.errors()
                raise StartFailed("\n  ".join([f"tritonserver ended with {code}", *errors]))
            if _is_ready(self._settings.triton_host, self._settings.triton_http_port):
                children = psutil.Process(server.process.pid).children(recursive=True)
                server.models = tuple(processes.named(children, binary.STUB))
                log.info(
                    "Triton ready after %.1f s: gRPC %s:%d, %d model processes",
                    time.monotonic() - server.started,
                    self._settings.triton_host,
                    self._settings.triton_grpc_port,
                    len(server.models),
                )
                return
            self._stop.wait(READY_POLL_S)

    def _watch(self, server: _Server) -> str | None:
        """None when asked to stop, else what broke."""
        with check.Watchdog(self._settings, self._settings.watchdog_timeout, self._public) as watchdog:
            while not self._stop.wait(WATCH_S):
                if (code := server.process.poll()) is not None:
                    return f"tritonserver ended with {code}"
                for model in server.models:
                    if processes.is_dead(model):
                        return f"a model process ({model.pid}) died"
                if (silence := watchdog.silence()) is not None:
                    return f"no answer for {self._settings.watchdog_timeout:g} s ({silence})"
                processes.reap(but=[server.process.pid])
        return None

    def _drain(self, server: _Server) -> None:
        log.info("stopping: requests in work get up to %g s", self._settings.drain_timeout)
        server.process.terminate()
        try:
            server.process.wait(self._settings.drain_timeout)
        except subprocess.TimeoutExpired:
            log.warning("Triton was still busy after %g s and is killed", self._settings.drain_timeout)

    def _end(self, server: _Server) -> None:
        """Leaves no process and no shared memory of this run, whatever state it is in."""
        if server.process.poll() is None and server.models and not self._stop.is_set():
            server.process.terminate()
            try:
                server.process.wait(KILL_GRACE_S)
            except subprocess.TimeoutExpired:
                log.debug("Triton did not end by itself")
        processes.kill_descendants()
        server.process.wait()
        server.output.join(1)
        if left := shared_memory.remove(server.memory):
            log.info("removed %d shared memory entries left behind", left)


class Backoff:
    """At once after the first fault, then 1, 2, 4 … seconds, until the server has been whole for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.failed_starts = 0
        self._faults = 0
        self._whole_since: float | None = None

    def succeeded(self) -> None:
        self.failed_starts = 0
        self._whole_since = self._clock()

    def failed(self) -> None:
        self.failed_starts += 1
        self._whole_since = None

    def next_delay_s(self) -> float:
        if self._whole_since is not None and self._clock() - self._whole_since >= STABLE_S:
            self._faults = 0
        self._faults += 1
        return 0.0 if self._faults == 1 else min(LONGEST_BACKOFF_S, 2.0 ** (self._faults - 2))


@contextmanager
def _state_dir(configured: Path | None) -> Iterator[Path]:
    if configured is not None:
        configured.mkdir(parents=True, exist_ok=True)
        yield configured.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="hps-triton-") as temporary:
        yield Path(temporary)


def _source(settings: Settings) -> Path:
    """The configured repository, else that of the checkout that this package was installed from."""
    return settings.model_repository or Path(hps.__file__).resolve().parents[2] / "model_repo"


def _option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_ready(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(ports.reachable(host), port, timeout=2)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
