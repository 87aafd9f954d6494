"""Exceptions for the log: where they came from, without the texts that might quote a document."""

import traceback

from hps.errors import HpsError


def stack_of(error: BaseException) -> str:
    """Types and frames of an exception and what caused it, outermost first.

    Messages of our own errors are written for clients and are kept; of foreign ones only the operating system's fixed
    texts are ("Connection refused"), since a parser's message may repeat what it could not parse.
    """
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None:
        parts.append(_title(current) + "\n" + "".join(traceback.format_tb(current.__traceback__)).rstrip())
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\ncaused by ".join(parts)


def _title(error: BaseException) -> str:
    name = type(error).__qualname__
    if isinstance(error, HpsError):
        return f"{name}: {error.message}"
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    return name
