"""Which repositories of the model hubs make up a release."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Part:
    """name: its folder in the prepared release. repository: on both hubs. optional: the service starts without it."""

    name: str
    repository: str
    optional: bool = False


# In the form of Hugging Face transformers, which both vLLM and HPS_LAYOUT_BACKEND=transformers load.
_PREPROCESSING: Final = (
    Part("orientation", "PaddlePaddle/PP-LCNet_x1_0_doc_ori_safetensors", optional=True),
    Part("unwarping", "PaddlePaddle/UVDoc_safetensors", optional=True),
)
_LAYOUT_V3: Final = Part("layout", "PaddlePaddle/PP-DocLayoutV3_safetensors")
PARTS: Final[Mapping[str, tuple[Part, ...]]] = MappingProxyType(
    {
        "PaddleOCR-VL": (
            Part("vlm", "PaddlePaddle/PaddleOCR-VL"),
            Part("layout", "PaddlePaddle/PP-DocLayoutV2_safetensors"),
            *_PREPROCESSING,
        ),
        "PaddleOCR-VL-1.5": (Part("vlm", "PaddlePaddle/PaddleOCR-VL-1.5"), _LAYOUT_V3, *_PREPROCESSING),
        "PaddleOCR-VL-1.6": (Part("vlm", "PaddlePaddle/PaddleOCR-VL-1.6"), _LAYOUT_V3, *_PREPROCESSING),
    }
)

# Weights only in the form that holds no code, and no Python files: nothing from a hub is ever executed.
_WANTED: Final = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", "LICENSE*")
_UNWANTED: Final = ("configuration.json", ".*")  # the first is a mark of ModelScope's own


def is_wanted(path: str) -> bool:
    """Whether a file of a repository belongs to the model; folders hold the same model in other forms."""
    return (
        "/" not in path
        and any(fnmatchcase(path, pattern) for pattern in _WANTED)
        and not any(fnmatchcase(path, pattern) for pattern in _UNWANTED)
    )


def is_complete(paths: set[str]) -> bool:
    """Whether these files are a model."""
    return "config.json" in paths and bool({"model.safetensors", "model.safetensors.index.json"} & paths)
