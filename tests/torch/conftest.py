"""These tests need the environment of `make setup-torch`; without PyTorch none is collected."""

import importlib.util
from pathlib import Path

import pytest

from tests.e2e.conftest import start_triton  # noqa: F401  a fixture

IS_THERE = importlib.util.find_spec("torch") is not None
collect_ignore_glob = [] if IS_THERE else ["*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.torch)


@pytest.fixture(scope="session", autouse=True)
def two_threads() -> None:
    import torch

    torch.set_num_threads(2)
