import random

import pytest

from hps.text_cleanup import repetition_min_chars, without_repetition
from hps.vlm.guard import LoopWatch, is_loop

PHRASE = "please pay the amount due "
OCR, TABLE = repetition_min_chars("ocr"), repetition_min_chars("table")


def prose(words: int) -> str:
    source = random.Random(3)
    return " ".join("".join(source.choices("abcdefghij", k=source.randint(2, 9))) for _ in range(words))


@pytest.mark.parametrize(
    ("start", "again", "loop_chars"),
    [
        ("", PHRASE, OCR),
        ("Total: ", PHRASE, OCR),
        ("", "0", OCR),
        ("", "A name\n", OCR),
        (prose(3) + "\n", "same line of the form\n", OCR),
        ("", "<fcel>1<nl>", TABLE),
    ],
    ids=["phrase", "after a start", "one letter", "lines", "lines after a start", "table"],
)
def test_a_loop_is_seen_and_cut_as_the_whole_of_it_would_be(start: str, again: str, loop_chars: int) -> None:
    watch, rounds = LoopWatch(loop_chars), 0
    while not watch.sees_loop(len(text := start + again * rounds), lambda text=text: text):  # type: ignore[misc]
        rounds += 1
        assert rounds < 5000
    # The same but for the rounds that are left over where the text happens to end; of lines, the line is left.
    whole = without_repetition(start + again * 3 * rounds, min_chars=loop_chars)
    shorter, longer = sorted((without_repetition(text, min_chars=loop_chars), whole), key=len)
    assert longer.startswith(shorter)
    assert longer.removeprefix(shorter) in again * 3 * rounds


@pytest.mark.parametrize(
    ("text", "loop_chars"),
    [
        (prose(800), OCR),
        (prose(100) + " . . . . . . . . . . . . . . . . 12", OCR),
        ("________________\n" * 30, OCR),
        (PHRASE * 20, OCR),
        ("<ecel>" * 400, TABLE),
        ("same line of the form\n" * 60 + prose(10) + "\n", OCR),
        ("", OCR),
    ],
    ids=["prose", "leaders", "lines to be filled in", "too short yet", "short table", "it went on", "empty"],
)
def test_what_may_still_go_on_is_no_loop(text: str, loop_chars: int) -> None:
    assert not is_loop(text, loop_chars)


def test_a_growing_text_is_looked_at_a_few_times() -> None:
    text, looks = prose(4000), 0
    watch = LoopWatch(OCR)

    def whole() -> str:
        nonlocal looks
        looks += 1
        return text[:length]

    for length in range(0, len(text), 4):
        assert not watch.sees_loop(length, whole)
    assert looks < 20


def test_a_loop_is_seen_soon() -> None:
    watch = LoopWatch(OCR)
    texts = ((PHRASE * 400)[:length] for length in range(0, 10_000, 4))
    seen = next(text for text in texts if watch.sees_loop(len(text), lambda text=text: text))  # type: ignore[misc]
    assert len(seen) < 1500
