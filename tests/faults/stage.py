"""The chain as it is deployed, on one machine: gateway of two workers, Triton, two VLM servers, Redis.

What Docker would do is done here: a part that ends is started again. Its disk and its /dev/shm are small file systems
of their own, in a mount namespace that `python -m tests.faults` makes for itself.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from hps.ports import LOOPBACK, check_free, free_ports
from tests.e2e import chain as chains
from tests.e2e.chain import ROOT, Chain, Process, fixed_layout, status_of, wait_for
from tests.fakes.redis import RedisServer, redis_server
from tests.faults.clients import DEADLINE_S

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
SHARED_MEMORY = Path("/dev/shm")
RESTARTS_AFTER_S = 0.5


@dataclass
class Stage:
    """disk: where the parts' state and temporary files are. clock: file that says how far the clock is off."""

    chain: Chain
    vlms: list[Process]
    redis: RedisServer
    disk: Path
    clock: Path | None
    resting: set[str] = field(default_factory=set)  # parts that are not started again now

    @property
    def url(self) -> str:
        return self.chain.url

    def worker(self) -> psutil.Process:
        """The process of the gateway that has answered the most."""
        children = psutil.Process(self.chain.parts["gateway"].pid).children()
        workers = [each for each in children if "spawn_main" in " ".join(each.cmdline())]
        return max(workers, key=lambda each: each.cpu_times().user)

    def server(self) -> psutil.Process:
        return next(each for each in self.chain.parts["triton"].tree() if each.name() == "tritonserver")

    def model(self, name: str) -> psutil.Process:
        return psutil.Process(self.chain.stubs()[name])

    def decoder(self) -> psutil.Process:
        tree = self.chain.parts["triton"].tree()
        return next(each for each in tree if "hps.inputs.worker" in each.cmdline())

    def mode(self, mode: str, *numbers: int) -> None:
        """Of the VLM servers of these numbers; of all without."""
        for number in numbers or range(len(self.vlms)):
            port = self.vlms[number].command[-1]
            httpx.post(f"http://{LOOPBACK}:{port}/mode", json=mode, timeout=5, trust_env=False).raise_for_status()

    def restart(self, name: str) -> None:
        """As a rolling update does: SIGTERM, its grace, a new one."""
        part = self._part(name)
        self.resting.add(name)
        part.stop()
        part.start()
        self.resting.discard(name)

    def fill(self, folder: Path) -> None:
        with (folder / "full").open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
                file.flush()

    def empty(self, folder: Path) -> None:
        (folder / "full").unlink(missing_ok=True)

    def keep_logs(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for part in (*self.chain.parts.values(), *self.vlms):
            shutil.copy(part.log_file, folder)

    def ready(self) -> bool:
        return self.chain.ready() and all(status_of(f"http://{LOOPBACK}:{vlm.command[-1]}/health") for vlm in self.vlms)

    def _part(self, name: str) -> Process:
        return {**self.chain.parts, **{vlm.name: vlm for vlm in self.vlms}}[name]

    def keep(self, stop: threading.Event) -> None:
        """Docker's restart policy, until `stop`."""
        while not stop.wait(0.1):
            for part in (*self.chain.parts.values(), *self.vlms):
                if part.name not in self.resting and part.popen.poll() is not None:
                    time.sleep(RESTARTS_AFTER_S)
                    if not stop.is_set() and part.name not in self.resting:
                        part.start()


@contextlib.contextmanager
def staged(folder: Path, *, vlms: int = 2, faked_clock: bool = False) -> Iterator[Stage]:
    disk = folder / "disk"
    disk.mkdir()
    ports = _consecutive(vlms)
    environ = fixed_layout(folder) | {
        "HPS_VLM_REPLICAS": str(vlms),
        "HPS_UVICORN_WORKERS": "2",
        "HPS_INFERENCE_TIMEOUT": str(DEADLINE_S),
        "HPS_DRAIN_TIMEOUT": "15",
        "HPS_DECODE_TIMEOUT": "5",
        "HPS_VLM_TIMEOUT": "5",
        "HPS_STATE_DIR": str(disk / "state"),
        "TMPDIR": str(disk),
    }
    clock = folder / "clock" if faked_clock else None
    if clock is not None:
        clock.write_text("+0")
        environ |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
        environ |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_mounted(disk, "96m"))
        redis = stack.enter_context(redis_server())
        servers = [_vlm(folder, number, port, stack) for number, port in enumerate(ports)]
        chain = stack.enter_context(chains.running(folder, environ | {"HPS_CACHE_URL": redis.url}, vlm=ports[0]))
        stage = Stage(chain, servers, redis, disk, clock)
        stop = threading.Event()
        keeper = threading.Thread(target=stage.keep, args=(stop,))
        keeper.start()
        try:
            wait_for(stage.ready, "the chain to be ready", 90)
            yield stage
        finally:
            stop.set()
            keeper.join()


def _vlm(folder: Path, number: int, port: int, stack: contextlib.ExitStack) -> Process:
    command = [sys.executable, "-m", "tests.faults.vlm", "--port", str(port)]
    part = Process(f"vlm {number}", command, dict(os.environ), folder / f"vlm-{number}.log")
    part.start()
    stack.callback(part.stop)
    wait_for(lambda: status_of(f"http://{LOOPBACK}:{port}/health") == 200, part.name)
    return part


def _consecutive(count: int) -> list[int]:
    for first in free_ports(20):
        ports = list(range(first, first + count))
        if all(_is_free(port) for port in ports):
            return ports
    raise RuntimeError("no consecutive ports are free")


def _is_free(port: int) -> bool:
    try:
        check_free(LOOPBACK, port)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _mounted(folder: Path, size: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def in_namespace() -> bool:
    """Whether this process has mounts of its own, with a small /dev/shm."""
    return os.environ.get("HPS_FAULTS_NAMESPACE") == "1"


def enter_namespace(arguments: list[str]) -> None:
    """Starts this program anew with mounts of its own; does not return."""
    script = f'mount -t tmpfs -o size=512m tmpfs {SHARED_MEMORY} && exec "$@"'
    command = ["unshare", "--mount", "--user", "--map-root-user"] if os.geteuid() else ["unshare", "--mount"]
    os.environ["HPS_FAULTS_NAMESPACE"] = "1"
    os.chdir(ROOT)
    os.execvp(command[0], [*command, "sh", "-c", script, "sh", sys.executable, "-m", "tests.faults", *arguments])


Signalled = Callable[[], psutil.Process]


def stopped_and_continued(find: Signalled) -> tuple[Callable[[], None], Callable[[], None]]:
    """SIGSTOP, and SIGCONT for what is still there."""
    victims: list[psutil.Process] = []

    def stop() -> None:
        victim = find()
        victims.append(victim)
        victim.send_signal(signal.SIGSTOP)

    def go_on() -> None:
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGCONT)

    return stop, go_on
