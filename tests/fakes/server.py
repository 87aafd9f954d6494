"""A real HTTP server for tests in which connections matter."""

import asyncio
import socket
from types import TracebackType
from typing import Any, Self

import uvicorn


def listen(host: str, port: int = 0) -> socket.socket:
    """A listening socket. Its protocol is named, or asyncio would leave Nagle's algorithm on: 40 ms an answer."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(2048)
    return listener


class Server:
    """`async with Server(app) as server:` serves an ASGI application on a real uvicorn at `server.url`."""

    def __init__(self, app: Any, listener: socket.socket | None = None, **options: Any) -> None:
        self._listener = listener or listen("127.0.0.1")
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
