"""A file of settings for Compose (.env): named lines are changed, every other byte stays as it is."""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dotenv import dotenv_values

from hps.prepare.problems import PrepareError

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.,:/@%+=-]*")


def read(file: Path) -> dict[str, str]:
    """The values of a file as Compose sees them; empty ones are left out. An absent file is an empty one."""
    if not file.exists():
        return {}
    return {name: value for name, value in dotenv_values(file).items() if value}


def edited(text: str, values: Mapping[str, str]) -> str:
    """`text` with each variable set: where it is set, else where it stands commented out, else at the end. Pure."""
    for name, value in values.items():
        line = f"{name}={_quoted(value)}"
        text, done = _replaced(text, rf"[ \t]*(?:export[ \t]+)?{name}[ \t]*=[^\r\n]*", line)
        if not done:
            text, done = _replaced(text, rf"#[ \t]*{name}=[^\r\n]*", line)
        if not done:
            newline = "\r\n" if "\r\n" in text else "\n"
            text += ("" if not text or text.endswith("\n") else newline) + line + newline
    return text


def write(file: Path, text: str) -> bool:
    """Whether the file was changed. All of it is changed, or nothing: a reader never sees half a file."""
    if file.exists() and file.read_bytes() == text.encode():
        return False
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


def _replaced(text: str, pattern: str, line: str) -> tuple[str, bool]:
    """The last line that matches is the one that counts, as for Compose."""
    found = list(re.finditer(rf"^{pattern}(?=\r?$)", text, re.MULTILINE))
    if not found:
        return text, False
    return text[: found[-1].start()] + line + text[found[-1].end() :], True


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    if "'" in value or "\n" in value or "\r" in value:
        raise PrepareError(f"a value with quotes or line ends cannot be written to .env: {value!r}")
    return f"'{value}'"
