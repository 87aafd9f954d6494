"""The path of a request through real decoders, a layout backend and a VLM that the test steers."""

import asyncio
import base64
import io
import logging
import threading
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from hps import options
from hps.config import PipelineConfig
from hps.contract import PROMPT_LABELS
from hps.document import Image
from hps.errors import BackendError, DeadlineExceeded, InvalidInput, NotEnabled, Unavailable
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


# --- pages of a document ---


async def test_pages_come_in_their_order_whichever_is_ready_first(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        parts.vlm.hold(100, 120)
        work = asyncio.create_task(parsed(parts, document(100, 110, 120)))
        await parts.vlm.until_seen(3)
        parts.vlm.held[120].set()
        parts.vlm.held[100].set()
        assert texts(await work) == ["text 100", "text 110", "text 120"]


async def test_no_more_pages_than_the_window_are_in_work(decoder: DecodePool) -> None:
    async with assembled(decoder, page_window=2) as parts:
        parts.vlm.hold(100)
        work = asyncio.create_task(parsed(parts, document(100, 110, 120, 130)))
        await parts.vlm.until_seen(2)
        for other in ("a", "b"):  # what had a turn to take has taken it by the time that others have come and gone
            await parsed(parts, png(page(300)), other)
        assert sorted(set(parts.layout.calls)) == [("detect", 100), ("detect", 110), ("detect", 300)]
        parts.vlm.held[100].set()
        assert len(texts(await work)) == 4


@pytest.mark.parametrize(
    ("pages_of_memory", "expected"), [(0.5, [100]), (1.0, [100]), (2.5, [100, 110]), (9.0, [100, 110, 120, 130])]
)
async def test_no_more_bitmaps_than_the_memory_of_a_window(
    decoder: DecodePool, pages_of_memory: float, expected: list[int]
) -> None:
    """One page always: a page larger than the window is parsed alone."""
    height, width, channels = page(100).shape
    async with assembled(decoder, window_bytes=int(pages_of_memory * height * width * channels * 1.1)) as parts:
        parts.vlm.hold(100)
        work = asyncio.create_task(parsed(parts, document(100, 110, 120, 130)))
        await parts.vlm.until_seen(len(expected))
        for other in ("a", "b"):  # see above
            await parsed(parts, png(page(300)), other)
        assert sorted({width for _, width in parts.layout.calls} - {300}) == expected
        parts.vlm.held[100].set()
        assert texts(await work) == [f"text {width}" for width in (100, 110, 120, 130)]


@pytest.mark.parametrize("stage", ["layout", "vlm"])
async def test_a_page_that_fails_ends_its_request_at_once_and_frees_all_turns(decoder: DecodePool, stage: str) -> None:
    async with assembled(decoder) as parts:
        parts.vlm.hold(100, 120)
        if stage == "layout":
            parts.layout.broken[110] = Unavailable("layout is away")
        else:
            parts.vlm.refused.add(110)
        with pytest.raises(Unavailable if stage == "layout" else BackendError):
            async with asyncio.timeout(20):  # the others would be held for ever
                await parsed(parts, document(100, 110, 120))
        assert parts.vlm.in_flight == 0
        await parts.until_free()


async def test_a_failing_request_does_not_touch_another(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        parts.vlm.hold(300)
        parts.layout.broken[110] = Unavailable("layout is away")
        other = asyncio.create_task(parsed(parts, png(page(300)), "other"))
        await parts.vlm.until_seen(1)
        with pytest.raises(Unavailable):
            await parsed(parts, document(100, 110, 120), "failing")
        parts.vlm.held[300].set()
        assert texts(await other) == ["text 300"]
        await parts.until_free()


@pytest.mark.parametrize("stage", ["layout", "vlm"])
async def test_the_error_names_its_page(decoder: DecodePool, stage: str) -> None:
    async with assembled(decoder) as parts:
        if stage == "layout":
            parts.layout.broken[110] = Unavailable("layout is away")
        else:
            parts.vlm.refused.add(110)
        with pytest.raises(Unavailable if stage == "layout" else BackendError) as caught:
            await parsed(parts, document(100, 110, 120))
    assert caught.value.message.startswith("Page 2: ")


async def test_with_allow_partial_a_page_that_fails_leaves_the_others(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        parts.vlm.refused.add(110)
        result = await parsed(parts, document(100, 110, 120), allowPartial=True)
        assert texts(result) == ["text 100", "", "text 120"]
        (failed,) = result["hps"]["failedPages"]
        assert (failed["page"], failed["errorCode"]) == (1, 500)
        assert failed["errorMsg"].startswith("Page 2: ")
        pruned = result["layoutParsingResults"][1]["prunedResult"]
        assert (pruned["width"], pruned["parsing_res_list"]) == (110, [])
        await parts.until_free()


async def test_with_allow_partial_a_document_without_any_page_left_is_an_error(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        parts.vlm.refused |= {100, 110}
        with pytest.raises(BackendError, match="Page 1: "):
            await parsed(parts, document(100, 110), allowPartial=True)
        parts.vlm.refused = {300}
        with pytest.raises(BackendError):
            await parsed(parts, png(page(300)), allowPartial=True)


async def test_the_deadline_is_never_a_partial_answer(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        parts.vlm.hold(110)
        with pytest.raises(DeadlineExceeded):
            await parts.pipeline.parse(request(document(100, 110), allowPartial=True), context(timeout_s=1))


async def test_a_cancelled_request_leaves_the_vlm_and_frees_all_turns(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        parts.vlm.hold(100, 110)
        work = asyncio.create_task(parsed(parts, document(100, 110)))
        await parts.vlm.until_seen(2)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert parts.vlm.left == 2
        await parts.until_free()


async def test_a_request_cancelled_at_the_layout_model_frees_its_turn(decoder: DecodePool) -> None:
    async with assembled(decoder, Layout(gates={100: threading.Event()})) as parts:
        work = asyncio.create_task(parsed(parts, document(100, 110)))
        await parts.layout.until_called("detect", 100)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await parts.until_free()


async def test_a_reader_of_pages_that_stops_cancels_the_rest(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        parts.vlm.hold(110, 120)
        wanted = options.resolve(request(""), PipelineConfig(), has_orientation=True)
        data = base64.b64decode(document(100, 110, 120))
        async with await decoder.open(data, "IMAGE", context()) as source:
            pages = parts.pipeline.pages(source, wanted, context())
            first = await anext(pages)
            await parts.vlm.until_seen(3)
            await pages.aclose()
        assert first.parsed.width == 100
        assert parts.vlm.left == 2
        await parts.until_free()


# --- deadlines ---


async def test_the_deadline_ends_a_request_that_the_vlm_holds(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        parts.vlm.hold(100)
        with pytest.raises(DeadlineExceeded):
            await parts.pipeline.parse(request(png(page(100))), context(timeout_s=0.3))
        assert parts.vlm.left == 1
        await parts.until_free()


async def test_a_request_that_comes_too_late_costs_nothing(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        with pytest.raises(DeadlineExceeded):
            await parts.pipeline.parse(request(png(page())), context(timeout_s=-1))
        assert (parts.layout.calls, parts.vlm.widths) == ([], [])


# --- files ---


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"file": "!"}, InvalidInput, "neither a URL nor valid Base64"),
        ({"file": png(page()), "fileType": None}, InvalidInput, "cannot be determined"),
        ({"file": "https://h/a.png", "fileType": None}, NotEnabled, "HPS_URL_INPUT"),
        ({"file": "https://h/a.xyz", "fileType": None}, InvalidInput, "Unsupported file type"),
        ({"file": base64.b64encode(b"no image").decode()}, InvalidInput, "not an image"),
    ],
)
async def test_a_file_that_cannot_be_had_is_the_clients_mistake(
    decoder: DecodePool, fields: dict[str, Any], error: type[Exception], says: str
) -> None:
    async with assembled(decoder) as parts:
        with pytest.raises(error, match=says):
            await parsed(parts, **fields)


async def test_the_page_limit_shows_in_the_counts(decoder: DecodePool) -> None:
    async with assembled(decoder, config=PipelineConfig(max_pages=2)) as parts:
        result = await parsed(parts, document(100, 110, 120))
    assert texts(result) == ["text 100", "text 110"]
    assert (result["hps"]["totalPages"], result["hps"]["processedPages"]) == (3, 2)
    assert result["dataInfo"]["numPages"] == 2


async def test_an_answer_says_who_made_it(decoder: DecodePool) -> None:
    async with assembled(decoder, config=PipelineConfig(release="PaddleOCR-VL-1.5")) as parts:
        result = await parsed(parts, png(page(100, 80)))
    assert result["dataInfo"] == {"width": 100, "height": 80, "type": "image"}
    assert result["hps"]["release"] == "PaddleOCR-VL-1.5"
    assert "blankPages" not in result["hps"]


# --- blank pages ---


@pytest.mark.parametrize("has_layout", [True, False])
async def test_a_blank_page_costs_no_model_and_is_named(decoder: DecodePool, has_layout: bool) -> None:
    async with assembled(decoder) as parts:
        file = tiff(page(100), page(110, blank=True), page(120))
        result = await parsed(
            parts, file, useLayoutDetection=has_layout, useDocOrientationClassify=True, useDocUnwarping=False
        )
    assert texts(result) == ["text 100", "", "text 120"]
    assert result["hps"]["blankPages"] == [1]
    assert 110 not in parts.vlm.widths
    assert 110 not in {width for _, width in parts.layout.calls}


async def test_a_blank_page_has_the_form_of_a_page(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        result = await first_page(parts, png(page(blank=True)), visualize=True)
    assert result["prunedResult"]["parsing_res_list"] == []
    assert result["prunedResult"]["layout_det_res"] == {"boxes": []}
    assert decoded(result["outputImages"]["layout_det_res"]).shape == (80, 100, 3)


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


# --- readiness ---


async def test_a_page_just_now_is_the_probe(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        await parsed(parts, png(page(100)))
        await parts.pipeline.probe()
        assert parts.layout.calls == [("detect", 100)]


async def test_without_pages_a_tiny_one_is_the_probe(decoder: DecodePool) -> None:
    async with assembled(decoder) as parts:
        await parts.pipeline.probe()
        assert parts.layout.calls == [("detect", 32)]
        assert parts.vlm.widths == []


async def test_a_model_that_fails_is_not_ready(decoder: DecodePool) -> None:
    async with assembled(decoder, Layout(broken={32: Unavailable("layout is away")})) as parts:
        with pytest.raises(Unavailable):
            await parts.pipeline.probe()


async def test_a_stuck_model_is_not_ready_within_the_probers_time(decoder: DecodePool) -> None:
    async with assembled(decoder, Layout(gates={32: threading.Event()})) as parts:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await parts.pipeline.probe()
        parts.layout.gates[32].set()
        await parts.pipeline.probe()


async def test_a_real_page_that_comes_through_settles_a_waiting_probe(decoder: DecodePool) -> None:
    gates = {100: threading.Event(), 32: threading.Event()}
    async with assembled(decoder, Layout(gates=gates), probe_fresh_s=0) as parts:
        work = asyncio.create_task(parsed(parts, png(page(100))))
        await parts.layout.until_called("detect", 100)
        probe = asyncio.create_task(parts.pipeline.probe())
        await asyncio.sleep(0)
        assert not probe.done()
        gates[100].set()
        async with asyncio.timeout(20):
            await probe  # its own tiny page is held still
        assert texts(await work) == ["text 100"]


# --- the log ---


async def test_one_line_a_request_without_a_word_of_the_document(
    decoder: DecodePool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="hps")
    async with assembled(decoder, vlm=Vlm(text="secret")) as parts:
        result = await parsed(parts, document(100, 110), "request-7")
    assert texts(result) == ["secret", "secret"]
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("hps")]
    assert line.startswith("request=request-7 pages=2 blocks=2 total_ms=")
    for stage in ("decode", "layout", "crop", "vlm", "assembly", "render"):
        assert f"{stage}_ms=" in line
    assert "secret" not in line
