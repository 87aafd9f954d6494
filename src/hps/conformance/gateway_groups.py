"""Golden group of the gateway's HTTP rules (SPEC A.6): the real application over a backend that always succeeds."""

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx

from hps import settings

GroupCheck = Callable[[Any], Any]


class _AlwaysOk:
    """Answers every valid request with the same little object."""

    async def infer(self, model: str, body: bytes, *, request_id: str, timeout_s: float, probe: bool = False) -> bytes:
        return b'{"ok":1}'

    async def server_ready(self, timeout_s: float) -> bool:
        return True

    async def model_ready(self, model: str, timeout_s: float) -> bool:
        return True

    async def close(self) -> None:
        pass


def gateway_http(case: Mapping[str, Any]) -> dict[str, Any]:
    """`{status, body}` of the case's request; a fresh UUID4 logId reads GEN."""
    return asyncio.run(_answer(case))


async def _answer(case: Mapping[str, Any]) -> dict[str, Any]:
    from gateway.app import create_app  # only this group needs the gateway installed

    transport = httpx.ASGITransport(create_app(settings.load({}), _AlwaysOk()))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        response = await client.request(case["method"], case["path"], headers=case["headers"], content=case["raw_body"])
    body = response.json()
    if _is_uuid4(body.get("logId")):
        body["logId"] = "GEN"
    return {"status": response.status_code, "body": body}


def _is_uuid4(value: object) -> bool:
    try:
        return isinstance(value, str) and uuid.UUID(value).version == 4
    except ValueError:
        return False


GROUPS: Final[Mapping[str, GroupCheck]] = {"gateway_http": gateway_http}
