"""What is stored under which key, and the stores; the bucket is a little S3 server on the loopback."""

import asyncio
import base64
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hps import storage
from hps.context import RequestContext
from hps.errors import BackendError, DeadlineExceeded
from hps.storage import (
    BucketConfig,
    BucketStorage,
    FolderConfig,
    FolderStorage,
    MemoryConfig,
    MemoryStorage,
    Publication,
    Storage,
    StorageError,
    open_storage,
    publish,
    stored_files,
)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def page(**changes: Any) -> dict[str, Any]:
    """A page of an answer with one of everything."""
    return {
        "prunedResult": {"width": 10},
        "markdown": {"text": "![](imgs/a.jpg)", "images": {"imgs/a.jpg": b64(b"picture")}},
        "outputImages": {"layout_det_res": b64(b"overlay")},
        "inputImage": b64(b"input"),
        "exports": {"docx": {"content": b64(b"word"), "fileName": "page_0.docx"}},
    } | changes


# --- keys ---


def test_files_lie_under_the_keys_of_the_reference() -> None:
    assert {file.key: file.data for file in stored_files(page(), "log-1", 3)} == {
        "log-1/markdown_3/imgs/a.jpg": b"picture",
        "log-1/layout_det_res_3.jpg": b"overlay",
        "log-1/input_img_3.jpg": b"input",
        "log-1/page_0.docx": b"word",
    }


def test_a_page_without_files_stores_nothing() -> None:
    assert stored_files({"prunedResult": {}, "markdown": {"text": ""}}, "log-1", 0) == []


@pytest.mark.parametrize(
    ("log_id", "folder"),
    [
        ("plain-Id_1.2", "plain-Id_1.2"),
        ("../../etc", "%2E.%2F..%2Fetc"),
        ("..", "%2E."),
        (".", "%2E"),
        (".hidden", "%2Ehidden"),
        ("a/b\\c", "a%2Fb%5Cc"),
        ("nul\0", "nul%00"),
        ("文", "%E6%96%87"),
        ("", "%"),
    ],
)
def test_a_log_id_becomes_one_harmless_segment(log_id: str, folder: str) -> None:
    assert storage.log_id_folder(log_id) == folder


@given(st.lists(st.text(max_size=300), min_size=2, max_size=2, unique=True))
def test_distinct_log_ids_have_distinct_folders_of_bounded_length(log_ids: list[str]) -> None:
    folders = [storage.log_id_folder(log_id) for log_id in log_ids]
    assert folders[0] != folders[1]
    for folder in folders:
        assert 0 < len(folder.encode()) <= 150
        assert folder not in (".", "..")
        assert "/" not in folder


@given(st.text(max_size=200), st.text(max_size=200))
def test_no_name_leaves_the_folder_of_its_log_id(log_id: str, name: str) -> None:
    hostile = page(
        markdown={"text": "", "images": {name: b64(b"1")}},
        outputImages={name: b64(b"2")},
        exports={"docx": {"content": b64(b"3"), "fileName": name}},
    )
    for file in stored_files(hostile, log_id, 0):
        parts = PurePosixPath(file.key).parts
        assert parts[0] == storage.log_id_folder(log_id)
        assert not {"/", "..", "."} & set(parts)


# --- folder and memory ---


def test_a_folder_store_makes_the_folders_of_nested_keys(tmp_path: Path) -> None:
    store = FolderStorage(tmp_path / "new" / "store")
    store.put("log/markdown_0/imgs/a.jpg", b"1", "image/jpeg")
    store.put("log/markdown_0/imgs/a.jpg", b"22", "image/jpeg")
    assert (tmp_path / "new/store/log/markdown_0/imgs/a.jpg").read_bytes() == b"22"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.jpg"]


@pytest.mark.parametrize("key", ["../out", "/etc/out", "a/../../out", "", "a\0b", "..", "a\\..\\b"])
@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_a_key_cannot_leave_the_store(tmp_path: Path, kind: str, key: str) -> None:
    store: Storage = FolderStorage(tmp_path / "store") if kind == "folder" else MemoryStorage()
    with pytest.raises(ValueError, match="below the store"):
        store.put(key, b"1", "image/jpeg")
    assert [path.name for path in tmp_path.iterdir() if path.name != "store"] == []


def test_a_folder_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"file_storage\.directory"):
        open_storage(FolderConfig(tmp_path / "file" / "store"))


def test_a_file_that_cannot_be_written_fails_its_request(tmp_path: Path) -> None:
    store = FolderStorage(tmp_path)
    store.put("log", b"a file where a folder is wanted", "image/jpeg")
    with pytest.raises(BackendError):
        store.put("log/a.jpg", b"1", "image/jpeg")


def test_memory_holds_the_newest_files() -> None:
    store = MemoryStorage(limit=10)
    for name in ("a", "b", "c"):
        store.put(name, name.encode() * 4, "image/jpeg")
    assert (store.get("b"), store.get("c")) == (b"bbbb", b"cccc")
    with pytest.raises(KeyError):
        store.get("a")


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_stores_without_urls_say_so(tmp_path: Path, kind: str) -> None:
    store = open_storage(FolderConfig(tmp_path) if kind == "folder" else MemoryConfig())
    with pytest.raises(StorageError, match="no URLs"):
        store.url("a", 60)


# --- bucket ---


class _S3Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _S3Handler)
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.authorizations: list[str] = []
        self.fails = False


class _S3Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # boto3 waits a second for "100 Continue" otherwise
    server: _S3Server

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.authorizations.append(self.headers.get("Authorization", ""))
        if self.server.fails:
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return
        self.server.objects[unquote(urlsplit(self.path).path)] = (body, self.headers["Content-Type"])
        self._answer(200, b"")

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        signed = {"X-Amz-Signature", "X-Amz-Expires", "X-Amz-Date"} <= parse_qs(parts.query).keys()
        stored = self.server.objects.get(unquote(parts.path))
        self._answer(200, stored[0]) if signed and stored else self._answer(403, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def server() -> Iterator[_S3Server]:
    with _S3Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def s3(server: _S3Server) -> _S3Server:
    server.objects.clear()
    server.authorizations.clear()
    server.fails = False
    return server


@pytest.fixture(scope="module")
def bucket(server: _S3Server) -> BucketStorage:
    """One for all tests: making a client takes a second."""
    endpoint = f"http://127.0.0.1:{server.server_port}"
    return BucketStorage(BucketConfig(endpoint, "AK", "sesame", "pages", "/ocr/"))


def test_a_bucket_gets_signed_puts_under_its_prefix(s3: _S3Server, bucket: BucketStorage) -> None:
    bucket.put("log 1/imgs/a.jpg", b"picture", "image/jpeg")
    assert s3.objects == {"/pages/ocr/log 1/imgs/a.jpg": (b"picture", "image/jpeg")}
    (authorization,) = s3.authorizations
    assert re.match(
        r"AWS4-HMAC-SHA256 Credential=AK/\d{8}/us-east-1/s3/aws4_request, .*Signature=\w{64}", authorization
    )
    assert "sesame" not in authorization


def test_its_url_opens_the_file_and_expires(s3: _S3Server, bucket: BucketStorage) -> None:
    bucket.put("a%2Fb/文.jpg", b"picture", "image/jpeg")
    url = bucket.url("a%2Fb/文.jpg", 90)
    assert parse_qs(urlsplit(url).query)["X-Amz-Expires"] == ["90"]
    assert "sesame" not in url
    with urllib.request.urlopen(url) as response:
        assert response.read() == b"picture"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url.partition("?")[0])
    caught.value.close()


@pytest.mark.parametrize("expires_s", [-1, 10**9])
def test_a_url_lives_a_week_at_most(s3: _S3Server, bucket: BucketStorage, expires_s: int) -> None:
    query = parse_qs(urlsplit(bucket.url("a.jpg", expires_s)).query)
    assert query["X-Amz-Expires"] == ["604800"]


def test_a_refused_put_is_a_backend_error(s3: _S3Server, bucket: BucketStorage) -> None:
    s3.fails = True
    with pytest.raises(BackendError):
        bucket.put("a.jpg", b"1", "image/jpeg")


@pytest.mark.parametrize("endpoint", ["https://bj.bcebos.com", "bj.bcebos.com", "https://s3.bj.bcebos.com"])
def test_bos_is_asked_at_its_s3_address(endpoint: str) -> None:
    url = BucketStorage(BucketConfig(endpoint, "AK", "SK", "pages")).url("log/a.jpg", 60)
    assert url.startswith("https://pages.s3.bj.bcebos.com/log/a.jpg?")
    assert "%2Fbj%2Fs3%2Faws4_request" in url


def test_an_endpoint_that_is_no_url_stops_the_start() -> None:
    with pytest.raises(StorageError, match="file_storage cannot be used"):
        open_storage(BucketConfig("http://two words", "AK", "SK", "pages"))


def test_a_missing_library_stops_the_start_and_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['boto3'] = None\n"
        "from hps.storage import *\n"
        "try: open_storage(BucketConfig('http://s3', 'AK', 'SK', 'pages'))\n"
        "except StorageError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "paddleocr-vl-hps[storage]" in done.stdout


# --- the pages of an answer ---


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def context() -> RequestContext:
    return RequestContext.within("request", 30)


async def test_files_are_stored_and_base64_stays(executor: ThreadPoolExecutor) -> None:
    store, pages = MemoryStorage(), [page(), page()]
    assert await publish(pages, "log", Publication(store), executor, context()) == [page(), page()]
    assert store.get("log/markdown_1/imgs/a.jpg") == b"picture"


async def test_with_urls_every_file_is_named_by_url(
    s3: _S3Server, bucket: BucketStorage, executor: ThreadPoolExecutor
) -> None:
    original = page()
    (sent,) = await publish([original], "log", Publication(bucket, True, 60), executor, context())
    assert len(s3.objects) == 4
    urls = [
        sent["markdown"]["images"]["imgs/a.jpg"],
        sent["outputImages"]["layout_det_res"],
        sent["inputImage"],
        sent["exports"]["docx"]["content"],
    ]
    assert all(url.startswith(f"http://127.0.0.1:{s3.server_port}/pages/ocr/log/") for url in urls)
    assert sent["markdown"]["text"] == original["markdown"]["text"]
    assert sent["exports"]["docx"]["fileName"] == "page_0.docx"
    assert original == page()


async def test_passed_through_images_are_not_stored(
    s3: _S3Server, bucket: BucketStorage, executor: ThreadPoolExecutor
) -> None:
    images = {"imgs/a.jpg": "https://example.com/a.jpg"}
    given = page(markdown={"text": "", "images": images})
    publication = Publication(bucket, True, 60)
    (sent,) = await publish([given], "log", publication, executor, context(), passed_through=True)
    assert list(s3.objects) == ["/pages/ocr/log/page_0.docx"]
    assert sent["markdown"]["images"] == images
    assert sent["exports"]["docx"]["content"].startswith("http://")


async def test_a_store_that_fails_fails_the_request(
    s3: _S3Server, bucket: BucketStorage, executor: ThreadPoolExecutor
) -> None:
    s3.fails = True
    with pytest.raises(BackendError):
        await publish([page()], "log", Publication(bucket), executor, context())


async def test_a_store_that_hangs_ends_with_the_requests_time(executor: ThreadPoolExecutor) -> None:
    released = threading.Event()

    class Hanging(MemoryStorage):
        def put(self, key: str, data: bytes, content_type: str) -> None:
            released.wait()

    try:
        with pytest.raises(DeadlineExceeded):
            await asyncio.wait_for(
                publish([page()], "log", Publication(Hanging()), executor, RequestContext.within("request", 0.05)), 10
            )
    finally:
        released.set()
