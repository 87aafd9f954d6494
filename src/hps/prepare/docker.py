"""Docker's command line."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from hps.prepare.problems import PrepareError


def docker(*arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What it printed. Raises PrepareError with what it complained about."""
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, cwd=cwd, env=env)
    except OSError as error:
        raise PrepareError(f"docker cannot be started: {error}") from error
    if done.returncode != 0:
        raise PrepareError(f"docker {' '.join(arguments)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def show(*arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """The same for what takes long: its output goes to the terminal as it comes."""
    try:
        done = subprocess.run(["docker", *arguments], cwd=cwd, env=env)
    except OSError as error:
        raise PrepareError(f"docker cannot be started: {error}") from error
    if done.returncode != 0:
        raise PrepareError(f"docker {' '.join(arguments)} failed: its messages are above")


def image_id(name: str) -> str | None:
    """Of an image that is here."""
    done = subprocess.run(["docker", "image", "inspect", "--format", "{{.Id}}", name], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def digest(name: str) -> str:
    """The image's name by digest, for what came from a registry; the plain name for what was built here."""
    digests: list[str] = json.loads(docker("image", "inspect", "--format", "{{json .RepoDigests}}", name)) or []
    repository = _repository(name)
    found = next((entry.partition("@")[2] for entry in digests if entry.startswith(f"{repository}@")), None)
    found = found or next((entry.partition("@")[2] for entry in digests), None)
    return f"{name}@{found}" if found else name


def save(images: Sequence[str], file: Path) -> None:
    docker("image", "save", "--output", str(file), *images)


def load(archive: IO[bytes]) -> None:
    """Images that `save` wrote. Raises PrepareError."""
    with subprocess.Popen(["docker", "image", "load", "--quiet"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        # Where Docker stops reading, it says why; its exit code tells.
        with contextlib.suppress(BrokenPipeError):
            shutil.copyfileobj(archive, process.stdin, 2**20)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    if process.returncode != 0:
        raise PrepareError("docker image load failed: its messages are above")


def _repository(name: str) -> str:
    head, _, last = name.rpartition("/")
    return f"{head}/{last.partition(':')[0]}".lstrip("/")
