import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hps.prepare import download
from hps.prepare.hubs import Checksum, RemoteFile
from hps.prepare.problems import PrepareError

CONTENT = bytes(range(256)) * 40
FILE = RemoteFile("model.safetensors", len(CONTENT), "commit", Checksum("sha256", hashlib.sha256(CONTENT).hexdigest()))


class Broken(httpx.SyncByteStream):
    def __init__(self, content: bytes) -> None:
        self._content = content

    def __iter__(self) -> Iterator[bytes]:
        yield self._content
        raise httpx.ReadError("reset")


def fetched(answers: list[httpx.Response], target: Path) -> list[str | None]:
    """The ranges that were asked for."""
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("Range"))
        return answers.pop(0) if len(answers) > 1 else answers[0]

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        download.fetch(client, "http://hub/file", {}, FILE, target, lambda line: None, 0.0)
    return asked


def part(start: int, stream: httpx.SyncByteStream | None = None) -> httpx.Response:
    headers = {"Content-Range": f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"}
    return httpx.Response(206, headers=headers, stream=stream or httpx.ByteStream(CONTENT[start:]))


def test_in_pieces(tmp_path: Path) -> None:
    answers = [
        httpx.Response(200, stream=Broken(CONTENT[:1000])),
        httpx.Response(503),
        part(1000, Broken(CONTENT[1000:5000])),
        part(5000),
    ]
    target = tmp_path / "deep/file"
    assert fetched(answers, target) == [None, "bytes=1000-", "bytes=1000-", "bytes=5000-"]
    assert target.read_bytes() == CONTENT


def test_a_server_without_ranges_starts_anew(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(CONTENT[:100])
    assert fetched([httpx.Response(200, stream=httpx.ByteStream(CONTENT))], target) == ["bytes=100-"]
    assert target.read_bytes() == CONTENT


def test_what_is_whole_is_only_verified(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(CONTENT)
    assert fetched([httpx.Response(500)], target) == []


def test_what_is_too_long_is_fetched_again(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(CONTENT + b"more")
    assert fetched([httpx.Response(200, stream=httpx.ByteStream(CONTENT))], target) == [None]


@pytest.mark.parametrize("answer", [httpx.Response(503), httpx.Response(206, headers={"Content-Range": "bytes 7-9/9"})])
def test_giving_up_keeps_what_is_there(tmp_path: Path, answer: httpx.Response) -> None:
    target = tmp_path / "file"
    target.write_bytes(CONTENT[:100])
    with pytest.raises(PrepareError, match=r"broken off at 100 of 10240 bytes .* Run it again"):
        fetched([answer], target)
    assert target.read_bytes() == CONTENT[:100]


def test_an_answer_that_will_not_change(tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match="HTTP 404"):
        fetched([httpx.Response(404)], tmp_path / "file")


@pytest.mark.parametrize("content", [bytes(len(CONTENT)), CONTENT + b"x"])
def test_wrong_content_is_thrown_away(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(PrepareError, match="wrong content"):
        fetched([httpx.Response(200, stream=httpx.ByteStream(content))], tmp_path / "file")
    assert not (tmp_path / "file").exists()
