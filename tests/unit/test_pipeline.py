"""The path of a request through real decoders, a layout backend and a VLM that the test steers."""

import asyncio
import base64
import gc
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from hps import options
from hps.config import PipelineConfig
from hps.errors import BackendError, DeadlineExceeded, InvalidInput, NotEnabled, Unavailable
from hps.inputs.pool import DecodePool
from tests.unit.pipeline_parts import (
    Layout,
    Parts,
    Vlm,
    assembled,
    context,
    decoded,
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


async def test_no_more_pages_than_the_limit_are_in_work(decoder: DecodePool) -> None:
    async with assembled(decoder, pages_in_work=2) as parts:
        parts.vlm.hold(100)
        work = asyncio.create_task(parsed(parts, document(100, 110, 120, 130)))
        await parts.vlm.until_seen(2)
        for other in ("a", "b"):  # what had a turn to take has taken it by the time that others have come and gone
            await parsed(parts, png(page(300)), other)
        assert sorted(set(parts.layout.calls)) == [("detect", 100), ("detect", 110), ("detect", 300)]
        parts.vlm.held[100].set()
        assert len(texts(await work)) == 4


@pytest.mark.parametrize(
    ("pages_of_memory", "page_window", "expected"),
    [(0.5, 4, [100]), (1.0, 4, [100]), (2.5, 4, [100, 110]), (9.0, 2, [100, 110]), (9.0, 4, [100, 110, 120, 130])],
)
async def test_no_more_bitmaps_than_the_window_are_held(
    decoder: DecodePool, pages_of_memory: float, page_window: int, expected: list[int]
) -> None:
    """One page always: a page larger than the window is parsed alone. Spotting draws on the page when the VLM has read
    it; it sees it twice as large."""
    height, width, channels = page(100).shape
    nbytes = int(pages_of_memory * height * width * channels * 1.1)
    async with assembled(decoder, page_window=page_window, window_bytes=nbytes) as parts:
        parts.vlm.hold(200, 220, 240, 260)
        spotting = {"useLayoutDetection": False, "promptLabel": "spotting", "visualize": True}
        work = asyncio.create_task(parsed(parts, document(100, 110, 120, 130), **spotting))
        await parts.vlm.until_seen(len(expected))
        for other in ("a", "b"):  # see above
            await parsed(parts, png(page(300)), other)
        assert sorted(set(parts.vlm.widths) - {300}) == [2 * width for width in expected]
        for gate in parts.vlm.held.values():
            gate.set()
        assert len(texts(await work)) == 4


@pytest.mark.parametrize("visualize", [False, True])
async def test_a_page_that_only_waits_for_the_vlm_holds_no_bitmap(decoder: DecodePool, visualize: bool) -> None:
    async with assembled(decoder, page_window=1) as parts:
        parts.vlm.hold(100, 110, 120, 130)
        work = asyncio.create_task(parsed(parts, document(100, 110, 120, 130), visualize=visualize))
        await parts.vlm.until_seen(4)
        for gate in parts.vlm.held.values():
            gate.set()
        assert len(texts(await work)) == 4


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


@pytest.mark.parametrize("spotting", [False, True])
async def test_every_task_of_a_request_may_be_cancelled_before_it_begins(decoder: DecodePool, spotting: bool) -> None:
    """As when another page fails in the same moment. All turns come back, and nothing was prepared that never begins:
    pytest makes an error of such a coroutine."""
    asked = (
        {"promptLabel": "spotting", "useLayoutDetection": False} if spotting else {"useDocOrientationClassify": True}
    )
    born, doomed = 0, 0

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> "asyncio.Task[Any]":
        nonlocal born
        born += 1
        task = asyncio.Task(coroutine, loop=loop, **more)
        if born == doomed:
            task.cancel()
        return task

    async def parse() -> int:
        """How many tasks it took."""
        nonlocal born
        born = 0
        await parsed(parts, document(100, 110), visualize=True, **asked)
        return born

    loop = asyncio.get_running_loop()
    async with assembled(decoder) as parts:
        loop.set_task_factory(make)
        try:
            tasks = await parse()
            assert tasks > 10
            for number in range(1, tasks + 1):
                doomed = number
                with pytest.raises(asyncio.CancelledError):
                    await parse()
                await parts.until_free()
        finally:
            loop.set_task_factory(None)
    gc.collect()


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
