"""What one request asks for, settled once: the request's fields over the configuration."""

from dataclasses import dataclass, replace
from typing import Any

from hps import docx_export
from hps.config import PipelineConfig, Preprocessor
from hps.contract import LayoutParsingRequest
from hps.document import ModelSettings
from hps.errors import NotEnabled
from hps.layout.postprocess import LayoutRules
from hps.recognition import RecognitionOptions


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """How finished pages become an answer."""

    pretty: bool = True
    show_formula_number: bool = False
    markdown_images: bool = True
    visualize: bool = True
    docx: bool = False


@dataclass(frozen=True, slots=True)
class RestructureOptions:
    merge_tables: bool = True
    relevel_titles: bool = True


@dataclass(frozen=True, slots=True)
class ParseOptions:
    """restructure is None when pages stay as they are; prompt_label counts only without layout detection.

    orientation, unwarping: parts of the document preprocessor that run, orientation first. allow_partial: a page that
    fails does not fail the others.
    """

    settings: ModelSettings
    layout: LayoutRules
    recognition: RecognitionOptions
    render: RenderOptions
    restructure: RestructureOptions | None
    orientation: bool
    prompt_label: str
    unwarping: bool = False
    allow_partial: bool = False


def resolve(
    request: LayoutParsingRequest, config: PipelineConfig, *, has_orientation: bool, has_unwarping: bool = False
) -> ParseOptions:
    """has_orientation, has_unwarping: models that run. Raises NotEnabled for what the running configuration lacks."""
    defaults = config.model_settings
    use_preprocessor, orientation, unwarping = _preprocessing(request, config.preprocessor)
    orientation = _available(orientation, has_orientation, _ORIENTATION)
    unwarping = _available(unwarping, has_unwarping, _UNWARPING)
    if request.outputFormats:
        docx_export.require()
    settings = replace(
        defaults,
        use_doc_preprocessor=use_preprocessor,
        use_layout_detection=_or(request.useLayoutDetection, defaults.use_layout_detection),
        use_chart_recognition=_or(request.useChartRecognition, defaults.use_chart_recognition),
        use_seal_recognition=_or(request.useSealRecognition, defaults.use_seal_recognition),
        use_ocr_for_image_block=_or(request.useOcrForImageBlock, defaults.use_ocr_for_image_block),
        format_block_content=_or(request.formatBlockContent, defaults.format_block_content),
        merge_layout_blocks=_or(request.mergeLayoutBlocks, defaults.merge_layout_blocks),
        markdown_ignore_labels=(
            defaults.markdown_ignore_labels
            if request.markdownIgnoreLabels is None
            else tuple(request.markdownIgnoreLabels)
        ),
        return_layout_polygon_points=request.layoutShapeMode != "rect",
    )
    return ParseOptions(
        settings=settings,
        layout=_layout(request, config.layout),
        recognition=_recognition(request, settings),
        render=RenderOptions(
            pretty=request.prettifyMarkdown,
            show_formula_number=request.showFormulaNumber,
            markdown_images=request.returnMarkdownImages,
            visualize=_or(request.visualize, config.visualize),
            docx=bool(request.outputFormats),
        ),
        restructure=(
            RestructureOptions(request.mergeTables, request.relevelTitles) if request.restructurePages else None
        ),
        orientation=orientation,
        prompt_label=request.promptLabel or "ocr",
        unwarping=unwarping,
        allow_partial=request.allowPartial,
    )


_ORIENTATION = (
    "useDocOrientationClassify is not enabled: the layout backend has no orientation model; "
    "set HPS_LAYOUT_BACKEND=onnx, or HPS_LAYOUT_BACKEND=transformers with HPS_ORIENTATION_MODEL_DIR"
)
_UNWARPING = (
    "useDocUnwarping is not enabled: the layout backend has no unwarping model; "
    "set HPS_LAYOUT_BACKEND=transformers with HPS_UNWARPING_MODEL_DIR, "
    "or use_doc_unwarping: false in the pipeline configuration"
)


def _preprocessing(request: LayoutParsingRequest, preprocessor: Preprocessor) -> tuple[bool, bool | None, bool | None]:
    """Whether the preprocessor runs, and its two parts: True is demanded, None is done if there is a model (SPEC B.4).

    A request that names a part decides alone whether the preprocessor runs. A part that neither the request nor a
    preprocessor that is on by default asks for must not fail those who only want the other.
    """
    named = (request.useDocOrientationClassify, request.useDocUnwarping)
    runs = preprocessor.by_default if named == (None, None) else True in named
    if not runs:
        return False, False, False

    def part(wanted: bool | None, default: bool) -> bool | None:
        if wanted is not None or not default:
            return bool(wanted)
        return True if preprocessor.by_default else None

    return True, part(named[0], preprocessor.orientation), part(named[1], preprocessor.unwarping)


def _available(wanted: bool | None, is_there: bool, refusal: str) -> bool:
    if wanted and not is_there:
        raise NotEnabled(refusal)
    return is_there if wanted is None else wanted


def _or(value: bool | None, default: bool) -> bool:
    return default if value is None else value


def _layout(request: LayoutParsingRequest, rules: LayoutRules) -> LayoutRules:
    changes: dict[str, Any] = {"shape_mode": request.layoutShapeMode}
    if request.layoutNms is not None:
        changes["nms"] = request.layoutNms
    if request.layoutThreshold is not None:
        changes["threshold"] = _by_class(request.layoutThreshold)
    if request.layoutMergeBboxesMode is not None:
        changes["merge_modes"] = _by_class(request.layoutMergeBboxesMode)
    unclip = request.layoutUnclipRatio
    if isinstance(unclip, dict):
        # One number stands for both directions; pairs arrive as JSON lists.
        pairs = {key: ratio if isinstance(ratio, list) else [ratio, ratio] for key, ratio in unclip.items()}
        changes["unclip"] = {int(key): (float(w), float(h)) for key, (w, h) in pairs.items()}
    elif unclip is not None:
        changes["unclip"] = unclip
    return replace(rules, **changes)


def _by_class(value: Any) -> Any:
    return {int(key): entry for key, entry in value.items()} if isinstance(value, dict) else value


def _recognition(request: LayoutParsingRequest, settings: ModelSettings) -> RecognitionOptions:
    return RecognitionOptions(
        use_chart_recognition=settings.use_chart_recognition,
        use_seal_recognition=settings.use_seal_recognition,
        use_ocr_for_image_block=settings.use_ocr_for_image_block,
        merge_layout_blocks=settings.merge_layout_blocks,
        shape_mode=request.layoutShapeMode,
        temperature=request.temperature,
        top_p=request.topP,
        repetition_penalty=request.repetitionPenalty,
        max_new_tokens=request.maxNewTokens,
        min_pixels=request.minPixels,
        max_pixels=request.maxPixels,
        vlm_extra_args=request.vlmExtraArgs or {},
    )
