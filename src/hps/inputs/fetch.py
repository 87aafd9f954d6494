"""Files by URL: one guarded fetcher (SPEC A.7). Under "public" no request of a client reaches an address that is not
public, however it is written, named, redirected to or re-bound."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final, Literal

import httpcore
import httpx

from hps.context import RequestContext
from hps.errors import HpsError, InvalidInput, NotEnabled, PayloadTooLarge

UrlPolicy = Literal["off", "public", "any"]
Resolver = Callable[[str, int], Awaitable[list[str]]]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Ours and not `ipaddress.is_global`, whose answer changes with the Python version. From the IANA special-purpose
# registries; the last line is the one cloud metadata service that lives at an otherwise public address.
_NOT_PUBLIC_V4: Final = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",
    )
)
_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")  # all that is given out; the rest is local, mapped or reserved
_NOT_PUBLIC_V6: Final = tuple(
    ipaddress.IPv6Network(network)
    # protocol assignments with Teredo, documentation, 6to4 (which embeds any IPv4 address), documentation
    for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_MAX_URL_CHARACTERS: Final = 8192
_WEB_PORTS: Final = frozenset({80, 443, 8080, 8443})  # others are mail, databases and the like: not for strangers


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public Internet. IPv4-mapped and NAT64 forms are judged by what they hold."""
    try:
        ip: _Address = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None:
            return False
        embedded = ip.ipv4_mapped or (ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None)
        if embedded is None:
            return ip in _GLOBAL_V6 and not any(ip in network for network in _NOT_PUBLIC_V6)
        ip = embedded
    return not any(ip in network for network in _NOT_PUBLIC_V4)


async def resolve(host: str, port: int) -> list[str]:
    """The system's answer, which also reads the odd spellings of IPv4 (decimal, octal, hexadecimal)."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class UrlFetcher:
    """policy: "off", "public" or "any" (HPS_URL_INPUT). timeout_s: for the whole of a file, redirects included.
    max_bytes: of the file. resolver, is_allowed, ports: for tests; the last two judge addresses and ports under
    "public" (ports None: all).

    Stateless between fetches: no cookies, no kept connections, no proxies of the environment.
    """

    def __init__(
        self,
        policy: UrlPolicy,
        timeout_s: float = 30.0,
        max_bytes: int = 256 << 20,
        max_redirects: int = 5,
        *,
        resolver: Resolver = resolve,
        is_allowed: Callable[[str], bool] = is_public,
        ports: frozenset[int] | None = _WEB_PORTS,
    ) -> None:
        self._policy = policy
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._max_redirects = max_redirects
        self._resolver = resolver
        self._is_allowed = is_allowed
        self._ports = ports
        self._tls = httpx.create_ssl_context(trust_env=False) if policy != "off" else None

    async def fetch(self, url: str, context: RequestContext, *, already: int = 0) -> bytes:
        """The file's bytes. Raises InvalidInput, NotEnabled (by policy), PayloadTooLarge, DeadlineExceeded.

        already: bytes of other files of the same request, which count against `max_bytes` too.
        """
        if self._policy == "off":
            raise NotEnabled("Files by URL are not enabled: set HPS_URL_INPUT to public or any, or send Base64")
        if len(url) > _MAX_URL_CHARACTERS:
            raise InvalidInput("The file's URL is too long")
        remaining_s = context.remaining_s()
        try:
            async with asyncio.timeout(min(self._timeout_s, remaining_s)):
                return await self._get(url, self._max_bytes - already)
        except HpsError:
            raise
        except TimeoutError as error:
            context.remaining_s()
            raise InvalidInput(f"The file could not be fetched within {self._timeout_s:g} s") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
            raise InvalidInput("The file's URL is not valid") from error
        except httpx.TooManyRedirects as error:
            raise InvalidInput(f"The file's URL redirects more than {self._max_redirects} times") from error
        except httpx.HTTPError as error:
            raise InvalidInput("The file could not be fetched: its server cannot be reached or broke off") from error

    async def _get(self, url: str, left: int) -> bytes:
        client = httpx.AsyncClient(
            transport=_GuardedTransport(self._checked_addresses, self._tls),
            trust_env=False,
            timeout=None,  # the total above is stricter, and also ends a server that sends a byte a minute
            follow_redirects=True,
            max_redirects=self._max_redirects,
            headers={"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "paddleocr-vl-hps"},
        )
        async with client, client.stream("GET", url) as response:
            if response.status_code >= 400:
                raise InvalidInput(f"The file could not be fetched: its server answered {response.status_code}")
            return await self._body(response, left)

    async def _body(self, response: httpx.Response, left: int) -> bytes:
        announced = response.headers.get("Content-Length", "")
        if announced.isdecimal() and int(announced) > left:
            raise self._too_large()
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > left:
                raise self._too_large()
        return bytes(body)

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"The file behind the URL is larger than {self._max_bytes} bytes")

    async def _checked_addresses(self, host: str, port: int) -> list[str]:
        """The addresses that may be connected to: looked up once, so that no second answer can differ."""
        if self._policy == "public" and self._ports is not None and port not in self._ports:
            raise NotEnabled("The file's URL names a port that is no web server's: HPS_URL_INPUT=any allows it")
        try:
            addresses = await self._resolver(host, port)
        except OSError as error:
            raise InvalidInput("The file could not be fetched: the host name of its URL is not known") from error
        if self._policy == "any":
            return addresses
        allowed = [address for address in addresses if self._is_allowed(address)]
        if not allowed:
            raise NotEnabled("The file's URL leads to an address that is not public: HPS_URL_INPUT=any allows it")
        return allowed


class _CheckedNetwork(httpcore.AnyIOBackend):
    """Connects to checked addresses, never to names. The name stays where it belongs: Host, SNI and certificate."""

    def __init__(self, addresses: Callable[[str, int], Awaitable[list[str]]]) -> None:
        self._addresses = addresses

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the interface's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception = httpcore.ConnectError("no address")
        for address in await self._addresses(host, port):
            try:
                return await super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  the interface's
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.UnsupportedProtocol("no local sockets")


class _GuardedTransport(httpx.AsyncBaseTransport):
    """Every hop of a redirect chain comes through here, with the same checks as the first."""

    def __init__(self, addresses: Callable[[str, int], Awaitable[list[str]]], tls: Any) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls, network_backend=_CheckedNetwork(addresses), max_keepalive_connections=0
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        # Port 0 would pass for none, and become the scheme's own.
        if request.url.scheme not in ("http", "https") or not request.url.host or request.url.port == 0:
            raise InvalidInput("The file's URL is not valid: only http and https are supported")
        if len(request.url.raw_path) > _MAX_URL_CHARACTERS:
            raise InvalidInput("The file's URL is too long")
        if request.url.userinfo:
            raise InvalidInput("The file's URL carries credentials, which is not supported")
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        try:
            response = await self._pool.handle_async_request(
                httpcore.Request(request.method, url, headers=request.headers.raw, content=b"")
            )
        except _NETWORK_ERRORS as error:
            raise httpx.NetworkError("connection failed", request=request) from error
        return httpx.Response(response.status, headers=response.headers, stream=_Body(response))

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._response.aiter_stream():
                yield part
        except _NETWORK_ERRORS as error:
            raise httpx.ReadError("connection broke off") from error

    async def aclose(self) -> None:
        await self._response.aclose()


_NETWORK_ERRORS: Final = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)
