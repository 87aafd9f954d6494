"""The backend `transformers` in the real Triton, called by BLS as coordinators call it."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import Client, RunningTriton, StartTriton
from tests.torch import checkpoints

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def triton(start_triton: StartTriton, tmp_path_factory: pytest.TempPathFactory) -> RunningTriton:
    folder = tmp_path_factory.mktemp("layout")
    shutil.copytree(ROOT / "model_repo" / "layout-detection", folder / "models" / "layout-detection")
    shutil.copytree(ROOT / "tests" / "e2e" / "callers" / "layout-call", folder / "models" / "layout-call")
    return start_triton(
        folder / "models",
        layout_backend="transformers",
        layout_model_dir=checkpoints.saved(checkpoints.layout_v3(), folder / "layout"),
        orientation_model_dir=checkpoints.saved(checkpoints.orientation(), folder / "orientation"),
        unwarping_model_dir=checkpoints.saved(checkpoints.unwarping(), folder / "unwarping"),
    )


async def test_pages_of_many_requests_are_detected(triton: RunningTriton) -> None:
    async with Client(triton.grpc, "layout-call") as client:
        requests = [client.call({"pages": [[600 + i, 800], [900, 500 + i]]}) for i in range(4)]
        envelopes = await asyncio.gather(*requests)
    for envelope in envelopes:
        first, second = envelope["result"]["rows"]
        assert 5 < len(first) <= checkpoints.QUERIES and 5 < len(second) <= checkpoints.QUERIES
        assert all(len(row) == 7 for row in first)


async def test_all_tasks_meet_in_one_process(triton: RunningTriton) -> None:
    async with Client(triton.grpc, "layout-call") as client:
        rows, angles, grids = await asyncio.gather(
            client.call({"pages": [[300, 400]]}),
            client.call({"pages": [[300, 400], [400, 300]], "orientation": True}),
            client.call({"pages": [[3000, 400]], "grid": True}),
        )
    assert rows["result"]["rows"][0]
    assert all(angle in (0, 90, 180, 270) for angle in angles["result"]["angles"])
    assert grids["result"]["shapes"] == [[45, 31, 2]]
    assert sum("layout-detection" in " ".join(process.cmdline()) for process in triton.model_processes()) == 1


def test_a_missing_model_stops_the_start_and_is_named(start_triton: StartTriton, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "model_repo" / "layout-detection", tmp_path / "models" / "layout-detection")
    triton = start_triton(
        tmp_path / "models", wait=False, layout_backend="transformers", layout_model_dir="PaddlePaddle/PP-DocLayoutV3"
    )
    assert triton.process.wait(60) == 1
    assert "HPS_LAYOUT_MODEL_DIR" in triton.log.read_text()
