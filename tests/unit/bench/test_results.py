import json
from pathlib import Path

from benchmarks import results, soak
from benchmarks.results import Record
from benchmarks.soak import State


def test_the_last_record_of_a_benchmark_is_compared(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    assert results.last("short", file) is None
    for value in (0.8, 0.9):
        results.append(Record("short", "abc", "2026-12-01", "2 cores", {"efficiency": value}), file)
    results.append(Record("other", "abc", "2026-12-01", "2 cores", {"efficiency": 0.1}), file)
    old = results.last("short", file)
    new = results.record("short", "16 cores", {"efficiency": 0.99, "cpu": 0.1})
    text = "\n".join(results.comparison(new, old))
    assert "efficiency: 0.990, +10.0% (was 0.900)" in text
    assert "cpu: 0.100, new" in text
    assert "another machine: 2 cores" in text
    assert "no earlier result" in "\n".join(results.comparison(new, None))


def test_the_file_of_results_can_be_read() -> None:
    if results.FILE.exists():
        for line in results.FILE.read_text().splitlines():
            Record(**json.loads(line))


def test_a_soak_reports_what_grew_ended_or_is_new() -> None:
    early = {"a 1": State(100 << 20, 10, 5), "b 2": State(100, 10, 5), "c 3": State(1, 1, 1)}
    late = {"a 1": State(104 << 20, 9, 5), "b 2": State(106, 11, 5), "d 4": State(1, 1, 1)}
    problems = "\n".join(soak.grown(early, late))
    assert "a 1" not in problems
    assert "b 2: memory" in problems
    assert "b 2: file descriptors 10, then 11" in problems
    assert "c 3: has ended" in problems
    assert "d 4: is new" in problems
