"""Downloads that go on where they were broken off."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import httpx

from hps.prepare.hubs import RemoteFile
from hps.prepare.problems import PrepareError

TRIES: Final = 6  # in a row without a byte
_REPORT_EVERY_S: Final = 10.0

Say = Callable[[str], None]


class _Broken(Exception):
    """The transfer ended early; another try may go on from there."""


def fetch(
    client: httpx.Client, url: str, headers: Mapping[str, str], file: RemoteFile, target: Path, say: Say, pause_s: float
) -> None:
    """`target` with the content of `url`, verified by size and by the checksum of `file`.

    What is there of an earlier try is gone on from; a file with the wrong content is removed. pause_s: before
    another try, doubled for each in a row that brought nothing. Raises PrepareError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    vain = 0
    while True:
        before = _size(target)
        try:
            _go_on(client, url, headers, file, target, say)
            break
        except _Broken as error:
            vain = 0 if _size(target) > before else vain + 1
            at = f"{_size(target)} of {file.size} bytes"
            if vain == TRIES:
                raise PrepareError(f"{url}: broken off at {at} ({error}). Run it again: it goes on there") from error
            say(f"  {file.path}: {error}; going on at {at}")
            time.sleep(pause_s * 2**vain)
    verify(target, file, url)


def verify(target: Path, file: RemoteFile, source: str) -> None:
    """Raises PrepareError, and removes `target`, when it is not what the source says the file is."""
    problem = None
    if _size(target) != file.size:
        problem = f"{_size(target)} bytes instead of {file.size}"
    elif file.checksum is not None and (found := file.checksum.of(target)) != file.checksum.value:
        problem = f"{file.checksum.kind} checksum {found} instead of {file.checksum.value}"
    if problem:
        target.unlink(missing_ok=True)
        raise PrepareError(f"{source}: wrong content: {problem}. It was thrown away; nothing was installed")


def _go_on(
    client: httpx.Client, url: str, headers: Mapping[str, str], file: RemoteFile, target: Path, say: Say
) -> None:
    there = _size(target)
    if there > file.size:
        target.unlink()
        there = 0
    if there == file.size:
        target.touch()
        return
    wanted = {"Range": f"bytes={there}-"} if there else {}
    try:
        # Without compression: a range of it would be of something else.
        with client.stream("GET", url, headers={**headers, **wanted, "Accept-Encoding": "identity"}) as response:
            _check(response, url)
            append = response.status_code == 206 and _starts_at(response, there)
            with target.open("ab" if append else "wb") as stream:
                _copy(response, stream.write, file, there if append else 0, say)
    except httpx.HTTPError as error:
        raise _Broken(f"{type(error).__name__}: {error}") from error
    if _size(target) < file.size:
        raise _Broken("the connection was closed early")


def _check(response: httpx.Response, url: str) -> None:
    if response.status_code in (200, 206):
        return
    if response.status_code in (408, 416, 429) or response.status_code >= 500:
        raise _Broken(f"HTTP {response.status_code}")
    raise PrepareError(f"{url}: HTTP {response.status_code}")


def _starts_at(response: httpx.Response, position: int) -> bool:
    if response.headers.get("Content-Range", "").startswith(f"bytes {position}-"):
        return True
    raise _Broken(f"another range than asked for: {response.headers.get('Content-Range')}")


def _copy(response: httpx.Response, write: Callable[[bytes], object], file: RemoteFile, done: int, say: Say) -> None:
    said = time.monotonic()
    for chunk in response.iter_raw():  # as it comes: a broken transfer keeps all that did
        write(chunk)
        done += len(chunk)
        if time.monotonic() - said >= _REPORT_EVERY_S:
            said = time.monotonic()
            say(f"  {file.path}: {done / 2**20:.0f} of {file.size / 2**20:.0f} MiB")


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
