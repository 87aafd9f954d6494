"""Children: none is left, however they lost their parent."""

import os
import subprocess
import sys

import psutil
import pytest

from hps import processes


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
from hps import processes
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
