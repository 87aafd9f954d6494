"""The small file of results: one line a run, with the commit that it was measured at."""

import json
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

FILE = Path(__file__).with_name("results.jsonl")
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Record:
    """commit: short hash, with + when files had been changed since. machine: figures of another one do not compare."""

    benchmark: str
    commit: str
    date: str
    machine: str
    figures: dict[str, float]


def record(benchmark: str, machine: str, figures: dict[str, float]) -> Record:
    """Of this moment and commit."""
    return Record(benchmark, _commit(), datetime.now(UTC).date().isoformat(), machine, figures)


def append(new: Record, file: Path = FILE) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(new)) + "\n")


def last(benchmark: str, file: Path = FILE) -> Record | None:
    """The latest run of this benchmark."""
    if not file.exists():
        return None
    records = [Record(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines() if line]
    return next((record for record in reversed(records) if record.benchmark == benchmark), None)


def comparison(new: Record, old: Record | None) -> list[str]:
    """Lines for people."""
    if old is None:
        return [f"{new.benchmark}: no earlier result to compare with"]
    machines = "" if new.machine == old.machine else f" (another machine: {old.machine})"
    found = [f"{new.benchmark} at {new.commit}, compared with {old.commit} of {old.date}{machines}"]
    for name, value in new.figures.items():
        before = old.figures.get(name)
        change = f"{value / before - 1:+.1%}" if before else "new"
        found.append(f"   {name}: {value:.3f}, {change}" + (f" (was {before:.3f})" if before else ""))
    return found


def _commit() -> str:
    """Of the checkout; "unknown" outside one."""
    try:
        described = ["git", "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"]
        return subprocess.run(described, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
