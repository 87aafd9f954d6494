"""Tiny models of the released architectures, random weights, written as the released checkpoints are."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    PPDocLayoutV2Config,
    PPDocLayoutV2ForObjectDetection,
    PPDocLayoutV3Config,
    PPDocLayoutV3ForObjectDetection,
    PPLCNetConfig,
    PPLCNetForImageClassification,
    UVDocConfig,
    UVDocModel,
)

CLASSES = 25
QUERIES = 40

_COMMON: dict[str, Any] = {
    "num_labels": CLASSES,
    "num_queries": QUERIES,
    "encoder_hidden_dim": 32,
    "d_model": 32,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_in_channels": [32, 64, 128],
    "decoder_in_channels": [32, 32, 32],
    "hidden_expansion": 0.5,
}


def _backbone(stages: list[int]) -> dict[str, Any]:
    return {
        "model_type": "hgnet_v2",
        "stem_channels": [3, 8, 8],
        "stage_in_channels": [8, 16, 32, 64],
        "stage_mid_channels": [8, 8, 16, 16],
        "stage_out_channels": [16, 32, 64, 128],
        "stage_num_blocks": [1, 1, 1, 1],
        "stage_numb_of_layers": [1, 1, 1, 1],
        "hidden_sizes": [16, 32, 64, 128],
        "depths": [1, 1, 1, 1],
        "out_features": [f"stage{stage}" for stage in stages],
    }


def layout_v3() -> Any:
    config = PPDocLayoutV3Config(
        backbone_config=_backbone([1, 2, 3, 4]),
        x4_feat_dim=16,
        mask_feature_channels=[8, 8],
        num_prototypes=8,
        global_pointer_head_size=8,
        **_COMMON,
    )
    return shaken(PPDocLayoutV3ForObjectDetection(config))


def layout_v2() -> Any:
    reading_order = {
        "hidden_size": 24,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "coordinate_size": 4,
        "shape_size": 4,
        "num_classes": CLASSES,
        "global_pointer_head_size": 8,
    }
    config = PPDocLayoutV2Config(
        backbone_config=_backbone([2, 3, 4]),
        class_thresholds=[0.5] * CLASSES,
        class_order=list(range(CLASSES)),
        reading_order_config=reading_order,
        **_COMMON,
    )
    return shaken(PPDocLayoutV2ForObjectDetection(config))


def orientation(classes: int = 4) -> Any:
    model = shaken(PPLCNetForImageClassification(PPLCNetConfig(scale=0.25, class_expand=32, num_labels=classes)))
    # No class wins by itself.
    pictures = torch.rand((16, 3, 1, 1), generator=torch.Generator().manual_seed(5)).expand(-1, -1, 224, 224) * 4 - 2
    with torch.no_grad():
        model.head.bias.sub_(model(pixel_values=pictures).last_hidden_state.mean(dim=0))
    return model


def unwarping() -> Any:
    backbone = {
        "model_type": "uvdoc_backbone",
        "resnet_head": [[3, 4], [4, 4]],
        "resnet_configs": [[[4, 4, 1, False]], [[4, 8, 1, True]], [[8, 16, 1, True]]],
        "stage_configs": [[[16, 1]], [[16, 2]]],
        "out_features": ["stage1", "stage2"],
    }
    config = UVDocConfig(
        backbone_config=backbone, bridge_connector=[16, 16], out_point_positions2D=[[16, 8], [8, 2]], kernel_size=3
    )
    model = shaken(UVDocModel(config))
    last = model.head.out_point_positions2D.conv_up
    with torch.no_grad():
        last.weight.mul_(0.03)  # points from -1 to 1
        last.bias.zero_()
    return model


def saved(model: Any, directory: Path) -> Path:
    model.save_pretrained(directory)
    return directory


def shaken(model: Any) -> Any:
    """Weights that let the picture through: the classes' own start is so small that all pages look alike."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                spread = 1.6 / parameter[0].numel() ** 0.5
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)
            else:
                parameter.add_(torch.rand(parameter.shape, generator=generator) * 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.fill_(1.0)
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight") and parameter.ndim == 1:
                parameter.fill_(1.0)
    return model.eval()
