"""What the parts count, across processes, and that the documentation lists exactly that."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from hps import metrics
from hps.context import StageTimes
from hps.ports import free_port

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "metrics.md"
TIMES = StageTimes(decode=0.02, layout=0.03, crop=0.001, vlm=2.0, assembly=0.0005, render=0.004)


def values(registry: CollectorRegistry) -> dict[tuple[str, frozenset[str]], float]:
    """Name and label values of every sample → value."""
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def value(registry: CollectorRegistry, name: str, *labels: str) -> float:
    return values(registry)[name, frozenset(labels)]


def test_a_page_is_counted_with_its_stages_and_blocks() -> None:
    pages = metrics.PageMetrics()
    pages.page(TIMES, is_blank=False)
    pages.page(StageTimes(decode=0.01), is_blank=True)
    pages.opened(0.5)
    pages.block("table", 300)
    pages.block("ocr", 20)
    pages.block("ocr", 30, "repetition")
    assert value(pages.registry, "hps_pages_total") == 2
    assert value(pages.registry, "hps_blank_pages_total") == 1
    assert value(pages.registry, "hps_stage_seconds_count", "vlm") == 2
    assert value(pages.registry, "hps_stage_seconds_sum", "decode") == pytest.approx(0.03)
    assert value(pages.registry, "hps_stage_seconds_bucket", "vlm", "2.5") == 2
    assert value(pages.registry, "hps_stage_seconds_sum", "open") == 0.5
    assert value(pages.registry, "hps_blocks_total", "ocr") == 2
    assert value(pages.registry, "hps_vlm_tokens_total", "ocr") == 50
    assert value(pages.registry, "hps_vlm_tokens_total", "table") == 300
    assert value(pages.registry, "hps_vlm_stops_total", "repetition") == 1


def test_vlm_servers_as_they_were_seen_last() -> None:
    vlm = metrics.VlmMetrics()
    one, other = metrics.ReplicaState("a:1", True, 5, 2), metrics.ReplicaState("a:2", False, 0, 0)
    vlm.sample(in_flight=5, waiting=9, retries=1, replicas=[one, other])
    vlm.sample(in_flight=5, waiting=0, retries=4, replicas=[other])
    assert value(vlm.registry, "hps_vlm_retries_total") == 4
    assert value(vlm.registry, "hps_vlm_blocks_in_flight") == 5
    assert value(vlm.registry, "hps_vlm_blocks_waiting") == 0
    for name in ("hps_vlm_replica_up", "hps_vlm_replica_blocks", "hps_vlm_replica_queue"):
        assert value(vlm.registry, name, "a:1") == value(vlm.registry, name, "a:2") == 0


def test_a_line_in_front_of_a_route() -> None:
    gateway = metrics.GatewayMetrics()
    line = gateway.admission("/layout-parsing")
    line.changed(in_work=16, waiting=3)
    line.refused()
    line.waited(0.4)
    gateway.answered("/layout-parsing", 200, 1.5)
    gateway.answered("/layout-parsing", 499, 0.5)
    assert value(gateway.registry, "hps_gateway_requests_in_work", "/layout-parsing") == 16
    assert value(gateway.registry, "hps_gateway_requests_waiting", "/layout-parsing") == 3
    assert value(gateway.registry, "hps_gateway_requests_refused_total", "/layout-parsing") == 1
    assert value(gateway.registry, "hps_stage_seconds_sum", "queue") == pytest.approx(0.4)
    assert value(gateway.registry, "hps_gateway_requests_total", "/layout-parsing", "499") == 1
    assert value(gateway.registry, "hps_gateway_request_seconds_sum", "/layout-parsing") == pytest.approx(2.0)


WRITER = """
import sys
from hps.metrics import RequestMetrics
requests = RequestMetrics("layout-parsing")
requests.answered(200)
requests.in_work(5)
print("counted", flush=True)
sys.stdin.read()
"""


def writer(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER],
        env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "counted\n"
    return process


def test_processes_add_up_and_what_a_dead_one_held_is_gone(tmp_path: Path) -> None:
    writers = [writer(tmp_path), writer(tmp_path)]
    port = free_port()
    assert metrics.serve(tmp_path, "127.0.0.1", port)

    def scraped(name: str) -> float:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return next(sample.value for sample in samples if sample.name == name)

    assert scraped("hps_pipeline_requests_in_work") == 10
    assert scraped("hps_pipeline_requests_total") == 2
    writers[0].kill()
    writers[0].communicate()
    assert scraped("hps_pipeline_requests_in_work") == 5
    assert scraped("hps_pipeline_requests_total") == 2
    writers[1].communicate()
    metrics.clear(tmp_path)
    assert not list(metrics.registry_of(tmp_path).collect())


def test_without_its_port_the_service_goes_on(tmp_path: Path) -> None:
    port = free_port()
    assert metrics.serve(tmp_path, "127.0.0.1", port)
    assert not metrics.serve(tmp_path, "127.0.0.1", port)


def test_names_follow_the_conventions() -> None:
    for family in metrics.FAMILIES.values():
        assert re.fullmatch(r"hps_[a-z_]+", family.name)
        assert family.description
        assert (family.kind == "counter") == family.name.endswith("_total")
        assert (family.kind == "histogram") == family.name.endswith("_seconds")


def test_the_documentation_lists_every_family_and_no_other() -> None:
    rows = re.findall(r"^\| `(hps_\w+)` \| (\w+) \|([^|]*)\|([^|]*)\|$", DOCUMENTATION.read_text(), re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}
    assert documented == {family.name: (family.kind, family.labels) for family in metrics.FAMILIES.values()}
    stages = re.search(r"`stage` is one of ([^.]*)\.", DOCUMENTATION.read_text())
    assert stages is not None
    assert tuple(re.findall(r"`(\w+)`", stages[1])) == metrics.STAGES
