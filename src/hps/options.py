"""What one request asks for, settled once: the request's fields over the configuration."""

from dataclasses import dataclass, replace
from typing import Any

from hps.config import PipelineConfig
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
    concatenate: bool = False


@dataclass(frozen=True, slots=True)
class ParseOptions:
    """restructure is None when pages stay as they are; prompt_label counts only without layout detection."""

    settings: ModelSettings
    layout: LayoutRules
    recognition: RecognitionOptions
    render: RenderOptions
    restructure: RestructureOptions | None
    orientation: bool
    prompt_label: str


def resolve(request: LayoutParsingRequest, config: PipelineConfig, *, has_orientation: bool) -> ParseOptions:
    """Raises NotEnabled for what the running configuration lacks."""
    defaults = config.model_settings
    if request.useDocUnwarping:
        raise NotEnabled("useDocUnwarping is not available: this configuration has no unwarping model")
    if request.useDocOrientationClassify and not has_orientation:
        raise NotEnabled(
            "useDocOrientationClassify is not available: the running layout backend has no orientation model"
        )
    # As in the reference, asking for one part switches the preprocessor on; only what was asked for is done.
    orientation = bool(request.useDocOrientationClassify)
    settings = replace(
        defaults,
        use_doc_preprocessor=orientation or defaults.use_doc_preprocessor,
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
    )


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
