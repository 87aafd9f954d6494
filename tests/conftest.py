"""Every test starts from a clean environment: no HPS_ variable of the developer's shell reaches it."""

import os

import pytest

from hps.settings import PREFIX


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(PREFIX):
            monkeypatch.delenv(name)
