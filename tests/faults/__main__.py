"""`python -m tests.faults [--only WORDS] [--write FILE.md] [--logs FOLDER]`: exit code 1 when a promise was broken."""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import httpx

from tests.e2e.chain import wait_for
from tests.faults.clients import Tally, documents, load, text_of
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.stage import Stage, enter_namespace, in_namespace, staged

CLIENTS = 6
DOCUMENTS = 8
STEADY_S = 4.0
RECOVERY_S = 15.0  # promised
PATIENCE_S = 40.0  # after which nothing more is waited for
WELL_S = 4.0  # without a failure: recovered
SLOW_FACTOR = 5.0  # over the median of the steady state: a request that the fault held up

BEGIN, END = "<!-- begin of the table of faults -->", "<!-- end of the table of faults -->"


@dataclass(frozen=True)
class Row:
    scenario: Scenario
    tally: Tally
    recovery_s: float

    @property
    def broken(self) -> list[str]:
        """Promises that were not kept."""
        tally = self.tally
        found = [f"{tally.count(verdict)} {verdict}" for verdict in ("hung", "wrong") if tally.count(verdict)]  # type: ignore[arg-type]
        if self.scenario.kind == "restart" and tally.count("error"):
            found.append(f"{tally.count('error')} failed in a restart")
        if self.recovery_s > RECOVERY_S:
            found.append(f"{self.recovery_s:.1f} s to recover")
        if tally.gave_up:
            found.append(f"{tally.gave_up} requests that no retry helped")
        return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--only", default="", help="faults with these words in their name")
    parser.add_argument("--write", type=Path, help="file whose table is replaced")
    parser.add_argument("--logs", type=Path, help="folder for the logs of the chain's parts")
    options = parser.parse_args(arguments)
    if not in_namespace():
        enter_namespace(list(arguments))
    chosen = [scenario for scenario in SCENARIOS if options.only in scenario.name]
    rows = []
    for (one_vlm, faked_clock), group in groupby(chosen, lambda each: (each.one_vlm, each.faked_clock)):
        with (
            tempfile.TemporaryDirectory(prefix="hps-faults-") as folder,
            staged(Path(folder), vlms=1 if one_vlm else 2, faked_clock=faked_clock) as stage,
        ):
            rows += _played(stage, group)
            if options.logs is not None:
                stage.keep_logs(options.logs)
    table = "\n".join(_table(rows))
    if options.write is not None and not options.only:
        _replace(options.write, table)
    failed = [row for row in rows if row.broken]
    print(f"{len(rows)} faults, {len(failed)} with a broken promise")
    return 1 if failed else 0


def _played(stage: Stage, scenarios: Iterable[Scenario]) -> list[Row]:
    answers = _right_answers(stage)
    rows = []
    for scenario in scenarios:
        wait_for(stage.ready, "the chain to be ready again", 60)
        row = _play(stage, scenario, answers)
        print(_line(row), *row.broken, *sorted(row.tally.errors()), sep="\n    ", flush=True)
        rows.append(row)
    return rows


def _right_answers(stage: Stage) -> dict[str, str]:
    """What each document's text is when all is well; no two alike."""
    answers = {}
    for body in documents(DOCUMENTS):
        response = httpx.post(f"{stage.url}/layout-parsing", json=body, timeout=30, trust_env=False)
        answers[json.dumps(body)] = text_of(response)
    assert len(set(answers.values())) == DOCUMENTS, answers
    return answers


def _play(stage: Stage, scenario: Scenario, answers: dict[str, str]) -> Row:
    with load(stage.url, answers, CLIENTS, repeat=scenario.repeat) as tally:
        time.sleep(STEADY_S)
        steady = [attempt.seconds for attempt in tally.attempts if attempt.verdict == "right"]
        slow_s = SLOW_FACTOR * statistics.median(steady)
        over = time.monotonic()
        scenario.begin(stage)
        if scenario.end is not None:
            time.sleep(scenario.active_s)
            scenario.end(stage)
            over = time.monotonic()
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up and not _is_well(tally, over, slow_s):
            time.sleep(0.1)
    troubled = [each.ended for each in tally.attempts if each.verdict != "right" or each.seconds > slow_s]
    return Row(scenario, tally, max(0.0, max(troubled, default=over) - over))


def _is_well(tally: Tally, over: float, slow_s: float) -> bool:
    """Some time of answers that are right and quick, and begun after the fault."""
    since = time.monotonic() - WELL_S
    recent = [attempt for attempt in tuple(tally.attempts) if attempt.ended > since]
    good = [each for each in recent if each.verdict == "right" and each.seconds <= slow_s and each.began > over]
    return since > over and len(good) >= CLIENTS and all(each.verdict == "right" for each in recent)


def _table(rows: Sequence[Row]) -> list[str]:
    head = ["| fault | sent | right | errors | hung | wrong | recovered after | helped by no retry |"]
    return [*head, "|---|---|---|---|---|---|---|---|", *(_line(row) for row in rows)]


def _line(row: Row) -> str:
    tally = row.tally
    counts = " | ".join(str(tally.count(verdict)) for verdict in ("right", "error", "hung", "wrong"))  # type: ignore[arg-type]
    return (
        f"| {row.scenario.name} | {len(tally.attempts)} | {counts} | {row.recovery_s:.1f} s | "
        f"{tally.gave_up} of {tally.requests} |"
    )


def _replace(file: Path, table: str) -> None:
    before, _, rest = file.read_text().partition(BEGIN)
    file.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
