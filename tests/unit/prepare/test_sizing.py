import pytest

from hps.prepare import sizing
from hps.prepare.sizing import Limits


@pytest.mark.parametrize(
    ("gpu_gib", "gpus", "cores", "memory_gib", "mps", "expected"),
    [
        (24, 1, 8, 64, False, Limits(1, 1, 256, 96)),  # L4, A10
        (48, 1, 16, 128, False, Limits(2, 1, 256, 96)),  # L40S
        (80, 1, 16, 128, False, Limits(4, 1, 512, 176)),  # A100, H100
        (141, 1, 16, 128, False, Limits(4, 1, 512, 176)),  # H200
        (141, 1, 16, 128, True, Limits(8, 2, 512, 352)),
        (80, 4, 48, 512, False, Limits(4, 4, 512, 688)),
        (141, 8, 128, 1024, False, Limits(4, 8, 512, 1376)),
        (141, 1, 16, 24, False, Limits(1, 1, 256, 96)),  # the host's memory carries no more servers
        (141, 2, 4, 128, False, Limits(4, 1, 1024, 256)),  # nor four cores more than one coordinator
    ],
)
def test_limits(gpu_gib: float, gpus: int, cores: int, memory_gib: float, mps: bool, expected: Limits) -> None:
    assert sizing.limits(gpu_gib, gpus, cores, memory_gib, mps=mps) == expected


def test_more_of_anything_never_gives_less() -> None:
    found = [sizing.limits(gib, 1, 64, 512, mps=False) for gib in range(16, 200, 8)]
    assert found == sorted(found, key=lambda limits: (limits.replicas, limits.vlm_concurrency, limits.requests))
