"""What the health checks of the containers run: `python -m hps.liveness pipeline`, or `NAME PORT` for an HTTP service.

Docker restarts what ends, not what is unhealthy. So the check ends it: once a service that was well has failed `LIMIT`
checks in a row, all processes of its container are killed, and the restart policy does the rest.
"""

import http.client
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

LIMIT = 6  # a minute at the interval of the images
TIMEOUT_S = 4.0
# Set in our images: outside of a container there is more to kill than one service.
CONTAINER_VARIABLE = "IN_HPS_CONTAINER"


def main(arguments: Sequence[str]) -> int:
    """0 when the service answers, else 1."""
    name, *rest = arguments
    probe = partial(http_problem, int(rest[0])) if rest else pipeline_problem
    kill = _kill_all if os.environ.get(CONTAINER_VARIABLE) else None
    return checked(probe, Path(tempfile.gettempdir()) / f"hps-liveness-{name}", kill)


def checked(probe: Callable[[], str | None], file: Path, kill: Callable[[], None] | None) -> int:
    """0 when `probe` finds no problem, else 1 and the problem is printed; calls `kill` at LIMIT.

    `file` counts failures in a row and is there once the service has been well: before that it is starting, which may
    take long, and Docker's start period watches over it.
    """
    before = int(file.read_text() or 0) if file.exists() else None
    if before is not None:
        # Failed until it is not: Docker kills a check that takes too long, and that has to count.
        file.write_text(str(before + 1))
        if before >= LIMIT and kill is not None:
            _end(file, kill)
    if (problem := probe()) is None:
        file.write_text("0")
        return 0
    print(problem, flush=True)
    if before is not None and before + 1 >= LIMIT and kill is not None:
        _end(file, kill)
    return 1


def _end(file: Path, kill: Callable[[], None]) -> None:
    print(f"{LIMIT} checks in a row have failed: ending the container", flush=True)
    file.unlink()  # it may outlive the service, which then starts from nothing
    kill()


def pipeline_problem() -> str | None:
    from hps.settings import SettingsError, load
    from hps.triton import check

    try:
        return check.problem(load(), TIMEOUT_S)
    except SettingsError as error:
        return str(error)


def http_problem(port: int) -> str | None:
    """Of the service at this port, by its /health. From the standard library: a busy host takes long to import more."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()
    return None if status == 200 else f"status {status}"


def _kill_all() -> None:
    """All but process 1 and this one; process 1 is the container's init, which ends with its child."""
    os.kill(-1, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
