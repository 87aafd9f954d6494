"""A file of settings for Compose (.env): named lines are changed, every other byte stays as it is."""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dotenv import dotenv_values

from hps.prepare.problems import PrepareError
from hps.settings_reference import ENV_COMPOSE_FILE

_SET: Final = r"[ \t]*(?:export[ \t]+)?{}[ \t]*=[^\r\n]*"
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
        text, done = _replaced(text, _SET.format(name), line)
        if not done:
            text, done = _replaced(text, rf"#[ \t]*{name}=[^\r\n]*", line)
        if not done:
            newline = "\r\n" if "\r\n" in text else "\n"
            text += ("" if not text or text.endswith("\n") else newline) + line + newline
    return text


def choosing_compose_files(text: str) -> str:
    """`text` with a line COMPOSE_FILE, added at the end where there is none. Raises PrepareError when that line stands
    above a setting that it goes by: Compose would not see it. Pure."""
    chosen = _last(text, "COMPOSE_FILE")
    if chosen is None:
        newline = "\r\n" if "\r\n" in text else "\n"
        return text + ("" if not text or text.endswith("\n") else newline) + ENV_COMPOSE_FILE.replace("\n", newline)
    for name in re.findall(r"\$\{?(\w+)", chosen[0]):
        if (setting := _last(text, name)) is not None and setting.start() > chosen.start():
            raise PrepareError(f"in .env, {name} stands below COMPOSE_FILE, which goes by it: exchange the two lines")
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
    found = _last_match(text, pattern)
    return (text, False) if found is None else (text[: found.start()] + line + text[found.end() :], True)


def _last(text: str, name: str) -> re.Match[str] | None:
    return _last_match(text, _SET.format(name))


def _last_match(text: str, pattern: str) -> re.Match[str] | None:
    return next(reversed(list(re.finditer(rf"^{pattern}(?=\r?$)", text, re.MULTILINE))), None)


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    if "'" in value or "\n" in value or "\r" in value:
        raise PrepareError(f"a value with quotes or line ends cannot be written to .env: {value!r}")
    return f"'{value}'"
