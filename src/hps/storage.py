"""Where the pictures and files of answers are kept, and what is kept under which key (SPEC A.10).

`stored_files` plans, without I/O; a Storage holds; `publish` does both for the pages of an answer. A log id comes from
the client, so it is encoded before it becomes part of a key: distinct ids have distinct folders, and none leaves its
own.
"""

import asyncio
import base64
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

from hps.context import RequestContext
from hps.errors import BackendError, DeadlineExceeded
from hps.settings import SettingsError

JPEG: Final = "image/jpeg"
DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"

# Signature version 4 allows no more.
MAX_URL_LIFE_S: Final = 7 * 24 * 3600
_MEMORY_LIMIT: Final = 256 * 2**20
_MAX_SEGMENT: Final = 150  # file systems take 255 bytes a name; the temporary name adds some


class StorageError(SettingsError):
    """The configured store cannot be used; the message says what to change."""


# --- configuration ---


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """For tests: the newest files, lost at the end of the process."""


@dataclass(frozen=True, slots=True)
class FolderConfig:
    directory: Path


@dataclass(frozen=True, slots=True)
class BucketConfig:
    """An S3-compatible store. endpoint: URL; connect_timeout_s: for one connection."""

    endpoint: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    bucket: str
    key_prefix: str = ""
    region: str | None = None
    connect_timeout_s: float = 10


StorageConfig = MemoryConfig | FolderConfig | BucketConfig


def gives_urls(config: StorageConfig | None) -> bool:
    """Whether a client can fetch from such a store."""
    return isinstance(config, BucketConfig)


# --- stores ---


class Storage(Protocol):
    """Blocking and thread-safe. Keys are relative paths with "/"; an existing file is replaced."""

    def put(self, key: str, data: bytes, content_type: str) -> None:
        """Raises ValueError for a key that would leave the store, BackendError when it cannot be written."""
        ...

    def url(self, key: str, expires_s: int) -> str:
        """Where a client gets the file for that long (-1: as long as the store allows).

        Raises StorageError where the store has no URLs.
        """
        ...


class MemoryStorage:
    """Holds the newest files, up to `limit` bytes in all: a server that runs for weeks must not grow."""

    def __init__(self, limit: int = _MEMORY_LIMIT) -> None:
        self._files: OrderedDict[str, bytes] = OrderedDict()
        self._limit = limit
        self._size = 0
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes, content_type: str) -> None:
        _checked(key)
        with self._lock:
            self._size += len(data) - len(self._files.pop(key, b""))
            self._files[key] = data
            while self._size > self._limit:
                self._size -= len(self._files.popitem(last=False)[1])

    def get(self, key: str) -> bytes:
        """Raises KeyError."""
        with self._lock:
            return self._files[key]

    def url(self, key: str, expires_s: int) -> str:
        raise StorageError("the storage type memory has no URLs")


class FolderStorage:
    """Files under one directory, each written whole or not at all."""

    def __init__(self, directory: Path) -> None:
        """Raises StorageError when the directory cannot be made or written."""
        self._directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=directory):
                pass
        except OSError as error:
            raise StorageError(f"Serving.extra.file_storage.directory cannot be written: {error.strerror}") from error

    def put(self, key: str, data: bytes, content_type: str) -> None:
        path = self._directory / _checked(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
                try:
                    file.write(data)
                    file.close()
                    # Temporary files are private to the process's user; those who are to read the folder are not.
                    os.chmod(file.name, 0o644)
                    os.replace(file.name, path)
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise BackendError("A file of the answer could not be stored") from error

    def url(self, key: str, expires_s: int) -> str:
        raise StorageError("the storage type file_system has no URLs")


class BucketStorage:
    """Files in a bucket, reached with the S3 API; URLs are signed, and expire."""

    def __init__(self, config: BucketConfig) -> None:
        """Opens no connection. Raises StorageError when the library is missing or refuses the configuration."""
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError as error:
            raise StorageError(
                "Serving.extra.file_storage needs the extra `storage`: pip install 'paddleocr-vl-hps[storage]'"
            ) from error
        self._failures = (BotoCoreError, ClientError)
        self._bucket = config.bucket
        self._prefix = f"{config.key_prefix.strip('/')}/" if config.key_prefix.strip("/") else ""
        endpoint, region, addressing = _s3_address(config)
        try:
            # A session of its own: the default one is shared, and making clients from it is not thread-safe.
            self._client = boto3.session.Session().client(
                "s3",
                endpoint_url=endpoint,
                region_name=region,
                aws_access_key_id=config.access_key,
                aws_secret_access_key=config.secret_key,
                config=Config(
                    signature_version="s3v4",
                    s3={"addressing_style": addressing},
                    connect_timeout=config.connect_timeout_s,
                    read_timeout=60,
                    retries={"mode": "standard", "max_attempts": 3},
                    max_pool_connections=32,
                    # Compatible stores do not know the checksums that are AWS's default by now.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                ),
            )
        except (*self._failures, ValueError) as error:
            raise StorageError(f"Serving.extra.file_storage cannot be used: {error}") from error

    def put(self, key: str, data: bytes, content_type: str) -> None:
        full = self._prefix + _checked(key)
        try:
            self._client.put_object(Bucket=self._bucket, Key=full, Body=data, ContentType=content_type)
        except self._failures as error:
            raise BackendError("A file of the answer could not be stored") from error

    def url(self, key: str, expires_s: int) -> str:
        life = MAX_URL_LIFE_S if expires_s < 0 else min(expires_s, MAX_URL_LIFE_S)
        target = {"Bucket": self._bucket, "Key": self._prefix + _checked(key)}
        return str(self._client.generate_presigned_url("get_object", Params=target, ExpiresIn=life))


def open_storage(config: StorageConfig) -> Storage:
    """Raises StorageError, which is to stop the start."""
    if isinstance(config, BucketConfig):
        return BucketStorage(config)
    if isinstance(config, FolderConfig):
        return FolderStorage(config.directory)
    return MemoryStorage()


def _s3_address(config: BucketConfig) -> tuple[str, str, str]:
    """(endpoint, region, addressing style) of the S3 API.

    BOS answers S3 requests at another name than its own API (s3.bj.bcebos.com for bj.bcebos.com) and wants its region
    in the signature; the reference's files have the name of its own API.
    """
    endpoint = config.endpoint if "://" in config.endpoint else f"https://{config.endpoint}"
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    if not host.endswith(".bcebos.com"):
        return endpoint, config.region or "us-east-1", "path"
    region = host.removesuffix(".bcebos.com").removeprefix("s3.")
    return f"{parts.scheme}://s3.{region}.bcebos.com", config.region or region, "virtual"


def _checked(key: str) -> str:
    path = PurePosixPath(key)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in key or "\\" in key:
        raise ValueError("a key must be a relative path below the store")
    return key


# --- what is stored under which key ---


@dataclass(frozen=True, slots=True)
class StoredFile:
    """`place` is the path of the value in the page's JSON that holds the file as Base64."""

    key: str
    place: tuple[str, ...]
    data: bytes
    content_type: str


def log_id_folder(log_id: str) -> str:
    """The log id as one path segment: readable where it is harmless, else percent-encoded; a long one is hashed."""
    return _segment(log_id)


def stored_files(page: Mapping[str, Any], log_id: str, index: int) -> list[StoredFile]:
    """The files of one page of an answer whose images and exports are Base64. `index` counts from 0."""
    folder = _segment(log_id)
    files = []

    def add(name: str, content_type: str, *place: str) -> None:
        value: Any = page
        for step in place:
            value = value[step]
        files.append(StoredFile(f"{folder}/{name}", place, base64.b64decode(value), content_type))

    for path in page["markdown"].get("images", {}):
        add(f"markdown_{index}/{_relative(path)}", JPEG, "markdown", "images", path)
    for name in page.get("outputImages", {}):
        add(f"{_segment(name)}_{index}.jpg", JPEG, "outputImages", name)
    if "inputImage" in page:
        add(f"input_img_{index}.jpg", JPEG, "inputImage")
    for kind, export in page.get("exports", {}).items():
        add(_segment(export["fileName"]), DOCX, "exports", kind, "content")
    return files


def exports_only(page: Mapping[str, Any]) -> dict[str, Any]:
    """The page without what /restructure-pages only passes through: those pictures are the client's, stored or not."""
    return {"markdown": {}, **({"exports": page["exports"]} if "exports" in page else {})}


def _relative(path: str) -> str:
    return "/".join(_segment(part) for part in path.split("/") if part) or "_"


def _segment(name: str) -> str:
    """One path segment for any text, injective: no separator, no "." or "..", no hidden file, no endless name."""
    encoded = quote(name, safe="", errors="surrogatepass")
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) <= _MAX_SEGMENT:
        return encoded or "%"
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    suffix = PurePosixPath(encoded).suffix[:10]
    mark = f"%~{digest}{suffix}"  # "%~" is in no encoded name
    return encoded[: _MAX_SEGMENT - len(mark)] + mark


# --- the pages of an answer ---


@dataclass(frozen=True, slots=True)
class Publication:
    """What happens to the files of an answer: all are stored; with `return_urls` the answer names them by URL."""

    storage: Storage
    return_urls: bool = False
    url_expires_s: int = -1


async def publish(
    pages: Sequence[dict[str, Any]],
    log_id: str,
    publication: Publication,
    executor: Executor,
    context: RequestContext,
    *,
    passed_through: bool = False,
) -> list[dict[str, Any]]:
    """Stores the files of the pages (of `layoutParsingResults`) and returns the pages as they are to be sent.

    passed_through: the images are those that the client sent (/restructure-pages); only exports are stored.
    Raises BackendError when a file cannot be stored, DeadlineExceeded when the time is up.
    """
    loop = asyncio.get_running_loop()

    def plan(index: int, page: dict[str, Any]) -> list[StoredFile]:
        return stored_files(exports_only(page) if passed_through else page, log_id, index)

    def store(file: StoredFile) -> str:
        publication.storage.put(file.key, file.data, file.content_type)
        return publication.storage.url(file.key, publication.url_expires_s) if publication.return_urls else ""

    async def published(index: int, page: dict[str, Any]) -> dict[str, Any]:
        files = await loop.run_in_executor(executor, plan, index, page)
        urls = await asyncio.gather(*(loop.run_in_executor(executor, store, file) for file in files))
        if not publication.return_urls:
            return page
        return with_urls(page, {file.place: url for file, url in zip(files, urls, strict=True)})

    remaining = context.remaining_s()
    work = [asyncio.create_task(published(index, page)) for index, page in enumerate(pages)]
    try:
        async with asyncio.timeout(remaining):
            return list(await asyncio.gather(*work))
    except TimeoutError:
        raise DeadlineExceeded from None
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


def with_urls(page: dict[str, Any], urls: Mapping[tuple[str, ...], str]) -> dict[str, Any]:
    """A copy of the page in which the values at these places are these URLs."""
    copy = dict(page)
    for place, url in urls.items():
        level = copy
        for step in place[:-1]:
            level[step] = dict(level[step])
            level = level[step]
        level[place[-1]] = url
    return copy
