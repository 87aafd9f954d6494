"""What requests ask for, and what their answers bring: pictures, prompts, preprocessing, documents, stored files."""

import base64
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from hps.config import PipelineConfig
from hps.contract import PROMPT_LABELS
from hps.document import Image
from hps.errors import NotEnabled
from hps.inputs.pool import DecodePool
from hps.layout.page_inputs import Bounded, PageInputs
from hps.recognition import PROMPTS
from hps.storage import FolderStorage, MemoryStorage, Publication
from tests.unit.pipeline_parts import (
    WHOLE,
    Layout,
    Parts,
    Vlm,
    assembled,
    context,
    decoded,
    files_below,
    page,
    png,
    request,
    texts,
    tiff,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
PICTURE = (14, 0.9, 0.5, 0.5, 0.9, 0.9, 1)
TITLE_AND_TEXT = [(17, 0.9, 0.0, 0.0, 1.0, 0.2, 0), (22, 0.9, 0.0, 0.3, 1.0, 1.0, 1)]
TABLE = (21, 0.9, 0.0, 0.0, 1.0, 1.0, 0)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def decoder() -> AsyncIterator[DecodePool]:
    pool = DecodePool(1)
    await pool.start()
    yield pool
    await pool.close()


async def parsed(parts: Parts, file: str, request_id: str = "r", **fields: Any) -> dict[str, Any]:
    return await parts.pipeline.parse(request(file, **fields), context(request_id))


async def first_page(parts: Parts, file: str, **fields: Any) -> dict[str, Any]:
    result: dict[str, Any] = (await parsed(parts, file, **fields))["layoutParsingResults"][0]
    return result


def document(*widths: int) -> str:
    return tiff(*map(page, widths))


# --- what is returned and what is not even made ---


async def test_without_visualize_and_markdown_images_no_picture_comes(decoder: DecodePool) -> None:
    async with assembled(decoder, Layout(rows=[WHOLE, PICTURE])) as parts:
        result = await first_page(parts, png(page()), visualize=False, returnMarkdownImages=False)
    assert set(result) == {"prunedResult", "markdown"}
    assert set(result["markdown"]) == {"text"}
    assert "imgs/img_in_image_box" in result["markdown"]["text"]


async def test_markdown_images_are_the_pictures_that_the_text_names(decoder: DecodePool) -> None:
    async with assembled(decoder, Layout(rows=[WHOLE, PICTURE])) as parts:
        markdown = (await first_page(parts, png(page(100, 80))))["markdown"]
    ((path, picture),) = markdown["images"].items()
    assert path in markdown["text"]
    assert decoded(picture).shape == (32, 40, 3)


async def test_visualize_returns_overlay_and_page(decoder: DecodePool) -> None:
    async with assembled(decoder, config=PipelineConfig(max_output_size=(50, 50))) as parts:
        result = await first_page(parts, png(page(100, 80)), visualize=True)
    assert set(result["outputImages"]) == {"layout_det_res"}
    assert decoded(result["outputImages"]["layout_det_res"]).shape == (40, 50, 3)
    assert decoded(result["inputImage"]).shape == (40, 50, 3)


async def test_visualize_is_the_configurations_when_the_request_is_silent(decoder: DecodePool) -> None:
    async with assembled(decoder, config=PipelineConfig(visualize=False)) as parts:
        assert "inputImage" not in await first_page(parts, png(page()), visualize=None)
    async with assembled(decoder) as parts:
        assert "inputImage" in await first_page(parts, png(page()), visualize=None)


async def test_spotting_has_an_overlay_of_its_own(decoder: DecodePool) -> None:
    located = "line" + "".join(f"<|LOC_{n}|>" for n in (100, 100, 900, 100, 900, 500, 100, 500))
    async with assembled(decoder, vlm=Vlm(text=located)) as parts:
        result = await first_page(
            parts, png(page(200, 100)), useLayoutDetection=False, promptLabel="spotting", visualize=True
        )
    assert set(result["outputImages"]) == {"spotting_res_img"}
    assert result["prunedResult"]["spotting_res"]["rec_texts"] == ["line"]


# --- preprocessing ---


def with_corner(width: int, height: int) -> Image:
    """Black top left, so that a turn or a mirroring shows."""
    image = page(width, height, blank=True)
    image[:20, :30] = 0
    return image


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
async def test_a_page_is_turned_counter_clockwise_before_anything_else(decoder: DecodePool, angle: int) -> None:
    image = with_corner(120, 80)
    async with assembled(decoder, Layout(angle=angle)) as parts:
        result = await parsed(parts, png(image), useDocOrientationClassify=True, useDocUnwarping=False, visualize=True)
    upright = np.rot90(image, angle // 90)
    (first,) = result["layoutParsingResults"]
    pruned = first["prunedResult"]
    assert (pruned["height"], pruned["width"]) == upright.shape[:2]
    assert pruned["doc_preprocessor_res"] == {
        "model_settings": {"use_doc_orientation_classify": True, "use_doc_unwarping": False},
        "angle": angle,
    }
    assert pruned["model_settings"]["use_doc_preprocessor"] is True
    assert result["dataInfo"] == {"width": 120, "height": 80, "type": "image"}
    assert np.abs(decoded(first["outputImages"]["preprocessed_img"]).astype(int) - upright).mean() < 2
    assert np.abs(decoded(first["inputImage"]).astype(int) - image).mean() < 2
    assert parts.layout.calls == [("orientation", 120), ("detect", upright.shape[1])]


async def test_a_page_is_flattened_after_it_was_turned(decoder: DecodePool) -> None:
    image = with_corner(120, 80)
    mirrored = np.array([[[1, -1], [-1, -1]], [[1, 1], [-1, 1]]], np.float32)
    async with assembled(decoder, Layout(angle=90, grid=mirrored)) as parts:
        result = await first_page(
            parts, png(image), useDocOrientationClassify=True, useDocUnwarping=True, visualize=True
        )
    flat = np.rot90(image)[:, ::-1]
    assert np.abs(decoded(result["outputImages"]["preprocessed_img"]).astype(int) - flat).mean() < 2
    assert parts.layout.calls == [("orientation", 120), ("grid", 80), ("detect", 80)]


async def test_without_a_classification_the_angle_is_minus_one(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        result = await first_page(parts, png(page()), useDocUnwarping=True, useDocOrientationClassify=False)
    assert result["prunedResult"]["doc_preprocessor_res"]["angle"] == -1


async def test_what_the_backend_lacks_is_refused_before_any_work(decoder: DecodePool) -> None:
    async with assembled(decoder, Layout(inputs=PageInputs(Bounded(800)))) as parts:
        with pytest.raises(NotEnabled, match="HPS_LAYOUT_BACKEND"):
            await parsed(parts, png(page()), useDocOrientationClassify=True)
        assert parts.layout.calls == []


# --- prompts ---


@pytest.mark.parametrize("label", PROMPT_LABELS)
async def test_without_layout_the_page_is_one_block_of_the_prompt(decoder: DecodePool, label: str) -> None:
    async with assembled(decoder) as parts:
        result = await first_page(parts, png(page(100, 80)), useLayoutDetection=False, promptLabel=label)
    pruned = result["prunedResult"]
    (block,) = pruned["parsing_res_list"]
    assert (block["block_label"], block["block_bbox"]) == (label, [0, 0, 100, 80])
    assert parts.vlm.requests[0]["messages"][0]["content"][1]["text"] == PROMPTS[label]
    assert parts.layout.calls == []
    assert "layout_det_res" not in pruned
    assert pruned["model_settings"]["use_layout_detection"] is False
    assert pruned["model_settings"]["use_chart_recognition"] is (label == "chart")
    assert pruned["model_settings"]["use_seal_recognition"] is (label == "seal")


async def test_what_the_request_says_of_sampling_reaches_the_vlm(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        await parsed(parts, png(page()), temperature=0.5, topP=0.9, maxNewTokens=77, minPixels=1000, maxPixels=2000)
    (sent,) = parts.vlm.requests
    assert (sent["model"], sent["temperature"], sent["top_p"]) == ("the-model", 0.5, 0.9)
    assert sent["max_completion_tokens"] == 77
    assert sent["mm_processor_kwargs"] == {"min_pixels": 1000, "max_pixels": 2000}


# --- documents ---


async def test_restructuring_joins_tables_and_levels_titles_over_pages(decoder: DecodePool) -> None:
    async with assembled(decoder, Layout(rows=[TABLE]), Vlm(text="<fcel>a<fcel>{width}<nl>")) as parts:
        result = await parsed(parts, document(100, 101), restructurePages=True)
        apart = await parsed(parts, document(100, 101), restructurePages=True, mergeTables=False)
        plain = await parsed(parts, document(100, 101))
    first, second = (one["prunedResult"]["parsing_res_list"][0] for one in result["layoutParsingResults"])
    assert first["block_content"].count("<tr>") == 2
    assert (second["block_content"], second["global_block_id"], second["global_group_id"]) == ("", 1, 0)
    assert [text.count("<tr>") for text in texts(apart)] == [1, 1]
    assert "global_block_id" not in plain["layoutParsingResults"][0]["prunedResult"]["parsing_res_list"][0]


async def test_titles_are_levelled_only_when_asked(decoder: DecodePool) -> None:
    async with assembled(decoder, Layout(rows=TITLE_AND_TEXT), Vlm(text="2.1 Words")) as parts:
        levelled = await parsed(parts, png(page()), restructurePages=True)
        plain = await parsed(parts, png(page()), restructurePages=True, relevelTitles=False)
    assert texts(levelled)[0].startswith("## 2.1 Words")
    assert texts(plain)[0].startswith("### 2.1 Words")


async def test_docx_files_hold_text_and_pictures_even_when_markdown_images_are_off(decoder: DecodePool) -> None:
    async with assembled(decoder, Layout(rows=[WHOLE, PICTURE]), Vlm(text="A sentence.")) as parts:
        result = await parsed(parts, tiff(page(100), page(110)), outputFormats=["docx"], returnMarkdownImages=False)
    exports = [one["exports"]["docx"] for one in result["layoutParsingResults"]]
    assert [export["fileName"] for export in exports] == ["page_0.docx", "page_1.docx"]
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(exports[0]["content"]))) as file:
        assert b"A sentence." in file.read("word/document.xml")
        assert [name for name in file.namelist() if name.startswith("word/media/")]
    assert "images" not in result["layoutParsingResults"][0]["markdown"]


async def test_files_are_stored_under_the_log_id(decoder: DecodePool, tmp_path: Path) -> None:
    publication = Publication(FolderStorage(tmp_path))
    async with assembled(decoder, Layout(rows=[WHOLE, PICTURE]), publication=publication) as parts:
        result = await first_page(parts, png(page()), logId="mine", visualize=True, outputFormats=["docx"])
        await parsed(parts, png(page()), "the-id-of-the-request", visualize=True)
    (path,) = result["markdown"]["images"]
    stored = files_below(tmp_path)
    assert set(stored) == {
        f"mine/markdown_0/{path}",
        "mine/layout_det_res_0.jpg",
        "mine/input_img_0.jpg",
        "mine/page_0.docx",
        *(
            f"the-id-of-the-request/{name}"
            for name in (f"markdown_0/{path}", "layout_det_res_0.jpg", "input_img_0.jpg")
        ),
    }
    assert stored["mine/input_img_0.jpg"] == base64.b64decode(result["inputImage"])


class _Shelf(MemoryStorage):
    """A store with URLs."""

    def url(self, key: str, expires_s: int) -> str:
        return f"https://shelf/{key}?{expires_s}"


async def test_urls_stand_in_for_stored_files(decoder: DecodePool) -> None:
    publication = Publication(_Shelf(), return_urls=True, url_expires_s=60)
    async with assembled(decoder, Layout(rows=[WHOLE, PICTURE]), publication=publication) as parts:
        result = await first_page(parts, png(page()), logId="mine", visualize=True)
    assert result["inputImage"] == "https://shelf/mine/input_img_0.jpg?60"
    assert all(url.startswith("https://shelf/mine/") for url in result["markdown"]["images"].values())
