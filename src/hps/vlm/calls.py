"""HTTP exchanges with VLM servers: one connection pool, one place where the client library's errors are translated."""

import asyncio
import io
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp

from hps.vlm.flow import ServerLoad
from hps.vlm.replicas import Address

CHAT: Final = "/v1/chat/completions"
# Far below the 5 s after which uvicorn (vLLM's server too) closes an idle connection, for using one that is just being
# closed costs a retry: between choosing a connection and the server's reading lie seconds when both are very busy.
_KEEPALIVE_S: Final = 2.0
_PROBE_S: Final = 4.0
_LARGE_BODY: Final = 1 << 20  # from here on aiohttp wants a file
_GAUGE: Final = re.compile(r"^vllm:num_requests_(running|waiting)(?:\{[^}]*\})? ([0-9.eE+]+)$", re.MULTILINE)


class NotConnected(Exception):
    """Nobody listens there: the request has not been sent."""


class Lost(Exception):
    """The connection or the protocol broke, perhaps after the server had begun."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a URL says of all its servers. path: before /v1."""

    scheme: str
    name: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Self:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return cls(parts.scheme, parts.hostname or "", port, parts.path.rstrip("/"))

    def url(self, address: Address, path: str) -> str:
        return f"{self.scheme}://{address}{self.path}{path}"

    def host_header(self, address: Address) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{name}:{address.port}"


class Reply:
    """An answer whose head is there."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.is_stream = response.content_type == "text/event-stream"

    async def content(self) -> bytes:
        return await self._response.read()

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.content.iter_any():
            yield chunk


class Calls:
    """Asks servers of one endpoint by address. For one event loop; made inside it."""

    def __init__(self, endpoint: Endpoint, api_key: str | None) -> None:
        self._endpoint = endpoint
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        tls = ssl.create_default_context() if endpoint.scheme == "https" else False
        self._options: dict[str, Any] = {"ssl": tls, "allow_redirects": False}
        if tls:
            self._options["server_hostname"] = endpoint.name
        self._session = aiohttp.ClientSession(
            # Who calls bounds how many, and for how long.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def chat(self, address: Address, body: bytes) -> AsyncIterator[Reply]:
        """Posts a chat request; left before its end, its connection is closed and the server gives it up.

        Raises NotConnected and Lost, also while the answer is read inside.
        """
        headers = self._headers | {"Content-Type": "application/json", "Host": self._endpoint.host_header(address)}
        data = body if len(body) < _LARGE_BODY else io.BytesIO(body)
        url = self._endpoint.url(address, CHAT)
        try:
            async with self._session.post(url, data=data, headers=headers, **self._options) as response:
                yield Reply(response)
        except aiohttp.ClientConnectorError as error:
            raise NotConnected(type(error).__name__) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise Lost(type(error).__name__) from error

    async def is_healthy(self, address: Address) -> bool:
        return await self._get(address, "/health") is not None

    async def lists(self, address: Address, model: str) -> bool:
        """Whether a server there serves the model."""
        answer = await self._get(address, "/v1/models")
        return answer is not None and f'"{model}"' in answer

    async def load(self, address: Address) -> ServerLoad | None:
        """None when the server does not say. Raises NotConnected and Lost when it does not answer."""
        status, text = await self._answer(address, "/metrics")
        found = {"running": 0.0, "waiting": 0.0}
        gauges = _GAUGE.findall(text) if status == 200 else []
        for name, value in gauges:  # one line for each engine of a server
            found[name] += float(value)
        return ServerLoad(int(found["running"]), int(found["waiting"])) if gauges else None

    async def _get(self, address: Address, path: str) -> str | None:
        try:
            status, text = await self._answer(address, path)
        except (NotConnected, Lost):
            return None
        return text if status == 200 else None

    async def _answer(self, address: Address, path: str) -> tuple[int, str]:
        headers = self._headers | {"Host": self._endpoint.host_header(address)}
        try:
            async with (
                asyncio.timeout(_PROBE_S),
                self._session.get(self._endpoint.url(address, path), headers=headers, **self._options) as response,
            ):
                return response.status, await response.text(errors="replace")
        except aiohttp.ClientConnectorError as error:
            raise NotConnected(type(error).__name__) from error
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise Lost(type(error).__name__) from error
