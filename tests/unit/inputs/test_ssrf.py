"""Every way that we know of to make a server fetch what it must not, under HPS_URL_INPUT=public.

As a document and as a picture of a Word file, as the first URL and as the target of a redirect. And in a network of its
own, with addresses that count as public, what must be fetched is.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hps.errors import InvalidInput, NotEnabled, PayloadTooLarge
from hps.handlers import Restructurer
from hps.inputs.fetch import UrlFetcher, is_public, resolve
from tests.unit.inputs.test_fetch import PUBLIC, Site, answer, context, redirect

ADDRESSES = (
    # the loopback and "this host", in every spelling of IPv4
    *("127.0.0.1", "127.1", "127.0.1", "127.127.127.127", "2130706433", "0x7f000001", "0x7F.0x0.0x0.0x1", "0x7f.1"),
    *("017700000001", "0177.0.0.1", "0177.0.0.01", "0000177.0.0.1", "127.0.0.1.", "0", "0.0.0.0", "00000000000"),
    # private, shared, link-local, cloud metadata, reserved
    *("10.0.0.1", "10.1", "167772161", "172.16.0.1", "172.31.255.254", "192.168.0.1", "192.168.257", "0xc0a80001"),
    *("169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "100.100.100.200"),
    *("100.64.0.1", "192.0.0.192", "168.63.129.16", "198.18.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1"),
    *("192.88.99.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
    # IPv6: loopback, unspecified, mapped, compatible, translated, tunnelled, local, documentation
    *("[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[0000:0000:0000:0000:0000:0000:0000:0001]", "[::ffff:127.0.0.1]"),
    *("[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[::ffff:a9fe:a9fe]", "[::ffff:10.0.0.1]", "[::127.0.0.1]"),
    *("[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a00:1]"),
    *("[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[2002:c0a8:1::1]", "[2001:0:7f00:1::1]", "[2001::f5ff:fffe]"),
    *("[fe80::1]", "[fe80::1%25lo]", "[fe80::1%lo]", "[fec0::1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]"),
    *("[2001:db8::1]", "[3fff::1]", "[100::1]", "[5f00::1]"),
    # digits that are not ASCII, and other letters that become some
    *("①②⑦.⓪.⓪.①", "１２７.0.0.1", "127。0。0。1", "127．0．0．1", "٣٢.0.0.1", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "ｌｏｃａｌｈｏｓｔ"),
    # names
    *("localhost", "LOCALHOST", "localhost.", "localhost.localdomain", "ip6-localhost"),
)
URLS = (
    *(f"http://{address}/a.pdf" for address in ADDRESSES),
    *("https://127.0.0.1/a.pdf", "http://127.0.0.1:80/a.pdf", "http://[::1]:443/a.pdf"),
    # credentials, and what may be taken for some
    *("http://user@8.8.8.8/a.pdf", "http://user:password@8.8.8.8/a.pdf", "http://8.8.8.8@127.0.0.1/a.pdf"),
    *("http://127.0.0.1#@8.8.8.8/a.pdf", "http://127.0.0.1?@8.8.8.8/a.pdf", "http://8.8.8.8:80@127.0.0.1:80/"),
    *("http://8.8.8.8%40127.0.0.1/", "http://127.0.0.1%2f@8.8.8.8/", "http://8.8.8.8\\@127.0.0.1/"),
    *("http://127.0.0.1\\@8.8.8.8/", "http://:@8.8.8.8/", "http://@127.0.0.1/"),
    # ports of other services, and what is none
    *(f"http://8.8.8.8:{port}/a.pdf" for port in (1, 22, 25, 53, 465, 2375, 3306, 5432, 6379, 9200, 11211, 65535)),
    *("http://8.8.8.8:0/", "http://8.8.8.8:-1/", "http://8.8.8.8:99999/", "http://8.8.8.8:80:80/"),
    "http://8.8.8.8:http/",
    # other schemes
    *("file:///etc/passwd", "file://localhost/etc/passwd", "FILE:///etc/passwd", "gopher://8.8.8.8:6379/_FLUSHALL"),
    *("ftp://8.8.8.8/a.pdf", "dict://8.8.8.8:11211/stat", "ldap://8.8.8.8/", "jar:http://8.8.8.8!/", "data:,a"),
    *("unix:///var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/", "tftp://8.8.8.8/", "sftp://8.8.8.8/"),
    *("netdoc:///etc/passwd", "php://filter/a", "ws://8.8.8.8/", "//127.0.0.1/", "javascript:1"),
    # broken on purpose
    *("http://", "http:///a.pdf", "http://.", "http://..", "http://%", "http://[", "http://[]/", "http://[::1/"),
    *("http://127.0.0.1\r\nHost: a/", "http://8.8.8.8\t/", "http://8.8.8.8\x00.a/", "http://\u202e1.0.0.721/"),
    *("http://8.8.8.8 /a", "http:127.0.0.1/", "http:/127.0.0.1/", "http://" + "a" * 300 + "/"),
    "http://8.8.8.8/" + "a" * 9000,
    *("http://xn--a/", "http://*/", "http://8.8.8.8,127.0.0.1/", "http://8.8.8.8;127.0.0.1/", "http://ａ@/"),
)


def test_the_table_is_long_enough() -> None:
    assert len(set(URLS)) == len(URLS) >= 120


class Lookups:
    """The system's resolver, which keeps what it said. What it says of a public address never gets to a connection."""

    def __init__(self) -> None:
        self.found: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        addresses = await resolve(host, port)
        self.found += addresses
        assert not any(is_public(address) for address in addresses), f"{host} would have been connected to"
        return addresses


@pytest.mark.parametrize("url", URLS)
async def test_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await UrlFetcher("public", timeout_s=5, resolver=Lookups()).fetch(url, context())
    assert "URL" in refused.value.message
    assert "fetched within" not in refused.value.message
    assert "passwd" not in refused.value.message


@pytest.mark.parametrize("url", URLS)
async def test_refused_as_the_target_of_a_redirect(url: str) -> None:
    if any(character in url for character in "\r\n\x00\u202e") or not url.isascii():
        pytest.skip("no header can say that")
    lookups = Lookups()
    async with Site().running(PUBLIC) as outer:
        outer.say("/a.pdf", redirect(url))
        # The first hop stands for a public server; the addresses of all others are judged as they are.
        ports = frozenset({_port(outer.url), 80, 443, 8080, 8443})
        allowed = lambda address: address == PUBLIC or is_public(address)  # noqa: E731
        fetcher = UrlFetcher("public", timeout_s=5, resolver=lookups, is_allowed=allowed, ports=ports)
        with pytest.raises(InvalidInput):
            await fetcher.fetch(f"{outer.url}/a.pdf", context())
        # Some are no URLs but paths: those stay where they are, where there is no such page.
        assert {head.split()[0] for head in outer.requests} == {"GET"}


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


@pytest.mark.parametrize("url", [url for url in URLS if url.startswith(("http://", "https://"))])
async def test_refused_as_a_picture_of_a_word_file(url: str) -> None:
    region = {"block_label": "image", "block_content": "", "block_bbox": [1, 2, 3, 4], "block_id": 0}
    pruned = {
        "width": 10,
        "height": 10,
        "page_count": None,
        "model_settings": {"use_layout_detection": False},
        "parsing_res_list": [region],
    }
    page = {"prunedResult": pruned, "markdownImages": {"imgs/img_in_image_box_1_2_3_4.jpg": url}}
    fetcher = UrlFetcher("public", timeout_s=5, resolver=Lookups())
    handler = Restructurer("PaddleOCR-VL-1.6", ThreadPoolExecutor(1), fetcher, None)
    try:
        with pytest.raises(InvalidInput, match="URL"):
            await handler.handle(json.dumps({"pages": [page], "outputFormats": ["docx"]}).encode(), context())
    finally:
        await handler.close()


async def test_pictures_by_url_have_one_limit_together() -> None:
    async with Site().running() as site:
        site.say("/a", answer(bytes(60)))
        fetcher = UrlFetcher("any", max_bytes=100)
        assert len(await fetcher.fetch(f"{site.url}/a", context(), already=40)) == 60
        with pytest.raises(PayloadTooLarge, match="larger than 100 bytes"):
            await fetcher.fetch(f"{site.url}/a", context(), already=41)


async def test_a_name_of_which_every_look_up_says_something_else() -> None:
    """Re-binding: the address that was judged is the one that is connected to, whatever the name means next."""
    answers = iter([["127.0.0.1"], [PUBLIC], ["127.0.0.1"], [PUBLIC]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(answers)

    async with Site().running("127.0.0.1") as inner:
        inner.say("/a", answer(b"secret"))
        port = _port(inner.url)
        fetcher = UrlFetcher("public", resolver=rebinding, is_allowed=PUBLIC.__eq__, ports=None)
        with pytest.raises(NotEnabled):
            await fetcher.fetch(f"http://rebind.test:{port}/a", context())
        with pytest.raises(InvalidInput, match="cannot be reached"):  # PUBLIC, where nobody listens
            await fetcher.fetch(f"http://rebind.test:{port}/a", context())
        assert inner.requests == []


def test_in_a_network_where_a_host_counts_as_public_it_is_fetched_and_its_neighbours_are_not() -> None:
    """No address is injected here: the real resolver, the real rules, real connections."""
    program = Path(__file__).with_name("public_network.py")
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, str(program)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("no unshare")
    if "unshare" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    fetched = {url for url, result in results.items() if result == "fetched"}
    assert fetched == {
        "http://93.184.215.14/a.pdf",
        "http://93.184.215.14:8080/a.pdf",
        "http://[2606:2800:220:1::1]/a.pdf",
        "http://1572394766/a.pdf",
        "http://93.184.215.14/to-public",
    }
    assert len(results) == 14
    refusal = "The file's URL leads to an address that is not public: HPS_URL_INPUT=any allows it"
    assert {result for url, result in results.items() if url not in fetched} <= {
        refusal,
        "The file's URL names a port that is no web server's: HPS_URL_INPUT=any allows it",
    }
