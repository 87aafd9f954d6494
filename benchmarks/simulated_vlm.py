"""The VLM simulator as a process, in front of nothing but the page mix's table of tokens."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hps.bench import page_mix
from hps.bench.page_mix import MixPage
from hps.ports import LOOPBACK, check_free, free_port
from tests.e2e.chain import ROOT, Process, status_of, wait_for

SERVERS = 4


@contextlib.contextmanager
def running(
    mix: Sequence[MixPage], *, slowdown: float, servers: int = SERVERS, more: Sequence[str] = ()
) -> Iterator[tuple[str, ...]]:
    """URLs of its servers. slowdown: how many times slower than an H200. more: options of the simulator."""
    with tempfile.TemporaryDirectory(prefix="hps-bench-") as name:
        folder = Path(name)
        table = folder / "mix.json"
        page_mix.write_table(mix, table)
        ports = _consecutive_ports(servers)
        command = [sys.executable, "-m", "benchmarks.vlm_simulator", "--port", str(ports[0])]
        command += ["--servers", str(servers), "--slowdown", str(slowdown), "--tokens", str(table), *more]
        simulator = Process("simulator", command, {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}, folder / "log")
        simulator.start()
        urls = tuple(f"http://{LOOPBACK}:{port}" for port in ports)
        try:
            wait_for(lambda: simulator.popen.poll() is not None or status_of(f"{urls[-1]}/health") == 200, "the VLM")
            if simulator.popen.poll() is not None:
                raise RuntimeError(f"the VLM simulator ended:\n{simulator.log_tail()}")
            yield urls
        finally:
            simulator.stop()


def _consecutive_ports(count: int) -> range:
    """Free a moment ago."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            first = free_port()
            for port in range(first, first + count):
                check_free(LOOPBACK, port)
            return range(first, first + count)
    raise RuntimeError(f"no {count} free ports in a row")
