"""`hps conformance DIR`: each case through the functions of its group, and where the answers differ."""

import argparse
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hps import errors
from hps.conformance import (
    case_files,
    gateway_groups,
    input_groups,
    layout_groups,
    recognition_groups,
    text_groups,
    wire_groups,
)
from hps.conformance.case_files import Case, CaseFile, MalformedCases
from hps.conformance.comparison import differences
from hps.errors import HpsError

GroupCheck = Callable[[Any], Any]

GROUPS: Final[Mapping[str, GroupCheck]] = {
    **layout_groups.GROUPS,
    **recognition_groups.GROUPS,
    **text_groups.GROUPS,
    **input_groups.GROUPS,
    **gateway_groups.GROUPS,
    **wire_groups.GROUPS,
}

_DIFFERENCES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one file: case id → what differs, for the cases that failed.

    fault: why none of them could be run, said once.
    """

    name: str
    passed: int
    failures: Mapping[str, Sequence[str]]
    fault: str = ""

    def lines(self) -> list[str]:
        count = f"{self.passed} passed" + (f", {len(self.failures)} failed" if self.failures else "")
        if self.fault:
            return [f"{self.name}: {count}: {self.fault}"]
        lines = [f"{self.name}: {count}"]
        for case_id, found in self.failures.items():
            lines += [f"  {case_id}: {difference}" for difference in found[:_DIFFERENCES_SHOWN]]
            if len(found) > _DIFFERENCES_SHOWN:
                lines.append(f"  {case_id}: and {len(found) - _DIFFERENCES_SHOWN} more differences")
        return lines


def main(argv: Sequence[str] | None = None, groups: Mapping[str, GroupCheck] = GROUPS) -> int:
    """Prints a line a group, the first differences of each failing case, and last `N passed, M failed`; 0 if M is 0."""
    parser = argparse.ArgumentParser(prog="hps conformance", description="Run golden cases through the implementation.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="folder of case files (*.json)")
    parser.add_argument("--group", help="only this group")
    arguments = parser.parse_args(argv)
    passed = failed = 0
    for report in reports(arguments.directory, groups, only=arguments.group):
        print("\n".join(report.lines()), flush=True)
        passed += report.passed
        failed += len(report.failures)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def reports(directory: Path, groups: Mapping[str, GroupCheck] = GROUPS, *, only: str | None = None) -> "list[Report]":
    """One report a file, in order of file names. What cannot be run counts as one failure and is named."""
    found = []
    for path in case_files.paths(directory):
        try:
            file = case_files.load(path)
        except MalformedCases as error:
            found.append(Report(path.name, 0, {path.name: ()}, fault=str(error)))
            continue
        if only in (None, file.group):
            found.append(_report(file, groups))
    if not found:
        what = f"no cases of the group {only!r}" if only else "no case files"
        found.append(Report(str(directory), 0, {str(directory): ()}, fault=what))
    return found


def check(case: Case, group: str, function: GroupCheck) -> list[str]:
    """What is wrong with our answer to the case; nothing if it agrees."""
    try:
        got = function(case.input)
    except (HpsError, ValueError) as error:
        return _differences_of_error(error, case)
    except Exception:  # a case must not end the run: the fault is that case's difference
        return [f"ours broke: {traceback.format_exc(limit=-3).strip()}"]
    if case.must_raise:
        return [f"no error, though the case wants {case.wanted['raises']!r}"]
    return differences(group, got, case.wanted)


def _report(file: CaseFile, groups: Mapping[str, GroupCheck]) -> Report:
    function = groups.get(file.group)
    if function is None:
        return Report(file.group, 0, {case.id: () for case in file.cases}, fault="there is no such group")
    outcomes = {case.id: check(case, file.group, function) for case in file.cases}
    failures = {case_id: found for case_id, found in outcomes.items() if found}
    return Report(file.group, len(outcomes) - len(failures), failures)


def _differences_of_error(error: Exception, case: Case) -> list[str]:
    if not case.must_raise:
        return [f"ours raises {type(error).__name__}: {error}"]
    # Where the case names an error of ours it must be that one; the reference's own names say only that it raises.
    name = str(case.wanted["raises"]).partition(":")[0]
    documented = getattr(errors, name, Exception)
    return [] if isinstance(error, documented) else [f"ours raises {type(error).__name__}, not {name}"]
