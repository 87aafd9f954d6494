"""The `result` of an answer (SPEC A.2, A.4)."""

import base64
from typing import Any

from hps import answer
from hps.answer import PageOutput
from hps.document import Block, ModelSettings, ParsedPage
from hps.inputs.pool import DocumentInfo
from hps.options import RenderOptions, RestructureOptions
from hps.output_images import Shown
from hps.version import VERSION
from tests.unit.pipeline_parts import page as pixels
from tests.unit.pipeline_parts import png

IMAGE = DocumentInfo("image", 1, ((100, 80),))
BARE = RenderOptions(visualize=False, markdown_images=False)


def parsed(*blocks: Block) -> ParsedPage:
    return ParsedPage(100, 80, blocks, ModelSettings(), regions=())


def text(content: str, label: str = "text") -> Block:
    return Block(label, (0, 0, 50, 20), content)


def result(
    *outputs: PageOutput,
    info: DocumentInfo = IMAGE,
    rendering: RenderOptions = BARE,
    restructuring: RestructureOptions | None = None,
) -> dict[str, Any]:
    return answer.layout_parsing(outputs, info, rendering, restructuring, "PaddleOCR-VL-1.6")


def test_what_a_page_lacks_is_absent_and_nulls_inside_pruned_result_stay() -> None:
    (page,) = result(PageOutput(parsed(text("a"))))["layoutParsingResults"]
    assert set(page) == {"prunedResult", "markdown"}
    assert page["markdown"] == {"text": "a"}
    assert page["prunedResult"]["page_count"] is None


def test_all_that_a_page_can_have() -> None:
    output = PageOutput(parsed(text("a")), Shown({"imgs/a.jpg": "MQ=="}, {"layout_det_res": "Mg=="}, "Mw=="))
    (page,) = result(output, rendering=RenderOptions())["layoutParsingResults"]
    assert page["markdown"] == {"text": "a", "images": {"imgs/a.jpg": "MQ=="}}
    assert page["outputImages"] == {"layout_det_res": "Mg=="}
    assert page["inputImage"] == "Mw=="


def test_pictures_that_only_an_export_needs_are_not_returned() -> None:
    picture = Block("image", (0, 0, 50, 40), image_path="imgs/a.jpg")
    rendering = RenderOptions(markdown_images=False, docx=True)
    (page,) = result(PageOutput(parsed(picture), Shown({"imgs/a.jpg": png(pixels())})), rendering=rendering)[
        "layoutParsingResults"
    ]
    assert set(page["markdown"]) == {"text"}
    assert page["exports"]["docx"]["fileName"] == "page_0.docx"
    assert base64.b64decode(page["exports"]["docx"]["content"]).startswith(b"PK")


def test_data_info_by_kind_of_document() -> None:
    assert answer.data_info(IMAGE) == {"width": 100, "height": 80, "type": "image"}
    for kind in ("pdf", "tiff"):
        info = DocumentInfo(kind, 7, ((1, 2), (3, 4)))
        sizes = [{"width": 1, "height": 2}, {"width": 3, "height": 4}]
        assert answer.data_info(info) == {"numPages": 2, "pages": sizes, "type": kind}


def test_what_the_kit_adds_stands_under_one_key() -> None:
    outputs = [PageOutput(parsed(), is_blank=blank) for blank in (True, False, True)]
    made = result(*outputs, info=DocumentInfo("pdf", 9, ((1, 1),) * 3))
    assert made["hps"] == {
        "release": "PaddleOCR-VL-1.6",
        "version": VERSION,
        "totalPages": 9,
        "processedPages": 3,
        "blankPages": [0, 2],
    }
    assert "blankPages" not in result(PageOutput(parsed()))["hps"]


def test_restructuring_keeps_each_page_with_its_own_pictures() -> None:
    outputs = [PageOutput(parsed(text(name)), Shown({f"{name}.jpg": "MQ=="})) for name in ("a", "b")]
    pages = result(
        *outputs,
        info=DocumentInfo("pdf", 2, ((1, 1),) * 2),
        rendering=RenderOptions(),
        restructuring=RestructureOptions(),
    )["layoutParsingResults"]
    assert [page["markdown"] for page in pages] == [
        {"text": name, "images": {f"{name}.jpg": "MQ=="}} for name in ("a", "b")
    ]
    assert [page["prunedResult"]["parsing_res_list"][0]["global_block_id"] for page in pages] == [0, 1]
