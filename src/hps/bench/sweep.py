"""Which values of a few settings give the most pages a second: one setting after the other, upwards, while it helps."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hps.bench.direct import HELPS
from hps.bench.report import Run

Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """values: ascending, the first being where it starts. part: what has to be started anew for another value."""

    variable: str
    values: tuple[int, ...]
    part: Literal["vlm", "chain"]


STEPS = (
    Step("HPS_VLM_REPLICAS", (1, 2, 4, 8), "vlm"),
    Step("HPS_VLM_API_PROCESSES", (1, 2, 4), "vlm"),
    Step("HPS_COORDINATORS", (1, 2, 3, 4, 6, 8), "chain"),
    Step("HPS_VLM_MAX_CONCURRENCY", (128, 256, 512, 1024, 2048), "chain"),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """What was measured with these settings."""

    settings: Settings
    run: Run


async def best(
    steps: Sequence[Step], measure: Callable[[Settings], Awaitable[Run]], tried: Callable[[Trial], None]
) -> tuple[Trial, list[Trial]]:
    """The best trial and all of them. `tried` is told of each.

    Every setting starts at its first value. A step goes on while the next value is better by HELPS than the best so
    far, and leaves its best value behind.
    """
    current = {step.variable: str(step.values[0]) for step in steps}
    leader = Trial(dict(current), await measure(current))
    tried(leader)
    trials = [leader]
    for step in steps:
        for value in step.values[1:]:
            settings = {**leader.settings, step.variable: str(value)}
            trial = Trial(settings, await measure(settings))
            tried(trial)
            trials.append(trial)
            if trial.run.pages_per_s < HELPS * leader.run.pages_per_s:
                break
            leader = trial
    return leader, trials


def table(trials: Sequence[Trial]) -> list[str]:
    """Lines of columns: the settings without their prefix, then what came of them."""
    variables = list(trials[0].settings)
    heads = [name.removeprefix("HPS_").lower() for name in variables]
    rows = [[*heads, "pages/s", "p95 s", "CPU", "GPU", "W"]]
    for trial in trials:
        used, waits = trial.run.usage, trial.run.latencies
        rows.append(
            [
                *(trial.settings[name] for name in variables),
                f"{trial.run.pages_per_s:.2f}",
                "-" if waits is None else f"{waits[1]:.1f}",
                f"{used.cpu_busy:.0%}",
                "-" if used.gpu_busy is None else f"{used.gpu_busy:.0%}",
                "-" if used.gpu_watts is None else f"{used.gpu_watts:.0f}",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def env_lines(leader: Trial, trials: Sequence[Trial], also: Settings) -> list[str]:
    """For .env: the table as comments, then the settings. also: what all trials had in common."""
    failed = sum(trial.run.statuses != {} for trial in trials)
    return [
        f"# found by hps tune: {leader.run.pages_per_s:.2f} pages/s, {leader.run.load}"
        + (f"; in {failed} trials requests failed" if failed else ""),
        *(f"#   {line}" for line in table(trials)),
        *(f"{name}={value}" for name, value in {**leader.settings, **also}.items()),
    ]
