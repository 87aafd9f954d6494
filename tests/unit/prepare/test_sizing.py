import re
from pathlib import Path

import pytest

from hps.compose_settings import ComposeSettings
from hps.prepare import sizing
from hps.prepare.sizing import Limits

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("gpu_gib", "gpus", "cores", "memory_gib", "mps", "expected"),
    [
        (24, 1, 8, 64, False, Limits(1, 1, 256, 96, 32)),  # L4, A10
        (48, 1, 16, 128, False, Limits(2, 1, 512, 192, 32)),  # L40S
        (80, 1, 16, 128, False, Limits(2, 1, 512, 192, 32)),  # A100, H100
        (141, 1, 16, 128, False, Limits(2, 1, 512, 192, 32)),  # H200
        (141, 1, 16, 128, True, Limits(4, 2, 512, 384, 32)),  # as docs/performance.md has it
        (80, 4, 48, 512, False, Limits(2, 4, 512, 768, 56)),
        (141, 8, 128, 1024, True, Limits(4, 12, 683, 3072, 200)),
        (141, 1, 16, 24, True, Limits(1, 1, 256, 96, 32)),  # the host's memory carries no more servers
        (141, 2, 4, 128, False, Limits(2, 1, 1024, 256, 32)),  # nor four cores more than one coordinator
    ],
)
def test_limits(gpu_gib: float, gpus: int, cores: int, memory_gib: float, mps: bool, expected: Limits) -> None:
    assert sizing.limits(gpu_gib, gpus, cores, memory_gib, mps=mps) == expected


@pytest.mark.parametrize("mps", [False, True])
def test_more_of_anything_never_gives_less(mps: bool) -> None:
    found = [sizing.limits(gib, 1, 64, 512, mps=mps) for gib in range(16, 200, 8)]
    assert found == sorted(found, key=lambda limits: (limits.replicas, limits.vlm_concurrency, limits.requests))


def test_env_says_the_pipelines_memory_only_where_it_is_more_than_the_default() -> None:
    default = ComposeSettings().pipeline_memory
    assert "HPS_PIPELINE_MEMORY" not in Limits(2, 1, 512, 192, int(default.removesuffix("g"))).variables()
    assert Limits(2, 4, 512, 768, 56).variables()["HPS_PIPELINE_MEMORY"] == "56g"


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md"])
def test_the_recipe_for_four_a100_is_what_prepare_writes(file: str) -> None:
    (table,) = re.findall(r"\*\*4 × A100 80 GB(?:.+\n)+\n((?:\|.*\n)+)", (ROOT / file).read_text(encoding="utf-8"))
    rows = re.findall(r"^\| `(HPS_\w+)` \| `?([^|`]+?)`? \|", table, flags=re.MULTILINE)
    limits = sizing.limits(80, 4, 48, 512, mps=True).variables()
    assert dict(rows) == {"HPS_DEVICE_IDS": "0,1,2,3", "HPS_VLM_MPS": "true"} | limits
