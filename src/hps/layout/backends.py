"""The layout backends by the name that HPS_LAYOUT_BACKEND gives them.

Coordinators only need `page_inputs`; the libraries and weights of a backend are loaded by `create` alone.
"""

from hps.layout.detector import LayoutBackend
from hps.layout.fixed import MAX_SIDE as FIXED_SIDE
from hps.layout.fixed import load_fixed
from hps.layout.page_inputs import Bounded, CentreCrop, CornerAligned, PageInputs, Stretched
from hps.settings import Settings

ONNX_SIDE = 1600


def page_inputs(settings: Settings) -> PageInputs:
    """What the configured backend wants of pages, without loading it."""
    match settings.layout_backend:
        case "onnx":
            return PageInputs(Bounded(ONNX_SIDE), orientation=Bounded(ONNX_SIDE))
        case "fixed":
            return PageInputs(Bounded(FIXED_SIDE))
        case "transformers":
            return PageInputs(
                Stretched(800, 800),
                orientation=CentreCrop(256, 224) if settings.orientation_model_dir else None,
                unwarping=CornerAligned(488, 712) if settings.unwarping_model_dir else None,
            )


def has_orientation(settings: Settings) -> bool:
    """Whether the configured backend classifies orientation, without loading it."""
    return page_inputs(settings).orientation is not None


def has_unwarping(settings: Settings) -> bool:
    """Whether the configured backend unwarps pages, without loading it."""
    return page_inputs(settings).unwarping is not None


def create(settings: Settings, *, gpu: int | None = None, max_batch: int = 8) -> LayoutBackend:
    """Loads the configured backend. `gpu` (a device's number) and `max_batch` (the most pages that it will be given at
    once) matter to `transformers` only.

    Raises ValueError for a setting that is missing or a bad file of boxes; ModelFileError when model files are missing
    or of another kind; ImportError when the backend's libraries are not installed.
    """
    inputs = page_inputs(settings)
    match settings.layout_backend:
        case "onnx":
            from hps.embedded.layout import load_layout

            return load_layout(threads=settings.layout_threads, inputs=inputs, max_side=ONNX_SIDE)
        case "fixed":
            if settings.layout_fixed_file is None:
                raise ValueError("the layout backend 'fixed' needs a file of boxes: HPS_LAYOUT_FIXED_FILE")
            return load_fixed(settings.layout_fixed_file)
        case "transformers":
            from hps.layout.pytorch.backend import load_transformers

            return load_transformers(settings, inputs, gpu=gpu, max_batch=max_batch)
