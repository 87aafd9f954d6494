"""transformers' own image processors, which ours must agree with. They are no part of the product."""

import sys
from types import ModuleType
from typing import Any

import transformers.image_processing_backends  # noqa: F401  before any stand-in: it asks whether torchvision is there


def processor(module: str, name: str) -> Any:
    """An image processor without its constructor, which asks for torchvision; post-processing does without."""
    try:
        import torchvision.transforms.v2.functional  # noqa: F401
    except ImportError:
        _stand_in("torchvision.transforms.v2.functional")
    loaded = __import__(f"transformers.models.{module}.image_processing_{module}", fromlist=[name])
    kind = getattr(loaded, name)
    return kind.__new__(kind)


def _stand_in(path: str) -> None:
    """Empty modules: torchvision is imported by the processors' module, and only used to prepare pictures."""
    parts = path.split(".")
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        if name not in sys.modules:
            sys.modules[name] = ModuleType(name)
            if length > 1:
                setattr(sys.modules[".".join(parts[: length - 1])], parts[length - 1], sys.modules[name])
