"""A model process that hangs, as one does that was stopped: Triton says ready, but nothing comes of it."""

import os
import signal
from collections.abc import Iterator

import pytest

from hps.triton.check import Watchdog
from tests.e2e import chain as chains
from tests.e2e.chain import Chain, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("watchdog")
    settings = chains.fixed_layout(folder) | {"HPS_WATCHDOG_TIMEOUT": "3", "HPS_HEALTH_CHECK_TIMEOUT": "1"}
    with chains.running(folder, settings, vlm=chains.stub_vlm()) as chain:
        yield chain


@pytest.mark.parametrize("model", ["layout-parsing", "layout-detection", "restructure-pages"])
def test_a_model_process_that_hangs_brings_a_new_triton(chain: Chain, model: str) -> None:
    wait_for(chain.ready, "readiness")
    hung = chain.stubs()[model]
    os.kill(hung, signal.SIGSTOP)
    wait_for(lambda: not chain.ready(), "readiness to tell", 15)
    wait_for(lambda: chain.stubs().get(model, hung) != hung, "a new model process", 30)
    wait_for(chain.ready, "readiness", 30)
    assert "no answer for 3 s" in chain.parts["triton"].log_file.read_text()


def test_a_launcher_that_was_stopped_itself_blames_no_model(chain: Chain) -> None:
    wait_for(chain.ready, "readiness")
    before = chain.stubs()
    launcher = chain.parts["triton"].pid
    os.kill(launcher, signal.SIGSTOP)
    signal.sigtimedwait([], 5)  # longer than the time after which silence counts
    os.kill(launcher, signal.SIGCONT)
    for _ in range(4):
        signal.sigtimedwait([], Watchdog.PAUSE_S)
        assert chain.ready()
    assert chain.stubs() == before


def test_models_that_answer_are_left_alone(chain: Chain) -> None:
    wait_for(chain.ready, "readiness")
    before = chain.stubs()
    pauses = 8
    for _ in range(pauses):
        wait_for(chain.ready, "readiness")
        signal.sigtimedwait([], Watchdog.PAUSE_S)
    assert chain.stubs() == before
