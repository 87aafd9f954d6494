"""The internal model layout-detection in the real Triton, called by BLS as layout-parsing calls it."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import Client, RunningTriton, StartTriton

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
BOXES = [[22, 0.9, 0.125, 0.25, 0.5, 0.75, 0], [6, 0.8, 0.0, 0.0, 1.0, 0.25, 1]]


def repository(folder: Path) -> Path:
    """The shipped model and a caller."""
    shutil.copytree(ROOT / "model_repo" / "layout-detection", folder / "models" / "layout-detection")
    shutil.copytree(Path(__file__).parent / "callers" / "layout-call", folder / "models" / "layout-call")
    return folder / "models"


@pytest.fixture(scope="module")
def triton(start_triton: StartTriton, tmp_path_factory: pytest.TempPathFactory) -> RunningTriton:
    folder = tmp_path_factory.mktemp("layout")
    (folder / "boxes.json").write_text(json.dumps({"boxes": BOXES, "delay_s": 0.005}))
    return start_triton(repository(folder), layout_backend="fixed", layout_fixed_file=folder / "boxes.json")


async def layout_pages_and_batches(triton: RunningTriton) -> tuple[float, float]:
    async with httpx.AsyncClient() as client:
        text = (await client.get(triton.metrics)).text
    pages, batches = (re.search(rf"^{name}(?:{{.*}})? (\S+)$", text, re.M) for name in METRICS)
    assert pages and batches, text
    return float(pages[1]), float(batches[1])


METRICS = ("hps_layout_pages_total", "hps_layout_batches_total")


async def test_boxes_are_in_pixels_of_each_page(triton: RunningTriton) -> None:
    async with Client(triton.grpc, "layout-call") as client:
        envelope = await client.call({"pages": [[800, 400], [2000, 3000]]})
    (first, _), (second, _) = envelope["result"]["rows"]
    assert first[2:6] == [100, 100, 400, 300]
    assert second[2:6] == [250, 750, 1000, 2250]


async def test_pages_of_all_sizes_and_requests_meet_in_batches(triton: RunningTriton) -> None:
    pages_before, batches_before = await layout_pages_and_batches(triton)
    async with Client(triton.grpc, "layout-call") as client:
        requests = [client.call({"pages": [[600 + i, 800], [900, 500 + i]]}) for i in range(40)]
        envelopes = await asyncio.gather(*requests)
    for i, envelope in enumerate(envelopes):
        (first, _), (second, _) = envelope["result"]["rows"]
        assert first[4] == pytest.approx((600 + i) / 2)
        assert second[5] == pytest.approx((500 + i) * 0.75)
    pages, batches = await layout_pages_and_batches(triton)
    assert pages - pages_before == 80
    assert (pages - pages_before) / (batches - batches_before) > 3


async def test_orientation_without_a_classifier_is_not_enabled(triton: RunningTriton) -> None:
    async with Client(triton.grpc, "layout-call") as client:
        envelope = await client.call({"pages": [[100, 100]], "orientation": True})
    assert envelope["errorCode"] == 422


async def test_a_page_without_boxes_and_a_killed_layout_model(start_triton: StartTriton, tmp_path: Path) -> None:
    (tmp_path / "boxes.json").write_text("[]")
    settings = {"layout_backend": "fixed", "layout_fixed_file": tmp_path / "boxes.json", "layout_instances": 2}
    triton = start_triton(repository(tmp_path), **settings)
    assert len(triton.model_processes()) == 3
    async with Client(triton.grpc, "layout-call") as client:
        assert (await client.call({"pages": [[64, 64]] * 5}))["result"]["rows"] == [[]] * 5
        for process in triton.model_processes():
            if "layout-detection" in " ".join(process.cmdline()):
                process.kill()
        triton.wait_until(lambda: triton.log.read_text().count("Triton ready") == 2)
        assert (await client.call({"pages": [[64, 64]]}))["result"]["rows"] == [[]]
    assert triton.terminate() == 0
