"""Images: pulled or built once, written down in images.lock, and from then on run as they were then."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hps.compose_settings import ComposeSettings
from hps.prepare import docker, host
from hps.prepare.download import Say
from hps.prepare.locks import ImageLock, LockedImage
from hps.version import VERSION

# What the images are built from, in the kit.
_SOURCES: Final = ("pyproject.toml", "requirements", "src", "gateway", "model_repo", "vlm")
_DOCKERFILES: Final = ("gateway.Dockerfile", "pipeline.Dockerfile", "vlm/Dockerfile")


@dataclass(frozen=True, slots=True)
class Built:
    """variable: that compose.yaml takes the image's name from. bases: variables of what it is built on and with."""

    service: str
    variable: str
    bases: tuple[str, ...]


_GATEWAY: Final = Built("paddleocr-vl-api", "HPS_GATEWAY_IMAGE", ("HPS_PYTHON_IMAGE",))
_PIPELINE: Final = Built("paddleocr-vl-pipeline", "HPS_PIPELINE_IMAGE", ("HPS_TRITON_IMAGE", "HPS_TORCH"))
_PIPELINE_CPU: Final = Built("paddleocr-vl-pipeline", "HPS_PIPELINE_CPU_IMAGE", ("HPS_PYTHON_IMAGE",))
_VLM: Final = Built("paddleocr-vlm-server", "HPS_VLM_SERVER_IMAGE", ("HPS_VLM_IMAGE",))
# Runtime → what is built.
BUILT: Final[Mapping[str, tuple[Built, ...]]] = {
    "": (_GATEWAY, _PIPELINE, _VLM),
    "cpu": (_GATEWAY, _PIPELINE_CPU),
    "paddlex": (_GATEWAY, _VLM),
}
# Runtime → images that are run as they are published.
PULLED: Final[Mapping[str, tuple[str, ...]]] = {"": (), "cpu": (), "paddlex": ("HPS_PADDLEX_IMAGE",)}
_PADDLEX_IMAGES: Final = "ccr-2vdh3abv-pub.cnc.bj.baidubce.com/paddlex/hps"
_BUILT_GIB: Final = 1.0  # of an image, on top of its base
# What runs prepare.sh where only Docker is installed.
PREPARE_IMAGE: Final = f"paddleocr-vl-hps-prepare:{VERSION}"
# Settings that decide what the built images hold.
BUILT_FROM: Final = ("HPS_PYTHON_IMAGE", "HPS_TRITON_IMAGE", "HPS_VLM_IMAGE", "HPS_TORCH")


def default(variable: str) -> str:
    """The image's name where nobody has set one."""
    return str(ComposeSettings.model_fields[variable.removeprefix("HPS_").lower()].default)


def is_ours(variable: str, name: str | None) -> bool:
    """Whether this kit, in this version or another, gave the image its name: by default, or by its content."""
    repository = default(variable).rpartition(":")[0]
    return not name or bool(re.fullmatch(re.escape(repository) + r":\d+\.\d+\.\d+(-[0-9a-f]{12})?", name))


def missing_gib(root: Path, values: Mapping[str, str], lock: ImageLock) -> float:
    """Disk that pulling and building will take, about; 0 when all is there."""
    runtime = values.get("HPS_RUNTIME", "")
    inputs = fingerprint(root, values)
    built = [image for image in BUILT[runtime] if not _is_there(image.variable, inputs, values, lock)]
    pulled = [*PULLED[runtime], *dict.fromkeys(base for image in built for base in image.bases)]
    needs = [
        host.image_needs(variable, _name(variable, values)) for variable in pulled if not _is_here(variable, values)
    ]
    return _BUILT_GIB * len(built) + sum(need.disk_gib for need in needs if need)


def ensure(root: Path, values: Mapping[str, str], lock: ImageLock, say: Say) -> ImageLock:
    """Every image of the runtime here, and written down. values: of all settings. Raises PrepareError."""
    runtime = values.get("HPS_RUNTIME", "")
    inputs = fingerprint(root, values)
    for variable in PULLED[runtime]:
        lock = _pulled(variable, values, lock, say)
    to_build = []
    for image in BUILT[runtime]:
        if not is_ours(image.variable, values.get(image.variable)):
            lock = _pulled(image.variable, values, lock, say)
        elif not _is_there(image.variable, inputs, values, lock):
            to_build.append(image)
    return _build(root, values, lock, to_build, inputs, say) if to_build else lock


def variables(values: Mapping[str, str], lock: ImageLock) -> dict[str, str]:
    """What .env is to say, so that Compose runs what the lock names."""
    return {
        image.variable: lock.images[image.variable].name
        for image in BUILT[values.get("HPS_RUNTIME", "")]
        if image.variable in lock.images and is_ours(image.variable, values.get(image.variable))
    }


def locked(values: Mapping[str, str], lock: ImageLock) -> list[LockedImage]:
    """The images of the runtime."""
    runtime = values.get("HPS_RUNTIME", "")
    wanted = [*(image.variable for image in BUILT[runtime]), *PULLED[runtime]]
    return [lock.images[variable] for variable in wanted if variable in lock.images]


def fingerprint(root: Path, values: Mapping[str, str]) -> str:
    """Of all that decides what the built images hold, but for what registries say of their bases."""
    digest = hashlib.sha256()
    for file in _sources(root):
        digest.update(f"{file.relative_to(root)}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    for variable in BUILT_FROM:
        digest.update(f"{variable}={values.get(variable) or default(variable)}\0".encode())
    return digest.hexdigest()[:16]


def _sources(root: Path) -> Iterator[Path]:
    for name in _DOCKERFILES:
        yield root / name
    for name in _SOURCES:
        place = root / name
        if place.is_file():
            yield place
        else:
            yield from sorted(
                file
                for file in place.rglob("*")
                if file.is_file() and "__pycache__" not in file.parts and ".egg-info" not in str(file)
            )


def _is_there(variable: str, inputs: str, values: Mapping[str, str], lock: ImageLock) -> bool:
    name = values.get(variable)
    if not is_ours(variable, name):
        return docker.image_id(name or "") is not None
    entry = lock.images.get(variable)
    return entry is not None and entry.inputs == inputs and docker.image_id(entry.name) == entry.id


def _is_here(variable: str, values: Mapping[str, str]) -> bool:
    return variable != "HPS_TORCH" and docker.image_id(_name(variable, values)) is not None


def _name(variable: str, values: Mapping[str, str]) -> str:
    if variable == "HPS_PADDLEX_IMAGE" and not values.get(variable):
        return f"{_PADDLEX_IMAGES}:paddlex{values.get('HPS_PADDLEX_VERSION') or default('HPS_PADDLEX_VERSION')}-gpu"
    return values.get(variable) or default(variable)


def _pulled(variable: str, values: Mapping[str, str], lock: ImageLock, say: Say) -> ImageLock:
    """An image that somebody else built, at the digest that it had first."""
    name = _name(variable, values)
    entry = lock.images.get(variable)
    reference = entry.inputs if entry is not None and entry.name == name and entry.inputs else name
    found = docker.image_id(name)
    if found is None or (entry is not None and entry.name == name and entry.id != found):
        say(f"pulling {reference}")
        docker.show("pull", reference)
        if reference != name:
            docker.docker("tag", reference, name)
        found = docker.image_id(name) or ""
    image = LockedImage(variable, name, found, docker.digest(name))
    return replace(lock, images={**lock.images, variable: image})


def _build(
    root: Path, values: Mapping[str, str], lock: ImageLock, wanted: list[Built], inputs: str, say: Say
) -> ImageLock:
    bases = dict(lock.bases)
    environment = {**os.environ, **values}
    for variable in dict.fromkeys(base for image in wanted for base in image.bases if base != "HPS_TORCH"):
        name = _name(variable, values)
        bases[name] = bases.get(name) or _base(name, say)
        environment[variable] = bases[name]
    for image in wanted:
        environment[image.variable] = default(image.variable)
    files = ["compose.yaml", *([f"compose.{runtime}.yaml"] if (runtime := values.get("HPS_RUNTIME", "")) else [])]
    say(f"building the images of {', '.join(image.service for image in wanted)}")
    docker.show(
        "compose",
        *(f"--file={file}" for file in files),
        "build",
        *(image.service for image in wanted),
        cwd=root,
        env=environment,
    )
    images = dict(lock.images)
    for image in wanted:
        found = docker.docker("image", "inspect", "--format", "{{.Id}}", default(image.variable))
        # By content: nothing that is built or pulled later can take its place.
        name = f"{default(image.variable)}-{found.removeprefix('sha256:')[:12]}"
        docker.docker("tag", default(image.variable), name)
        images[image.variable] = LockedImage(image.variable, name, found, inputs)
    return ImageLock(bases, images)


def _base(name: str, say: Say) -> str:
    """A base image by digest; pulled where it is not here."""
    if "@sha256:" in name:
        return name
    if docker.image_id(name) is None:
        say(f"pulling {name}")
        docker.show("pull", name)
    return docker.digest(name)
