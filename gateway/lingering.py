"""Answers that are given before the request's body has come, and can still be read."""

import asyncio
from contextlib import suppress
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LINGER_S: Final = 10.0  # for all that is still to come
LINGER_IDLE_S: Final = 2.0  # for the next piece of it


class Lingering:
    """ASGI middleware, the outermost: whoever is refused while sending is told at once, and then the connection ends.

    Closing it with bytes unread would make the system reset it, and the client would lose the answer; so what it still
    sends is thrown away for a while first.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _announces_body(scope):
            await self._app(scope, receive, send)
            return
        is_read = is_closing = False  # the body to its end; the connection after this answer

        async def reading() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = is_read or not message.get("more_body", False)
            return message

        async def answering(message: Message) -> None:
            nonlocal is_closing
            if message["type"] == "http.response.start" and not is_read:
                is_closing = True
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            elif message["type"] == "http.response.body" and is_closing:
                message = {**message, "more_body": True}  # complete for the client, who knows its length
            await send(message)

        await self._app(scope, reading, answering)
        if is_closing:
            if not is_read:
                await _discard(receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            more = True
            while more:
                async with asyncio.timeout(LINGER_IDLE_S):
                    more = (await receive()).get("more_body", False)


def _announces_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip() not in (b"0", b"")
