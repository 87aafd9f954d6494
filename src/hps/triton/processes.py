"""Child processes on Linux: none outlives its parent unseen, and all of a tree can be ended."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable
from pathlib import Path

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


def die_with_parent() -> None:
    """For Popen's preexec_fn: the kernel kills the child when the thread that started it is gone."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def reap(*, but: int | None) -> None:
    """Collects children that have died, adopted ones included; `but` is left for its Popen to collect."""
    for child in psutil.Process().children():
        if child.pid != but and is_dead(child):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


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


def kill_descendants() -> None:
    """SIGKILL to every process below this one, until none is left (a tree may still grow while it is cut)."""
    while children := [child for child in psutil.Process().children(recursive=True) if not is_dead(child)]:
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=1)
    reap(but=None)


def shared_memory_prefix(number: int) -> str:
    """A name for the shared memory of one start of a server, which tells whether its owner is still alive."""
    return f"hps-{_namespace()}-{os.getpid()}-{number}-"


def remove_shared_memory(prefix: str, directory: Path = Path("/dev/shm")) -> int:
    """Removes what a server that is no more left behind; how many entries that were."""
    count = 0
    for entry in directory.glob(f"{prefix}*"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            entry.unlink()
            count += 1
    return count


def remove_orphaned_shared_memory(directory: Path = Path("/dev/shm")) -> int:
    """Removes what servers left behind whose launcher was killed and so could not."""
    own = f"hps-{_namespace()}-"
    count = 0
    for entry in directory.glob(f"{own}*"):
        pid = entry.name.removeprefix(own).split("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            with contextlib.suppress(FileNotFoundError, PermissionError):
                entry.unlink()
                count += 1
    return count


def _namespace() -> int:
    """Containers may share /dev/shm but number their processes each on its own."""
    return os.stat("/proc/self/ns/pid").st_ino
