"""`hps up`: what its parts are told."""

from pathlib import Path

import pytest

from hps import settings
from hps.embedded.supervisor import Supervisor, embedded_settings
from hps.settings import Settings

FREE = [21001, 21002, 21003, 21004, 21005, 21006]


def embedded(**environ: str) -> Settings:
    return embedded_settings(settings.load(environ), FREE)


def test_everything_is_on_loopback_at_the_given_ports() -> None:
    used = embedded()
    assert (used.host, used.triton_host) == ("127.0.0.1", "127.0.0.1")
    assert used.vlm_url == "http://127.0.0.1:21001"
    assert (used.triton_http_port, used.triton_grpc_port, used.triton_metrics_port) == (21002, 21003, 21004)
    assert used.triton_url == "127.0.0.1:21003"
    assert (used.metrics_host, used.metrics_gateway_port, used.metrics_pipeline_port) == ("127.0.0.1", 21005, 21006)
    assert embedded(HPS_METRICS_GATEWAY_PORT="9091").metrics_gateway_port == 9091


def test_the_model_says_what_it_is() -> None:
    assert embedded().vlm_model_name == "PP-OCRv6-fast-embedded-cpu"
    assert embedded(HPS_EMBEDDED_QUALITY="better").vlm_model_name == "PP-OCRv6-better-embedded-cpu"
    assert embedded(HPS_VLM_MODEL_NAME="mine").vlm_model_name == "mine"


def test_limits_suit_a_small_machine_unless_they_are_given() -> None:
    assert (embedded().vlm_max_concurrency, embedded().layout_in_flight, embedded().drain_timeout) == (4, 4, 4)
    given = embedded(HPS_VLM_MAX_CONCURRENCY="200", HPS_DRAIN_TIMEOUT="30", HPS_HOST="0.0.0.0")
    assert (given.vlm_max_concurrency, given.layout_in_flight, given.drain_timeout) == (200, 4, 30)
    assert given.host == "0.0.0.0"


def test_every_part_sees_the_same_settings_whatever_the_shell_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPS_LAYOUT_THREADS", "1")
    used = embedded(HPS_MAX_QUEUED_REQUESTS="7")
    supervisor = Supervisor(used, tmp_path)
    for part in (supervisor.recogniser, supervisor.triton, supervisor.gateway):
        seen = settings.load({name: value for name, value in part.environ.items() if name.startswith("HPS_")})
        assert seen == used.model_copy(update={"state_dir": tmp_path})
        assert part.log_file == tmp_path / f"{part.name}.log"


def test_its_address_can_be_used_from_this_machine(tmp_path: Path) -> None:
    assert Supervisor(embedded(HPS_HOST="0.0.0.0", HPS_PORT="81"), tmp_path).url == "http://127.0.0.1:81"
    assert Supervisor(embedded(HPS_HOST="::"), tmp_path).url == "http://[::1]:8080"
    assert Supervisor(embedded(HPS_HOST="10.1.2.3"), tmp_path).url == "http://10.1.2.3:8080"
