"""Who may come in: API keys in front of every endpoint that works, and how many requests of a key may be here."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.error_handlers import envelope
from hps.api_keys import ApiKeys
from hps.errors import TooManyForKey, Unauthorized

log = logging.getLogger(__name__)

# Probes have no keys, and what the interface looks like is no secret: it is published.
OPEN_PATHS: Final = frozenset({"/health", "/health/ready", "/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"})

KEY_NAME: Final = "key_name"  # in the state of a request that showed a key


class Keys:
    """ASGI middleware. Names in the log who asked for what; never the key."""

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        key = presented(request)
        name = None if key is None else self._keys.name_of(key)
        if name is None:
            log.warning("refused: %s API key", "no" if key is None else "an unknown")
            refusal = envelope(request, Unauthorized(), {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return
        scope.setdefault("state", {})[KEY_NAME] = name

        async def naming(message: Message) -> None:
            if message["type"] == "http.response.start":
                log.info("key %s: %s %s %d", name, scope["method"], ascii(scope["path"]), message["status"])
            await send(message)

        await self._app(scope, receive, naming)


def presented(request: Request) -> str | None:
    """The key in `Authorization: Bearer KEY` or `X-API-Key: KEY`; the first where both are given."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return request.headers.get("x-api-key") or None


class PerKey:
    """At most `limit` requests of one key in this process, in work or waiting. None: as many as come."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._held: Counter[str] = Counter()

    @contextmanager
    def place(self, request: Request, retry_after_s: Callable[[int], int]) -> Iterator[None]:
        """Raises TooManyForKey. retry_after_s: seconds until one of so many requests in work will have ended."""
        name = getattr(request.state, KEY_NAME, None)
        if self.limit is None or name is None:
            yield
            return
        if self._held[name] >= self.limit:
            raise TooManyForKey(retry_after_s=retry_after_s(self.limit))
        self._held[name] += 1
        try:
            yield
        finally:
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
