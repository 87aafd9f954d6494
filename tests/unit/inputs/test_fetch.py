"""The fetcher against real servers on the loopback, and the addresses that "public" must never reach."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from hps.context import RequestContext
from hps.errors import DeadlineExceeded, InvalidInput, NotEnabled, PayloadTooLarge
from hps.inputs.fetch import UrlFetcher, is_public

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def context(timeout_s: float = 20) -> RequestContext:
    return RequestContext.within("request", timeout_s)


class Site:
    """A raw server on the loopback: what it sends is up to the test. `requests`: what it was asked, head by head."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.answers: dict[str, Answer] = {}
        self.url = ""
        self._connections: set[asyncio.Task[None]] = set()

    def say(self, path: str, answer: bytes | Answer) -> None:
        async def send(writer: asyncio.StreamWriter) -> None:
            assert isinstance(answer, bytes)
            writer.write(answer)

        self.answers[path] = send if isinstance(answer, bytes) else answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(ConnectionError):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.requests.append(head)
                await self.answers[head.split()[1]](writer)
                await writer.drain()
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def running(self, address: str = "127.0.0.1") -> AsyncIterator["Site"]:
        server = await asyncio.start_server(self._serve, address, 0)
        self.url = f"http://{address}:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self
            connections = tuple(self._connections)
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site().running() as running:
        yield running


def answer(body: bytes = b"", status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def redirect(to: str) -> bytes:
    return answer(status="302 Found", headers=f"Location: {to}\r\n")


async def test_the_bytes_of_a_file(site: Site) -> None:
    site.say("/a.pdf?x=1", answer(b"%PDF-"))
    assert await UrlFetcher("any").fetch(f"{site.url}/a.pdf?x=1", context()) == b"%PDF-"


async def test_redirects_are_followed(site: Site) -> None:
    site.say("/a", redirect("/b"))
    site.say("/b", answer(b"file"))
    assert await UrlFetcher("any").fetch(f"{site.url}/a", context()) == b"file"


async def test_redirects_have_an_end(site: Site) -> None:
    site.say("/a", redirect("/a"))
    with pytest.raises(InvalidInput, match="redirects more than 2 times"):
        await UrlFetcher("any", max_redirects=2).fetch(f"{site.url}/a", context())
    assert len(site.requests) == 3


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "401 Unauthorized"])
async def test_an_error_of_the_server(site: Site, status: str) -> None:
    site.say("/a", answer(b"not the file", status))
    with pytest.raises(InvalidInput, match=f"its server answered {status[:3]}"):
        await UrlFetcher("any").fetch(f"{site.url}/a", context())


async def test_an_announced_size_over_the_limit_is_not_read(site: Site) -> None:
    site.say("/a", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    with pytest.raises(PayloadTooLarge, match="larger than 100 bytes"):
        await UrlFetcher("any", max_bytes=100).fetch(f"{site.url}/a", context())


async def test_an_endless_body_is_cut_off(site: Site) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    site.say("/a", endless)
    with pytest.raises(PayloadTooLarge):
        await UrlFetcher("any", max_bytes=1 << 20).fetch(f"{site.url}/a", context())


async def test_a_slow_sender_meets_the_total_time(site: Site) -> None:
    async def drops(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    site.say("/a", drops)
    started = time.monotonic()
    with pytest.raises(InvalidInput, match=r"could not be fetched within 0\.3 s"):
        await UrlFetcher("any", timeout_s=0.3).fetch(f"{site.url}/a", context())
    assert time.monotonic() - started < 2


async def test_the_requests_deadline_holds(site: Site) -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    site.say("/a", silence)
    with pytest.raises(DeadlineExceeded):
        await UrlFetcher("any").fetch(f"{site.url}/a", context(timeout_s=0.2))


async def test_a_body_cut_short_is_an_error(site: Site) -> None:
    site.say("/a", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
    with pytest.raises(InvalidInput, match="broke off"):
        await UrlFetcher("any").fetch(f"{site.url}/a", context())


@pytest.mark.parametrize("garbage", [b"", b"hello\r\n\r\n", b"HTTP/9.9 abc\r\n\r\n"])
async def test_what_is_not_http_is_an_error(site: Site, garbage: bytes) -> None:
    site.say("/a", garbage)
    with pytest.raises(InvalidInput, match="could not be fetched"):
        await UrlFetcher("any").fetch(f"{site.url}/a", context())


async def test_nobody_at_the_address() -> None:
    async with Site().running() as gone:
        pass
    with pytest.raises(InvalidInput, match="cannot be reached"):
        await UrlFetcher("any").fetch(f"{gone.url}/a", context())


async def test_an_unknown_host() -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    with pytest.raises(InvalidInput, match="host name of its URL is not known"):
        await UrlFetcher("public", resolver=unknown).fetch("http://nowhere.test/a", context())


async def test_policy_off_says_how_to_turn_it_on() -> None:
    with pytest.raises(NotEnabled, match="HPS_URL_INPUT"):
        await UrlFetcher("off").fetch("http://h/a.pdf", context())


async def test_proxies_of_the_environment_are_ignored(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    site.say("/a", answer(b"file"))
    assert await UrlFetcher("any").fetch(f"{site.url}/a", context()) == b"file"


async def test_the_name_goes_into_the_request_and_the_address_into_the_connection(site: Site) -> None:
    async def here(host: str, port: int) -> list[str]:
        assert host == "files.test"
        return ["127.0.0.1"]

    site.say("/a", answer(b"file"))
    url = site.url.replace("127.0.0.1", "files.test")
    assert await UrlFetcher("any", resolver=here).fetch(f"{url}/a", context()) == b"file"
    assert f"Host: {url.removeprefix('http://')}\r\n" in site.requests[0]


@pytest.mark.parametrize("to", ["http://user:password@files.test/", "file:///etc/passwd", "ftp://h/a", "gopher://h/"])
async def test_redirects_to_where_no_url_may_lead(site: Site, to: str) -> None:
    site.say("/a", redirect(to))
    with pytest.raises(InvalidInput, match="URL"):
        await UrlFetcher("any").fetch(f"{site.url}/a", context())


async def test_credentials_are_refused(site: Site) -> None:
    with pytest.raises(InvalidInput, match="carries credentials"):
        await UrlFetcher("any").fetch(site.url.replace("//", "//user:password@") + "/a", context())
    assert site.requests == []


# --- policy public ---


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "0", "0.0.0.0", "127.0.0.1."),
        *("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "100.100.100.200", "192.0.0.192"),
        *("168.63.129.16", "224.0.0.1", "255.255.255.255", "198.18.0.1", "①②⑦.⓪.⓪.①", "1２７.0.0.1"),
        *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]"),
        *("[64:ff9b:1::1]", "[2002:7f00:1::1]", "[2001:0:7f00:1::1]", "[fe80::1]", "[fc00::1]", "[fd00:ec2::254]"),
        *("[ff02::1]", "[2001:db8::1]", "[::ffff:0:127.0.0.1]", "[fec0::1]", "[100::1]", "localhost"),
    ],
)
async def test_no_spelling_of_an_address_that_is_not_public_gets_through(host: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await UrlFetcher("public", timeout_s=5).fetch(f"http://{host}/a.pdf", context())
    assert refused.value.message in (
        "The file's URL leads to an address that is not public: HPS_URL_INPUT=any allows it",
        "The file's URL is not valid",
        "The file could not be fetched: the host name of its URL is not known",
    )


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", ["", "localhost", "1.1.1", "2606:4700::1%eth0", "::ffff:10.0.0.1"])
def test_what_is_no_public_address(address: str) -> None:
    assert not is_public(address)


PUBLIC = "127.0.0.2"  # stands for a public address where a connection has to be made


async def test_a_redirect_to_an_address_that_is_not_public_is_stopped() -> None:
    asked: list[str] = []

    async def resolver(host: str, port: int) -> list[str]:
        asked.append(host)
        return [PUBLIC if host == "outer.test" else "127.0.0.1"]

    async with Site().running(PUBLIC) as outer:
        outer.say("/a", redirect("http://inner.test/secret"))
        fetcher = UrlFetcher("public", resolver=resolver, is_allowed=PUBLIC.__eq__, ports=None)
        with pytest.raises(NotEnabled, match="not public"):
            await fetcher.fetch(outer.url.replace(PUBLIC, "outer.test") + "/a", context())
    assert asked == ["outer.test", "inner.test"]


async def test_a_name_that_is_bound_anew_is_looked_up_once_and_connected_to_as_checked(site: Site) -> None:
    lookups = 0

    async def rebinding(host: str, port: int) -> list[str]:
        nonlocal lookups
        lookups += 1
        return ["192.0.2.1", "10.0.0.1"] if lookups == 1 else ["8.8.8.8"]

    with pytest.raises(NotEnabled, match="not public"):
        await UrlFetcher("public", resolver=rebinding).fetch("http://rebind.test/a", context())
    assert lookups == 1


async def test_of_several_addresses_only_public_ones_are_used() -> None:
    async def mixed(host: str, port: int) -> list[str]:
        return ["127.0.0.1", PUBLIC]

    async with Site().running(PUBLIC) as site:
        site.say("/a", answer(b"file"))
        fetcher = UrlFetcher("public", resolver=mixed, is_allowed=PUBLIC.__eq__, ports=None)
        assert await fetcher.fetch(site.url.replace(PUBLIC, "mixed.test") + "/a", context()) == b"file"
