import json

import pytest

from hps.vlm.chat import Completion, Transcript, Unreadable, completion


def event(content: str | None = None, reason: str | None = None) -> bytes:
    delta = {} if content is None else {"content": content}
    return (
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}).encode() + b"\n\n"
    )


EVENTS = (
    event("")
    + event("Grüße, ")
    + b": a comment\n\n"
    + event("文字 \U0001f600")
    + event(None, "stop")
    + b'data: {"choices": [], "usage": {"completion_tokens": 7}}\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_events_may_be_cut_anywhere(size: int) -> None:
    transcript = Transcript()
    for start in range(0, len(EVENTS), size):
        transcript.feed(EVENTS[start : start + size])
    assert transcript.completion() == Completion("Grüße, 文字 \U0001f600", "stop", 7)
    assert transcript.length == len(transcript.text)


def test_without_usage_events_are_counted() -> None:
    transcript = Transcript()
    transcript.feed(event("a") + event("b", "length") + b"data: [DONE]\n\n")
    assert transcript.completion() == Completion("ab", "length", 2)


@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n", event(None, "stop")], ids=["cut", "no reason", "no end"])
def test_a_stream_without_its_end_is_no_answer(end: bytes) -> None:
    transcript = Transcript()
    transcript.feed(event("a") + end)
    with pytest.raises(Unreadable):
        transcript.completion()


@pytest.mark.parametrize("data", [b"data: {\n", b"data: [1]\n", b'data: {"choices": [{"delta": {"content": 3}}]}\n'])
def test_events_that_are_none(data: bytes) -> None:
    with pytest.raises(Unreadable):
        Transcript().feed(data)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"choices": []}', b'{"choices": [{"message": {"content": 1}}]}'])
def test_answers_that_are_none(content: bytes) -> None:
    with pytest.raises(Unreadable):
        completion(content)
