"""From finished pages to the `result` of an answer (SPEC A.4). Pure."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hps import docx_export, markdown, pruned_result, restructure
from hps.context import StageTimes
from hps.contract import without_nulls
from hps.document import ParsedPage
from hps.errors import HpsError
from hps.inputs.pool import DocumentInfo
from hps.options import RenderOptions, RestructureOptions
from hps.output_images import Shown
from hps.version import VERSION
from hps.vlm.guard import Stop


@dataclass(frozen=True, slots=True, eq=False)
class PageOutput:
    """A finished page without its bitmaps: pictures are encoded already, and only those that the answer needs.

    is_blank: no ink, no VLM call. stopped: place of a block → why its text ends before its model wanted to. failure:
    why the page could not be parsed; it is empty then.
    """

    parsed: ParsedPage
    shown: Shown = field(default_factory=Shown)
    is_blank: bool = False
    times: StageTimes = field(default_factory=StageTimes)
    stopped: Mapping[int, Stop] = field(default_factory=dict)
    failure: HpsError | None = None


def layout_parsing(
    outputs: Sequence[PageOutput],
    info: DocumentInfo,
    rendering: RenderOptions,
    restructuring: RestructureOptions | None,
    release: str,
) -> dict[str, Any]:
    """`result` of /layout-parsing."""
    pages: Sequence[ParsedPage] = [output.parsed for output in outputs]
    if restructuring is not None:
        pages = restructure.pages(
            pages, merge_tables=restructuring.merge_tables, relevel_titles=restructuring.relevel_titles
        )
    return {
        "layoutParsingResults": [
            without_nulls(
                page_result(page, output.shown.pictures if rendering.markdown_images else None, rendering)
                | {"outputImages": output.shown.output_images, "inputImage": output.shown.input_image}
                | {"exports": exports(page, _decoded(output.shown.pictures), index) if rendering.docx else None}
            )
            for index, (page, output) in enumerate(zip(pages, outputs, strict=True))
        ],
        "dataInfo": data_info(info),
        "hps": without_nulls(
            about(release)
            | {"totalPages": info.total_pages, "processedPages": len(outputs)}
            | {"blankPages": [index for index, output in enumerate(outputs) if output.is_blank] or None}
            | {"failedPages": failed_pages(outputs) or None}
            | {"stoppedBlocks": stopped_blocks(outputs) or None}
        ),
    }


def failed_pages(outputs: Sequence[PageOutput]) -> list[dict[str, Any]]:
    """Pages that could not be parsed, with the status and message of a request that failed over them."""
    return [
        {"page": page, "errorCode": output.failure.status, "errorMsg": output.failure.message}
        for page, output in enumerate(outputs)
        if output.failure is not None
    ]


def stopped_blocks(outputs: Sequence[PageOutput]) -> list[dict[str, Any]]:
    """Blocks whose text their model would have gone on with, by page and place in its parsing_res_list."""
    return [
        {"page": page, "block": block, "reason": reason}
        for page, output in enumerate(outputs)
        for block, reason in output.stopped.items()
    ]


def page_result(page: ParsedPage, pictures: Mapping[str, str] | None, wanted: RenderOptions) -> dict[str, Any]:
    """What both routes say of a page."""
    rendered = markdown.render(page, pretty=wanted.pretty, show_formula_number=wanted.show_formula_number)
    return {
        "prunedResult": pruned_result.to_dict(page),
        "markdown": without_nulls({"text": rendered.text, "images": pictures}),
    }


def exports(page: ParsedPage, pictures: Mapping[str, bytes], index: int | None) -> dict[str, Any]:
    """`exports` of a page; index None stands for a whole document on one page. Takes a tenth of a second of CPU."""
    content = base64.b64encode(docx_export.docx_file(page, pictures)).decode("ascii")
    return {"docx": {"content": content, "fileName": docx_export.file_name(index)}}


def _decoded(pictures: Mapping[str, str] | None) -> dict[str, bytes]:
    return {path: base64.b64decode(picture) for path, picture in (pictures or {}).items()}


def data_info(info: DocumentInfo) -> dict[str, Any]:
    sizes = [{"width": width, "height": height} for width, height in info.sizes]
    if info.type == "image":
        return {**sizes[0], "type": "image"}
    return {"numPages": len(sizes), "pages": sizes, "type": info.type}


def about(release: str) -> dict[str, Any]:
    """What every answer carries under `hps`."""
    return {"release": release, "version": VERSION}
