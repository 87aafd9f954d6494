"""ONNX Runtime sessions and the tensors that the embedded models share."""

import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from hps.document import Image

# ONNX Runtime reports its use to its maker, and keeps an identifier on disk for that, unless this is set when it loads.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime

IMAGENET_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
IMAGENET_STD = np.array([0.229, 0.224, 0.225], np.float32)
ERRORS_ONLY = 3

Tensor = NDArray[np.float32]


class Session:
    """One model on the CPU with exactly `threads` threads, the calling one included. `run` is thread-safe."""

    def __init__(self, path: Path, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = ERRORS_ONLY
        # Idle pool threads would otherwise burn the cores that other parts of the chain need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._input = str(self._session.get_inputs()[0].name)

    def run(self, tensor: Tensor) -> list[Tensor]:
        outputs: list[Tensor] = self._session.run(None, {self._input: tensor})
        return outputs

    def dictionary(self) -> list[str]:
        """The vocabulary in the model's metadata, empty when it carries none."""
        text = str(self._session.get_modelmeta().custom_metadata_map.get("character", ""))
        return text.split("\n") if text else []


def imagenet_tensor(image: Image) -> Tensor:
    """(h, w, 3) uint8, channels as the model wants them → (1, 3, h, w) float32 with ImageNet's mean and deviation."""
    scaled = cv2.subtract(image.astype(np.float32), (*(IMAGENET_MEAN * 255).tolist(), 0.0))
    scaled *= 1 / (IMAGENET_STD * 255)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None])
