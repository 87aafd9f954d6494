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


def test_children_that_are_spared_keep_what_is_below_them() -> None:
    program = """
import subprocess, sys, psutil
from hps import processes
processes.adopt_orphans()
code = "import subprocess; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
spared, other = (subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2))
kept, ended = (psutil.Process(int(child.stdout.readline())) for child in (spared, other))
processes.kill_descendants(but=[spared.pid])
assert kept.is_running() and not ended.is_running()
assert psutil.Process().children() == [psutil.Process(spared.pid)]
processes.kill_descendants()
assert not kept.is_running()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=20)


def test_the_dead_are_collected_but_for_those_of_others() -> None:
    program = """
import os, subprocess, sys, psutil
from hps import processes
processes.reap()
mine, others = (subprocess.Popen(["true"]) for _ in range(2))
for child in (mine, others):
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
processes.reap(but=[others.pid])
assert psutil.pid_exists(others.pid)
assert others.wait() == 0
processes.reap()
assert not psutil.pid_exists(mine.pid)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=20)


def test_a_child_hears_of_its_parents_death() -> None:
    parent = """
import signal, subprocess, sys, functools
from hps import processes
tell = functools.partial(processes.die_with_parent, signal.SIGTERM)
child = subprocess.Popen(["sleep", "60"], preexec_fn=tell)
print(child.pid, flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-W", "ignore", "-c", parent]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        process.kill()
    gone, _ = psutil.wait_procs([child], timeout=10)
    assert gone == [child]
