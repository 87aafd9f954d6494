"""Where weights come from: Hugging Face, ModelScope, or a folder; all three as lists of files with checksums.

Why not the hubs' own libraries: docs/decisions/0003-dependencies.md.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import quote

import httpx

from hps.prepare.problems import PrepareError

HubName = Literal["huggingface", "modelscope"]


@dataclass(frozen=True, slots=True)
class Checksum:
    """kind: sha256 of the content, or git: SHA-1 of git's blob, all that Hugging Face says of small files."""

    kind: Literal["sha256", "git"]
    value: str

    def of(self, file: Path) -> str:
        """The same checksum of a file."""
        if self.kind == "sha256":
            return sha256(file)
        digest = hashlib.sha1(b"blob %d\0" % file.stat().st_size, usedforsecurity=False)
        _feed(digest, file)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository at one revision. size in bytes. checksum: as the source states it, if it does."""

    path: str
    size: int
    revision: str
    checksum: Checksum | None


class NotThere(PrepareError):
    """The source has no such repository or revision."""


class Hub(Protocol):
    """A model hub. Raises NotThere, or PrepareError when it cannot be reached."""

    name: HubName
    client: httpx.Client
    headers: Mapping[str, str]

    def files(self, repository: str, revision: str | None) -> Sequence[RemoteFile]:
        """All files of a repository at a revision; None: the newest."""

    def url(self, repository: str, file: RemoteFile) -> str:
        """Where the file's content is; the revision makes it the same for ever."""


class HuggingFace:
    """Its API as of 2026: `/api/models/REPOSITORY/revision/REVISION?blobs=true`, `/REPOSITORY/resolve/COMMIT/PATH`."""

    name: HubName = "huggingface"

    def __init__(self, client: httpx.Client, address: str) -> None:
        self.client, self._address = client, address.rstrip("/")
        token = os.environ.get("HF_TOKEN")  # httpx does not take it along to the hosts that hold the files
        self.headers: Mapping[str, str] = {"Authorization": f"Bearer {token}"} if token else {}

    def files(self, repository: str, revision: str | None) -> Sequence[RemoteFile]:
        url = f"{self._address}/api/models/{repository}/revision/{quote(revision or 'main', safe='')}"
        answer = _json(self, url, {"blobs": "true"}, repository, revision)
        try:
            commit = str(answer["sha"])
            return [
                RemoteFile(
                    entry["rfilename"],
                    int(entry["size"]),
                    commit,
                    Checksum("sha256", entry["lfs"]["sha256"])
                    if entry.get("lfs")
                    else Checksum("git", entry["blobId"]),
                )
                for entry in answer["siblings"]
            ]
        except (LookupError, TypeError, ValueError) as error:
            raise PrepareError(f"{url}: an answer of another form than this kit knows ({error!r})") from error

    def url(self, repository: str, file: RemoteFile) -> str:
        return f"{self._address}/{repository}/resolve/{file.revision}/{quote(file.path)}"


class ModelScope:
    """Its API as of 2026: `/api/v1/models/REPOSITORY/repo/files`, `/models/REPOSITORY/resolve/COMMIT/PATH`. Each file
    has a commit of its own, the last that changed it."""

    name: HubName = "modelscope"

    def __init__(self, client: httpx.Client, address: str) -> None:
        self.client, self._address = client, address.rstrip("/")
        self.headers: Mapping[str, str] = {}

    def files(self, repository: str, revision: str | None) -> Sequence[RemoteFile]:
        url = f"{self._address}/api/v1/models/{repository}/repo/files"
        answer = _json(self, url, {"Revision": revision or "master", "Recursive": "true"}, repository, revision)
        try:
            return [
                RemoteFile(
                    entry["Path"],
                    int(entry["Size"]),
                    str(entry["Revision"]),
                    Checksum("sha256", entry["Sha256"]) if entry.get("Sha256") else None,
                )
                for entry in answer["Data"]["Files"]
                if entry["Type"] == "blob"
            ]
        except (LookupError, TypeError, ValueError) as error:
            raise PrepareError(f"{url}: an answer of another form than this kit knows ({error!r})") from error

    def url(self, repository: str, file: RemoteFile) -> str:
        return f"{self._address}/models/{repository}/resolve/{file.revision}/{quote(file.path)}"


def client() -> httpx.Client:
    """Proxies and certificates as the environment says."""
    return httpx.Client(follow_redirects=True, timeout=httpx.Timeout(60, connect=20))


def connected(name: HubName, http: httpx.Client, address: str) -> Hub:
    return HuggingFace(http, address) if name == "huggingface" else ModelScope(http, address)


def folder_of(source: Path, repository: str, part: str) -> Path:
    """Where a folder of models has a repository: under its name, or under the part's as in a prepared release.

    Raises NotThere.
    """
    names = (repository, repository.rpartition("/")[2], part)
    for name in names:
        if (source / name / "config.json").is_file():
            return source / name
    raise NotThere(f"{source} has none of {', '.join(f'{name}/config.json' for name in names)}")


def sha256(file: Path) -> str:
    digest = hashlib.sha256()
    _feed(digest, file)
    return digest.hexdigest()


def _feed(digest: Any, file: Path) -> None:
    with file.open("rb") as stream:
        while chunk := stream.read(2**20):
            digest.update(chunk)


def _json(hub: Hub, url: str, query: dict[str, str], repository: str, revision: str | None) -> Any:
    try:
        response = hub.client.get(url, params=query, headers=hub.headers)
    except httpx.HTTPError as error:
        raise PrepareError(f"{url} cannot be reached: {type(error).__name__}: {error}") from error
    if response.status_code in (401, 403, 404):
        place = f"{repository} at revision {revision}" if revision else repository
        raise NotThere(f"{url}: no access to {place} (HTTP {response.status_code})")
    if response.status_code != 200:
        raise PrepareError(f"{url}: HTTP {response.status_code}")
    try:
        return response.json()
    except ValueError as error:
        raise PrepareError(f"{url}: the answer is not JSON") from error
