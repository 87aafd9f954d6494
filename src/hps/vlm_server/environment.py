"""What the container is told: HPS_ variables, pipeline_config.yaml, the GPU. Read in this one place."""

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from . import sizing
from .command import ServerPlan

PIPELINE_CONFIG = "/models/pipeline_config.yaml"
MODEL_FOLDER = "/models/vlm"
FIRST_PORT = 8080


class Unusable(Exception):
    """The servers cannot be started; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run: `servers` of `server`, at `first_port` and the ports after it. hang_s: a server that was well and
    does not answer for so long is ended, and started again."""

    server: ServerPlan
    servers: int
    first_port: int
    mps: bool
    hang_s: float

    @property
    def ports(self) -> range:
        return range(self.first_port, self.first_port + self.servers)


def read(environ: Mapping[str, str] = os.environ) -> Plan:
    """Raises Unusable."""
    mps = _boolean(environ, "HPS_VLM_MPS", False)
    memory = gpu_memory_gib()
    servers = _servers(environ.get("HPS_VLM_REPLICAS") or "auto", memory, mps)
    # Without a GPU to ask there is one server, whose cache is small: a test, or a CPU.
    kv_cache = _number(environ, "HPS_VLM_KV_CACHE_GIB", sizing.kv_cache_gib(memory, servers) if memory else 1.0)
    model = environ.get("HPS_VLM_MODEL") or MODEL_FOLDER
    name = environ.get("HPS_VLM_MODEL_NAME") or model_name(Path(environ.get("HPS_PIPELINE_CONFIG") or PIPELINE_CONFIG))
    overrides = _overrides(environ.get("HPS_VLM_CONFIG"))
    server = ServerPlan(
        model=model,
        name=name,
        version=_version(),
        kv_cache_gib=kv_cache,
        memory_share=sizing.memory_share(memory, kv_cache) if memory else None,
        api_processes=int(_number(environ, "HPS_VLM_API_PROCESSES", 4 if servers == 1 else 1)),
        api_key=environ.get("HPS_VLM_API_KEY") or None,
        overrides=overrides,
        extra=tuple(shlex.split(environ.get("HPS_VLM_EXTRA_ARGS") or "")),
    )
    port = int(_number(environ, "HPS_VLM_PORT", FIRST_PORT))
    return Plan(server, servers, port, mps, _number(environ, "HPS_VLM_HANG_TIMEOUT", 15.0))


def model_name(config: Path) -> str:
    """The name that the pipeline asks for: `model_name` of VLRecognition in pipeline_config.yaml. Raises Unusable."""
    if not config.exists():
        raise Unusable(
            f"{config} is not there: this release is not prepared. Run ./prepare.sh, with the HPS_PIPELINE_NAME of .env"
        )
    try:
        content: Any = yaml.safe_load(config.read_text(encoding="utf-8"))
        name = content["SubModules"]["VLRecognition"]["model_name"]
    except (yaml.YAMLError, UnicodeDecodeError, LookupError, TypeError) as error:
        raise Unusable(f"{config} names no model at SubModules.VLRecognition.model_name") from error
    if not isinstance(name, str) or not name:
        raise Unusable(f"{config}: the model's name must be text")
    return name


def _servers(wanted: str, memory_gib: float | None, mps: bool) -> int:
    if wanted == "auto":
        return 1 if memory_gib is None else sizing.replicas(memory_gib, mps=mps)
    if not wanted.isdecimal() or not 1 <= int(wanted) <= 64:
        raise Unusable("HPS_VLM_REPLICAS must be auto or a number from 1 to 64")
    return int(wanted)


def gpu_memory_gib() -> float | None:
    """Of the smallest GPU that this container sees; None without one."""
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout.split()
        return min(float(line) for line in lines) / 1024
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _overrides(file: str | None) -> dict[str, Any]:
    """Flags of `vllm serve` by name, from a YAML file."""
    if not file:
        return {}
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise Unusable(f"HPS_VLM_CONFIG cannot be read: {error}") from error
    if not isinstance(content, dict) or any(isinstance(value, dict | list) for value in content.values()):
        raise Unusable("HPS_VLM_CONFIG must hold flags of `vllm serve` and their values")
    return {str(name): value for name, value in content.items() if value is not None}


def _version() -> tuple[int, int]:
    """(0, 0), the oldest, when vLLM does not say."""
    try:
        major, minor = metadata.version("vllm").split(".")[:2]
        return int(major), int(minor)
    except (metadata.PackageNotFoundError, ValueError):
        return 0, 0


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(environ.get(name) or default)
    except ValueError:
        raise Unusable(f"{name} must be a number") from None


def _boolean(environ: Mapping[str, str], name: str, default: bool) -> bool:
    value = (environ.get(name) or "").lower()
    if value in ("", "true", "1", "yes", "on", "false", "0", "no", "off"):
        return value in ("true", "1", "yes", "on") if value else default
    raise Unusable(f"{name} must be true or false")
