"""The container's health check: `python -m vlm_server.health FIRST_PORT COUNT`.

Healthy when all servers answer; and, once they all have, still healthy as long as one does: it goes on serving with
what is left, and says so. Exit code 0 or 1, and one line: "4 of 4 servers", "degraded: 3 of 4 servers, not 8082".
"""

import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TIMEOUT_S = 4.0
ALL_WERE_WELL = "hps-vlm-all-were-well"


def answers(port: int) -> bool:
    """Whether the server there says that it is healthy: its engine too, not only its HTTP process."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=TIMEOUT_S) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def verdict(ports: Sequence[int], well: Sequence[bool], all_were_well: bool) -> tuple[bool, str]:
    """Whether the container is healthy, and the line that says it. Pure."""
    missing = [str(port) for port, is_well in zip(ports, well, strict=True) if not is_well]
    if not missing:
        return True, f"{len(ports)} of {len(ports)} servers"
    said = f"{len(ports) - len(missing)} of {len(ports)} servers, not {', '.join(missing)}"
    if all_were_well and len(missing) < len(ports):
        return True, f"degraded: {said}"
    return False, f"starting: {said}" if not all_were_well else said


def main(first_port: int, count: int) -> int:
    ports = range(first_port, first_port + count)
    mark = Path(tempfile.gettempdir()) / ALL_WERE_WELL
    with ThreadPoolExecutor(count) as threads:
        well = list(threads.map(answers, ports))
    if all(well):
        mark.touch()
    healthy, line = verdict(ports, well, mark.exists())
    print(line)
    return 0 if healthy else 1


if __name__ == "__main__":
    from .environment import read

    plan = read()
    sys.exit(main(plan.first_port, plan.servers))
