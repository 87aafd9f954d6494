"""The kit, the weights and the images in one file, for a host without internet.

A plain tar: KIT/ (the kit's folder, with prepare.sh), bundle/manifest.json, bundle/SHA256SUMS, bundle/prepare.tar and
bundle/images.tar (docker load), bundle/models/. Verified as a whole before anything of it is installed.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Final

from hps.prepare import docker, images, locks, weights
from hps.prepare.choices import Choices
from hps.prepare.download import Say
from hps.prepare.locks import ImageLock, LockedPart
from hps.prepare.problems import PrepareError
from hps.version import VERSION

KIT: Final = "paddleocr-vl-hps"
_MANIFEST: Final = "bundle/manifest.json"
_SUMS: Final = "bundle/SHA256SUMS"
_IMAGES: Final = "bundle/images.tar"
_PREPARE: Final = "bundle/prepare.tar"
_MODELS: Final = "bundle/models/"
_SDK: Final = "bundle/sdk/"
_KIT_FILES: Final = (
    *(".dockerignore", ".env.example", ".gitignore", "CHANGELOG.md", "LICENSE", "Makefile", "NOTICE", "README.md"),
    *("README.zh-CN.md", "SECURITY.md", "config/.gitignore", "deploy", "docs", "gateway", "images.lock", "model_repo"),
    *(
        "models.lock",
        "models/.gitignore",
        "prepare.sh",
        "proxy",
        "pyproject.toml",
        "requirements",
        "samples",
        "src",
        "vlm",
    ),
)
_KIT_PATTERNS: Final = ("compose*.yaml", "*.Dockerfile")
_CHUNK: Final = 2**20


@dataclass(frozen=True, slots=True)
class Manifest:
    """kit: its version. images: name → id. settings: what they were built from. models_bytes: disk that the weights
    take."""

    kit: str
    release: str
    runtime: str
    images: dict[str, str]
    settings: dict[str, str]
    models_bytes: int


def pack(chosen: Choices, target: Path, say: Say) -> None:
    """Writes `target` from a prepared kit; it is there as a whole or not at all. Raises PrepareError."""
    target = target.absolute()
    lock = locks.read_images(chosen.root)
    wanted = images.locked(chosen.values, lock)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        folder = Path(scratch)
        _prepare_image(chosen.root)
        _check_disk(chosen, [image.name for image in wanted], folder)
        say("saving images")
        docker.save([images.PREPARE_IMAGE], folder / "prepare.tar")
        docker.save([image.name for image in wanted], folder / "images.tar")
        members = dict(kit_members(chosen.root))
        members |= {_PREPARE: folder / "prepare.tar", _IMAGES: folder / "images.tar"}
        models = dict(_model_members(chosen))
        members |= models
        manifest = Manifest(
            kit=VERSION,
            release=chosen.release,
            runtime=chosen.runtime,
            images={image.name: image.id for image in wanted},
            settings={name: chosen.values[name] for name in images.BUILT_FROM if chosen.is_set(name)},
            models_bytes=sum(file.stat().st_size for file in models.values()),
        )
        _write(folder / "bundle.tar", members, manifest, say)
        os.replace(folder / "bundle.tar", target)


def verify(file: Path, say: Say) -> Manifest:
    """The bundle's manifest, after every byte of it was compared with its checksums. Raises PrepareError."""
    say(f"verifying {file}")
    stated: dict[str, str] = {}
    found: dict[str, str] = {}
    manifest = b""
    with _opened(file) as archive:
        for name, stream in _members(archive):
            if name == _SUMS:
                lines = stream.read().decode(errors="replace").splitlines()
                stated = {path: digest for digest, _, path in (line.partition("  ") for line in lines)}
            elif name == _MANIFEST:
                manifest = stream.read()
                found[name] = hashlib.sha256(manifest).hexdigest()
            else:
                found[name] = _sha256(stream)
    wrong = sorted(name for name in stated.keys() | found.keys() if stated.get(name) != found.get(name))
    if not stated or wrong:
        raise PrepareError(f"{file} is damaged ({', '.join(wrong[:5]) or 'no checksums'}); nothing was installed")
    result = Manifest(**json.loads(manifest))
    if result.kit != VERSION:
        raise PrepareError(
            f"{file} is of kit {result.kit}, this is {VERSION}. The kit that belongs to it: tar -xf {file} {KIT}"
        )
    return result


def unpack(chosen: Choices, file: Path, say: Say) -> tuple[ImageLock, dict[str, LockedPart]]:
    """Loads the images, and lays the weights where `weights.install` takes them from. The bundle is verified.

    The images' lock and the release's models as the bundle has them. Raises PrepareError, also when this kit has locked
    other files than the bundle holds.
    """
    with _opened(file) as archive:
        with tempfile.TemporaryDirectory() as scratch:
            for name in {f"{KIT}/{locks.MODELS}", f"{KIT}/{locks.IMAGES}"} & set(archive.getnames()):
                _lay(_content(archive, name), Path(scratch) / Path(name).name)
            models, image_lock = locks.read_models(Path(scratch)), locks.read_images(Path(scratch))
        parts = models.get(chosen.release, {})
        _agree(locks.read_models(chosen.root).get(chosen.release, {}), parts)
        incoming = chosen.models / weights.INCOMING / chosen.release
        for name, stream in _members(archive):
            if name in (_IMAGES, _PREPARE):
                say(f"loading {name}")
                docker.load(stream)
            elif name.startswith(_MODELS):
                _lay(stream, incoming / _inside(name.removeprefix(_MODELS)))
            elif name.startswith(_SDK):
                _lay(stream, chosen.root / _inside(name.removeprefix(_SDK)))
    return _loaded(chosen, image_lock), parts


def _loaded(chosen: Choices, lock: ImageLock) -> ImageLock:
    """The lock with the ids that the images have here: Docker's stores do not all number them in the same way."""
    loaded = dict(lock.images)
    for image in images.locked(chosen.values, lock):
        found = docker.image_id(image.name)
        if found is None:
            raise PrepareError(f"{image.name} was not in the bundle")
        loaded[image.variable] = replace(image, id=found)
    return replace(lock, images=loaded)


def _agree(here: dict[str, LockedPart], bundled: dict[str, LockedPart]) -> None:
    for name in here.keys() & bundled.keys():
        ours = {path: entry.sha256 for path, entry in here[name].files.items()}
        theirs = {path: entry.sha256 for path, entry in bundled[name].files.items()}
        if ours != theirs:
            raise PrepareError(f"the bundle's {name} is not what models.lock says; remove the release there to take it")


def _write(file: Path, members: dict[str, Path], manifest: Manifest, say: Say) -> None:
    say("checksums")
    head = {_MANIFEST: json.dumps(asdict(manifest), indent=2).encode()}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in head.items()}
    for name, source in members.items():
        with source.open("rb") as stream:
            sums[name] = _sha256(stream)
    head[_SUMS] = "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()
    say("writing")
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in head.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for name, source in members.items():
            archive.add(source, name, recursive=False, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry


def kit_members(root: Path) -> Iterator[tuple[str, Path]]:
    """The kit's own files: name in the bundle, and where each is."""
    places = [root / name for name in _KIT_FILES]
    places += [file for pattern in _KIT_PATTERNS for file in sorted(root.glob(pattern))]
    for place in places:
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts and ".egg-info" not in str(file):
                yield f"{KIT}/{file.relative_to(root)}", file


def _model_members(chosen: Choices) -> Iterator[tuple[str, Path]]:
    parts = locks.read_models(chosen.root).get(chosen.release, {})
    for name, part in parts.items():
        for path in part.files:
            file = chosen.models / chosen.release / name / path
            if file.exists():
                yield f"{_MODELS}{name}/{path}", file
    if chosen.runtime == "paddlex":
        sdk = chosen.root / chosen.sdk_folder
        for file in sorted(sdk.rglob("*")):
            if file.is_file():
                yield f"{_SDK}{file.relative_to(chosen.root)}", file


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each file, in the archive's order."""
    for entry in archive:
        stream = archive.extractfile(entry) if entry.isreg() else None
        if stream is not None:
            yield entry.name, stream


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[tarfile.TarFile]:
    """Raises PrepareError where the archive ends too early or is none."""
    try:
        with tarfile.open(file, "r:") as archive:
            yield archive
    except (FileNotFoundError, tarfile.TarError, EOFError) as error:
        raise PrepareError(f"{file} cannot be read as a bundle: {error}") from error


def _content(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    stream = archive.extractfile(name)
    if stream is None:
        raise PrepareError(f"the bundle's {name} is no file")
    return stream


def _lay(stream: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as copy:
        shutil.copyfileobj(stream, copy, _CHUNK)


def _inside(name: str) -> Path:
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise PrepareError(f"the bundle holds a file outside of its folder: {name}")
    return path


def _sha256(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _check_disk(chosen: Choices, names: list[str], folder: Path) -> None:
    """Images lie there twice while the bundle is written. Raises PrepareError."""
    saved = sum(int(docker.docker("image", "inspect", "--format", "{{.Size}}", name)) for name in names)
    models = sum(file.stat().st_size for _, file in _model_members(chosen))
    needed, free = (2 * saved + models) / 2**30, shutil.disk_usage(folder).free / 2**30
    if free < needed:
        raise PrepareError(f"free disk for the bundle at {folder.parent}: {free:.1f} GiB; needed: {needed:.1f} GiB")


def _prepare_image(root: Path) -> None:
    """What runs prepare.sh where only Docker is installed; built when this command runs outside of it."""
    if docker.image_id(images.PREPARE_IMAGE) is None:
        docker.show("build", "--file=prepare.Dockerfile", f"--tag={images.PREPARE_IMAGE}", ".", cwd=root)
