"""The layout backends by the name that HPS_LAYOUT_BACKEND gives them.

Coordinators only need `input_side`; the libraries and weights of a backend are loaded by `create` alone.
"""

from pathlib import Path

from hps.layout.detector import LayoutBackend
from hps.layout.fixed import MAX_SIDE as FIXED_SIDE
from hps.layout.fixed import load_fixed

INPUT_SIDES = {"onnx": 1600, "fixed": FIXED_SIDE}


WITH_ORIENTATION = frozenset({"onnx"})


def has_orientation(name: str) -> bool:
    """Whether the backend classifies orientation, without loading it."""
    return name in WITH_ORIENTATION


def input_side(name: str) -> int:
    """Long side in pixels of the images that the backend wants. Raises ValueError for an unknown name."""
    if name not in INPUT_SIDES:
        raise ValueError(f"unknown layout backend {name!r}; the choices are: {', '.join(sorted(INPUT_SIDES))}")
    return INPUT_SIDES[name]


def create(name: str, *, fixed_file: str, threads: int) -> LayoutBackend:
    """Loads a backend; `fixed_file` matters to `fixed` only, `threads` (of its own computing) to `onnx` only.

    Raises ValueError for an unknown name or a bad file of boxes, ModelFileError when model files are missing.
    """
    max_side = input_side(name)
    if name == "fixed":
        if not fixed_file:
            raise ValueError("the layout backend 'fixed' needs a file of boxes")
        return load_fixed(Path(fixed_file))
    from hps.embedded.layout import load_layout

    return load_layout(threads=threads, max_side=max_side)
