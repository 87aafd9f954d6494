"""What the host is, and whether it will do. `measure` asks it, `problems` judges, and is pure."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hps.prepare.problems import PrepareError

# Above the official kit's 19.03 and 2.0: our Dockerfiles mount secrets, which the builder knows since 20.10 without
# fetching a front end, and the Compose files over compose.yaml replace what is under them (`!reset`, `!override`).
LEAST_DOCKER: Final = "20.10"
LEAST_COMPOSE: Final = "2.24.4"
LEAST_CAPABILITY: Final = 8.0
_QUERY: Final = ("index", "uuid", "name", "memory.total", "compute_cap", "compute_mode", "driver_version")


@dataclass(frozen=True, slots=True)
class Gpu:
    index: str
    uuid: str
    name: str
    memory_gib: float
    capability: float
    mode: str
    driver: str


@dataclass(frozen=True, slots=True)
class Host:
    """Versions are as the programs say them. free_gib: of the disk of the kit and of Docker's; None if unknown.
    gpu_error: why no GPU was seen."""

    machine: str
    docker: str
    compose: str
    cores: int
    memory_gib: float
    free_models_gib: float
    free_docker_gib: float | None
    gpus: tuple[Gpu, ...] = ()
    gpu_error: str = ""


@dataclass(frozen=True, slots=True)
class ImageNeeds:
    """What an image asks of driver and GPU. capability: below it. instead: the setting for older drivers. disk_gib:
    unpacked, about."""

    cuda: str
    driver: int
    capability: float
    disk_gib: float
    instead: str


# Start of an image's name → what it needs. From the publishers' notes; not tried on old drivers.
_IMAGES: Final = (
    (
        r"vllm/vllm-openai:.*-cu129",
        ImageNeeds("12.9", 575, 13.0, 30, "the official Paddle image as HPS_VLM_IMAGE (driver 560)"),
    ),
    (
        r"vllm/vllm-openai:",
        ImageNeeds("13.0", 580, 13.0, 30, "HPS_VLM_IMAGE=vllm/vllm-openai:v0.33.0-cu129 (driver 575)"),
    ),
    (
        r".*paddleocr-genai-vllm-server:",
        ImageNeeds("12.6", 560, 12.0, 25, "none: no image of this model is for it; update the driver"),
    ),
    (
        r".*/paddlex/hps:",
        ImageNeeds("12.6", 560, 12.0, 25, "none: update the driver"),
    ),
    (
        r"nvcr\.io/nvidia/tritonserver:25\.",
        ImageNeeds("12.9", 535, 13.0, 25, "none: older Triton images have holes in their Python backend; update it"),
    ),
)
# The build of PyTorch that the pipeline's image gets.
_TORCH: Final = ImageNeeds("13.0", 580, 13.0, 8, "HPS_TORCH='torch==2.11.0 --index-url URL' with a build for CUDA 12")


@dataclass(frozen=True, slots=True)
class Needs:
    """devices: indexes or UUIDs as HPS_DEVICE_ID(S) has them, empty without a GPU. docker_gib: None when no image is
    to be built. mps: HPS_VLM_MPS."""

    models_gib: float
    docker_gib: float | None
    memory_gib: float
    devices: tuple[str, ...] = ()
    images: tuple[tuple[str, str], ...] = ()
    mps: bool = False


def measure(models: Path, gpu: bool, probe_image: str | None = None) -> Host:
    """Asks Docker, the system and, if a GPU is wanted, nvidia-smi; in a container of `probe_image` where it is not in
    the PATH. Raises PrepareError when Docker does not answer."""
    info = json.loads(_said("Docker does not answer", "docker", "info", "--format", "{{json .}}"))
    # In a container it is the host's that matters, which prepare.sh has asked.
    compose = os.environ.get("HOST_COMPOSE") or _said(
        "Docker Compose v2 is not installed", "docker", "compose", "version", "--short"
    )
    gpus, gpu_error = _gpus(probe_image) if gpu else ((), "")
    return Host(
        machine=info["Architecture"],
        docker=info["ServerVersion"],
        compose=compose,
        cores=info["NCPU"],
        memory_gib=info["MemTotal"] / 2**30,
        free_models_gib=_free_gib(models) or 0.0,
        # In a container this is the disk of its own root, which is Docker's.
        free_docker_gib=_free_gib(Path(info["DockerRootDir"])),
        gpus=gpus,
        gpu_error=gpu_error,
    )


def chosen(host: Host, devices: Sequence[str]) -> list[Gpu]:
    """The GPUs that the settings name."""
    return [gpu for name in devices for gpu in host.gpus if name in (gpu.index, gpu.uuid)]


def problems(host: Host, needs: Needs) -> list[str]:
    """Everything that stands in the way, each with the measured and the needed value. Pure."""
    found = []
    if host.machine not in ("x86_64", "amd64"):
        found.append(f"processor: {host.machine}; needed: x86-64, as the images are")
    found += _version_problem("Docker", host.docker, LEAST_DOCKER)
    found += _version_problem("Docker Compose", host.compose, LEAST_COMPOSE)
    found += _size_problem("memory", host.memory_gib, needs.memory_gib)
    found += _size_problem("free disk for models", host.free_models_gib, needs.models_gib)
    if needs.docker_gib is not None and host.free_docker_gib is not None:
        found += _size_problem("free disk for Docker's images", host.free_docker_gib, needs.docker_gib)
    if needs.devices:
        found += _gpu_problems(host, needs)
    return found


def image_needs(variable: str, image: str) -> ImageNeeds | None:
    """What an image needs, None for one that this kit does not know."""
    if variable == "HPS_TORCH":
        # With an index of its own it is a build of another CUDA.
        return _TORCH if re.fullmatch(r"torch(==2\.1[1-9][^ ]*)?", image) else None
    return next((needs for pattern, needs in _IMAGES if re.match(pattern, image)), None)


def _gpu_problems(host: Host, needs: Needs) -> list[str]:
    if not host.gpus:
        why = f" ({host.gpu_error})" if host.gpu_error else ""
        return [f"GPU: none seen by nvidia-smi{why}; needed: an NVIDIA GPU, its driver, the NVIDIA Container Toolkit"]
    found = []
    names = {name for gpu in host.gpus for name in (gpu.index, gpu.uuid)}
    if unknown := [name for name in needs.devices if name not in names]:
        there = ", ".join(gpu.index for gpu in host.gpus)
        found.append(f"GPU: HPS_DEVICE_ID(S) names {', '.join(unknown)}; there are {there}")
    for gpu in chosen(host, needs.devices):
        found += _one_gpu_problems(gpu, needs)
    return list(dict.fromkeys(found))


def _one_gpu_problems(gpu: Gpu, needs: Needs) -> list[str]:
    found = []
    if gpu.capability < LEAST_CAPABILITY:
        found.append(f"GPU {gpu.index} ({gpu.name}): compute capability {gpu.capability}; needed: {LEAST_CAPABILITY}")
    mode = gpu.mode.replace("_", " ").lower()
    if "prohibited" in mode or ("exclusive" in mode and not needs.mps):
        found.append(
            f"GPU {gpu.index} ({gpu.name}): compute mode {gpu.mode}; needed: Default, as several processes share it "
            f"(`nvidia-smi -i {gpu.index} -c DEFAULT`), or Exclusive_Process with HPS_VLM_MPS=true"
        )
    for variable, image in needs.images:
        wanted = image_needs(variable, image)
        if wanted is None:
            continue
        if _version(gpu.driver)[0] < wanted.driver:
            found.append(
                f"driver: {gpu.driver}; needed: {wanted.driver} for {image} (CUDA {wanted.cuda}). "
                f"With the driver that is there: {wanted.instead}"
            )
        if gpu.capability >= wanted.capability:
            found.append(
                f"GPU {gpu.index} ({gpu.name}): compute capability {gpu.capability}; needed: below {wanted.capability} "
                f"for {image}; set {variable} to a newer one"
            )
    return found


def _version_problem(name: str, found: str, least: str) -> list[str]:
    return [] if _version(found) >= _version(least) else [f"{name}: {found}; needed: {least} or newer"]


def _size_problem(name: str, found: float, needed: float) -> list[str]:
    return [] if found >= needed else [f"{name}: {found:.1f} GiB; needed: {needed:.1f} GiB"]


def _version(text: str) -> tuple[int, int, int]:
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def _said(problem: str, *command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrepareError(f"{problem}: {error}") from error
    if done.returncode != 0:
        raise PrepareError(f"{problem}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def _gpus(probe_image: str | None) -> tuple[tuple[Gpu, ...], str]:
    """The GPUs, or why none was seen."""
    command = ["nvidia-smi"]
    if shutil.which("nvidia-smi") is None:
        if probe_image is None:
            return (), "nvidia-smi is not installed"
        # The container runtime brings nvidia-smi along, and so is tried itself.
        options = ["--rm", "--gpus=all", "--env=NVIDIA_DRIVER_CAPABILITIES=utility", "--entrypoint=nvidia-smi"]
        command = ["docker", "run", *options, probe_image]
    command += [f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), str(error)
    if done.returncode != 0:
        return (), " ".join((done.stderr.strip() or done.stdout.strip()).split())
    gpus = []
    for line in done.stdout.splitlines():
        index, uuid, name, memory, capability, mode, driver = (entry.strip() for entry in line.split(","))
        gpus.append(Gpu(index, uuid, name, float(memory) / 1024, float(capability), mode, driver))
    return tuple(gpus), ""


def _free_gib(folder: Path) -> float | None:
    """Of the disk that `folder` is on, or will be; None when none of it can be seen from here."""
    while not folder.exists():
        if folder == folder.parent:
            return None
        folder = folder.parent
    return shutil.disk_usage(folder).free / 2**30
