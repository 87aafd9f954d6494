"""Child processes on Linux: none outlives its parent unseen, and all of a tree can be ended."""

import contextlib
import ctypes
import os
from collections.abc import Collection, Iterable

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# Looked up once: between fork and exec no library may be loaded.
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def adopt_orphans() -> None:
    """Makes this process the parent of descendants whose own parent dies, as PID 1 is in a container.

    So the workers of a killed model process stay in the tree and can be ended with it.
    """
    if _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def die_with_parent(number: int) -> None:
    """For Popen's preexec_fn: the kernel sends signal `number` to the child when the thread that started it ends."""
    _prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def reap(*, but: Collection[int] = ()) -> None:
    """Collects children that have died, adopted ones included; those in `but` are left for who started them."""
    with contextlib.suppress(ChildProcessError):  # no children at all
        # Looks at one dead child without collecting it. One of `but` hides those behind it, but not for long.
        while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if dead.si_pid in but:
                return
            os.waitpid(dead.si_pid, os.WNOHANG)


def is_dead(process: psutil.Process) -> bool:
    """Gone, or a zombie that nobody has collected yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def named(processes: Iterable[psutil.Process], name: str) -> list[psutil.Process]:
    """Those whose program has this name."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.name() == name:
                found.append(process)
    return found


def kill_descendants(*, but: Collection[int] = ()) -> None:
    """SIGKILL to every process below this one, until none is left (a tree may still grow while it is cut).

    The children `but` and what is below them are spared. Needs `adopt_orphans`: so whatever loses its parent meanwhile
    becomes a child of this process, and a look that finds no child, not even a dead one, has missed nothing.
    """
    me = psutil.Process()
    while children := [child for child in me.children() if child.pid not in but]:
        doomed = [process for child in children for process in _tree(child) if not is_dead(process)]
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(doomed, timeout=1)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return [process]
