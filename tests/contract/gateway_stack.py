"""The whole gateway on a real port, between a client and fakes of Triton and the VLM server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from gateway.app import create_app
from gateway.connection import Connection
from gateway.routes import Parts
from hps import settings as hps_settings
from tests.fakes.server import Server
from tests.fakes.triton import FakeTriton
from tests.fakes.vlm import FakeVlm

DOCUMENT = {"file": "QUJD", "fileType": 1}


@dataclass
class Stack:
    triton: FakeTriton
    vlm: FakeVlm
    parts: Parts
    client: httpx.AsyncClient
    port: int

    async def post(self, body: Any = DOCUMENT, path: str = "/layout-parsing", **options: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(path, content=content, **options)

    def send(self, body: Any = DOCUMENT, path: str = "/layout-parsing") -> "asyncio.Task[httpx.Response]":
        """A request on its way; cancelling the task closes its connection."""
        return asyncio.create_task(self.post(body, path))


@asynccontextmanager
async def stack(*, http: bool = True, vlm: bool = False, **options: Any) -> AsyncIterator[Stack]:
    """`http=False` leaves out the port (no connections, hence no disconnects), `vlm=True` adds a VLM server.

    Failures of Triton are answers at once, unless `triton_outage` is given.
    """
    options = {"triton_outage": 0} | options
    async with AsyncExitStack() as running:
        triton = await running.enter_async_context(FakeTriton())
        fake_vlm = FakeVlm()
        if vlm:
            await running.enter_async_context(fake_vlm)
        app = create_app(hps_settings.load({}, triton_url=triton.address, vlm_url=fake_vlm.url, **options))
        port = 0
        transport: httpx.AsyncBaseTransport
        if http:
            port = (await running.enter_async_context(Server(app, http=Connection))).port
            transport = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None))
        else:
            await running.enter_async_context(app.router.lifespan_context(app))
            transport = httpx.ASGITransport(app)
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, transport=transport)
        await running.enter_async_context(client)
        yield Stack(triton, fake_vlm, app.state.parts, client, port)


def assert_error(response: httpx.Response, status: int, message: str | None = None, log_id: str | None = None) -> None:
    """The answer is exactly an error envelope of that status."""
    body = response.json()
    assert response.status_code == status, body
    assert list(body) == ["logId", "errorCode", "errorMsg"]
    assert body["errorCode"] == status
    assert response.headers["content-type"] == "application/json"
    if message is not None:
        assert body["errorMsg"] == message
    if log_id is not None:
        assert body["logId"] == log_id
    else:
        assert len(body["logId"]) == 36


async def eventually(condition: Any, timeout_s: float = 10) -> None:
    """Polls a state that nothing announces. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
