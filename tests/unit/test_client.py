"""`hps parse` against a little service: what is asked, what is written, what is said when something fails."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hps import client
from hps.client import ParseFailed, Report, ServiceAway, Source
from hps.ports import free_port
from tests.fakes.server import Server


class Service:
    """Answers each file with its own text; `replies`, if any, come first, as (status, headers, body)."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.replies: list[tuple[int, dict[str, str], bytes]] = []
        self.images: dict[str, str] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, headers, answer = (200, {}, b"{}") if scope["method"] == "GET" else self._answer(json.loads(body))
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        self.requests.append(request)
        if self.replies:
            return self.replies.pop(0)
        text = base64.b64decode(request["file"]).decode()
        if text == "bad":
            return 422, {}, json.dumps({"errorCode": 422, "errorMsg": "Damaged file"}).encode()
        return 200, {}, json.dumps({"errorCode": 0, "result": result(text, self.images)}).encode()


def result(text: str, images: dict[str, str] | None = None) -> dict[str, Any]:
    return {"layoutParsingResults": [{"prunedResult": {}, "markdown": {"text": text, "images": images}}]}


def unavailable(retry_after: str = "0") -> tuple[int, dict[str, str], bytes]:
    return 503, {"Retry-After": retry_after}, b'{"errorMsg": "full"}'


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    app = Service()
    async with Server(app) as server:
        app.url = server.url
        yield app


def write(folder: Path, **files: str) -> None:
    """Documents a__b=… in folder/a/b.png."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def listed(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


async def parse(service: Service, source: Path, output: Path | None, **options: Any) -> Report:
    return await client.parse_all(service.url, client.find_sources([source], output), output, options, jobs=2)


# --- which documents ---


def names(sources: list[Source]) -> list[str]:
    return [source.name for source in sources]


def test_folders_are_searched_and_keep_their_structure(tmp_path: Path) -> None:
    write(tmp_path, b="", a__x="", a__y__z="")
    (tmp_path / "notes.txt").touch()
    assert names(client.find_sources([tmp_path])) == ["a/x", "a/y/z", "b"]


def test_a_file_counts_once_however_often_it_is_named(tmp_path: Path) -> None:
    write(tmp_path, a="")
    assert names(client.find_sources([tmp_path, tmp_path / "a.png", tmp_path / "." / "a.png"])) == ["a"]


def test_names_do_not_collide(tmp_path: Path) -> None:
    for name in ("a.pdf", "a.png", "A.tif", "a.pdf.png", "one/b.pdf", "two/b.pdf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert names(client.find_sources([tmp_path])) == ["A.tif", "a.pdf", "a.pdf-2", "a.png", "one/b", "two/b"]
    given = [tmp_path / "one/b.pdf", tmp_path / "two/b.pdf"]
    assert names(client.find_sources(given)) == ["b.pdf", "b.pdf-2"]


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        client.find_sources([tmp_path / "missing"])


@pytest.mark.parametrize("output", ["results", "."])
async def test_results_are_no_documents(service: Service, tmp_path: Path, output: str) -> None:
    write(tmp_path, a="![](imgs/b.png)", my_images__c="")
    service.images = {"imgs/b.png": base64.b64encode(b"pixels").decode()}
    await parse(service, tmp_path, tmp_path / output)
    assert (tmp_path / output / "a_images/page1_b.png").exists()
    assert names(client.find_sources([tmp_path], tmp_path / output)) == ["a", "my_images/c"]


# --- one document ---


@pytest.mark.parametrize(("data", "file_type"), [(b"%PDF-1.7", 0), (b"\0" * 900 + b"%PDF-1.4", 0), (b"II*\0", 1)])
async def test_the_type_is_told(service: Service, data: bytes, file_type: int) -> None:
    service.replies = [(200, {}, json.dumps({"result": result("")}).encode())]
    async with httpx.AsyncClient(base_url=service.url) as http:
        await client.parse_one(http, data, {"useChartRecognition": True})
    (request,) = service.requests
    assert request["fileType"] == file_type
    assert base64.b64decode(request["file"]) == data
    assert request["useChartRecognition"] is True


async def test_a_full_service_is_asked_again(service: Service) -> None:
    service.replies = [unavailable(), unavailable()]
    async with httpx.AsyncClient(base_url=service.url) as http:
        assert await client.parse_one(http, b"text", {}) == result("text", {})
    assert len(service.requests) == 3


async def test_a_service_that_stays_full_is_a_failure(service: Service) -> None:
    service.replies = [unavailable()] * client.MAX_TRIES
    async with httpx.AsyncClient(base_url=service.url) as http:
        with pytest.raises(ParseFailed, match="503: full"):
            await client.parse_one(http, b"text", {})


async def test_a_service_that_went_away_is_asked_again_and_then_given_up() -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{free_port()}") as http:
        with pytest.raises(ServiceAway, match=r"cannot reach the service at http://127.*ConnectError"):
            await client.parse_one(http, b"text", {}, first_wait_s=0.01)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"result": {}}', b'{"result": {"layoutParsingResults": [1]}}'])
@pytest.mark.parametrize("status", [200, 404])
async def test_another_server_is_not_taken_for_the_service(service: Service, status: int, body: bytes) -> None:
    service.replies = [(status, {}, body)]
    async with httpx.AsyncClient(base_url=service.url) as http:
        with pytest.raises(ParseFailed, match="is the address right"):
            await client.parse_one(http, b"text", {})


# --- its results ---


def pages(*markdown: dict[str, Any]) -> dict[str, Any]:
    return {"layoutParsingResults": [{"markdown": page} for page in markdown]}


def test_pages_follow_each_other() -> None:
    assert client.markdown_of(pages({"text": "one"}, {"text": "two"}), "x")[0] == "one\n\ntwo\n"


def test_equal_names_of_two_pages_are_two_images() -> None:
    page = {"text": "![](imgs/a.jpg)", "images": {"imgs/a.jpg": base64.b64encode(b"1").decode()}}
    other = page | {"images": {"imgs/a.jpg": base64.b64encode(b"2").decode()}}
    text, images = client.markdown_of(pages(page, other), "d_images")
    assert text == "![](d_images/page1_a.jpg)\n\n![](d_images/page2_a.jpg)\n"
    assert images == {"d_images/page1_a.jpg": b"1", "d_images/page2_a.jpg": b"2"}


def test_a_name_that_begins_like_another_is_left_whole() -> None:
    images = dict.fromkeys(("imgs/a.jp", "imgs/a.jpg"), "")
    assert client.markdown_of(pages({"text": "imgs/a.jpg imgs/a.jp", "images": images}), "d")[0] == (
        "d/page1_a.jpg d/page1_a.jp\n"
    )


def test_links_survive_spaces_and_brackets_in_the_name() -> None:
    page = {"text": "![](imgs/a.jpg)", "images": {"imgs/a.jpg": ""}}
    text, images = client.markdown_of(pages(page), "报告 (1)_images")
    assert text == "![](报告%20%281%29_images/page1_a.jpg)\n"
    assert list(images) == ["报告 (1)_images/page1_a.jpg"]


def test_images_that_are_kept_elsewhere_are_linked() -> None:
    page = {"text": "![](imgs/a.jpg)", "images": {"imgs/a.jpg": "https://store.example/a.jpg"}}
    assert client.markdown_of(pages(page), "d") == ("![](https://store.example/a.jpg)\n", {})


# --- all documents ---


async def test_each_document_gets_markdown_images_and_json(service: Service, tmp_path: Path) -> None:
    write(tmp_path / "in", a="one", deep__b="two ![](imgs/b.png)")
    service.images = {"imgs/b.png": base64.b64encode(b"pixels").decode()}
    report = await parse(service, tmp_path / "in", tmp_path / "out")
    assert report == Report(2, 0, {})
    assert (tmp_path / "out/a.md").read_text() == "one\n"
    assert (tmp_path / "out/deep/b.md").read_text() == "two ![](b_images/page1_b.png)\n"
    assert (tmp_path / "out/deep/b_images/page1_b.png").read_bytes() == b"pixels"
    record = json.loads((tmp_path / "out/deep/b.json").read_text())
    assert record["result"]["layoutParsingResults"][0]["markdown"] == {"text": "two ![](imgs/b.png)"}


async def test_done_documents_are_skipped_until_file_or_options_change(service: Service, tmp_path: Path) -> None:
    write(tmp_path / "in", a="one ![](imgs/old.png)", b="two")
    service.images = {"imgs/old.png": ""}
    out = tmp_path / "out"
    assert await parse(service, tmp_path / "in", out) == Report(2, 0, {})
    assert await parse(service, tmp_path / "in", out) == Report(0, 2, {})
    write(tmp_path / "in", a="new")
    service.images = {"imgs/new.png": ""}
    assert await parse(service, tmp_path / "in", out) == Report(1, 1, {})
    assert (out / "a.md").read_text() == "new\n"
    assert listed(out / "a_images") == ["page1_new.png"]
    assert await parse(service, tmp_path / "in", out, useChartRecognition=True) == Report(2, 0, {})


@pytest.mark.parametrize("damage", ["", "{", "[]"])
async def test_a_result_that_was_cut_off_is_made_again(service: Service, tmp_path: Path, damage: str) -> None:
    write(tmp_path / "in", a="one")
    await parse(service, tmp_path / "in", tmp_path / "out")
    (tmp_path / "out/a.json").write_text(damage)
    assert await parse(service, tmp_path / "in", tmp_path / "out") == Report(1, 0, {})


async def test_a_failure_is_reported_and_stops_nobody(service: Service, tmp_path: Path) -> None:
    write(tmp_path / "in", a="one", b="bad", c="three")
    report = await parse(service, tmp_path / "in", tmp_path / "out")
    assert report == Report(2, 0, {str(tmp_path / "in/b.png"): "422: Damaged file"})
    assert listed(tmp_path / "out") == ["a.json", "a.md", "c.json", "c.md"]
    again = await parse(service, tmp_path / "in", tmp_path / "out")
    assert (again.parsed, again.skipped, len(again.failures)) == (0, 2, 1)


async def test_a_file_that_cannot_be_read_is_a_failure(service: Service, tmp_path: Path) -> None:
    write(tmp_path, a="one", b="two")
    sources = client.find_sources([tmp_path])
    (tmp_path / "a.png").unlink()
    report = await client.parse_all(service.url, sources, tmp_path / "out", {}, 2)
    assert (report.parsed, list(report.failures)) == (1, [str(tmp_path / "a.png")])


async def test_without_a_folder_the_texts_come_in_order(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, a="one", b="two", c="three")
    service.replies = [unavailable()]  # the first must try again
    await parse(service, tmp_path, None)
    printed = capsys.readouterr()
    assert printed.out == "one\n\ntwo\n\nthree\n\n"
    assert printed.err == ""
    assert listed(tmp_path) == ["a.png", "b.png", "c.png"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "localhost:{port}", "http://[", "nowhere"])
async def test_nobody_there_is_said_before_any_document_is_sent(tmp_path: Path, url: str) -> None:
    write(tmp_path, a="one")
    with pytest.raises(ServiceAway, match=r"cannot reach the service at|not an address"):
        await client.parse_all(url.format(port=free_port()), client.find_sources([tmp_path]), None, {}, 2)


async def test_a_proxy_of_the_environment_is_not_asked_for_a_service_nearby(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    write(tmp_path, a="one")
    assert (await parse(service, tmp_path, tmp_path / "out")).parsed == 1
