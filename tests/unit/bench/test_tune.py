"""`hps tune` on a service that is started anew by a command."""

import json
from pathlib import Path

import pytest

from hps.bench import tune
from hps.bench.measure import Plan
from hps.bench.tune import Means
from hps.embedded.part import StartFailed
from tests.unit.bench.services import FakeService


def plan(url: str) -> Plan:
    return Plan(("http://127.0.0.1:1",), "m", url=url, mix_pages=1, concurrencies=(2,), requests=4)


async def test_each_trial_restarts_the_service_with_its_settings(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    show = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('HPS_')}))"
    restart = f'python3 -c "{show}" >> {seen}'
    said: list[str] = []
    async with FakeService(delay_s=0.05) as fake:
        leader, trials = await tune.tuned(plan(fake.url), Means(restart=restart), said.append)
    environs = [json.loads(line) for line in seen.read_text().splitlines()]
    assert len(environs) == len(trials) == len(said)
    assert environs[0].items() >= {"HPS_VLM_REPLICAS": "1", "HPS_COORDINATORS": "1"}.items()
    assert all(environ["HPS_MAX_CONCURRENT_INFERENCE_REQUESTS"] == "2" for environ in environs)
    assert {environ["HPS_VLM_REPLICAS"] for environ in environs} >= {"1", "2"}
    assert {environ["HPS_VLM_MAX_CONCURRENCY"] for environ in environs} >= {"128", "256"}
    assert leader in trials


async def test_a_restart_that_fails_ends_it() -> None:
    with pytest.raises(StartFailed, match="ended with 3"):
        await tune.tuned(plan("http://127.0.0.1:1"), Means(restart="exit 3"), print)
