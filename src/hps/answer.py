"""From finished pages to the `result` of an answer (SPEC A.4). Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hps import markdown, pruned_result, restructure
from hps.context import StageTimes
from hps.contract import without_nulls
from hps.document import ParsedPage
from hps.inputs.pool import DocumentInfo
from hps.options import RenderOptions, RestructureOptions
from hps.version import VERSION


@dataclass(frozen=True, slots=True, eq=False)
class PageOutput:
    """A finished page without its bitmaps: pictures are encoded already, and only those that will be returned.

    pictures, output_images: name → Base64 JPEG; None where the request wants none.
    """

    parsed: ParsedPage
    pictures: Mapping[str, str] | None = None
    output_images: Mapping[str, str] | None = None
    input_image: str | None = None
    times: StageTimes = field(default_factory=StageTimes)


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
                page_result(page, output.pictures, rendering)
                | {"outputImages": output.output_images, "inputImage": output.input_image}
            )
            for page, output in zip(pages, outputs, strict=True)
        ],
        "dataInfo": data_info(info),
        "hps": about(release) | {"totalPages": info.total_pages, "processedPages": len(outputs)},
    }


def page_result(page: ParsedPage, pictures: Mapping[str, str] | None, wanted: RenderOptions) -> dict[str, Any]:
    """What both routes say of a page."""
    rendered = markdown.render(page, pretty=wanted.pretty, show_formula_number=wanted.show_formula_number)
    return {
        "prunedResult": pruned_result.to_dict(page),
        "markdown": without_nulls({"text": rendered.text, "images": pictures}),
    }


def data_info(info: DocumentInfo) -> dict[str, Any]:
    sizes = [{"width": width, "height": height} for width, height in info.sizes]
    if info.type == "image":
        return {**sizes[0], "type": "image"}
    return {"numPages": len(sizes), "pages": sizes, "type": info.type}


def about(release: str) -> dict[str, Any]:
    """What every answer carries under `hps`."""
    return {"release": release, "version": VERSION}
