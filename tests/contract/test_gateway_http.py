"""Shapes and statuses of the HTTP interface (SPEC A.1, A.2, A.6)."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.app import create_app
from hps import contract
from hps import settings as hps_settings
from tests.contract.gateway_stack import DOCUMENT, Stack, assert_error, stack
from tests.fakes.triton import Call


@pytest.fixture
async def gateway() -> AsyncIterator[Stack]:
    async with stack(http=False) as running:
        yield running


@pytest.fixture
async def real_gateway() -> AsyncIterator[Stack]:
    async with stack(max_body_bytes=2 * 2**20) as running:
        yield running


def answering(body: bytes) -> Any:
    async def answer(call: Call) -> bytes:
        return body

    return answer


@pytest.mark.parametrize(
    ("path", "body", "model"),
    [
        ("/layout-parsing", DOCUMENT, "layout-parsing"),
        ("/restructure-pages", {"pages": [{"prunedResult": {}}]}, "restructure-pages"),
    ],
)
async def test_a_valid_body_reaches_its_model_byte_for_byte(
    gateway: Stack, path: str, body: dict[str, Any], model: str
) -> None:
    sent = json.dumps(body | {"logId": "mine", "unknown": "ключ"}, indent=3, ensure_ascii=False).encode()
    response = await gateway.post(sent, path)
    assert response.status_code == 200
    assert response.json() == {"logId": "mine", "result": {}, "errorCode": 0, "errorMsg": "Success"}
    (call,) = gateway.triton.calls
    assert (call.model, call.body, call.shape) == (model, sent, (1, 1))


async def test_id_and_time_left_travel_with_the_request(gateway: Stack) -> None:
    await gateway.post(DOCUMENT | {"logId": "mine"})
    (call,) = gateway.triton.calls
    assert call.id == "mine"
    assert 590e6 < call.parameters["hps_timeout_us"] <= 600e6
    assert call.time_left_s is not None
    assert call.time_left_s <= call.parameters["hps_timeout_us"] / 1e6 + 0.001  # gRPC rounds
    assert "hps_probe" not in call.parameters


@pytest.mark.parametrize("extra", [{}, {"logId": None}, {"logId": ""}])
async def test_without_a_log_id_a_uuid4_travels_as_the_request_id(gateway: Stack, extra: dict[str, Any]) -> None:
    response = await gateway.post(DOCUMENT | extra)
    assert response.status_code == 200
    assert uuid.UUID(gateway.triton.calls[0].id).version == 4


async def test_the_answer_is_relayed_as_it_came(gateway: Stack) -> None:
    odd = b'{ "errorCode":0,\n"result":{"a":1.0e3}, "text":"\xc3\xa9" }'
    gateway.triton.answer = answering(odd)
    response = await gateway.post()
    assert (response.status_code, response.content) == (200, odd)
    assert response.headers["content-type"] == "application/json"


async def test_a_large_answer_is_relayed_unparsed(gateway: Stack) -> None:
    large = b"x" * contract.ERROR_ENVELOPE_LIMIT
    gateway.triton.answer = answering(large)
    response = await gateway.post()
    assert (response.status_code, response.content) == (200, large)


@pytest.mark.parametrize("status", [422, 500, 503, 504])
async def test_an_error_code_in_the_answer_is_the_status(gateway: Stack, status: int) -> None:
    envelope = json.dumps({"logId": "m", "errorCode": status, "errorMsg": "as the model says"}).encode()
    gateway.triton.answer = answering(envelope)
    response = await gateway.post()
    assert (response.status_code, response.content) == (status, envelope)


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b'{"errorCode":"0"}', b'{"errorCode":7}', b'{"errorCode":999}'])
async def test_an_answer_that_is_no_envelope_is_500(gateway: Stack, answer: bytes) -> None:
    gateway.triton.answer = answering(answer)
    assert_error(await gateway.post(DOCUMENT | {"logId": "mine"}), 500, "Internal server error", "mine")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 422, "body: Field required"),
        (b" \n", 422, "body: Field required"),
        (b"null", 422, "body: Field required"),
        (b"[1]", 422, "body: Input should be a valid dictionary"),
        (b'"text"', 422, "body: Input should be a valid dictionary"),
        (b"not json", 400, None),
        (b'{"file": "QUJD"', 400, None),
        (b'{"file": "\xff"}', 400, None),
    ],
)
async def test_bodies_that_are_no_object(gateway: Stack, body: bytes, status: int, message: str | None) -> None:
    response = await gateway.post(body, headers={"content-type": "application/json"})
    assert_error(response, status, message)
    if message is None:
        assert response.json()["errorMsg"].startswith("Invalid JSON")
    assert gateway.triton.calls == []


@pytest.mark.parametrize("path", ["/layout-parsing", "/restructure-pages"])
async def test_a_field_that_is_missing_is_named_and_the_log_id_kept(gateway: Stack, path: str) -> None:
    response = await gateway.post({"logId": "mine"}, path)
    assert_error(response, 422, log_id="mine")
    assert "Field required" in response.json()["errorMsg"]


async def test_the_error_text_does_not_repeat_the_input(gateway: Stack) -> None:
    response = await gateway.post({"file": "secret-text", "promptLabel": 3, "fileType": "1"})
    assert_error(response, 422)
    assert "secret-text" not in response.text


async def test_a_log_id_that_utf8_cannot_carry_still_gets_an_envelope(gateway: Stack) -> None:
    assert_error(await gateway.post(b'{"logId": "\\ud800"}'), 400, log_id="?")


async def test_a_long_log_id_is_cut_in_triton_only(gateway: Stack) -> None:
    response = await gateway.post(DOCUMENT | {"logId": "x" * 5000})
    assert response.json()["logId"] == "x" * 5000
    assert gateway.triton.calls[0].id == "x" * 256


@pytest.mark.parametrize("kind", ["application/json", "APPLICATION/JSON; charset=utf-8", "application/vnd.x+json"])
async def test_json_content_types(gateway: Stack, kind: str) -> None:
    assert (await gateway.post(headers={"content-type": kind})).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_other_content_types(gateway: Stack, kind: str) -> None:
    response = await gateway.post(DOCUMENT | {"logId": "mine"}, headers={"content-type": kind})
    assert_error(response, 422, "body: Input should be a valid dictionary", "mine")
    assert_error(await gateway.post(b"", headers={"content-type": kind}), 422, "body: Field required")


async def test_an_unknown_path_and_a_wrong_method(gateway: Stack) -> None:
    assert_error(await gateway.post(path="/concatenate-pages"), 404, "Not Found")
    response = await gateway.client.get("/layout-parsing")
    assert_error(response, 405, "Method Not Allowed")
    assert response.headers["allow"] == "POST"


async def test_health(gateway: Stack) -> None:
    response = await gateway.client.get("/health")
    assert response.status_code == 200
    assert list(response.json()) == ["logId", "errorCode", "errorMsg"]
    assert (response.json()["errorCode"], response.json()["errorMsg"]) == (0, "Healthy")


async def test_a_body_that_says_it_is_too_large_is_refused_unread(real_gateway: Stack) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", real_gateway.port)
    writer.write(b"POST /layout-parsing HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    assert head.startswith(b"HTTP/1.1 413 ")
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large_gets_its_envelope(real_gateway: Stack, chunked: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * 65536

    content: Any = chunks() if chunked else b" " * (4 * 2**20)
    response = await real_gateway.client.post("/layout-parsing", content=content)
    assert_error(response, 413, f"Request body is larger than {2 * 2**20} bytes")
    assert (await real_gateway.post()).status_code == 200


async def test_a_body_of_exactly_the_limit_is_taken(real_gateway: Stack) -> None:
    empty = len(json.dumps({"file": ""}))
    body = json.dumps({"file": "A" * (2 * 2**20 - empty)}).encode()
    assert (await real_gateway.post(body)).status_code == 200
    assert real_gateway.triton.calls[0].body == body


async def test_an_unexpected_error_is_an_envelope_too() -> None:
    class Broken:
        async def infer(self, *arguments: Any, **options: Any) -> bytes:
            raise ZeroDivisionError

    app = create_app(hps_settings.load({}), Broken())  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        response = await client.post("/layout-parsing", json=DOCUMENT | {"logId": "mine"})
    assert_error(response, 500, "Internal server error", "mine")
