from pathlib import Path

import pytest

from hps import settings
from hps.settings import Settings, SettingsError, load


def test_defaults_need_no_environment() -> None:
    loaded = load({})
    assert (loaded.max_concurrent_inference_requests, loaded.max_concurrent_non_inference_requests) == (16, 64)
    assert (loaded.inference_timeout, loaded.health_check_timeout, loaded.uvicorn_workers) == (600, 5, 1)


def test_a_variable_sets_its_field_and_an_empty_one_does_not() -> None:
    assert load({"HPS_PORT": "9000", "HPS_UVICORN_WORKERS": ""}).port == 9000


def test_an_unknown_variable_is_named() -> None:
    with pytest.raises(SettingsError, match="HPS_INFERENCE_TIMOUT"):
        load({"HPS_INFERENCE_TIMOUT": "5"})


def test_an_invalid_value_is_named_but_not_shown() -> None:
    with pytest.raises(SettingsError, match="HPS_PORT") as caught:
        load({"HPS_PORT": "sesame"})
    assert "sesame" not in str(caught.value)


def test_official_variables_without_effect_warn_with_their_replacement(caplog: pytest.LogCaptureFixture) -> None:
    load({"HPS_SDK_DIR": "x", "HPS_PADDLEX_VERSION": "3.6"})
    assert len(caplog.records) == 2
    assert "HPS_PIPELINE_NAME" in caplog.text


def test_real_variables_win_over_the_file_and_arguments_over_both(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("HPS_PORT=1\nHPS_DECODE_WORKERS=3\n")
    assert load({"HPS_PORT": "2"}, env_file=file).port == 2
    assert load({"HPS_PORT": "2"}, env_file=file).decode_workers == 3
    assert load({"HPS_PORT": "2"}, env_file=file, port=4).port == 4


@pytest.mark.parametrize(("given", "level"), [("debug", "DEBUG"), ("warning", "WARNING"), ("chatty", "INFO")])
def test_an_unknown_log_level_means_info(given: str, level: str) -> None:
    assert load({"HPS_LOG_LEVEL": given}).log_level == level


def test_a_child_process_sees_the_same_settings() -> None:
    original = load({"HPS_PORT": "9000", "HPS_URL_INPUT": "off", "HPS_COORDINATORS": "2", "HPS_PDF_RENDER_SCALE": "3"})
    assert load(settings.environment(original)) == original


def test_secrets_are_masked() -> None:
    shown = settings.effective(load({"HPS_VLM_API_KEY": "sesame"}))
    assert shown["HPS_VLM_API_KEY"] == "***"
    assert set(shown) == {settings.variable(name) for name in Settings.model_fields}


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load({}).port = 1  # type: ignore[misc]
