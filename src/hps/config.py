"""What the pipeline does when a request says nothing: the values of pipeline_config.yaml (SPEC A.10, C.1)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hps.document import ModelSettings
from hps.layout.postprocess import LayoutRules

# PP-DocLayoutV2 (first release) has thresholds by class; V3 one for all (SPEC C.1).
V2_THRESHOLDS: Mapping[int, float] = MappingProxyType(
    dict.fromkeys(range(25), 0.5) | dict.fromkeys((5, 6, 15, 17, 22, 23), 0.4) | {20: 0.45}
)


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """max_pages: pages of a document that are processed, None for all; max_output_size: (width, height) of images."""

    release: str = "PaddleOCR-VL-1.6"
    vlm_model: str = "PaddleOCR-VL-1.6-0.9B"
    layout: LayoutRules = field(default_factory=LayoutRules)
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    visualize: bool = True
    max_pages: int | None = None
    max_output_size: tuple[int, int] = (2000, 2000)


def for_release(name: str) -> PipelineConfig:
    """The configuration that ships with a release."""
    vlm_model = f"{name}-0.9B"
    if name == "PaddleOCR-VL":
        return PipelineConfig(name, vlm_model, LayoutRules(threshold=V2_THRESHOLDS))
    return PipelineConfig(name, vlm_model)
