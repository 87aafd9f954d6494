"""API keys over HTTP: without, wrong, right, revoked, added; what is logged; how many requests of one key."""

import asyncio
import logging
import os
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from hps import api_keys
from tests.contract.gateway_stack import DOCUMENT, assert_error, eventually, stack
from tests.contract.test_gateway_process import process, wait_for

REFUSAL = "A valid API key is required"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def key(file: Path) -> str:
    return api_keys.add(file, "someone")


@pytest.fixture
def digest(file: Path, key: str) -> str:
    (digest,) = re.findall("[0-9a-f]{64}", file.read_text())
    return str(digest)


def bearer(key: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {key}"}}


@pytest.mark.parametrize("path", ["/layout-parsing", "/restructure-pages", "/nowhere"])
async def test_without_a_key(file: Path, key: str, path: str) -> None:
    async with stack(api_keys_file=file) as gateway:
        refused = await gateway.post(path=path)
        assert_error(refused, 401, REFUSAL)
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.headers["x-content-type-options"] == "nosniff"
        assert gateway.triton.calls == []


async def test_with_the_key_either_way(file: Path, key: str) -> None:
    async with stack(http=False, api_keys_file=file) as gateway:
        ways = ({"Authorization": f"Bearer {key}"}, {"authorization": f"bearer  {key} "}, {"X-API-Key": key})
        for headers in ways:
            assert (await gateway.post(headers=headers)).status_code == 200, headers


async def test_with_what_is_no_key(file: Path, key: str, digest: str) -> None:
    wrong = (key[:-1], key + "x", key.upper(), key[::-1], "someone", digest, "", "é", "x" * 10_000)
    async with stack(http=False, api_keys_file=file) as gateway:
        for each in wrong:
            for headers in ({"X-API-Key": each.encode()}, {"Authorization": b"Bearer " + each.encode()}):
                assert_error(await gateway.post(headers=headers), 401, REFUSAL)
        for headers in ({"Authorization": f"Basic {key}"}, {"Authorization": key}, {"Cookie": f"key={key}"}):
            assert_error(await gateway.post(headers=headers), 401, REFUSAL)
        assert_error(await gateway.post(path=f"/layout-parsing?key={key}"), 401, REFUSAL)


async def test_what_stays_open(file: Path, key: str) -> None:
    async with stack(http=False, vlm=True, api_keys_file=file) as gateway:
        for path in ("/health", "/health/ready", "/openapi.json", "/docs"):
            assert (await gateway.client.get(path)).status_code == 200, path
        for path in ("/health/", "/health/../layout-parsing", "//health", "/HEALTH", "/health%2f"):
            assert (await gateway.client.get(path)).status_code == 401, path


async def test_without_a_file_everybody_may_come_in() -> None:
    async with stack(http=False) as gateway:
        assert (await gateway.post()).status_code == 200


async def test_revoked_and_added_without_a_restart(file: Path, key: str) -> None:
    async with stack(http=False, api_keys_file=file) as gateway:
        assert (await gateway.post(**bearer(key))).status_code == 200
        other = api_keys.add(file, "other")
        await _until_status(gateway, other, 200)
        api_keys.remove(file, "someone")
        await _until_status(gateway, key, 401)
        assert (await gateway.post(**bearer(other))).status_code == 200


async def _until_status(gateway: Any, key: str, status: int) -> None:
    async with asyncio.timeout(api_keys.RECHECK_S + 2):
        while (await gateway.post(**bearer(key))).status_code != status:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_the_name_is_logged_and_never_the_key(
    file: Path, key: str, digest: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with stack(http=False, api_keys_file=file) as gateway:
        await gateway.post(**bearer(key))
        await gateway.post(**bearer("hps_wrong-key"))
        await gateway.post()
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "key someone: POST '/layout-parsing' 200" in text
    assert "refused: an unknown API key" in text
    assert "refused: no API key" in text
    assert key not in text
    assert "hps_wrong-key" not in text
    assert digest not in text


async def test_one_key_cannot_take_every_place(file: Path, key: str) -> None:
    other = api_keys.add(file, "other")
    async with stack(api_keys_file=file, max_requests_per_key=2) as gateway:
        gateway.triton.gate = asyncio.Event()
        held = [asyncio.create_task(gateway.post(**bearer(key))) for _ in range(2)]
        await gateway.triton.until(lambda triton: triton.in_flight == 2)
        refused = await gateway.post(DOCUMENT | {"logId": "third"}, **bearer(key))
        assert_error(refused, 429, "Too many requests with this key; try again later", "third")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        others = asyncio.create_task(gateway.post(**bearer(other)))
        await gateway.triton.until(lambda triton: triton.in_flight == 3)
        gateway.triton.gate.set()
        assert [response.status_code for response in await asyncio.gather(*held, others)] == [200] * 3
        assert (await gateway.post(**bearer(key))).status_code == 200
        await eventually(lambda: gateway.parts.inference.places == 0)


def test_a_process_with_keys_says_nothing_of_them(file: Path, key: str) -> None:
    with process(HPS_API_KEYS_FILE=str(file), HPS_LOG_LEVEL="DEBUG", HPS_UVICORN_WORKERS="2") as (running, url):
        wait_for(url)
        for headers in ({}, {"X-API-Key": "hps_wrong-key"}, {"X-API-Key": key}):
            status = httpx.post(f"{url}/layout-parsing", json={"file": "QUJD"}, headers=headers, trust_env=False)
            assert status.status_code == (503 if headers.get("X-API-Key") == key else 401)
        running.send_signal(signal.SIGTERM)
        _, log = running.communicate(timeout=15)
    assert "key someone: POST '/layout-parsing' 503" in log
    assert key not in log
    assert "hps_wrong-key" not in log


@pytest.mark.parametrize("content", [None, b"someone\n", b"\xff\xfe", b"someone " + b"0" * 63])
def test_a_file_that_cannot_be_used_stops_the_start(file: Path, content: bytes | None) -> None:
    if content is not None:
        file.write_bytes(content)
    with process(HPS_API_KEYS_FILE=str(file)) as (running, _):
        _, log = running.communicate(timeout=15)
    assert running.returncode == 2
    assert "HPS_API_KEYS_FILE" in log
    assert "Traceback" not in log
    assert os.fspath(file) not in log
