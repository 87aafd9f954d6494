"""Every test starts from a clean environment: no HPS_ variable of the developer's shell reaches it."""

import os

import hypothesis
import pytest

from hps.settings import PREFIX

# How long an example takes says more about what else the machine does than about us.
hypothesis.settings.register_profile("hps", deadline=None)
hypothesis.settings.load_profile("hps")


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(PREFIX):
            monkeypatch.delenv(name)
