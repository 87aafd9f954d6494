"""Shared memory: nothing is left, nothing of others is touched."""

import os
import subprocess
import sys
from pathlib import Path

from hps.triton import shared_memory


def test_shared_memory_of_one_run_is_removed(tmp_path: Path) -> None:
    first, second = shared_memory.prefix(1), shared_memory.prefix(11)
    for name in (f"{first}a", f"{first}b", f"{second}a", "other"):
        (tmp_path / name).touch()
    assert shared_memory.remove(first, tmp_path) == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([f"{second}a", "other"])


def test_shared_memory_of_a_killed_launcher_is_removed_and_no_other(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    alive = shared_memory.prefix(1)
    dead = alive.replace(f"-{os.getpid()}-", f"-{child.pid}-")
    elsewhere = f"hps-1-{child.pid}-1-"  # of another container that shares the directory
    for name in (alive, dead, elsewhere):
        (tmp_path / name).touch()
    assert shared_memory.remove_orphaned(tmp_path) == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([alive, elsewhere])
