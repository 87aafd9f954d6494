import pytest
import yaml

from hps.config import load
from hps.prepare import pipeline_file
from hps.prepare.problems import PrepareError

RELEASES = ("PaddleOCR-VL", "PaddleOCR-VL-1.5", "PaddleOCR-VL-1.6")
# As the official SDK has it, shortened.
SDK = """\
pipeline_name: PaddleOCR-VL-1.6
SubModules:
  VLRecognition:
    module_name: vl_recognition
    model_name: PaddleOCR-VL-1.6-0.9B
    genai_config:
      backend: native # its own
    batch_size: -1
"""


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_can_be_prepared(release: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    parts = ["vlm", "layout", "orientation", "unwarping"]
    text = pipeline_file.prepared(pipeline_file.shipped(release), release, "http://vlm:1", parts, f"/models/{release}")
    assert pipeline_file.prepared(text, release, "http://vlm:1", parts, f"/models/{release}") == text
    (tmp_path / "file.yaml").write_text(text)
    config = load(tmp_path / "file.yaml")
    assert config.genai.server_url == "http://vlm:1"
    assert str(config.layout_model_dir) == f"/models/{release}/layout"
    assert str(config.preprocessor.orientation_model_dir) == f"/models/{release}/orientation"
    assert text.count("#") == pipeline_file.shipped(release).count("#")


def test_native_becomes_a_server() -> None:
    text = pipeline_file.with_vlm_server(SDK, "http://vlm:8080")
    assert "      backend: vllm-server # its own\n      server_url: http://vlm:8080/v1\n    batch_size" in text
    assert pipeline_file.with_vlm_server(text, "http://vlm:8080") == text
    assert "server_url: http://other:1/v1\n" in pipeline_file.with_vlm_server(text, "http://other:1")


def test_the_last_line_of_a_file_without_an_end() -> None:
    text = SDK[: SDK.index(" # its own")]
    genai = yaml.safe_load(pipeline_file.with_vlm_server(text, "http://v:1"))["SubModules"]["VLRecognition"][
        "genai_config"
    ]
    assert genai == {"backend": "vllm-server", "server_url": "http://v:1/v1"}


@pytest.mark.parametrize("written", ["", " ~", " null", ' "a: b"', " 'x' # why"])
def test_values_in_every_form_are_replaced(written: str) -> None:
    text = f"a:\n  b:{written}\n  c: 1 # stays\n"
    changed = pipeline_file.with_value(text, ("a", "b"), "/new")
    assert yaml.safe_load(changed) == {"a": {"b": "/new", "c": 1}}
    assert "# stays" in changed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SDK.replace("model_name: PaddleOCR-VL-1.6-0.9B", "batch: 1"), "names no VLM"),
        (SDK.replace("PaddleOCR-VL-1.6-0.9B", "[1]"), "names no VLM"),
        (SDK.replace("backend: native # its own", "max_concurrency: 3"), "has no SubModules"),
        (SDK.replace("backend: native", "backend: [native]"), "must be one value"),
        ("a: [", "not YAML"),
        ("", "has no SubModules"),
        (SDK, "is for PaddleOCR-VL-1.6"),
        (SDK + "use_queue: true\n", "use_queue"),
    ],
)
def test_files_that_cannot_be_prepared(text: str, problem: str) -> None:
    with pytest.raises(PrepareError, match=problem):
        pipeline_file.prepared(text, "PaddleOCR-VL-1.5", "http://vlm:1", [], "/models")


def test_an_unknown_release() -> None:
    with pytest.raises(PrepareError, match="there is no release PaddleOCR-VL-9"):
        pipeline_file.shipped("PaddleOCR-VL-9")
