"""What one request asks for: its fields over the configuration, and what the running models can do (SPEC A.3, B.4)."""

from dataclasses import replace
from typing import Any

import pytest

from hps.config import PipelineConfig, Preprocessor
from hps.contract import LayoutParsingRequest
from hps.document import ModelSettings
from hps.errors import InvalidRequest, NotEnabled
from hps.layout.postprocess import LayoutRules
from hps.options import ParseOptions, RenderOptions, RestructureOptions, resolve

# --- the preprocessor ---


def config(*, by_default: bool, orientation: bool = True, unwarping: bool = True) -> PipelineConfig:
    return PipelineConfig(
        model_settings=ModelSettings(use_doc_preprocessor=by_default),
        preprocessor=Preprocessor(by_default, orientation, unwarping),
    )


OFF, ON = config(by_default=False), config(by_default=True)


def resolved(
    orientation: bool | None,
    unwarping: bool | None,
    configuration: PipelineConfig = OFF,
    *,
    models: tuple[bool, bool] = (True, True),
) -> ParseOptions:
    request = LayoutParsingRequest(
        file="https://example.com/a.pdf", useDocOrientationClassify=orientation, useDocUnwarping=unwarping
    )
    return resolve(request, configuration, has_orientation=models[0], has_unwarping=models[1])


def parts(options: ParseOptions) -> tuple[bool, bool, bool]:
    return options.settings.use_doc_preprocessor, options.orientation, options.unwarping


@pytest.mark.parametrize(
    ("configuration", "request_flags", "expected"),
    [
        (OFF, (None, None), (False, False, False)),
        (OFF, (False, None), (False, False, False)),
        (OFF, (True, None), (True, True, True)),
        (OFF, (None, True), (True, True, True)),
        (OFF, (True, False), (True, True, False)),
        (OFF, (False, True), (True, False, True)),
        (ON, (None, None), (True, True, True)),
        (ON, (False, None), (False, False, False)),
        (ON, (False, False), (False, False, False)),
        (config(by_default=True, unwarping=False), (None, None), (True, True, False)),
        (config(by_default=True, orientation=False), (None, True), (True, False, True)),
        (config(by_default=False, orientation=False), (None, True), (True, False, True)),
    ],
)
def test_the_request_decides_and_the_configuration_fills(
    configuration: PipelineConfig, request_flags: tuple[bool | None, bool | None], expected: tuple[bool, bool, bool]
) -> None:
    assert parts(resolved(*request_flags, configuration)) == expected


def test_a_part_that_nobody_asked_for_is_left_out_without_its_model() -> None:
    assert parts(resolved(True, None, models=(True, False))) == (True, True, False)
    assert parts(resolved(None, True, models=(False, True))) == (True, False, True)


@pytest.mark.parametrize(
    ("flags", "configuration", "models", "remedy"),
    [
        ((True, None), OFF, (False, True), "HPS_LAYOUT_BACKEND=onnx"),
        ((None, True), OFF, (True, False), "HPS_LAYOUT_BACKEND=transformers"),
        ((None, None), ON, (True, False), "use_doc_unwarping: false"),
    ],
)
def test_what_is_asked_for_and_missing_is_refused_with_the_way_to_get_it(
    flags: tuple[bool | None, bool | None], configuration: PipelineConfig, models: tuple[bool, bool], remedy: str
) -> None:
    with pytest.raises(NotEnabled, match=remedy):
        resolved(*flags, configuration, models=models)


# --- everything else: the request's fields over the configuration ---

CONFIGURED = PipelineConfig(
    model_settings=ModelSettings(
        use_chart_recognition=True, merge_layout_blocks=False, markdown_ignore_labels=("seal",)
    ),
    layout=LayoutRules(threshold=0.5, nms=False, unclip=(1.1, 1.2), merge_modes="small"),
    visualize=False,
)


def asked(configuration: PipelineConfig = CONFIGURED, **fields: Any) -> ParseOptions:
    return resolve(LayoutParsingRequest(file="x", **fields), configuration, has_orientation=False)


def test_a_silent_request_gets_the_configuration() -> None:
    options = asked()
    assert options.settings == CONFIGURED.model_settings
    assert options.layout == CONFIGURED.layout
    assert options.recognition.use_chart_recognition is True
    assert options.recognition.merge_layout_blocks is False
    assert (options.render.visualize, options.restructure, options.prompt_label) == (False, None, "ocr")


def test_what_a_request_says_wins() -> None:
    options = asked(
        useLayoutDetection=False,
        useChartRecognition=False,
        useSealRecognition=True,
        useOcrForImageBlock=True,
        formatBlockContent=True,
        mergeLayoutBlocks=True,
        markdownIgnoreLabels=[],
        visualize=True,
        promptLabel="seal",
    )
    assert options.settings == ModelSettings(
        use_layout_detection=False,
        use_chart_recognition=False,
        use_seal_recognition=True,
        use_ocr_for_image_block=True,
        format_block_content=True,
        merge_layout_blocks=True,
        markdown_ignore_labels=(),
    )
    assert options.recognition.use_seal_recognition is True
    assert options.recognition.use_ocr_for_image_block is True
    assert (options.render.visualize, options.prompt_label) == (True, "seal")


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"layoutNms": True}, {"nms": True}),
        ({"layoutThreshold": 0.2}, {"threshold": 0.2}),
        ({"layoutThreshold": {"22": 0.4, " 3 ": 0}}, {"threshold": {22: 0.4, 3: 0}}),
        ({"layoutUnclipRatio": 2}, {"unclip": 2.0}),
        ({"layoutUnclipRatio": (1, 2)}, {"unclip": (1.0, 2.0)}),
        ({"layoutUnclipRatio": {"22": [1, 2], "3": 3}}, {"unclip": {22: (1.0, 2.0), 3: (3.0, 3.0)}}),
        ({"layoutMergeBboxesMode": "union"}, {"merge_modes": "union"}),
        ({"layoutMergeBboxesMode": {"3": "large"}}, {"merge_modes": {3: "large"}}),
        ({"layoutShapeMode": "quad"}, {"shape_mode": "quad"}),
    ],
    ids=str,
)
def test_layout_fields_change_only_their_rule(fields: dict[str, Any], changes: dict[str, Any]) -> None:
    assert asked(**fields).layout == replace(CONFIGURED.layout, **changes)


def test_rectangles_have_no_polygons_and_the_settings_say_so() -> None:
    assert asked(layoutShapeMode="rect").settings.return_layout_polygon_points is False
    assert asked(layoutShapeMode="poly").settings.return_layout_polygon_points is True


def test_restructuring_takes_its_options_only_when_it_is_asked_for() -> None:
    assert asked(mergeTables=False).restructure is None
    assert asked(restructurePages=True, mergeTables=False).restructure == RestructureOptions(False, True)
    assert asked(restructurePages=True, relevelTitles=False).restructure == RestructureOptions(True, False)


def test_rendering() -> None:
    options = asked(prettifyMarkdown=False, showFormulaNumber=True, returnMarkdownImages=False, outputFormats=["docx"])
    assert options.render == RenderOptions(
        pretty=False, show_formula_number=True, markdown_images=False, visualize=False, docx=True
    )
    assert asked(outputFormats=[]).render.docx is False


def test_sampling_goes_to_recognition() -> None:
    options = asked(temperature=0.5, topP=0.9, repetitionPenalty=1.1, maxNewTokens=9, minPixels=1, maxPixels=2)
    recognition = options.recognition
    assert (recognition.temperature, recognition.top_p, recognition.repetition_penalty) == (0.5, 0.9, 1.1)
    assert (recognition.max_new_tokens, recognition.min_pixels, recognition.max_pixels) == (9, 1, 2)


def test_extra_arguments_of_the_wrong_type_are_the_clients_mistake() -> None:
    with pytest.raises(InvalidRequest, match="vlmExtraArgs: temperature must be a number"):
        asked(vlmExtraArgs={"temperature": "hot"})
