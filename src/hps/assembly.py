"""From a page's plan and what the VLM answered to the finished page. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from hps import recognition, text_cleanup
from hps.document import ModelSettings, ParsedPage, Spotting
from hps.options import ParseOptions
from hps.recognition import PagePlan


def page(plan: PagePlan, answers: Mapping[int, str], wanted: ParseOptions, angle: int | None) -> ParsedPage:
    """answers: block index → the VLM's text as it came. angle: the turn applied (degrees); None if not classified."""
    size = (plan.width, plan.height)
    contents: dict[int, str] = {}
    spotting: Spotting | None = None
    for index, answer in answers.items():
        cleaned = text_cleanup.clean(plan.blocks[index].label, answer, size)
        contents[index] = cleaned.content
        spotting = spotting or cleaned.spotting
    return ParsedPage(
        width=plan.width,
        height=plan.height,
        blocks=recognition.finish(plan, contents),
        settings=_settings(plan, wanted),
        regions=plan.regions,
        pictures=plan.pictures,
        spotting=spotting,
        doc_preprocessor=_preprocessing(wanted, angle),
    )


def _settings(plan: PagePlan, wanted: ParseOptions) -> ModelSettings:
    """Without layout detection a chart or seal prompt switches its recognition on, and the answer says so (E.1)."""
    if plan.regions is not None:
        return wanted.settings
    effective = recognition.options_for_prompt(wanted.recognition, wanted.prompt_label)
    return replace(
        wanted.settings,
        use_chart_recognition=effective.use_chart_recognition,
        use_seal_recognition=effective.use_seal_recognition,
    )


def _preprocessing(wanted: ParseOptions, angle: int | None) -> dict[str, object] | None:
    if not wanted.settings.use_doc_preprocessor:
        return None
    used = {"use_doc_orientation_classify": wanted.orientation, "use_doc_unwarping": wanted.unwarping}
    return {"model_settings": used, "angle": -1 if angle is None else angle}
