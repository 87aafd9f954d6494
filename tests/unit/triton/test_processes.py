"""Children and shared memory: nothing is left, nothing of others is touched."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hps.triton import processes


def test_shared_memory_of_one_run_is_removed(tmp_path: Path) -> None:
    first, second = processes.shared_memory_prefix(1), processes.shared_memory_prefix(11)
    for name in (f"{first}a", f"{first}b", f"{second}a", "other"):
        (tmp_path / name).touch()
    assert processes.remove_shared_memory(first, tmp_path) == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([f"{second}a", "other"])


def test_shared_memory_of_a_killed_launcher_is_removed_and_no_other(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    alive = processes.shared_memory_prefix(1)
    dead = alive.replace(f"-{os.getpid()}-", f"-{child.pid}-")
    elsewhere = f"hps-1-{child.pid}-1-"  # of another container that shares the directory
    for name in (alive, dead, elsewhere):
        (tmp_path / name).touch()
    assert processes.remove_orphaned_shared_memory(tmp_path) == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([alive, elsewhere])


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = psutil.Process(child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, not collected
    assert process.status() == psutil.STATUS_ZOMBIE
    assert processes.is_dead(process)
    child.wait()
    assert processes.is_dead(process)


@pytest.mark.parametrize("orphaned", [False, True])
def test_descendants_are_killed_and_collected_even_without_their_parent(orphaned: bool) -> None:
    # In a process of its own: becoming the parent of orphans is not undone, and it kills all it has.
    program = f"""
import subprocess, sys, psutil
from hps.triton import processes
processes.adopt_orphans()
code = "import subprocess; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True)"
code += "" if {orphaned} else "; p.wait()"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
sleeper = psutil.Process(int(child.stdout.readline()))
if {orphaned}:
    child.wait()
processes.kill_descendants()
assert not sleeper.is_running(), sleeper
assert not psutil.Process().children()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=20)
