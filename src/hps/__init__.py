"""High-performance serving of PaddleOCR-VL."""

from hps.version import VERSION as __version__

__all__ = ["__version__"]
