"""vlm/entrypoint.sh over real processes: supervisord, and a stand-in for `vllm` that answers as vLLM does."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hps.ports import free_port
from hps.vlm_server import health
from tests.e2e.chain import ROOT, Process, status_of, wait_for

pytestmark = pytest.mark.e2e

STAND_IN = f"""#!{sys.executable}
import os, sys
arguments = dict(zip(sys.argv[3::1], sys.argv[4::1]))
os.chdir({str(ROOT)!r})
os.execv(sys.executable, [sys.executable, "-m", "tests.fakes.vlm", "--port", arguments["--port"],
                          "--model", arguments["--served-model-name"]])
"""
SERVERS = 3


class Servers:
    def __init__(self, part: Process, first_port: int, folder: Path) -> None:
        self.part = part
        self.ports = range(first_port, first_port + SERVERS)
        self._folder = folder

    def pids(self) -> dict[int, int]:
        """Port → process that serves it."""
        found = {}
        for process in self.part.tree():
            with contextlib.suppress(psutil.NoSuchProcess):  # a zombie counts as one
                command = process.cmdline()
                if "tests.fakes.vlm" in command:
                    found[int(command[command.index("--port") + 1])] = process.pid
        return found

    def answering(self) -> list[int]:
        return [port for port in self.ports if status_of(f"http://127.0.0.1:{port}/health", 1) == 200]

    def health(self) -> tuple[int, str]:
        """Exit code and words of the container's check."""
        command = [sys.executable, "-m", "hps.vlm_server.health"]
        done = subprocess.run(command, env=dict(self.part.environ), capture_output=True, text=True, timeout=30)
        return done.returncode, done.stdout.strip()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("vlm")
    stand_in = folder / "bin" / "vllm"
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    control = stand_in.with_name("nvidia-cuda-mps-control")
    control.write_text("#!/bin/sh\nexec sleep 1000\n")
    control.chmod(0o755)
    (folder / "pipeline_config.yaml").write_text("SubModules: {VLRecognition: {model_name: the-model}}\n")
    first_port = free_port()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HPS_")} | {
        "PATH": f"{stand_in.parent}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "TMPDIR": str(folder),
        "HOME": "/nowhere",  # Docker names one that cannot be written to
        "HPS_PIPELINE_CONFIG": str(folder / "pipeline_config.yaml"),
        "HPS_VLM_REPLICAS": str(SERVERS),
        "HPS_VLM_PORT": str(first_port),
        "HPS_VLM_MPS": "true",
        "HPS_VLM_HANG_TIMEOUT": "3",
        "HPS_VLM_API_KEY": "hidden-key",
    }
    part = Process("vlm", [str(ROOT / "vlm" / "entrypoint.sh")], environ, folder / "log")
    part.start()
    try:
        found = Servers(part, first_port, folder)
        wait_for(lambda: len(found.answering()) == SERVERS, f"{SERVERS} servers; log: {part.log_tail()}")
        yield found
    finally:
        part.stop()


def test_all_run_on_consecutive_ports_and_the_container_is_healthy(servers: Servers) -> None:
    assert servers.health() == (0, "3 of 3 servers")
    log = servers.part.log_file.read_text()
    assert "vllm serve /models/vlm --served-model-name the-model" in log
    assert "hidden-key" not in log
    for pid in servers.pids().values():
        environ = psutil.Process(pid).environ()
        assert (environ["HOME"], environ["HF_HUB_OFFLINE"]) == (servers.part.environ["TMPDIR"], "1")


def test_one_that_dies_is_started_again_and_the_others_go_on(servers: Servers) -> None:
    assert servers.health()[0] == 0
    victim, before = servers.ports[1], servers.pids()
    os.kill(before[victim], signal.SIGKILL)
    wait_for(lambda: victim not in servers.answering(), "the death to show")
    code, line = servers.health()
    assert code == 0 and (line.startswith("degraded: 2 of 3") or line == "3 of 3 servers")
    wait_for(lambda: len(servers.answering()) == SERVERS, "all servers")
    after = servers.pids()
    assert after[victim] != before[victim]
    assert [after[port] for port in servers.ports if port != victim] == [
        before[port] for port in servers.ports if port != victim
    ]


def test_one_that_hangs_is_ended_and_started_again(servers: Servers) -> None:
    log = servers.part.log_file
    victim, before = servers.ports[2], servers.pids()
    # What it has not seen well yet is loading, as far as the watch knows.
    wait_for(lambda: f"server {victim} answers\n" in log.read_text(), "the watch to see it well")
    os.kill(before[victim], signal.SIGSTOP)
    wait_for(lambda: servers.pids().get(victim, before[victim]) != before[victim], "a new process", 60)
    wait_for(lambda: len(servers.answering()) == SERVERS, "all servers")
    assert f"server {victim} hangs: ending it" in log.read_text()


def test_stopping_ends_all(servers: Servers) -> None:
    tree = servers.part.tree()
    assert servers.part.stop() == 0
    _, left = psutil.wait_procs(tree, timeout=5)
    assert not left
    assert health.answers(servers.ports[0]) is False
