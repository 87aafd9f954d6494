import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hps.bench import usage

BURN = """
import time
while time.process_time() < 0.4: pass
print("burnt", flush=True)
input()
"""


def test_cpu_of_a_part() -> None:
    process = subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "burnt\n"
    assert usage.cpu_by_process({"burner": process.pid})["burner"] >= 0.35
    process.communicate("\n")
    assert usage.cpu_by_process({"burner": process.pid}) == {}


async def test_a_run_is_charged_with_what_it_used_only() -> None:
    while sum(os.times()[:2]) < 0.2:
        pass
    async with usage.measured({"me": os.getpid()}) as used:
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
    assert 0.15 <= used.cpu_s["me"] <= 0.4
    assert used.cpu_busy > 0


async def test_the_gpu_is_asked_while_the_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, said = tmp_path / "nvidia-smi", tmp_path / "said"
    lines = "echo '80, 400.5'; echo '60, [N/A]'; echo '90, 500.5'"
    program.write_text(f"#!/bin/sh\n{lines}; : > {said}; exec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    async with asyncio.timeout(10), usage.measured({}) as used:
        while not said.exists():  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(0.01)
    assert (used.gpu_busy, used.gpu_watts) == (0.85, 450.5)


async def test_no_gpu_is_no_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with usage.measured({}) as used:
        pass
    assert used.gpu_busy is used.gpu_watts is None
