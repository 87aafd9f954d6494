"""Shared memory of servers in /dev/shm: named so that what a dead one left behind can be told and removed."""

import contextlib
import os
from pathlib import Path

import psutil


def prefix(number: int) -> str:
    """A name for the shared memory of one start of a server, which tells whether its owner is still alive."""
    return f"hps-{_namespace()}-{os.getpid()}-{number}-"


def remove(prefix: str, directory: Path = Path("/dev/shm")) -> int:
    """Removes what a server that is no more left behind; how many entries that were."""
    count = 0
    for entry in directory.glob(f"{prefix}*"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            entry.unlink()
            count += 1
    return count


def remove_orphaned(directory: Path = Path("/dev/shm")) -> int:
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
