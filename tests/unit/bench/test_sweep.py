import pytest

from hps import cli
from hps.bench import command, report, sweep, tune
from hps.bench.load import Outcome
from hps.bench.report import Run
from hps.bench.sweep import Settings, Step, Trial
from hps.bench.tune import Means
from hps.bench.usage import Usage
from tests.unit.bench.test_command import VLM

STEPS = (Step("HPS_A", (1, 2, 4, 8), "chain"), Step("HPS_B", (10, 20, 30), "chain"))


def run(pages_per_s: float) -> Run:
    outcomes = [Outcome(0, 100, 200, pages=round(pages_per_s * 100), blocks=1)]
    return report.run_of(report.SERVICE, "8 in flight", outcomes, Usage(cpu_busy=0.5), in_flight=8)


async def searched(speed: dict[tuple[int, int], float]) -> tuple[Trial, list[Trial]]:
    told: list[Trial] = []

    async def measure(settings: Settings) -> Run:
        return run(speed[int(settings["HPS_A"]), int(settings["HPS_B"])])

    leader, trials = await sweep.best(STEPS, measure, told.append)
    assert told == trials
    return leader, trials


async def test_each_setting_goes_up_while_it_helps() -> None:
    speed = {(1, 10): 1.0, (2, 10): 1.5, (4, 10): 1.52, (2, 20): 2.0, (2, 30): 1.0}
    leader, trials = await searched(speed)
    assert leader.settings == {"HPS_A": "2", "HPS_B": "20"}
    assert [trial.run.pages_per_s for trial in trials] == [1.0, 1.5, 1.52, 2.0, 1.0]


async def test_nothing_helps() -> None:
    leader, trials = await searched({(1, 10): 1.0, (2, 10): 1.0, (1, 20): 0.5})
    assert leader.settings == {"HPS_A": "1", "HPS_B": "10"}
    assert len(trials) == 3


async def test_the_lines_for_env_have_the_table_behind_them() -> None:
    leader, trials = await searched({(1, 10): 1.0, (2, 10): 1.0, (1, 20): 2.0, (1, 30): 2.0})
    lines = sweep.env_lines(leader, trials, {"HPS_C": "192"})
    assert [line for line in lines if not line.startswith("#")] == ["HPS_A=1", "HPS_B=20", "HPS_C=192"]
    assert lines[0] == "# found by hps tune: 2.00 pages/s, 8 in flight"
    rows = [line.removeprefix("#   ").split() for line in lines if line.startswith("#   ")]
    assert rows[0] == ["a", "b", "pages/s", "p95", "s", "CPU", "GPU", "W"]
    assert [row[:3] for row in rows[1:]] == [
        ["1", "10", "1.00"],
        ["2", "10", "1.00"],
        ["1", "20", "2.00"],
        ["1", "30", "2.00"],
    ]


def test_vlm_servers_are_tried_only_where_they_can_be_started() -> None:
    chain_only = {step.variable for step in tune.steps(Means())}
    assert chain_only == {"HPS_COORDINATORS", "HPS_VLM_MAX_CONCURRENCY"}
    assert {step.variable for step in tune.steps(Means(vlm="x"))} > chain_only
    assert tune.steps(Means(vlm="x")) == tune.steps(Means(restart="x"))


def test_a_restart_needs_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = cli._parser().parse_args(["tune", "--vlm", VLM, "--restart", "true"])
    assert command.run_tune(arguments) == 1
    assert "--restart and --url belong together" in capsys.readouterr().err
