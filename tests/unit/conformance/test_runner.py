import json
from pathlib import Path
from typing import Any

import pytest

from hps.conformance import runner
from hps.errors import BackendError, InvalidInput


def write_cases(folder: Path, group: str, *cases: dict[str, Any]) -> None:
    items = [{"id": f"case_{number}", **case} for number, case in enumerate(cases)]
    (folder / f"{group}.json").write_text(json.dumps({"group": group, "cases": items}), encoding="utf-8")


def doubled(case: Any) -> Any:
    return 2 * case


def refusing(case: Any) -> Any:
    raise InvalidInput("ours says what is wrong")


def broken(case: Any) -> Any:
    raise KeyError("slip")


def output(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_all_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cases(tmp_path, "doubled", {"input": 1, "expected": 2}, {"input": "a", "expected": "aa"})
    assert runner.main([str(tmp_path)], {"doubled": doubled}) == 0
    assert output(capsys) == ["doubled: 2 passed", "2 passed, 0 failed"]


def test_a_failing_case_is_named_with_its_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cases(tmp_path, "doubled", {"input": 1, "expected": 2}, {"input": [1], "expected": [1, 3]})
    assert runner.main([str(tmp_path)], {"doubled": doubled}) == 1
    assert output(capsys) == [
        "doubled: 1 passed, 1 failed",
        "  case_1: $[1]: 1, not 3",
        "1 passed, 1 failed",
    ]


def test_only_the_first_differences_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cases(tmp_path, "doubled", {"input": [1] * 5, "expected": [0] * 10})
    runner.main([str(tmp_path)], {"doubled": doubled})
    assert output(capsys)[-2] == "  case_0: and 5 more differences"


def test_the_corrected_answer_goes_before_the_expected(tmp_path: Path) -> None:
    write_cases(tmp_path, "doubled", {"input": 1, "expected": 1, "ours": 2})
    assert runner.main([str(tmp_path)], {"doubled": doubled}) == 0


def test_an_unknown_group_is_a_failure_of_all_its_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cases(tmp_path, "novel", {"input": 1, "expected": 2}, {"input": 1, "expected": 2})
    assert runner.main([str(tmp_path)], {"doubled": doubled}) == 1
    assert output(capsys) == ["novel: 0 passed, 2 failed: there is no such group", "0 passed, 2 failed"]


def test_group_filter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cases(tmp_path, "doubled", {"input": 1, "expected": 2})
    write_cases(tmp_path, "refusing", {"input": 1, "expected": 2})
    assert runner.main([str(tmp_path), "--group", "doubled"], {"doubled": doubled, "refusing": refusing}) == 0
    assert output(capsys) == ["doubled: 1 passed", "1 passed, 0 failed"]


@pytest.mark.parametrize("arguments", [[], ["--group", "doubled"]])
def test_nothing_to_run_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert runner.main([str(tmp_path), *arguments], {"doubled": doubled}) == 1
    assert output(capsys)[-1] == "0 passed, 1 failed"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not readable as JSON"),
        ("[]", "no object with a group"),
        ('{"group": "doubled", "cases": []}', "no list of cases"),
        ('{"group": "doubled", "cases": [{"input": 1, "expected": 2}]}', "case 0 has no id"),
        ('{"group": "doubled", "cases": [{"id": "a", "input": 1}]}', "case 'a' has no expected"),
        (
            json.dumps({"group": "doubled", "cases": [{"id": "a", "input": 1, "expected": 2}] * 2}),
            "ids occur twice: a",
        ),
    ],
)
def test_a_malformed_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, problem: str
) -> None:
    (tmp_path / "bad.json").write_text(content, encoding="utf-8")
    assert runner.main([str(tmp_path)], {"doubled": doubled}) == 1
    first = output(capsys)[0]
    assert first.startswith("bad.json: 0 passed, 1 failed: ")
    assert problem in first


def test_a_case_that_wants_an_error_gets_a_documented_one(tmp_path: Path) -> None:
    write_cases(tmp_path, "refusing", {"input": 1, "expected": {"raises": "ZeroDivisionError: theirs"}})
    assert runner.main([str(tmp_path)], {"refusing": refusing}) == 0


def test_a_case_that_names_an_error_of_ours_wants_that_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(case: Any) -> Any:
        raise BackendError

    write_cases(tmp_path, "failing", {"input": 1, "expected": {"raises": "x"}, "ours": {"raises": "InvalidInput"}})
    assert runner.main([str(tmp_path)], {"failing": failing}) == 1
    assert "  case_0: ours raises BackendError, not InvalidInput" in output(capsys)


def test_an_answer_instead_of_an_error_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_cases(tmp_path, "doubled", {"input": 1, "expected": {"raises": "ValueError"}})
    assert runner.main([str(tmp_path)], {"doubled": doubled}) == 1
    assert "  case_0: no error, though the case wants 'ValueError'" in output(capsys)


@pytest.mark.parametrize(
    ("group", "words"),
    [("refusing", "ours raises InvalidInput: ours says what is wrong"), ("broken", "ours broke: Traceback")],
)
def test_an_error_instead_of_an_answer_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], group: str, words: str
) -> None:
    write_cases(tmp_path, group, {"input": 1, "expected": 2})
    assert runner.main([str(tmp_path)], {"refusing": refusing, "broken": broken}) == 1
    assert words in "\n".join(output(capsys))


def test_an_undocumented_error_does_not_count_where_one_is_wanted(tmp_path: Path) -> None:
    write_cases(tmp_path, "broken", {"input": 1, "expected": {"raises": "KeyError"}})
    assert runner.main([str(tmp_path)], {"broken": broken}) == 1
