"""benchmarks/gpu/token_counts.py: every crop of the page mix that the pipeline makes gets its number of tokens."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.token_counts import UNKNOWN, TokenCounts
from hps import recognition
from hps.bench import page_mix
from hps.layout import postprocess
from hps.layout.fixed import load_fixed
from hps.layout.page_inputs import LayoutInput
from hps.vlm import requests as vlm_requests


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "mix.json"
    page_mix.write_table(page_mix.pages(8), file)
    monkeypatch.setenv("HPS_BENCH_TOKENS", str(file))
    return file


async def passed_on(body: bytes, path: str = "/v1/chat/completions") -> tuple[dict[str, object], dict[str, object]]:
    """What the server behind the middleware sees: the request, in two messages, and its scope."""
    seen: list[tuple[dict[str, object], dict[str, object]]] = []

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        seen.append((json.loads((await receive())["body"]), scope))

    middle = len(body) // 2
    messages = [
        {"type": "http.request", "body": body[:middle], "more_body": True},
        {"type": "http.request", "body": body[middle:], "more_body": False},
    ]

    async def receive() -> dict[str, object]:
        return messages.pop(0)

    async def send(message: object) -> None:
        raise AssertionError(message)

    headers = [(b"content-length", str(len(body)).encode()), (b"x-other", b"1")]
    await TokenCounts(app)({"type": "http", "path": path, "headers": headers}, receive, send)
    return seen[0]


async def test_every_crop_of_the_mix_has_its_tokens(table: Path) -> None:
    for page in page_mix.pages(8):
        image = np.ascontiguousarray(np.asarray(page_mix.picture(page))[:, :, ::-1])
        (finish,) = load_fixed(table).detect([LayoutInput(image, page.width, page.height)])
        regions = postprocess.regions(finish(), (page.width, page.height), postprocess.LayoutRules())
        tasks = recognition.plan(image, regions, recognition.RecognitionOptions()).tasks
        bodies = [(await passed_on(block.body()))[0] for block in vlm_requests.encoded_requests(tasks, "m")]
        assert sorted(body["max_completion_tokens"] for body in bodies) == sorted(block.tokens for block in page.blocks)  # type: ignore[type-var]
        assert all(body["ignore_eos"] is True for body in bodies)


async def test_the_length_of_the_request_is_said_anew(table: Path) -> None:
    body = b'{"messages": [], "max_tokens": 4096}'
    request, scope = await passed_on(body)
    assert request == {"messages": [], "max_completion_tokens": UNKNOWN, "ignore_eos": True}
    new = b'{"messages": [], "max_completion_tokens":64,"ignore_eos":true}'
    assert scope["headers"] == [(b"x-other", b"1"), (b"content-length", str(len(new)).encode())]


def test_a_whole_page_is_as_long_as_its_client_says(table: Path) -> None:
    body = TokenCounts(None).limited(b'{"messages": [], "max_completion_tokens": 1031}')  # type: ignore[arg-type]
    assert json.loads(body) == {"messages": [], "max_completion_tokens": 1031, "ignore_eos": True}


def test_a_size_that_the_mix_does_not_have_is_said_once(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        raise AssertionError

    counts = TokenCounts(app)
    for _ in range(2):
        counts.limited(b'{"max_tokens": 1}')
    assert capsys.readouterr().err.count("not in the page mix") == 1
