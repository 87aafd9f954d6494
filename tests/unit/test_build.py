"""The composition root: what settings and files of the user make of the handlers."""

import json
from pathlib import Path
from typing import Any

import pytest

from hps import build, settings
from hps.config import ConfigError
from hps.handlers import Parser
from hps.layout.detector import LocalLayoutDetector
from hps.settings import Settings
from hps.storage import FolderStorage, StorageError
from tests.fakes.vlm import FakeVlm
from tests.unit.pipeline_parts import Layout, context, envelope, page, png

FILE = {"file": png(page()), "fileType": 1, "visualize": False}


def loaded(**values: Any) -> Settings:
    return settings.load({}, layout_backend="fixed", decode_workers=1, **values)


def configured(folder: Path, text: str) -> Path:
    file = folder / "pipeline_config.yaml"
    file.write_text(text)
    return file


async def closed(parser: Parser, detector: LocalLayoutDetector) -> None:
    await parser.close()
    detector.close()


async def test_a_parser_of_plain_settings_answers() -> None:
    async with FakeVlm(text="Hello", model="mine") as vlm:
        asked: list[str] = []

        def answer(body: dict[str, Any]) -> str:
            asked.append(body["model"])
            return "Hello"

        vlm.answer = answer
        detector = LocalLayoutDetector(Layout())
        parser = build.parser(loaded(vlm_url=vlm.url, vlm_model_name="mine"), detector)
        await parser.start()
        await parser.probe()
        result = envelope(await parser.handle(json.dumps(FILE).encode(), context()))["result"]
        await closed(parser, detector)
    assert result["layoutParsingResults"][0]["markdown"]["text"] == "Hello"
    assert result["hps"]["release"] == "PaddleOCR-VL-1.6"
    assert asked == ["mine"]


@pytest.mark.parametrize("release", ["PaddleOCR-VL", "PaddleOCR-VL-1.5", "PaddleOCR-VL-1.6"])
async def test_each_release_is_built_with_the_name_of_its_model(release: str) -> None:
    detector = LocalLayoutDetector(Layout())
    parser = build.parser(loaded(pipeline_name=release, vlm_url="http://vlm"), detector)
    assert parser._pipeline._vlm_model == settings.VLM_MODELS[release]  # type: ignore[index]
    await closed(parser, detector)


async def test_the_backend_says_what_can_be_asked_for() -> None:
    detector = LocalLayoutDetector(Layout())
    for backend, has_orientation in (("fixed", False), ("onnx", True)):
        parser = build.parser(settings.load({}, layout_backend=backend, decode_workers=1), detector)
        assert (parser._pipeline._has_orientation, parser._pipeline._has_unwarping) == (has_orientation, False)
        await parser.close()
    detector.close()


def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    broken = loaded(pipeline_config=configured(tmp_path, "pipeline_name: PaddleOCR-VL-1.6\nno_such_key: 1\n"))
    detector = LocalLayoutDetector(Layout())
    with pytest.raises(ConfigError, match="no_such_key"):
        build.parser(broken, detector)
    with pytest.raises(ConfigError, match="no_such_key"):
        build.restructurer(broken)
    detector.close()


def stored(kind: str, directory: Path) -> str:
    return (
        "pipeline_name: PaddleOCR-VL-1.6\n"
        f"Serving: {{extra: {{file_storage: {{type: {kind}, directory: {directory}}}}}}}\n"
    )


async def test_files_go_where_the_configuration_says(tmp_path: Path) -> None:
    file = configured(tmp_path, stored("file_system", tmp_path / "files"))
    restructurer = build.restructurer(loaded(pipeline_config=file))
    assert restructurer._publication is not None
    assert isinstance(restructurer._publication.storage, FolderStorage)
    await restructurer.close()


async def test_without_a_store_nothing_is_stored() -> None:
    restructurer = build.restructurer(loaded())
    assert restructurer._publication is None
    await restructurer.close()


def test_a_store_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    file = configured(tmp_path, stored("file_system", tmp_path / "a file" / "below"))
    with pytest.raises(StorageError, match="directory cannot be written"):
        build.restructurer(loaded(pipeline_config=file))
