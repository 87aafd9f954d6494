"""The golden cases that are requests, through the running chain on its three ways in (SPEC A): gateway, Triton's HTTP,
Triton's gRPC. Every way gives the same envelope, and it says what the case says, `ours` over `expected`."""

import base64
import io
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from PIL import Image

from hps.conformance import case_files
from hps.conformance.case_files import Case
from tests.e2e import chain as chains
from tests.e2e.chain import Chain
from tests.unit.inputs import files
from tests.unit.pipeline_parts import decoded

pytestmark = pytest.mark.e2e

CASES = Path(__file__).parents[1] / "conformance" / "cases"
PARSING, RESTRUCTURING = "layout-parsing", "restructure-pages"
LOG_ID = "golden"


def cases(group: str) -> list[Any]:
    loaded = case_files.load(CASES / f"{group}.json").cases
    return [pytest.param(case, id=case.id) for case in loaded]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("golden")
    environ = chains.fixed_layout(folder) | {"HPS_URL_INPUT": "off", "HPS_DECODE_WORKERS": "1"}
    with chains.running(folder, environ, vlm=chains.stub_vlm()) as running:
        yield running


class WaysIn:
    """Asks on all three; an answer is (status, envelope)."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.http = httpx.Client(base_url=chain.url, timeout=60, trust_env=False)
        self._grpc = grpcclient.InferenceServerClient(chain.triton_grpc)

    def gateway(self, model: str, raw: bytes) -> tuple[int, dict[str, Any]]:
        response = self.http.post(f"/{model}", content=raw, headers={"content-type": "application/json"})
        return response.status_code, response.json()

    def triton_http(self, model: str, raw: bytes) -> dict[str, Any]:
        tensor = {"name": "input", "shape": [1, 1], "datatype": "BYTES", "data": [[raw.decode()]]}
        response = self.http.post(f"{self._chain.triton_http}/v2/models/{model}/infer", json={"inputs": [tensor]})
        assert response.status_code == 200, response.text
        envelope: dict[str, Any] = json.loads(response.json()["outputs"][0]["data"][0])
        return envelope

    def triton_grpc(self, model: str, raw: bytes) -> dict[str, Any]:
        tensor = grpcclient.InferInput("input", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[raw]], dtype=np.object_))
        output = self._grpc.infer(model, [tensor]).as_numpy("output")
        envelope: dict[str, Any] = json.loads(output[0, 0])
        return envelope

    def close(self) -> None:
        self.http.close()
        self._grpc.close()


@pytest.fixture(scope="module")
def ways(chain: Chain) -> Iterator[WaysIn]:
    ways = WaysIn(chain)
    yield ways
    ways.close()


def ask(ways: WaysIn, model: str, raw: bytes) -> dict[str, Any]:
    """The one answer of all ways; its status is its errorCode. A log id that was made up reads GEN."""
    status, by_gateway = ways.gateway(model, raw)
    answers = [by_gateway, ways.triton_http(model, raw), ways.triton_grpc(model, raw)]
    for answer in answers:
        assert answer["logId"] == LOG_ID or uuid.UUID(answer["logId"]).version == 4
        if answer["logId"] != LOG_ID:
            answer["logId"] = "GEN"
    assert answers[0] == answers[1] == answers[2]
    assert status == (by_gateway["errorCode"] or 200)
    return by_gateway


def parse(ways: WaysIn, file: bytes | str, **fields: Any) -> dict[str, Any]:
    text = file if isinstance(file, str) else base64.b64encode(file).decode()
    body = {"file": text, "fileType": 1, "visualize": False, "logId": LOG_ID} | fields
    return ask(ways, PARSING, json.dumps(body).encode())


# --- request_validation ---


@pytest.mark.parametrize("case", cases("request_validation"))
def test_request_validation(ways: WaysIn, case: Case) -> None:
    given, wanted = case.input, case.wanted
    model = PARSING if given["model"] == "InferRequest" else RESTRUCTURING
    if given["raw"] is not None:
        answer = ask(ways, model, given["raw"].encode())
    else:
        # A log id where the case is not about it; and a file that can be parsed where the case wants success.
        body = {"logId": LOG_ID} | given["body"]
        if wanted["ok"] and model == PARSING:
            body |= {"file": base64.b64encode(files.encoded(inked((64, 64)), "PNG")).decode()}
        answer = ask(ways, model, json.dumps(body).encode())
        assert answer["logId"] == (LOG_ID if body["logId"] == LOG_ID else "GEN")
    if wanted["ok"] and given["body"].get("fileType", 1) is None:  # valid, but this file has no name to tell by
        assert (answer["errorCode"], answer["errorMsg"]) == (422, "File type cannot be determined")
    elif wanted["ok"]:
        assert answer["errorCode"] == 0, answer["errorMsg"]
    else:
        assert answer["errorCode"] == wanted["errorCode"]
        for problem in wanted["errors"]:
            if problem["loc"]:
                assert ".".join(map(str, problem["loc"])) in answer["errorMsg"].split("\n")
                assert problem["msg"] in answer["errorMsg"]


# --- gateway_http ---


@pytest.mark.parametrize("case", cases("gateway_http"))
def test_gateway_http(ways: WaysIn, case: Case) -> None:
    given, wanted = case.input, case.wanted
    response = ways.http.request(given["method"], given["path"], headers=given["headers"], content=given["raw_body"])
    answer = response.json()
    assert response.status_code == (answer["errorCode"] or 200)
    if wanted.get("body") == {"ok": 1}:  # of a stub that takes any file: here it is read
        assert (answer["errorCode"], answer["errorMsg"]) == (422, "File type cannot be determined")
        return
    assert response.status_code == wanted["status"]
    if "body" in wanted:
        assert answer | {"logId": "GEN"} == wanted["body"]
    has_other_ways = given["method"] == "POST" and (given["headers"] or {}).get("content-type") == "application/json"
    if has_other_ways:
        assert ask(ways, PARSING, given["raw_body"].encode()) == answer | {"logId": "GEN"}


# --- file_rules ---


def inked(size: tuple[int, int], mode: str = "RGB", colour: Any = (255, 255, 255)) -> Image.Image:
    """A picture with a black block in the middle: not blank."""
    picture = files.picture(mode, colour, size)
    width, height = size
    picture.paste(0 if mode != "RGBA" else (0, 0, 0, 255), (width // 4, height // 4, width // 2, height // 2))
    return picture


def first_pixel_bgr(page: dict[str, Any]) -> list[int]:
    pixel: list[int] = decoded(page["inputImage"])[0, 0].tolist()
    return pixel


IMAGES = {
    "png_rgba_transparent_red": files.encoded(files.picture("RGBA", (255, 0, 0, 0)), "PNG"),
    "png_gray": files.encoded(files.picture("L", 77), "PNG"),
    "png_16bit": files.encoded(files.picture("I;16", 40_000), "PNG"),
    "tiff_3_frames": files.tiff([(10, 0, 0), (20, 0, 0), (30, 0, 0)]),
    "tiff_1_frame": files.tiff([(10, 0, 0)]),
    "not_an_image": b"garbage",
    "pdf_bytes_as_image": b"%PDF-",
}
FILE_CASES = {case.id: case for case in case_files.load(CASES / "file_rules.json").cases}


@pytest.mark.parametrize("case_id", IMAGES)
def test_images(ways: WaysIn, case_id: str) -> None:
    wanted = FILE_CASES[case_id].wanted
    answer = parse(ways, IMAGES[case_id], visualize=True)
    if "raises" in wanted:
        assert answer["errorCode"] == 422
        return
    result = answer["result"]
    assert result["dataInfo"] == wanted["info"]
    pages = result["layoutParsingResults"]
    assert [[one["prunedResult"]["height"], one["prunedResult"]["width"], 3] for one in pages] == wanted["shapes"]
    assert first_pixel_bgr(pages[0]) == pytest.approx(wanted["first_pixel_bgr"], abs=3)  # JPEG on both ways


@pytest.mark.parametrize(
    "case_id", [case_id for case_id, case in FILE_CASES.items() if case.input["op"] in ("is_url", "infer_file_type")]
)
def test_urls(ways: WaysIn, case_id: str) -> None:
    """URLs are off in this chain, so how far a request comes tells what its `file` was taken for."""
    case = FILE_CASES[case_id]
    answer = parse(ways, case.input["arg"], fileType=None)
    assert answer["errorCode"] == 422
    if case.input["op"] == "is_url":
        assert (answer["errorMsg"] != "File type cannot be determined") is case.wanted
    else:
        assert (answer["errorMsg"] == "Unsupported file type") is (case.wanted is None)
        assert ("HPS_URL_INPUT" in answer["errorMsg"]) is (case.wanted is not None)


# The other two have no file: pdfium reads an empty page box as Letter, and the largest page is for machines with time.
@pytest.mark.parametrize("case_id", ["pdf_scale:(595.28, 841.89)", "pdf_scale:(612, 792)"])
def test_pdf_scale(ways: WaysIn, case_id: str) -> None:
    case = FILE_CASES[case_id]
    width, height = case.input["arg"]
    answer = parse(ways, files.pdf([(width, height)], content="100 100 99 99 re f"), fileType=0)
    size = answer["result"]["dataInfo"]["pages"][0]
    assert (size["width"], size["height"]) == pytest.approx((width * case.wanted, height * case.wanted), abs=1)


@pytest.mark.parametrize(
    "case_id", [case_id for case_id, case in FILE_CASES.items() if case.input["op"].startswith("postprocess_image")]
)
def test_size_of_returned_pictures(ways: WaysIn, case_id: str) -> None:
    case = FILE_CASES[case_id]
    file = files.encoded(inked(tuple(case.input["arg"])), "PNG")
    page = parse(ways, file, visualize=True)["result"]["layoutParsingResults"][0]
    width, height = case.wanted
    for picture in (page["inputImage"], page["outputImages"]["layout_det_res"]):
        assert decoded(picture).shape == (height, width, 3)


def test_base64(ways: WaysIn) -> None:
    text = base64.b64encode(IMAGES["png_gray"]).decode()
    assert parse(ways, re.sub("(.{10})", r"\1\n ", text))["errorCode"] == 0
    assert parse(ways, FILE_CASES["base64_bad_padding"].input["arg"])["errorCode"] == 422


# --- response_serialisation ---


def test_nulls_are_left_out_of_the_schema_and_kept_in_pruned_result(ways: WaysIn) -> None:
    answer = parse(ways, files.encoded(inked((64, 64)), "PNG"), returnMarkdownImages=False)
    assert list(answer) == ["logId", "result", "errorCode", "errorMsg"]
    (page,) = answer["result"]["layoutParsingResults"]
    assert set(page) == {"prunedResult", "markdown"}
    assert set(page["markdown"]) == {"text"}
    assert page["prunedResult"]["page_count"] is None


def test_what_a_client_sends_back_keeps_its_nulls(ways: WaysIn) -> None:
    page = parse(ways, files.encoded(inked((64, 64)), "PNG"))["result"]["layoutParsingResults"][0]
    pruned = page["prunedResult"] | {"layout_det_res": {"b": None, "c": [None, 1]}}
    body = {"logId": LOG_ID, "pages": [{"prunedResult": pruned, "markdownImages": None}]}
    answer = ask(ways, RESTRUCTURING, json.dumps(body).encode())
    (back,) = answer["result"]["layoutParsingResults"]
    assert back["prunedResult"]["layout_det_res"] == {"b": None, "c": [None, 1]}
    assert back["prunedResult"]["page_count"] is None
    assert set(back) == {"prunedResult", "markdown"}


def test_exports_come_with_content_and_name(ways: WaysIn) -> None:
    answer = parse(ways, files.encoded(inked((64, 64)), "PNG"), outputFormats=["docx"])
    export = answer["result"]["layoutParsingResults"][0]["exports"]["docx"]
    assert export["fileName"] == "page_0.docx"
    assert io.BytesIO(base64.b64decode(export["content"])).read(2) == b"PK"


def test_an_error_has_no_result(ways: WaysIn) -> None:
    answer = parse(ways, "!")
    assert list(answer) == ["logId", "errorCode", "errorMsg"]
