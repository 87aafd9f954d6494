"""The model repository as Triton gets it: what config.pbtxt says, settings over it."""

import os
import shutil
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from hps.contract import LAYOUT_PARSING
from hps.settings import Settings
from hps.triton.bls import MODEL as LAYOUT_DETECTION

CONFIG = "config.pbtxt"


class RepositoryError(Exception):
    """The model repository cannot be used; the message says why and where."""


def gpu_present(root: Path = Path("/dev")) -> bool:
    """Whether this machine shows a usable NVIDIA device (also under WSL 2) to this process."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1"):
        return False
    return any((root / name).exists() for name in ("nvidiactl", "dxg"))


def render(source: Path, target: Path, settings: Settings, *, gpu: bool) -> list[str]:
    """Copies every model of `source` to `target` (made anew) with its final configuration; the models' names.

    A directory with a config.pbtxt is a model. Raises RepositoryError for a repository without models, an unreadable
    configuration, or one that the settings do not fit.
    """
    models = sorted(path.parent for path in source.glob(f"*/{CONFIG}"))
    if not models:
        raise RepositoryError(f"no model in {source}: expected <model>/{CONFIG}")
    shutil.rmtree(target, ignore_errors=True)
    for model in models:
        copy = target / model.name
        shutil.copytree(model, copy, ignore=shutil.ignore_patterns("__pycache__"))
        config = _parsed(model / CONFIG)
        _apply(config, model.name, settings, gpu=gpu)
        (copy / CONFIG).write_text(text_format.MessageToString(config), encoding="utf-8")
    return [model.name for model in models]


def _parsed(path: Path) -> Any:
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise RepositoryError(f"{path}: {error}") from error


def _apply(config: Any, name: str, settings: Settings, *, gpu: bool) -> None:
    if name == LAYOUT_PARSING and settings.coordinators is not None:
        _set_instances(config, settings.coordinators)
    if name == LAYOUT_DETECTION:
        if settings.layout_instances is not None:
            _set_instances(config, settings.layout_instances)
        if settings.layout_batch_size is not None:
            _set_batch_size(config, settings.layout_batch_size)
    group = model_config_pb2.ModelInstanceGroup
    for entry in config.instance_group:
        if entry.kind == group.KIND_AUTO:
            entry.kind = group.KIND_GPU if gpu else group.KIND_CPU


def _set_instances(config: Any, count: int) -> None:
    """One group with `count` processes; kind and devices stay as the first group has them."""
    if not config.instance_group:
        config.instance_group.add()
    del config.instance_group[1:]
    config.instance_group[0].count = count


def _set_batch_size(config: Any, size: int) -> None:
    config.max_batch_size = size
    if not config.HasField("dynamic_batching"):
        return
    # Triton refuses a preferred size beyond the largest.
    preferred = [entry for entry in config.dynamic_batching.preferred_batch_size if entry < size]
    if config.dynamic_batching.preferred_batch_size:
        config.dynamic_batching.preferred_batch_size[:] = [*preferred, size]
