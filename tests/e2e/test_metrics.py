"""Metrics of a running chain: both parts count what passes through all their processes."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e import chain as chains
from tests.e2e.chain import Chain, wait_for

pytestmark = pytest.mark.e2e

SAMPLES = Path(__file__).parents[2] / "samples"
BOXES = [[22, 0.9, 0.1, 0.1, 0.9, 0.4, 0], [21, 0.9, 0.1, 0.5, 0.9, 0.9, 1]]
BLANK = Path(__file__).parents[1] / "documents" / "blank-a4.pdf"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("metrics")
    settings = chains.fixed_layout(folder, BOXES) | {"HPS_COORDINATORS": "2"}
    with chains.running(folder, settings, vlm=chains.stub_vlm(text="x")) as running:
        yield running


Samples = dict[tuple[str, ...], float]


def scraped(chain: Chain) -> Samples:
    """(name, label values in the order of label names) → value, of both parts."""
    samples: Samples = {}
    for url in chain.metrics:
        for family in text_string_to_metric_families(httpx.get(url, trust_env=False).text):
            for sample in family.samples:
                samples[sample.name, *(sample.labels[label] for label in sorted(sample.labels))] = sample.value
    return samples


def posted(chain: Chain, file: bytes, file_type: int) -> int:
    body = {"file": base64.b64encode(file).decode(), "fileType": file_type, "visualize": False}
    return httpx.post(f"{chain.url}/layout-parsing", json=body, timeout=60, trust_env=False).status_code


def test_pages_blocks_and_requests_are_counted_over_all_processes(chain: Chain) -> None:
    before = scraped(chain)
    page = (SAMPLES / "invoice.png").read_bytes()
    assert [posted(chain, page, 1) for _ in range(6)] == [200] * 6
    assert posted(chain, BLANK.read_bytes(), 0) == 200
    assert posted(chain, b"no document", 1) == 422

    def grown(name: str, *labels: str) -> float:
        return scraped(chain).get((name, *labels), 0) - before.get((name, *labels), 0)

    route = "/layout-parsing"
    wait_for(lambda: grown("hps_gateway_requests_total", route, "200") == 7, "the last answer to be counted")
    assert grown("hps_gateway_requests_total", route, "422") == 1
    assert grown("hps_gateway_request_seconds_count", route) == 8
    assert grown("hps_pipeline_requests_total", "layout-parsing", "200") == 7
    assert grown("hps_pages_total") == 7
    assert grown("hps_blank_pages_total") == 1
    assert grown("hps_blocks_total", "ocr") == grown("hps_blocks_total", "table") == 6
    assert grown("hps_vlm_tokens_total", "ocr") == 6
    for stage in ("decode", "layout", "crop", "vlm", "assembly", "render"):
        assert grown("hps_stage_seconds_count", stage) == 7, stage
    assert grown("hps_stage_seconds_count", "open") == 7
    assert grown("hps_stage_seconds_count", "queue") >= 7
    now = scraped(chain)
    assert now["hps_gateway_requests_in_work", route] == now["hps_gateway_requests_waiting", route] == 0
    assert now["hps_pipeline_requests_in_work", "layout-parsing"] == 0


def test_what_a_killed_coordinator_held_is_gone(chain: Chain, tmp_path: Path) -> None:
    assert posted(chain, (SAMPLES / "invoice.png").read_bytes(), 1) == 200
    before = chain.stubs()["layout-parsing"]
    psutil.Process(before).kill()
    wait_for(lambda: chain.stubs().get("layout-parsing", before) != before, "a new coordinator", 60)
    wait_for(chain.ready, "the chain to be ready again", 60)
    assert posted(chain, (SAMPLES / "invoice.png").read_bytes(), 1) == 200
    samples = scraped(chain)
    assert samples["hps_pipeline_requests_in_work", "layout-parsing"] == 0
    assert samples["hps_pages_total",] >= 1


def test_unknown_paths_are_one_route(chain: Chain) -> None:
    for path in ("/a", "/b?c", "/%ff"):
        assert httpx.get(chain.url + path, trust_env=False).status_code == 404
    routes = {labels[1] for labels in scraped(chain) if labels[0] == "hps_gateway_requests_total"}
    assert routes <= {"/layout-parsing", "/health", "/health/ready", "none"}
    assert json.dumps(sorted(routes)).count("none") == 1
