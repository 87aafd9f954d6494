"""Memory that is a process's own: what it has written to, alone or with others, without the files that it maps."""

from collections.abc import Iterable
from pathlib import Path

OWN = ("Pss_Anon:", "Pss_Shmem:")


def own_bytes(pids: Iterable[int]) -> int:
    """Of all these processes; memory that some of them share counts once."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, *value = line.split()
            if name in OWN:
                total += int(value[0]) * 1024
    return total
