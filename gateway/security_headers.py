"""Headers of every answer that tell browsers to make nothing of it but data."""

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Documents are private, so nothing on the way may keep an answer. HSTS is for the proxy, which alone speaks TLS.
EVERYWHERE: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
CONTENT_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
PAGES: Final = frozenset({"/docs", "/docs/oauth2-redirect", "/redoc"})  # with scripts of their own


class SecurityHeaders:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                add(MutableHeaders(scope=message), scope["path"])
            await send(message)

        await self._app(scope, receive, adding)


def add(headers: MutableHeaders, path: str) -> None:
    for name, value in EVERYWHERE.items():
        headers[name] = value
    if path not in PAGES:
        headers["Content-Security-Policy"] = CONTENT_POLICY
