"""When a block has been read for long enough: the rules of SPEC D.6 applied while its text arrives.

A block that a model reads over and over until its token limit holds a place in the servers for thousands of tokens,
and its text is cut back afterwards all the same. What is stopped early is cut back to the same text: it is stopped
only when the rules of the clean-up would already shorten it, by so much that it cannot be anything but a loop.
(How much of the phrase is left over depends on where the text happens to end, here as at the token limit.)
Pure.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from hps import text_cleanup

# Why a text ends before its model wanted to: it repeats itself, its token limit, its time.
Stop = Literal["repetition", "tokens", "time"]

# The clean-up would cut shorter runs too, but the text might still go on in another way and then stay as it is: lines
# of a form to be filled in, leaders of a table of contents.
_CERTAIN_CHARS: Final = 1000
_CERTAIN_LINES: Final = 40
_GROWTH: Final = 1.2


def is_loop(text: str, loop_chars: int) -> bool:
    """Whether a text that is not complete repeats itself for good. loop_chars: the clean-up's least length."""
    cut = text_cleanup.without_repetition(text, min_chars=loop_chars)
    if len(text) - len(cut) < _CERTAIN_CHARS:
        return False
    lines = _complete_lines(text)[-_CERTAIN_LINES:]
    return not lines or (len(lines) == _CERTAIN_LINES and len(set(lines)) == 1)


def _complete_lines(text: str) -> Sequence[str]:
    return [line for line in map(str.strip, text.split("\n")[:-1]) if line]


class LoopWatch:
    """Looks at a growing text from time to time: the looks cost no more than a small multiple of the last."""

    def __init__(self, loop_chars: int) -> None:
        self._loop_chars = loop_chars
        self._next_look = max(loop_chars, _CERTAIN_CHARS)

    def sees_loop(self, length: int, text: Callable[[], str]) -> bool:
        """length: of the text so far, which is only put together when it is looked at."""
        if length < self._next_look:
            return False
        self._next_look = int(length * _GROWTH)
        return is_loop(text(), self._loop_chars)
