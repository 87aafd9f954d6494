"""The preprocessor's rules (SPEC B.4): request over configuration, and what the running models can do."""

import pytest

from hps.config import PipelineConfig, Preprocessor
from hps.contract import LayoutParsingRequest
from hps.document import ModelSettings
from hps.errors import NotEnabled
from hps.options import ParseOptions, resolve


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
