"""API keys: a file of names and hashes, written by `hps keys` and read by the gateway.

One key a line, `NAME HASH`, # for comments. A key is 256 random bits, so that SHA-256 without salt or stretching is all
that it takes to keep it: nobody can guess what it hashes. The file has no key in it, and no key is ever logged.
"""

import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hps.settings import SettingsError

log = logging.getLogger(__name__)

PREFIX: Final = "hps_"  # for scanners that look for leaked keys
RECHECK_S: Final = 1.0  # a change of the file holds after this long at the latest

_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class KeysError(SettingsError):
    """The file cannot be used; the message says why, and holds no hash."""


class ApiKeys:
    """The keys of a file as it is now. A file that cannot be read any more leaves them as they were, and is logged."""

    def __init__(self, file: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises KeysError."""
        self._file = file
        self._clock = clock
        self._keys, self._version = _load(file)
        self._looked_at = clock()
        self._is_broken = False

    def name_of(self, key: str) -> str | None:
        """Who has this key. Takes as long for every key that is wrong, however much of it is right."""
        self._refresh()
        presented = _digest(key)
        found = None
        for name, expected in self._keys.items():  # all of them, always
            if hmac.compare_digest(presented, expected):
                found = name
        return found

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._looked_at < RECHECK_S:
            return
        self._looked_at = now
        try:
            if _version(self._file) == self._version:
                return
            self._keys, self._version = _load(self._file)
        except (KeysError, OSError) as error:
            if not self._is_broken:
                log.error("API keys stay as they were: %s", error)
            self._is_broken = True
            return
        self._is_broken = False
        log.info("API keys read anew: %d", len(self._keys))


def add(file: Path, name: str) -> str:
    """A new key for `name`, which is added to the file; made if need be. Raises KeysError, also for a known name."""
    if not _NAME.fullmatch(name):
        raise KeysError("a key's name is 1 to 64 letters, digits and . _ @ -")
    key = PREFIX + secrets.token_urlsafe(32)

    def added(text: str) -> str:
        if name in _parsed(text):
            raise KeysError(f"there is a key named {name}: remove it first")
        return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{name} {_digest(key)}\n"

    _rewrite(file, added)
    return key


def remove(file: Path, name: str) -> None:
    """Raises KeysError when there is no such key."""

    def without(text: str) -> str:
        if name not in _parsed(text):
            raise KeysError(f"there is no key named {name}")
        return "".join(line for line in text.splitlines(keepends=True) if line.split()[:1] != [name])

    _rewrite(file, without)


def names(file: Path) -> list[str]:
    """Raises KeysError."""
    return list(_load(file)[0])


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


_Version = tuple[int, int, int]


def _version(file: Path) -> _Version:
    state = file.stat()
    return state.st_mtime_ns, state.st_size, state.st_ino


def _load(file: Path) -> tuple[dict[str, str], _Version]:
    try:
        with file.open() as content:
            fcntl.flock(content, fcntl.LOCK_SH)  # not in the middle of a _rewrite
            return _parsed(content.read()), _version(file)
    except (OSError, UnicodeDecodeError) as error:
        raise KeysError(f"HPS_API_KEYS_FILE cannot be read: {_reason(error)}") from error


def _parsed(text: str) -> dict[str, str]:
    keys: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not _NAME.fullmatch(words[0]) or not _HASH.fullmatch(words[1]) or words[0] in keys:
            raise KeysError(f"HPS_API_KEYS_FILE: line {number} is not the name and the hash of another key")
        keys[words[0]] = words[1]
    return keys


def _rewrite(file: Path, change: Callable[[str], str]) -> None:
    """In place and under a lock: a container that has this one file mounted would never see another in its place."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        with open(descriptor, "r+") as content:
            fcntl.flock(content, fcntl.LOCK_EX)
            text = change(content.read())
            content.seek(0)
            content.write(text)
            content.truncate()
    except (OSError, UnicodeDecodeError) as error:
        raise KeysError(f"the file of keys cannot be written: {_reason(error)}") from error


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else "it is no text"
