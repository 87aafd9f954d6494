"""The handlers of the public models, from bytes to envelope."""

import base64
import io
import json
import zipfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hps.errors import DeadlineExceeded, InvalidInput, InvalidRequest, MalformedJson, NotEnabled
from hps.handlers import Parser, Restructurer
from hps.inputs.fetch import UrlFetcher
from hps.inputs.pool import DecodePool
from hps.storage import FolderStorage, Publication
from tests.fakes.server import Server
from tests.unit.pipeline_parts import assembled, context, envelope, files_below, page, png, tiff

pytestmark = pytest.mark.asyncio(loop_scope="module")
PICTURE_NAME = "imgs/img_in_image_box_1_2_3_4.jpg"
PICTURE = png(page(20, 10))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def decoder() -> AsyncIterator[DecodePool]:
    pool = DecodePool(1)
    await pool.start()
    yield pool
    await pool.close()


@pytest_asyncio.fixture(loop_scope="module")
async def parser(decoder: DecodePool) -> AsyncIterator[Parser]:
    async with assembled(decoder) as parts:
        yield Parser(parts.pipeline, parts.stages)


def body(**fields: Any) -> bytes:
    return json.dumps({"file": png(page()), "fileType": 1, "visualize": False} | fields).encode()


# --- layout-parsing ---


async def test_an_answer_carries_the_bodys_log_id(parser: Parser) -> None:
    answer = envelope(await parser.handle(body(logId="mine"), context("made")))
    assert (answer["logId"], answer["errorCode"], answer["errorMsg"]) == ("mine", 0, "Success")
    assert answer["result"]["layoutParsingResults"][0]["markdown"]["text"] == "text 100"


@pytest.mark.parametrize("fields", [{}, {"logId": None}, {"logId": ""}], ids=str)
async def test_without_one_the_requests_id_is_the_log_id(parser: Parser, fields: dict[str, Any]) -> None:
    assert envelope(await parser.handle(body(**fields), context("made")))["logId"] == "made"


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"{", MalformedJson),
        (b"", InvalidRequest),
        (b"{}", InvalidRequest),
        (body(file="!"), InvalidInput),
        (body(vlmExtraArgs={"temperature": "hot"}), InvalidRequest),
    ],
)
async def test_what_is_wrong_with_a_request_is_an_error_of_its_own(
    parser: Parser, raw: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await parser.handle(raw, context())


async def test_two_pages_make_two_results(parser: Parser) -> None:
    answer = envelope(await parser.handle(body(file=tiff(page(100), page(110))), context()))
    assert answer["result"]["dataInfo"]["type"] == "tiff"
    assert len(answer["result"]["layoutParsingResults"]) == 2


async def test_it_starts_and_closes_what_it_was_given() -> None:
    pool = DecodePool(1)
    async with assembled(pool) as parts:
        parser = Parser(parts.pipeline, parts.stages)
        await parser.start()
        await parser.probe()
        running = pool.pids
        await parser.close()
        assert (len(running), len(pool.pids)) == (1, 0)
        with pytest.raises(RuntimeError):
            parts.stages.executor.submit(print)


# --- restructure-pages ---


def sent_back(*blocks: tuple[str, str], **fields: Any) -> dict[str, Any]:
    """A page as a client has it from us, with these (label, content) blocks."""
    items = [{"block_label": label, "block_content": text, "block_bbox": [1, 2, 3, 4]} for label, text in blocks]
    pruned: dict[str, Any] = {
        "page_count": None,
        "width": 100,
        "height": 80,
        "model_settings": {"use_layout_detection": True},
        "parsing_res_list": items,
        "layout_det_res": {"boxes": []},
    }
    return {"prunedResult": pruned} | fields


def restructurer(publication: Publication | None = None, fetcher: UrlFetcher | None = None) -> Restructurer:
    return Restructurer("PaddleOCR-VL-1.6", ThreadPoolExecutor(1), fetcher or UrlFetcher("off"), publication)


async def restructured(handler: Restructurer, *pages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    await handler.start()
    await handler.probe()
    try:
        raw = json.dumps({"pages": pages} | fields).encode()
        result: dict[str, Any] = envelope(await handler.handle(raw, context("made")))
    finally:
        await handler.close()
    return result


async def test_pages_come_back_with_ids_over_the_document() -> None:
    answer = await restructured(restructurer(), sent_back(("text", "a")), sent_back(("text", "b")), logId="mine")
    results = answer["result"]["layoutParsingResults"]
    assert answer["logId"] == "mine"
    assert [one["markdown"]["text"] for one in results] == ["a", "b"]
    assert [one["prunedResult"]["parsing_res_list"][0]["global_block_id"] for one in results] == [0, 1]
    assert answer["result"]["hps"] | {"version": ""} == {
        "release": "PaddleOCR-VL-1.6",
        "version": "",
        "processedPages": 2,
    }
    assert set(results[0]) == {"prunedResult", "markdown"}


async def test_pages_become_one_with_all_pictures() -> None:
    pages = (
        sent_back(("text", "a"), markdownImages={"one.jpg": "MQ=="}),
        sent_back(("image", ""), markdownImages={PICTURE_NAME: PICTURE}),
    )
    answer = await restructured(restructurer(), *pages, concatenatePages=True, outputFormats=["docx"])
    (joined,) = answer["result"]["layoutParsingResults"]
    assert joined["prunedResult"]["page_count"] == 2
    assert joined["markdown"]["images"] == {"one.jpg": "MQ==", PICTURE_NAME: PICTURE}
    assert joined["exports"]["docx"]["fileName"] == "document.docx"
    assert answer["result"]["hps"]["processedPages"] == 2


async def test_pictures_stay_out_when_they_are_not_wanted() -> None:
    back = sent_back(("text", "a"), markdownImages={"one.jpg": "MQ=="})
    answer = await restructured(restructurer(), back, returnMarkdownImages=False)
    assert set(answer["result"]["layoutParsingResults"][0]["markdown"]) == {"text"}


async def test_no_pages_are_no_results_and_nothing_to_concatenate() -> None:
    assert (await restructured(restructurer()))["result"]["layoutParsingResults"] == []
    with pytest.raises(InvalidInput, match="pages is empty"):
        await restructured(restructurer(), concatenatePages=True)


async def test_a_bad_page_is_named() -> None:
    bad = {"prunedResult": sent_back()["prunedResult"] | {"width": "wide"}}
    with pytest.raises(InvalidInput, match=r"pages\[1\]\.prunedResult: the key 'width'"):
        await restructured(restructurer(), sent_back(), bad)


def media(export: dict[str, Any]) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(export["docx"]["content"]))) as file:
        return [name for name in file.namelist() if name.startswith("word/media/")]


@pytest.mark.parametrize("form", ["base64", "data URI"])
async def test_a_word_file_shows_the_pictures_that_were_sent(form: str) -> None:
    value = PICTURE if form == "base64" else f"data:image/png;base64,{PICTURE}"
    back = sent_back(("image", ""), ("text", "a"), markdownImages={PICTURE_NAME: value, "unused.jpg": "http://h/"})
    answer = await restructured(restructurer(), back, outputFormats=["docx"])
    (result,) = answer["result"]["layoutParsingResults"]
    assert result["exports"]["docx"]["fileName"] == "page_0.docx"
    assert len(media(result["exports"])) == 1


async def test_pictures_by_url_are_fetched_by_the_guarded_fetcher() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": base64.b64decode(PICTURE)})

    async with Server(app) as server:
        back = sent_back(("image", ""), markdownImages={PICTURE_NAME: f"{server.url}/a.png"})
        answer = await restructured(restructurer(fetcher=UrlFetcher("any")), back, outputFormats=["docx"])
        assert len(media(answer["result"]["layoutParsingResults"][0]["exports"])) == 1
        for policy in ("off", "public"):
            with pytest.raises(NotEnabled, match="HPS_URL_INPUT"):
                await restructured(
                    restructurer(fetcher=UrlFetcher(policy)),
                    back,
                    outputFormats=["docx"],
                )


async def test_only_exports_are_stored_for_pictures_are_the_clients(tmp_path: Path) -> None:
    back = sent_back(("image", ""), markdownImages={PICTURE_NAME: PICTURE})
    publication = Publication(FolderStorage(tmp_path))
    await restructured(restructurer(publication), back, outputFormats=["docx"])
    assert list(files_below(tmp_path)) == ["made/page_0.docx"]


async def test_storing_ends_with_the_deadline(tmp_path: Path) -> None:
    handler = restructurer(Publication(FolderStorage(tmp_path)))
    raw = json.dumps({"pages": [sent_back()]}).encode()
    with pytest.raises(DeadlineExceeded):
        await handler.handle(raw, context(timeout_s=-1))
    await handler.close()
