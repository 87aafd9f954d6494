"""Reads a directory of golden cases: one JSON file a group, `{"group", "cases": [{"id", "input", "expected"}]}`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class MalformedCases(ValueError):
    """A file that is no file of cases; the message says what is wrong, the caller names the file."""


@dataclass(frozen=True, slots=True)
class Case:
    """`wanted` is the answer to assert: the corrected one ("ours") where the reference's is not to be kept."""

    id: str
    input: Any
    wanted: Any

    @property
    def must_raise(self) -> bool:
        return isinstance(self.wanted, dict) and set(self.wanted) == {"raises"}


@dataclass(frozen=True, slots=True)
class CaseFile:
    group: str
    cases: tuple[Case, ...]


def paths(directory: Path) -> Sequence[Path]:
    return sorted(directory.glob("*.json"))


def load(path: Path) -> CaseFile:
    """Raises MalformedCases, also for a file that cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MalformedCases(f"not readable as JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("group"), str):
        raise MalformedCases("no object with a group")
    items = content.get("cases")
    if not isinstance(items, list) or not items:
        raise MalformedCases("no list of cases")
    cases = tuple(_case(item, position) for position, item in enumerate(items))
    repeated = sorted({case.id for case in cases if sum(other.id == case.id for other in cases) > 1})
    if repeated:
        raise MalformedCases(f"ids occur twice: {', '.join(repeated)}")
    return CaseFile(content["group"], cases)


def _case(item: Any, position: int) -> Case:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        raise MalformedCases(f"case {position} has no id")
    missing = [key for key in ("input", "expected") if key not in item]
    if missing:
        raise MalformedCases(f"case {item['id']!r} has no {' and no '.join(missing)}")
    return Case(item["id"], item["input"], item.get("ours", item["expected"]))
