"""Loading models from local directories, and never from anywhere else."""

import json
import logging
import os
from pathlib import Path
from typing import Any

# Read by the libraries when they are imported: a name is never looked up, whatever a configuration says.
os.environ["HF_HUB_OFFLINE"] = "1"

try:
    import torch
    import transformers
    from safetensors import SafetensorError
except ImportError as error:
    raise ImportError(
        "HPS_LAYOUT_BACKEND=transformers needs PyTorch and the extra [torch] (requirements/torch.txt)"
    ) from error

from hps.embedded.models import ModelFileError

log = logging.getLogger(__name__)

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def load_model(directory: Path, classes: dict[str, str], labels: int | None, device: str, setting: str) -> Any:
    """The model in `directory`, ready for inference, in single precision.

    classes: `model_type` of config.json → class of transformers. labels: how many classes it must tell apart.
    setting: the variable that named the directory, for messages. Raises ModelFileError.
    """
    kind = _model_type(directory, setting)
    if kind not in classes:
        raise ModelFileError(f"{setting}: {directory} holds a {kind} model; expected: {', '.join(sorted(classes))}")
    if not any((directory / name).is_file() for name in WEIGHTS):
        raise ModelFileError(f"{setting}: {directory} has no {WEIGHTS[0]}")
    model_class = getattr(transformers, classes[kind])
    try:
        model = model_class.from_pretrained(directory, local_files_only=True, use_safetensors=True, dtype=torch.float32)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelFileError(f"{setting}: {directory} cannot be loaded: {error}") from error
    if labels is not None and model.config.num_labels != labels:
        raise ModelFileError(
            f"{setting}: {directory} tells {model.config.num_labels} classes apart instead of {labels}"
        )
    return model.eval().requires_grad_(False).to(device)


def _model_type(directory: Path, setting: str) -> str:
    path = directory / CONFIG
    if not path.is_file():
        # A name of a hub lands here, too: nothing is downloaded at run time.
        raise ModelFileError(f"{setting}: {directory} is no directory with a {CONFIG}; models are not downloaded")
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelFileError(f"{path} is not JSON ({error})") from error
    return str(config.get("model_type")) if isinstance(config, dict) else "nameless"


def device(gpu: int | None) -> str:
    """torch's name of the GPU with this number, or "cpu"; that, too, where PyTorch is a build without CUDA."""
    if gpu is None:
        return "cpu"
    if torch.cuda.is_available():
        return f"cuda:{gpu}"
    log.warning("this PyTorch (%s) cannot use the GPU: the layout model runs on the CPU", torch.__version__)
    return "cpu"


def limit_threads(count: int) -> None:
    """How many threads PyTorch computes with, on the CPU."""
    torch.set_num_threads(count)
