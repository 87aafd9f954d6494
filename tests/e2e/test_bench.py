"""`hps bench` as a command: the chain that it starts, in front of a VLM stub, and what it writes."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hps.bench import page_mix
from hps.ports import free_port
from tests.e2e import chain as chains
from tests.e2e.chain import ROOT, Process, status_of, wait_for

pytestmark = pytest.mark.e2e

PROCESSES = {"layout-parsing", "layout-detection", "restructure-pages", "decoders", "gateway", "triton", "tritonserver"}
STAGES = {"queue", "open", "decode", "layout", "crop", "vlm", "assembly", "render"}


@pytest.fixture
def vlm_url(tmp_path: Path):  # type: ignore[no-untyped-def]
    port = free_port()
    command = [*chains.stub_vlm(0.02), "--port", str(port)]
    vlm = Process("vlm", command, {"PATH": "/usr/bin:/bin"}, tmp_path / "vlm.log")
    vlm.start()
    url = f"http://127.0.0.1:{port}"
    wait_for(lambda: status_of(f"{url}/health") == 200, "the VLM stub")
    yield url
    vlm.stop()


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hps", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)


def test_a_benchmark_from_nothing_to_its_report(tmp_path: Path, vlm_url: str) -> None:
    figures, plot = tmp_path / "figures.json", tmp_path / "plot.svg"
    run = bench(
        *("--vlm", vlm_url, "--mix-pages", "3", "--concurrency", "1,2", "--rate", "4", "--rate-seconds", "2"),
        *("--requests", "6", "--direct", "16", "--latency-pages", "2", "--json", str(figures), "--plot", str(plot)),
    )
    assert run.returncode == 0, run.stderr
    content = json.loads(figures.read_text())
    one, two, opened = content["runs"]
    blocks = sum(len(page.blocks) for page in page_mix.pages(3))
    assert (one["in_flight"], two["in_flight"], opened["in_flight"]) == (1, 2, None)
    for record in (one, two):
        assert (record["requests"], record["pages"], record["blocks"], record["statuses"]) == (6, 6, 2 * blocks, {})
        assert set(record["stages"]) == STAGES
        assert set(record["cpu_s_a_page"]) == PROCESSES
        assert record["tokens_per_s"] > 0
        assert record["latencies"][0] >= 0.02
    assert opened["pages"] >= 1
    assert content["direct"][-1]["blocks"] == 2 * blocks
    assert content["direct"][-1]["errors"] == {}
    assert 0 < content["efficiency"] < 2
    assert content["added_page_s"] > -0.05
    assert "efficiency: " in run.stdout
    assert plot.read_text().startswith("<?xml")
    assert not [child for child in psutil.Process().children(recursive=True) if "triton" in child.name()]


def test_a_service_that_cannot_be_reached_is_said(vlm_url: str) -> None:
    run = bench("--vlm", vlm_url, "--url", f"http://127.0.0.1:{free_port()}", "--mix-pages", "1")
    assert run.returncode == 1
    assert "the service answers nothing" in run.stderr
    assert "Traceback" not in run.stderr
