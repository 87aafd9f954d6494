"""What the health checks of the containers run: `python -m hps.liveness gateway | pipeline | recogniser PORT`.

Docker restarts what ends, not what is unhealthy. So the check ends it: once a service that was well has failed `LIMIT`
checks in a row, all processes of its container are killed, and the restart policy does the rest.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from hps.settings import SettingsError, load

LIMIT = 6  # a minute at the interval of the images
TIMEOUT_S = 4.0
# Set in our images: outside of a container there is more to kill than one service.
CONTAINER_VARIABLE = "IN_HPS_CONTAINER"


def main(arguments: Sequence[str]) -> int:
    """0 when the service answers, else 1."""
    part, *rest = arguments
    problem = _problem(part, rest)
    kill = _kill_all if os.environ.get(CONTAINER_VARIABLE) else None
    record(problem, Path(tempfile.gettempdir()) / f"hps-liveness-{part}", kill)
    if problem is not None:
        print(problem)
    return 0 if problem is None else 1


def record(problem: str | None, file: Path, kill: Callable[[], None] | None) -> None:
    """Counts the failures in a row in `file`, which is there once the service has been well; calls `kill` at LIMIT."""
    if problem is None:
        file.write_text("0")
        return
    if not file.exists():  # still starting, which may take long; Docker's start period watches over that
        return
    failures = int(file.read_text() or 0) + 1
    file.write_text(str(failures))
    if failures >= LIMIT and kill is not None:
        print(f"{failures} checks in a row have failed: ending the container", flush=True)
        kill()


def _problem(part: str, rest: Sequence[str]) -> str | None:
    try:
        settings = load()
    except SettingsError as error:
        return str(error)
    if part == "pipeline":
        from hps.triton import check

        return check.problem(settings, TIMEOUT_S)
    port = settings.port if part == "gateway" else int(rest[0])
    try:
        status = httpx.get(f"http://127.0.0.1:{port}/health", timeout=TIMEOUT_S, trust_env=False).status_code
    except httpx.HTTPError as error:
        return type(error).__name__
    return None if status == 200 else f"status {status}"


def _kill_all() -> None:
    """All but process 1 and this one; process 1 is the container's init, which ends with its child."""
    os.kill(-1, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
