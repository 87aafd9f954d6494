"""Schemathesis over our OpenAPI document: requests of every shape, right and wrong, and checks of every answer."""

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from hps.ports import free_port
from tests.e2e.chain import ROOT, status_of, wait_for
from tests.fuzz.memory import own_bytes

# What every answer must be, whatever was asked. Not among them: that every request which our schema allows succeeds (a
# `file` of any text does not), or that every other one fails (unknown fields are ignored, "1" is a number).
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
)


@dataclass(frozen=True)
class Outcome:
    """memory: bytes of the service and its decoders, before and after."""

    ok: bool
    cases: int
    output: str
    memory: tuple[int, int]
    service_log: str

    @property
    def growth(self) -> float:
        return self.memory[1] / self.memory[0] - 1


def run(examples: int, seed: int, *, timeout_s: float = 3600) -> Outcome:
    """examples: of each operation."""
    with tempfile.TemporaryDirectory() as temporary, _service(Path(temporary)) as (process, url, log):
        _run(url, 20, 1, timeout_s)  # what is loaded at first use is loaded then
        before = _memory(process)
        done = _run(url, examples, seed, timeout_s)
        after = _memory(process)
        assert process.is_running(), log.read_text()
        cases = re.search(r"(\d+) generated", done.stdout)
        return Outcome(
            done.returncode == 0,
            int(cases[1]) if cases else 0,
            done.stdout + done.stderr,
            (before, after),
            log.read_text(),
        )


def _run(url: str, examples: int, seed: int, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json"]
    command += ["--checks", ",".join(CHECKS), "--max-examples", str(examples), "--seed", str(seed), "--no-color"]
    command += ["--generation-database", "none", "--request-timeout", "30", "--suppress-health-check", "all"]
    command += ["--continue-on-failure", "--phases", "examples,coverage,fuzzing", "--warnings", "off"]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)


@contextlib.contextmanager
def _service(folder: Path) -> Iterator[tuple[psutil.Process, str, Path]]:
    port = free_port()
    log = folder / "service.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.service", str(port)], cwd=ROOT, stdout=output, stderr=output
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: popen.poll() is not None or status_of(f"{url}/health/ready") == 200, "the service", 60)
        yield psutil.Process(popen.pid), url, log
    finally:
        popen.terminate()
        popen.wait(30)


def _memory(process: psutil.Process) -> int:
    return own_bytes(each.pid for each in (process, *process.children(recursive=True)))
