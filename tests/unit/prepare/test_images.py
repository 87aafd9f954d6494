"""Names of images: which of them this kit gave."""

import pytest

from hps.prepare import images


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        (None, True),
        ("", True),
        (images.default("HPS_GATEWAY_IMAGE"), True),
        (images.default("HPS_GATEWAY_IMAGE") + "-0123456789ab", True),
        ("paddleocr-vl-hps-gateway:0.0.9-0123456789ab", True),  # built by another version, before an upgrade
        ("paddleocr-vl-hps-gateway:mine", False),
        ("registry.example/paddleocr-vl-hps-gateway:0.1.0", False),
        ("paddleocr-vl-hps-pipeline:0.1.0", False),
    ],
)
def test_whether_an_image_is_the_kits(name: str | None, ours: bool) -> None:
    assert images.is_ours("HPS_GATEWAY_IMAGE", name) is ours
