"""HPS_RUNTIME=paddlex: the official SDK, prepared as the official kit's prepare.sh does it (SPEC G.3)."""

import base64
import hashlib
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import Final

import httpx

from hps.prepare import download, env_file, hubs, pipeline_file
from hps.prepare.download import Say
from hps.prepare.hubs import RemoteFile
from hps.prepare.locks import LockedFile, LockedPart
from hps.prepare.problems import PrepareError

CONFIG: Final = PurePosixPath("server/pipeline_config.yaml")


def install(
    client: httpx.Client,
    url: str,
    folder: Path,
    vlm_url: str,
    serving: str,
    locked: LockedPart | None,
    say: Say,
    pause_s: float,
) -> LockedPart:
    """The SDK of `url` in `folder`, asking the VLM servers at `vlm_url`; what the lock is to say.

    serving: the name under which they serve. A folder that is there already is only pointed to `vlm_url`. Until all is
    right, `folder` does not exist. Raises PrepareError.
    """
    if folder.exists() and locked is not None and locked.repository == url:
        point(folder, vlm_url, serving)
        return locked
    if folder.exists():
        raise PrepareError(
            f"{folder} is not the SDK of {url} as this kit prepared it: move it away, and run ./prepare.sh again"
        )
    staging = folder.parent / f".{folder.name}.incoming"
    archive = staging / f"{folder.name}.tar.gz"
    found = _fetch(client, url, archive, locked, say, pause_s)
    try:
        unpacked = _unpacked(archive, staging / "unpacked", url) / folder.name
        if not (unpacked / CONFIG).is_file():
            raise PrepareError(f"{url} holds no {folder.name}/{CONFIG}; nothing was installed")
        point(unpacked, vlm_url, serving)
        unpacked.rename(folder)
    finally:  # what did not do is not gone on from
        shutil.rmtree(staging)
    return LockedPart(url, {archive.name: found})


def _unpacked(archive: Path, target: Path, url: str) -> Path:
    try:
        with tarfile.open(archive) as stream:
            stream.extractall(target, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise PrepareError(f"{url} is no archive that can be unpacked ({error}); nothing was installed") from error
    return target


def point(folder: Path, vlm_url: str, serving: str) -> None:
    """Points an SDK to the VLM servers. Raises PrepareError, also when they serve another VLM than it asks for."""
    file = folder / CONFIG
    text = pipeline_file.with_vlm_server(file.read_text(encoding="utf-8"), vlm_url)
    name = pipeline_file.vlm_name(text)
    if name != serving:
        raise PrepareError(f"the SDK asks for the VLM {name}, this kit serves {serving}: set HPS_VLM_MODEL_NAME={name}")
    env_file.write(file, text)


def _fetch(
    client: httpx.Client, url: str, archive: Path, locked: LockedPart | None, say: Say, pause_s: float
) -> LockedFile:
    try:
        head = client.head(url)
    except httpx.HTTPError as error:
        raise PrepareError(f"{url} cannot be reached: {type(error).__name__}: {error}") from error
    if head.status_code != 200 or "Content-Length" not in head.headers:
        raise PrepareError(f"{url}: no such SDK (HTTP {head.status_code}); check HPS_PADDLEX_VERSION and HPS_SDK_DIR")
    size = int(head.headers["Content-Length"])
    say(f"  {archive.name} ({size / 2**20:.1f} MiB)")
    download.fetch(client, url, {}, RemoteFile(archive.name, size, "", None), archive, say, pause_s)
    _check_md5(archive, head.headers.get("Content-MD5"), url)
    found = LockedFile(hubs.sha256(archive), size)
    entry = locked.files.get(archive.name) if locked is not None and locked.repository == url else None
    if entry is not None and entry.sha256 != found.sha256:
        archive.unlink()
        raise PrepareError(
            f"{url} is not the file that was prepared first: sha256 {found.sha256}, models.lock says {entry.sha256}; "
            "nothing was installed"
        )
    return found


def _check_md5(archive: Path, stated: str | None, url: str) -> None:
    """The only checksum that the store may state."""
    if stated is None:
        return
    found = base64.b64encode(hashlib.md5(archive.read_bytes(), usedforsecurity=False).digest()).decode()
    if found != stated:
        archive.unlink()
        raise PrepareError(f"{url}: wrong content: MD5 {found} instead of {stated}. It was thrown away")
