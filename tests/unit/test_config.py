"""The releases' own files, and what a user's tuned one may and may not do."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hps import config, settings
from hps.config import ConfigError, PipelineConfig, effective, for_release, load
from hps.document import ModelSettings
from hps.layout.labels import DEFAULT_MERGE_MODES
from hps.layout.postprocess import LayoutRules
from hps.storage import BucketConfig, FolderConfig, MemoryConfig

RELEASES = ("PaddleOCR-VL", "PaddleOCR-VL-1.5", "PaddleOCR-VL-1.6")
BOS = {"type": "bos", "endpoint": "https://bj.bcebos.com", "ak": "AK", "sk": "SK", "bucket_name": "pages"}

Tuned = Callable[..., PipelineConfig]


@pytest.fixture
def tuned(tmp_path: Path) -> Tuned:
    """Loads a copy of a release's file with some keys changed, named by dotted path; `...` takes a key out."""

    def load_tuned(changes: dict[str, Any] | None = None, release: str = RELEASES[2]) -> PipelineConfig:
        return load(written(tmp_path, changes or {}, release))

    return load_tuned


def written(folder: Path, changes: dict[str, Any], release: str = RELEASES[2]) -> Path:
    data = yaml.safe_load((Path(config.__file__).parent / "releases" / f"{release}.yaml").read_text())
    for path, value in changes.items():
        *parents, name = path.split(".")
        section = data
        for parent in parents:
            section[parent] = section.get(parent) or {}
            section = section[parent]
        if value is ...:
            del section[name]
        else:
            section[name] = value
    file = folder / "pipeline_config.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


# --- the releases ---


@pytest.mark.parametrize(
    ("release", "layout_model", "vlm_model"),
    [
        ("PaddleOCR-VL", "PP-DocLayoutV2", "PaddleOCR-VL-0.9B"),
        ("PaddleOCR-VL-1.5", "PP-DocLayoutV3", "PaddleOCR-VL-1.5-0.9B"),
        ("PaddleOCR-VL-1.6", "PP-DocLayoutV3", "PaddleOCR-VL-1.6-0.9B"),
    ],
)
def test_a_release_has_its_models(release: str, layout_model: str, vlm_model: str) -> None:
    shipped = for_release(release)
    assert (shipped.release, shipped.layout_model, shipped.vlm_model) == (release, layout_model, vlm_model)
    assert vlm_model == settings.VLM_MODELS[release]  # type: ignore[index]


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_behaves_as_the_defaults_of_the_code_say(release: str) -> None:
    shipped = for_release(release)
    assert shipped.model_settings == ModelSettings()
    assert (shipped.visualize, shipped.max_pages, shipped.max_output_size) == (True, None, (2000, 2000))
    assert (shipped.return_urls, shipped.storage, shipped.url_expires_s) == (False, None, -1)
    assert (shipped.layout.nms, shipped.layout.unclip) == (True, (1.0, 1.0))
    assert shipped.layout.merge_modes == DEFAULT_MERGE_MODES
    assert (shipped.preprocessor.by_default, shipped.preprocessor.orientation, shipped.preprocessor.unwarping) == (
        False,
        True,
        True,
    )


def test_later_releases_have_one_threshold_and_the_first_has_one_by_class() -> None:
    assert for_release("PaddleOCR-VL-1.5").layout == for_release("PaddleOCR-VL-1.6").layout == LayoutRules()
    thresholds = for_release("PaddleOCR-VL").layout.threshold
    lower = {5: 0.4, 6: 0.4, 15: 0.4, 17: 0.4, 20: 0.45, 22: 0.4, 23: 0.4}
    assert thresholds == dict.fromkeys(range(25), 0.5) | lower


@pytest.mark.parametrize("release", RELEASES)
def test_the_shipped_vlm_address_is_that_of_the_settings(release: str) -> None:
    shipped, defaults = for_release(release), settings.load({})
    assert shipped.genai.server_url == defaults.vlm_url
    assert shipped.genai.max_concurrency == defaults.vlm_max_concurrency


def test_an_unknown_release_is_named() -> None:
    with pytest.raises(ConfigError, match=r"PaddleOCR-VL-9"):
        for_release("PaddleOCR-VL-9")


# --- a tuned file ---


@pytest.mark.parametrize("release", RELEASES)
def test_an_unchanged_copy_says_the_same(tuned: Tuned, release: str) -> None:
    assert replace(tuned(release=release), notes=()) == for_release(release)


def test_tuned_values_arrive(tuned: Tuned) -> None:
    loaded = tuned(
        {
            "use_chart_recognition": True,
            "markdown_ignore_labels": ["number"],
            "SubModules.LayoutDetection.threshold": {22: 0.6},
            "SubModules.LayoutDetection.layout_nms": False,
            "SubModules.LayoutDetection.layout_unclip_ratio": 1.1,
            "SubModules.LayoutDetection.layout_merge_bboxes_mode": "small",
            "SubModules.LayoutDetection.model_dir": "/models/layout",
            "SubPipelines.DocPreprocessor.use_doc_unwarping": False,
            "use_doc_preprocessor": True,
            "Serving.visualize": False,
            "Serving.extra.max_num_input_imgs": 20,
            "Serving.extra.max_output_img_size": [1000, 800],
        }
    )
    assert loaded.model_settings.use_chart_recognition
    assert loaded.model_settings.markdown_ignore_labels == ("number",)
    assert loaded.layout == LayoutRules(threshold={22: 0.6}, nms=False, unclip=1.1, merge_modes="small")
    assert loaded.layout_model_dir == Path("/models/layout")
    assert (loaded.preprocessor.by_default, loaded.preprocessor.unwarping) == (True, False)
    assert loaded.model_settings.use_doc_preprocessor
    assert (loaded.visualize, loaded.max_pages, loaded.max_output_size) == (False, 20, (1000, 800))


def test_a_file_with_little_in_it_has_the_releases_values(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("pipeline_name: PaddleOCR-VL\nSubModules:\nServing:\n  extra: {max_num_input_imgs: null}\n")
    assert load(file) == for_release("PaddleOCR-VL")


def test_a_missing_page_limit_is_ten_as_in_the_reference(tuned: Tuned) -> None:
    loaded = tuned({"Serving": ...})
    assert loaded.max_pages == 10
    assert any("max_num_input_imgs" in note for note in loaded.notes)


def test_the_vlm_client_is_configured_by_the_file(tuned: Tuned) -> None:
    client = {"model_name": "my-vlm", "api_key": "sesame", "timeout": 30, "max_retries": 1}
    loaded = tuned(
        {
            "SubModules.VLRecognition.genai_config.server_url": "http://gpu:9000/v1/",
            "SubModules.VLRecognition.genai_config.max_concurrency": 32,
            "SubModules.VLRecognition.genai_config.client_kwargs": client,
        }
    )
    assert loaded.vlm_model == "my-vlm"
    assert loaded.genai == config.GenaiClient("http://gpu:9000", 32, "sesame", 30, 1)
    assert "sesame" not in repr(loaded)


# --- what stops the start ---


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("use_queue", "use_queues"),
        ("SubModules.LayoutDetection.treshold", "SubModules.LayoutDetection.threshold"),
        ("SubModules.VLRecognition.genai_config.server_uri", "SubModules.VLRecognition.genai_config.server_url"),
        ("Serving.max_num_input_imgs", "Serving.extra.max_num_input_imgs"),
        ("SubPipelines.DocPreprocesor", "SubPipelines.DocPreprocessor"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(tuned: Tuned, path: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tuned({path: 1})
    assert f"unknown key {path} (did you mean {meant}?)" in str(caught.value)


def test_every_unknown_key_is_named_at_once(tuned: Tuned) -> None:
    with pytest.raises(ConfigError, match=r"unknown key (?s:.*)unknown key"):
        tuned({"qqqq": 1, "zzzz": 2})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("pipeline_name", "PP-StructureV3"),
        ("use_layout_detection", "yes please"),
        ("use_chart_recognition", 1),
        ("markdown_ignore_labels", "number"),
        ("SubModules", []),
        ("SubModules.LayoutDetection.model_name", "PicoDet"),
        ("SubModules.LayoutDetection.threshold", 1.5),
        ("SubModules.LayoutDetection.threshold", {25: 0.5}),
        ("SubModules.LayoutDetection.threshold", {"22": 0.5}),
        ("SubModules.LayoutDetection.layout_unclip_ratio", [1.0]),
        ("SubModules.LayoutDetection.layout_unclip_ratio", 0),
        ("SubModules.LayoutDetection.layout_merge_bboxes_mode", "biggest"),
        ("SubModules.LayoutDetection.layout_merge_bboxes_mode", {3: ["large"]}),
        ("SubModules.VLRecognition.genai_config.backend", "openai"),
        ("SubModules.VLRecognition.genai_config.server_url", "http://gpu:9000"),
        ("SubModules.VLRecognition.genai_config.max_concurrency", 0),
        ("Serving.extra.max_num_input_imgs", 0),
        ("Serving.extra.max_output_img_size", [2000]),
        ("Serving.extra.url_expires_in", 0),
        ("Serving.extra.url_expires_in", 8 * 24 * 3600),
    ],
)
def test_a_wrong_value_is_named_by_its_path(tuned: Tuned, path: str, value: object) -> None:
    with pytest.raises(ConfigError, match=path.replace(".", r"\.")):
        tuned({path: value})


@pytest.mark.parametrize("text", ["", "- a list", "a: [", "\t", "just text"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="pipeline configuration"):
        load(file)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(file)


def test_a_release_that_is_not_prepared_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not there: .*run \./prepare\.sh first"):
        load(tmp_path / "PaddleOCR-VL-1.5/pipeline_config.yaml")


# --- keys without effect ---


@pytest.mark.parametrize("path", sorted(config.WITHOUT_EFFECT))
def test_a_known_key_without_effect_is_noted_once_with_the_reason(tuned: Tuned, path: str) -> None:
    value: object = 4
    if path.endswith(("use_queues", "use_hpip")):
        value = False
    if path.endswith(("model_dir", "backend")):
        value = "onnxruntime"
    lines = [note for note in tuned({path: value}).notes if note.startswith(f"{path} ")]
    assert lines == [f"{path} has no effect: {config.WITHOUT_EFFECT[path]}"]


def test_only_the_process_that_reports_logs_the_notes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    environ = {"HPS_PIPELINE_CONFIG": str(written(tmp_path, {"use_queues": False}))}
    effective(settings.load(environ))
    assert not caplog.records
    effective(settings.load(environ), report=True)
    assert "pipeline configuration: use_queues has no effect" in caplog.text


def test_a_local_model_of_the_reference_is_reported(tuned: Tuned) -> None:
    notes = tuned({"SubModules.VLRecognition.genai_config.backend": "native"}).notes
    assert any("genai_config.backend is native" in note for note in notes)


def test_a_shipped_file_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    for_release.cache_clear()
    for_release("PaddleOCR-VL-1.6")
    assert not caplog.records


# --- high-performance inference ---


@pytest.mark.parametrize(
    "changes",
    [
        {"use_hpip": True},
        {"hpi_config": {"backend": "onnxruntime"}},
        {"SubModules.LayoutDetection.use_hpip": True},
        {"use_hpip": True, "SubModules.LayoutDetection.hpi_config": {"backend": "onnxruntime"}},
    ],
)
def test_hpip_selects_onnx_runtime(tuned: Tuned, changes: dict[str, Any]) -> None:
    assert tuned(changes).layout_backend == "onnx"


@pytest.mark.parametrize(
    "changes",
    [{}, {"use_hpip": False}, {"use_hpip": True, "SubModules.LayoutDetection.use_hpip": False}],
)
def test_without_hpip_the_setting_decides(tuned: Tuned, changes: dict[str, Any]) -> None:
    assert tuned(changes).layout_backend is None


@pytest.mark.parametrize("library", ["paddle", "openvino", "tensorrt", "om"])
def test_other_inference_libraries_stop_with_their_replacement(tuned: Tuned, library: str) -> None:
    with pytest.raises(ConfigError, match=rf"hpi_config\.backend: {library}.*HPS_LAYOUT_BACKEND=transformers"):
        tuned({"use_hpip": True, "hpi_config": {"backend": library}})


def test_details_of_hpi_are_reported(tuned: Tuned) -> None:
    notes = tuned({"use_hpip": True, "hpi_config": {"backend_config": {"cpu_num_threads": 4}}}).notes
    assert any(note.startswith("hpi_config.backend_config has no effect") for note in notes)


# --- storage ---


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"type": "memory"}, MemoryConfig()),
        ({"type": "file_system", "directory": "/data"}, FolderConfig(Path("/data"))),
        (
            BOS | {"key_prefix": "ocr", "connection_timeout_in_mills": 500},
            BucketConfig("https://bj.bcebos.com", "AK", "SK", "pages", "ocr", None, 0.5),
        ),
        (
            BOS | {"type": "s3", "endpoint": "http://minio:9000", "region": "eu"},
            BucketConfig("http://minio:9000", "AK", "SK", "pages", "", "eu", 10),
        ),
    ],
)
def test_a_store_is_configured(tuned: Tuned, section: dict[str, Any], expected: object) -> None:
    assert tuned({"Serving.extra.file_storage": section}).storage == expected


@pytest.mark.parametrize("name", ["Serving.return_urls", "Serving.extra.return_img_urls"])
def test_urls_are_returned_under_the_new_name_and_the_old(tuned: Tuned, name: str) -> None:
    changes = {"Serving.return_urls": None, name: True, "Serving.extra.file_storage": BOS}
    assert tuned(changes).return_urls


@pytest.mark.parametrize("section", [None, {"type": "memory"}, {"type": "file_system", "directory": "/data"}])
def test_urls_without_a_store_that_gives_them_stop_the_start(tuned: Tuned, section: object) -> None:
    with pytest.raises(ConfigError, match=r"Serving\.return_urls"):
        tuned({"Serving.return_urls": True, "Serving.extra.file_storage": section})


@pytest.mark.parametrize("missing", ["endpoint", "ak", "sk", "bucket_name"])
def test_an_incomplete_store_names_what_is_missing_and_no_secret(tuned: Tuned, missing: str) -> None:
    section = {key: value for key, value in BOS.items() if key != missing}
    with pytest.raises(ConfigError, match=rf"file_storage\.{missing}: required") as caught:
        tuned({"Serving.extra.file_storage": section})
    assert "AK" not in str(caught.value)
    assert "SK" not in str(caught.value)


def test_secrets_are_not_shown(tuned: Tuned) -> None:
    loaded = tuned({"Serving.extra.file_storage": BOS | {"sk": "sesame"}})
    assert "sesame" not in repr(loaded)
    with pytest.raises(ConfigError) as caught:
        tuned({"Serving.extra.file_storage": BOS | {"sk": ["sesame"]}})
    assert "sesame" not in str(caught.value)


# --- together with the settings ---


def test_without_a_file_the_release_and_the_settings_stand() -> None:
    given = settings.load({"HPS_PIPELINE_NAME": "PaddleOCR-VL"})
    assert effective(given) == (for_release("PaddleOCR-VL"), given)


def test_the_files_values_fill_settings_that_no_variable_sets(tmp_path: Path) -> None:
    changes = {
        "SubModules.VLRecognition.genai_config.server_url": "http://gpu:9000/v1",
        "SubModules.VLRecognition.genai_config.max_concurrency": 32,
        "use_hpip": True,
    }
    environ = {"HPS_PIPELINE_CONFIG": str(written(tmp_path, changes)), "HPS_VLM_URL": "http://vlm:8080"}
    loaded, filled = effective(settings.load(environ))
    assert loaded.genai.server_url == "http://gpu:9000"
    assert (filled.vlm_url, filled.vlm_max_concurrency, filled.layout_backend) == ("http://vlm:8080", 32, "onnx")


def test_a_file_of_another_release_says_which_variable_to_set(tmp_path: Path) -> None:
    environ = {"HPS_PIPELINE_CONFIG": str(written(tmp_path, {}, "PaddleOCR-VL-1.5"))}
    with pytest.raises(ConfigError, match=r"set HPS_PIPELINE_NAME=PaddleOCR-VL-1\.5"):
        effective(settings.load(environ))


def test_model_folders_of_the_file_reach_the_backend_that_uses_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = {"SubModules.LayoutDetection.model_dir": "/models/layout"}
    environ = {"HPS_PIPELINE_CONFIG": str(written(tmp_path, changes))}
    _, filled = effective(settings.load(environ | {"HPS_LAYOUT_BACKEND": "transformers"}))
    assert filled.layout_model_dir == Path("/models/layout")
    assert "model_dir" not in caplog.text
    effective(settings.load(environ), report=True)
    assert "model_dir has no effect: the layout backend onnx" in caplog.text
