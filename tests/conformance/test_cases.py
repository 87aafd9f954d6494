"""The golden cases, all of them. `hps conformance tests/conformance/cases` says the same for a reader."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hps.conformance import case_files, runner

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize("path", case_files.paths(CASES), ids=lambda path: path.stem)
def test_answers_agree(path: Path) -> None:
    file = case_files.load(path)
    failures = {case.id: runner.check(case, file.group, runner.GROUPS[file.group]) for case in file.cases}
    assert {case_id: found for case_id, found in failures.items() if found} == {}


def test_every_group_has_cases_and_every_file_a_group() -> None:
    assert {case_files.load(path).group for path in case_files.paths(CASES)} == set(runner.GROUPS)


def test_no_case_has_gone_missing() -> None:
    assert sum(1 for _ in _all_cases()) == 282


def _all_cases() -> Iterator[object]:
    for path in case_files.paths(CASES):
        yield from json.loads(path.read_text(encoding="utf-8"))["cases"]
