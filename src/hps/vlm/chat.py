"""What a VLM server answers: a chat completion, whole or as server-sent events, as OpenAI servers write them. Pure."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json


class Unreadable(Exception):
    """Not a chat completion."""


@dataclass(frozen=True, slots=True)
class Completion:
    """finish_reason: "stop", or "length" when the token limit cut the text."""

    text: str
    finish_reason: str
    completion_tokens: int


def completion(content: bytes) -> Completion:
    """A whole answer. Raises Unreadable."""
    try:
        reply = _parsed(content)
        choice = reply["choices"][0]
        text = choice["message"]["content"]
        tokens = (reply.get("usage") or {}).get("completion_tokens") or 0
        reason = choice.get("finish_reason") or "stop"
        return Completion(_text(text), str(reason), int(tokens))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unreadable from error


class Transcript:
    """An answer that arrives as events. `length`, `text` and `completion_tokens` are of what has come so far."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.length = 0
        self._tokens: int | None = None
        self._deltas: list[str] = []
        self._rest = b""
        self._is_complete = False

    @property
    def is_finished(self) -> bool:
        """All of the text is there, though perhaps not the token count."""
        return self.finish_reason is not None

    @property
    def text(self) -> str:
        return "".join(self._deltas)

    @property
    def completion_tokens(self) -> int:
        """As the server counts them; before it has said so, its events."""
        return len(self._deltas) if self._tokens is None else self._tokens

    def feed(self, data: bytes) -> None:
        """The next bytes, cut anywhere. Raises Unreadable."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())

    def completion(self) -> Completion:
        """All of it. Raises Unreadable when the end is missing."""
        if not self._is_complete or self.finish_reason is None:
            raise Unreadable
        return Completion(self.text, self.finish_reason, self.completion_tokens)

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._is_complete = True
            return
        try:
            event = _parsed(data)
            for choice in event["choices"]:
                delta = _text(choice["delta"].get("content"))
                if delta:
                    self._deltas.append(delta)
                    self.length += len(delta)
                self.finish_reason = choice.get("finish_reason") or self.finish_reason
            if usage := event.get("usage"):
                self._tokens = int(usage["completion_tokens"])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise Unreadable from error


def _parsed(data: bytes) -> Any:
    try:
        return from_json(data)  # a third of the time, but strict about surrogates
    except ValueError:
        return json.loads(data)


def _text(content: Any) -> str:
    """JSON may hold halves of surrogate pairs; no answer of ours could carry them."""
    if content is None:
        return ""
    if not isinstance(content, str):
        raise TypeError("content is not text")
    return content if content.isascii() else content.encode("utf-8", "replace").decode()
