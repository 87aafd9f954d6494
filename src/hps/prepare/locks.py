"""models.lock and images.lock: what was seen first, and is insisted on from then on. JSON, next to compose.yaml."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from hps.prepare import env_file
from hps.prepare.hubs import HubName
from hps.prepare.problems import PrepareError

MODELS: Final = "models.lock"
IMAGES: Final = "images.lock"


@dataclass(frozen=True, slots=True)
class LockedFile:
    """revisions: hub → commit under which the hub gives this content."""

    sha256: str
    size: int
    revisions: Mapping[HubName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LockedPart:
    """The files of a part of a release by name."""

    repository: str
    files: Mapping[str, LockedFile]


@dataclass(frozen=True, slots=True)
class LockedImage:
    """variable: that names the image in compose.yaml. id: of its content. inputs: hash of what it was built from."""

    variable: str
    name: str
    id: str
    inputs: str = ""


@dataclass(frozen=True, slots=True)
class ImageLock:
    """bases: name → name by digest, for building. images: what the services run, by variable."""

    bases: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, LockedImage] = field(default_factory=dict)


Models = dict[str, dict[str, LockedPart]]  # release → part → files


def read_models(root: Path) -> Models:
    """Empty where there is no file yet. Raises PrepareError."""
    try:
        return {
            release: {
                name: LockedPart(
                    part["repository"], {path: LockedFile(**entry) for path, entry in part["files"].items()}
                )
                for name, part in parts.items()
            }
            for release, parts in _read(root / MODELS).items()
        }
    except (LookupError, TypeError, AttributeError) as error:
        raise PrepareError(f"{root / MODELS} is damaged: bring it back from a copy, or remove it") from error


def write_models(root: Path, models: Models) -> None:
    _write(
        root / MODELS,
        {release: {name: asdict(part) for name, part in parts.items()} for release, parts in models.items()},
    )


def read_images(root: Path) -> ImageLock:
    """Empty where there is no file yet. Raises PrepareError."""
    content = _read(root / IMAGES)
    try:
        images = {variable: LockedImage(**entry) for variable, entry in content.get("images", {}).items()}
        return ImageLock(dict(content.get("bases", {})), images)
    except (LookupError, TypeError, AttributeError) as error:
        raise PrepareError(f"{root / IMAGES} is damaged: remove it and run ./prepare.sh") from error


def write_images(root: Path, lock: ImageLock) -> None:
    _write(root / IMAGES, asdict(lock))


def _read(file: Path) -> Any:
    if not file.exists():
        return {}
    try:
        return json.loads(file.read_bytes())
    except ValueError as error:
        raise PrepareError(f"{file} is no JSON ({error}): bring it back from a copy, or remove it") from error


def _write(file: Path, content: Any) -> None:
    env_file.write(file, json.dumps(content, indent=2, sort_keys=True) + "\n")
