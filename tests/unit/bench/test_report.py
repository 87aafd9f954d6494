import json
from pathlib import Path
from typing import Any

import pytest

from hps.bench import plot, report
from hps.bench.direct import DirectRun
from hps.bench.load import Outcome
from hps.bench.report import PEER, SERVICE, Report, Run
from hps.bench.usage import Usage


def outcome(started: float, ended: float, status: int = 200) -> Outcome:
    return Outcome(started, ended, status, pages=1 if status == 200 else 0, blocks=12 if status == 200 else 0)


def run(name: str = SERVICE, in_flight: int | None = 8, seconds: float = 10.0, **fields: Any) -> Run:
    outcomes = [outcome(0, seconds / 2), outcome(1, seconds)]
    return report.run_of(name, f"{in_flight} in flight", outcomes, Usage(), in_flight=in_flight, **fields)


def test_percentiles_are_values_that_occurred() -> None:
    assert report.percentiles(range(1, 101)) == (50, 95, 99)
    assert report.percentiles([3.0]) == (3.0, 3.0, 3.0)
    assert report.percentiles([]) is None


def test_a_run_counts_successes_over_its_whole_time() -> None:
    outcomes = [outcome(0.5, 2.5), outcome(0.5, 1.5), outcome(1, 2, 503), outcome(1, 2, 503)]
    made = report.run_of(SERVICE, "2 in flight", outcomes, Usage(cpu_s={"gateway": 0.5}), tokens=2000)
    assert (made.requests, made.pages, made.blocks, made.statuses) == (4, 2, 24, {503: 2})
    assert made.seconds == 2.0
    assert (made.pages_per_s, made.tokens_per_s) == (1.0, 1000)
    assert made.latencies == (1.0, 2.0, 2.0)
    assert made.cpu_s_a_page == {"gateway": 0.25}


def test_a_line_on_layout_batches_where_they_are_known() -> None:
    assert "layout batch: 5.2" in "\n".join(report.lines(run(layout_batch=5.21)))
    assert "layout batch" not in "\n".join(report.lines(run()))


def test_efficiency_is_best_against_best() -> None:
    made = Report({}, {}, runs=[run(seconds=10), run(seconds=5)], direct=[DirectRun(64, 10, 120, 1000, {}, 20)])
    assert made.efficiency == pytest.approx(0.4 / 0.5)
    assert Report({}, {}, runs=[run()]).efficiency is None


def test_a_failed_block_is_missing_from_its_page() -> None:
    assert DirectRun(64, 10, 90, 1000, {"status 500": 30}, 20).pages_per_s == pytest.approx(0.75 * 10 / 20)
    assert "30 x status 500" in report.direct_line(DirectRun(64, 10, 90, 1000, {"status 500": 30}, 20))


def test_the_summary_has_the_ratios() -> None:
    made = Report({}, {}, runs=[run(), run(PEER, seconds=40)], added_page_s=0.042)
    text = "\n".join(report.summary(made))
    assert "42 ms more" in text
    assert "4.00 times" in text


def test_all_of_it_is_json_even_without_a_success() -> None:
    failed = report.run_of(SERVICE, "1 in flight", [outcome(0, 1, 500)], Usage(), in_flight=1)
    made = Report({"cores": 2}, {"pages": 3}, runs=[run(), failed], direct=[DirectRun(64, 10, 120, 1000, {}, 20)])
    content = json.loads(report.as_json(made))
    assert [record["pages_per_s"] for record in content["runs"]] == [0.2, 0.0]
    assert content["direct"][0]["pages_per_s"] == 0.5
    assert content["efficiency"] == pytest.approx(0.4)
    assert "no answers" in "\n".join(report.lines(failed))
    assert "errors: 1 x 500" in "\n".join(report.lines(failed))


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_plot_is_a_picture(tmp_path: Path, suffix: str, start: bytes) -> None:
    runs = [run(in_flight=1), run(in_flight=64, seconds=3), run(PEER, in_flight=8), run(in_flight=None)]
    file = tmp_path / f"plot.{suffix}"
    plot.write(Report({}, {}, runs=runs, direct=[DirectRun(64, 10, 120, 1000, {}, 20)]), file)
    assert file.read_bytes().startswith(start)
