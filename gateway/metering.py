"""Counts and times every request, whatever becomes of it."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hps.metrics import GatewayMetrics

CLIENT_LEFT = 499
NO_ROUTE = "none"  # paths are a client's invention until one of ours matches


class Metering:
    """ASGI middleware. A request that got no answer counts as left by its client, one that raised as 500."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = CLIENT_LEFT
        started = time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            status = 500
            raise
        finally:
            route = getattr(scope.get("route"), "path", NO_ROUTE)
            self._metrics.answered(route, status, time.perf_counter() - started)
