"""From what the VLM answered to the page (SPEC D.6, E.1)."""

from typing import Any

import pytest

from hps import assembly, options, recognition
from hps.config import PipelineConfig
from hps.contract import LayoutParsingRequest
from hps.document import ParsedPage, Region
from tests.unit.pipeline_parts import page

TEXT = Region(22, "text", 0.9, (0, 0, 100, 40), 1)
TABLE = Region(21, "table", 0.9, (0, 40, 100, 80), 2)


def assembled(
    regions: list[Region] | None, answers: dict[int, str], *, angle: int | None = None, **fields: Any
) -> ParsedPage:
    request = LayoutParsingRequest(file="x", useLayoutDetection=regions is not None, **fields)
    wanted = options.resolve(request, PipelineConfig(), has_orientation=True, has_unwarping=True)
    plan = recognition.plan(page(100, 80), regions, wanted.recognition, wanted.prompt_label)
    return assembly.page(plan, answers, wanted, angle)


def test_answers_are_cleaned_by_the_label_of_their_block() -> None:
    made = assembled([TEXT, TABLE], {0: r"a \(x\)", 1: "<fcel>a<nl>"})
    assert [block.content for block in made.blocks] == ["a  $ x $", "<table><tr><td>a</td></tr></table>"]
    assert made.regions == (TEXT, TABLE)
    assert (made.width, made.height) == (100, 80)


def test_a_block_without_an_answer_is_empty() -> None:
    assert [block.content for block in assembled([TEXT, TABLE], {1: ""}).blocks] == ["", ""]


def test_located_lines_scale_to_the_page() -> None:
    located = "word" + "".join(f"<|LOC_{n}|>" for n in (0, 0, 500, 0, 500, 500, 0, 500))
    made = assembled(None, {0: located}, promptLabel="spotting")
    assert made.spotting is not None
    assert made.spotting.rec_texts == ("word",)
    assert made.spotting.rec_polys[0][2] == (50, 40)


@pytest.mark.parametrize("label", ["ocr", "chart", "seal"])
def test_a_prompt_switches_its_recognition_on(label: str) -> None:
    settings = assembled(None, {0: "x"}, promptLabel=label).settings
    assert settings.use_chart_recognition is (label == "chart")
    assert settings.use_seal_recognition is (label == "seal")


def test_with_layout_the_prompt_switches_nothing() -> None:
    assert assembled([TEXT], {0: "x"}, promptLabel="chart").settings.use_chart_recognition is False


def test_preprocessing_is_reported_only_when_it_ran() -> None:
    assert assembled([TEXT], {}).doc_preprocessor is None
    both = {"use_doc_orientation_classify": True, "use_doc_unwarping": True}
    made = assembled([TEXT], {}, angle=180, useDocOrientationClassify=True, useDocUnwarping=True)
    assert made.doc_preprocessor == {"model_settings": both, "angle": 180}
    made = assembled([TEXT], {}, useDocOrientationClassify=False, useDocUnwarping=True)
    assert made.doc_preprocessor == {
        "model_settings": both | {"use_doc_orientation_classify": False},
        "angle": -1,
    }
