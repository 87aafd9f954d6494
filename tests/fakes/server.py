"""A real HTTP server for tests in which connections matter."""

import asyncio
import socket
from types import TracebackType
from typing import Any, Self

import uvicorn


class Server:
    """`async with Server(app) as server:` serves an ASGI application on a real uvicorn at `server.url`."""

    def __init__(self, app: Any, listener: socket.socket | None = None, **options: Any) -> None:
        self._listener = listener or socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = {"log_config": None, "access_log": False, "http": "httptools", "ws": "none"} | options
        self._uvicorn = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=1, **config))

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._uvicorn.serve([self._listener]))
        while not self._uvicorn.started:
            if self._task.done():
                await self._task
                raise RuntimeError("the server did not start")
            await asyncio.sleep(0.005)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._uvicorn.should_exit = True
        await self._task
