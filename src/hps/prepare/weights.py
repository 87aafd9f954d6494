"""Weights of a release: fetched beside their place, verified, and only then put there, all at once."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hps.prepare import catalogue, download, hubs
from hps.prepare.catalogue import Part
from hps.prepare.download import Say
from hps.prepare.hubs import Checksum, Hub, NotThere, RemoteFile
from hps.prepare.locks import LockedFile, LockedPart
from hps.prepare.problems import PrepareError

INCOMING: Final = ".incoming"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A part of a release as a source has it. hub: None for a folder, then `folder` holds the files."""

    part: Part
    files: Sequence[RemoteFile]
    hub: Hub | None = None
    folder: Path | None = None


def from_hub(hub: Hub, part: Part, revision: str | None, locked: LockedPart | None) -> Wanted:
    """What the hub has, or, once the part is locked, what the lock says under the commits that it names.

    Raises NotThere, PrepareError.
    """
    if locked is not None and revision is None and all(hub.name in file.revisions for file in locked.files.values()):
        files: Sequence[RemoteFile] = [
            RemoteFile(path, file.size, file.revisions[hub.name], Checksum("sha256", file.sha256))
            for path, file in locked.files.items()
        ]
        return Wanted(part, files, hub=hub)
    files = [file for file in hub.files(part.repository, revision) if catalogue.is_wanted(file.path)]
    return _selected(Wanted(part, files, hub=hub), locked, f"{hub.name} {part.repository}")


def from_folder(source: Path, part: Part, locked: LockedPart | None) -> Wanted:
    """Raises NotThere, PrepareError."""
    folder = hubs.folder_of(source, part.repository, part.name)
    files = [
        RemoteFile(file.name, file.stat().st_size, "", None)
        for file in sorted(folder.iterdir())
        if file.is_file() and catalogue.is_wanted(file.name)
    ]
    return _selected(Wanted(part, files, folder=folder), locked, str(folder))


def _selected(wanted: Wanted, locked: LockedPart | None, source: str) -> Wanted:
    """Only files of the lock once there is one. Raises PrepareError when the source lacks some, or has others."""
    paths = {file.path for file in wanted.files}
    if not catalogue.is_complete(paths):
        raise NotThere(f"{source} has no model: config.json and model.safetensors are needed, found {sorted(paths)}")
    if locked is None:
        return wanted
    if missing := sorted(locked.files.keys() - paths):
        raise PrepareError(f"{source} lacks {', '.join(missing)}, which models.lock names")
    files = [file for file in wanted.files if file.path in locked.files]
    for file in files:
        entry = locked.files[file.path]
        stated = file.checksum.value if file.checksum and file.checksum.kind == "sha256" else entry.sha256
        if (file.size, stated) != (entry.size, entry.sha256):
            raise PrepareError(_differs(f"{source}: {file.path}", f"{file.size} bytes, sha256 {stated}", entry))
    return Wanted(wanted.part, files, wanted.hub, wanted.folder)


def _differs(what: str, found: str, entry: LockedFile) -> str:
    return (
        f"{what} is not the file that was prepared first: {found}, but models.lock says {entry.size} bytes, "
        f"sha256 {entry.sha256}. If the new one is what you want, remove this release from models.lock; "
        "nothing was installed"
    )


def is_installed(models: Path, release: str, part: Part, locked: LockedPart) -> bool:
    """Whether every file of the lock is in its place, and right."""
    folder = models / release / part.name
    return all(
        _size(folder / path) == entry.size and (folder / path).exists() and hubs.sha256(folder / path) == entry.sha256
        for path, entry in locked.files.items()
    )


def missing_bytes(wanted: Wanted, models: Path, release: str) -> int:
    """How much is still to come to the disk."""
    return sum(
        file.size - min(file.size, _size(_incoming(models, release, wanted.part, file)))
        for file in wanted.files
        if _size(models / release / wanted.part.name / file.path) != file.size
    )


def stage(
    wanted: Wanted, models: Path, release: str, locked: LockedPart | None, say: Say, pause_s: float
) -> dict[str, LockedFile]:
    """Every file of the part right, in its place or in `.incoming`; what the lock is to say. Raises PrepareError."""
    entries = {}
    for file in wanted.files:
        entry = locked.files[file.path] if locked else None
        there = models / release / wanted.part.name / file.path
        found = hubs.sha256(there) if _size(there) == file.size and there.exists() else None
        if found is None or not _is_right(there, found, file, entry):
            there = _incoming(models, release, wanted.part, file)
            _bring(wanted, file, there, say, pause_s)
            found = hubs.sha256(there)
        if entry is not None and found != entry.sha256:
            there.unlink()
            raise PrepareError(_differs(file.path, f"sha256 {found}", entry))
        revisions = dict(entry.revisions) if entry else {}
        if wanted.hub is not None:
            revisions[wanted.hub.name] = file.revision
        entries[file.path] = LockedFile(found, file.size, revisions)
    return entries


def _is_right(there: Path, found: str, file: RemoteFile, entry: LockedFile | None) -> bool:
    if entry is not None:
        return found == entry.sha256
    return file.checksum is None or file.checksum.of(there) == file.checksum.value


def _bring(wanted: Wanted, file: RemoteFile, target: Path, say: Say, pause_s: float) -> None:
    if wanted.hub is None:
        assert wanted.folder is not None
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(wanted.folder / file.path, target)
        return
    say(f"  {wanted.part.name}/{file.path} ({file.size / 2**20:.1f} MiB)")
    url = wanted.hub.url(wanted.part.repository, file)
    download.fetch(wanted.hub.client, url, wanted.hub.headers, file, target, say, pause_s)


def install(models: Path, release: str, parts: Mapping[str, LockedPart]) -> None:
    """Puts what is staged in its place. Only renames: nothing can be half there but for a crash between two of them,
    after which the next run goes on."""
    incoming = models / INCOMING / release
    for name, part in parts.items():
        folder = models / release / name
        folder.mkdir(parents=True, exist_ok=True)
        for path in part.files:
            if (incoming / name / path).exists():
                os.replace(incoming / name / path, folder / path)
            (folder / path).chmod(0o644)  # read by the containers' own user
        for directory in (models / release, folder):
            directory.chmod(0o755)
    shutil.rmtree(incoming, ignore_errors=True)
    if (models / INCOMING).is_dir() and not any((models / INCOMING).iterdir()):
        (models / INCOMING).rmdir()


def _incoming(models: Path, release: str, part: Part, file: RemoteFile) -> Path:
    return models / INCOMING / release / part.name / file.path


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
