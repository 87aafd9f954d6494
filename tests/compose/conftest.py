"""A Docker Engine for the tests of this folder, so that they need no more than Debian's packages and root."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ENGINE = Path(__file__).with_name("engine.sh")


def engine(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ENGINE, *arguments], capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="session")
def docker_environ() -> Iterator[dict[str, str]]:
    """The environment with which `docker` reaches the engine, which was started for it unless it ran already."""
    was_running = engine("status").returncode == 0
    started = engine("up")
    assert started.returncode == 0, started.stderr[-4000:]
    try:
        exported = subprocess.run(["bash", "-c", f'eval "$({ENGINE} env)" && env -0'], capture_output=True, text=True)
        environ = dict(entry.split("=", 1) for entry in exported.stdout.split("\0") if "=" in entry)
        yield {name: value for name, value in environ.items() if not name.startswith(("HPS_", "COMPOSE_"))}
    finally:
        if not was_running:
            engine("down")
