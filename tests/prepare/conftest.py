"""Hubs with two small models, and a kit to prepare."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.hub import FakeHub, model
from tests.fakes.server import Server
from tests.prepare.kit import Kit

# Images whose needs nobody knows: what the machine of the tests has is enough.
UNKNOWN_IMAGES = {"HPS_VLM_IMAGE": "registry.example/vllm:1", "HPS_TRITON_IMAGE": "registry.example/triton:1"}


@pytest.fixture
def hub() -> FakeHub:
    return FakeHub(
        {
            "PaddlePaddle/PaddleOCR-VL-1.6": model("paddleocr_vl", 3_000_000),
            "PaddlePaddle/PP-DocLayoutV3_safetensors": model("pp_doclayout_v3"),
            "PaddlePaddle/UVDoc_safetensors": model("uvdoc", 20_000),
        }
    )


@pytest.fixture
async def kit(hub: FakeHub, tmp_path: Path) -> AsyncIterator[Kit]:
    async with Server(hub.app()) as server:
        (tmp_path / "kit").mkdir()
        fresh = Kit(tmp_path / "kit", server.url, dict(UNKNOWN_IMAGES))
        fresh.fill()
        fresh.use_venv()
        yield fresh
