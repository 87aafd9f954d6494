"""The proxy of compose.tls.yaml, as Debian packages it: two gateways, a certificate made by the test."""

import asyncio
import contextlib
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from hps import api_keys
from hps.ports import LOOPBACK, free_ports
from tests.contract.gateway_stack import eventually
from tests.e2e.chain import ROOT, status_of, wait_for
from tests.fakes.triton import FakeTriton

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("haproxy") is None, reason="no haproxy here (Debian's package)"),
]
SITE = "ocr.test"


@dataclass
class Gateway:
    triton: FakeTriton
    port: int
    folder: Path
    keys: Path
    process: "subprocess.Popen[bytes] | None" = None

    async def start(self) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HPS_")}
        environ |= {"HPS_HOST": LOOPBACK, "HPS_PORT": str(self.port), "HPS_TRITON_URL": self.triton.address}
        environ |= {"HPS_VLM_URL": "http://127.0.0.1:9", "HPS_METRICS_GATEWAY_PORT": "0", "HPS_DRAIN_TIMEOUT": "20"}
        environ |= {"HPS_API_KEYS_FILE": str(self.keys), "HPS_STOP_DELAY": "3"}  # as in compose.tls.yaml
        with (self.folder / f"gateway-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-m", "gateway"], env=environ, stderr=log, cwd=ROOT
            )
        url = f"http://{LOOPBACK}:{self.port}/health"
        await asyncio.to_thread(wait_for, lambda: status_of(url) == 200, "a gateway")

    async def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(self.process.wait, 30)
            self.process = None


@dataclass
class Site:
    client: httpx.AsyncClient
    gateways: list[Gateway]
    http_port: int
    https_port: int
    proxy: "subprocess.Popen[bytes]"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tls.crt; tls.pem, with the key, beside it."""
    folder = tmp_path_factory.mktemp("certs")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", f"/CN={SITE}", "-addext", f"subjectAltName=DNS:{SITE}"]
    command += ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run(command, check=True, capture_output=True)
    whole = (folder / "tls.crt").read_text() + (folder / "tls.key").read_text()
    (folder / "tls.pem").write_text(whole)
    return folder / "tls.crt"


@contextlib.contextmanager
def proxy(
    folder: Path, gateways: list[Gateway], certificate: Path, http_port: int, https_port: int
) -> Iterator["subprocess.Popen[bytes]"]:
    environ = {
        "PATH": os.environ["PATH"],
        "HPS_TLS_CERTIFICATE": str(certificate.with_suffix(".pem")),
        "HPS_TLS_ANSWER_TIMEOUT": "60s",
        "HPS_TLS_HTTP_PORT": str(http_port),
        "HPS_TLS_HTTPS_PORT": str(https_port),
    }
    servers = "".join(f"    server gateway{gateway.port} {LOOPBACK}:{gateway.port}\n" for gateway in gateways)
    own = folder / "gateways.cfg"
    own.write_text(f"backend gateways\n    balance leastconn\n{servers}")
    command = ["haproxy", "-W", "-db", "-f", str(ROOT / "proxy/haproxy.cfg"), "-f", str(own)]
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> AsyncIterator[Site]:
    """`client` finds SITE at the proxy, trusts that certificate only, and has a key."""
    folder = tmp_path_factory.mktemp("site")
    keys = folder / "keys"
    key = api_keys.add(keys, "someone")
    first, second, http_port, https_port = free_ports(4)
    async with contextlib.AsyncExitStack() as stack:
        gateways = []
        for port in (first, second):
            triton = await stack.enter_async_context(FakeTriton())
            gateway = Gateway(triton, port, folder, keys)
            await gateway.start()
            stack.push_async_callback(gateway.stop)
            gateways.append(gateway)
        process = stack.enter_context(proxy(folder, gateways, certificate, http_port, https_port))
        trusting = ssl.create_default_context(cafile=str(certificate))
        client = httpx.AsyncClient(
            base_url=f"https://{LOOPBACK}:{https_port}",
            verify=trusting,
            trust_env=False,
            timeout=60,
            headers={"Host": SITE, "Authorization": f"Bearer {key}"},
        )
        client = _named(client)
        await stack.enter_async_context(client)
        async with asyncio.timeout(20):
            while not await _is_up(client):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield Site(client, gateways, http_port, https_port, process)


def _named(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """Asks for SITE in SNI and expects its name in the certificate, wherever it is connected to."""

    async def name(request: httpx.Request) -> None:
        request.extensions["sni_hostname"] = SITE

    client.event_hooks = {"request": [name]}
    return client


async def _is_up(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == 200
    except httpx.TransportError:
        return False


DOCUMENT = {"file": "QUJD", "fileType": 1}


async def test_answers_come_over_tls_from_both_gateways(running: Site) -> None:
    responses = await asyncio.gather(*(running.client.post("/layout-parsing", json=DOCUMENT) for _ in range(40)))
    assert {response.status_code for response in responses} == {200}
    assert all(len(gateway.triton.documents) >= 10 for gateway in running.gateways)
    for header in ("strict-transport-security", "x-content-type-options", "content-security-policy"):
        assert header in responses[0].headers
    assert "haproxy" not in str(responses[0].headers).lower()


async def test_plain_http_leads_to_tls_and_old_tls_is_refused(running: Site) -> None:
    async with httpx.AsyncClient(trust_env=False, headers={"Host": SITE}) as plain:
        response = await plain.get(f"http://{LOOPBACK}:{running.http_port}/health")
    assert (response.status_code, response.headers["location"]) == (308, f"https://{SITE}/health")
    command = [
        "openssl",
        "s_client",
        "-connect",
        f"{LOOPBACK}:{running.https_port}",
        "-servername",
        SITE,
        "-tls1_1",
    ]
    old = await asyncio.to_thread(subprocess.run, command, capture_output=True, input=b"", timeout=20)
    assert b"Cipher is (NONE)" in old.stdout


def _has_grown(statuses: list[int], beyond: int) -> bool:
    return len(statuses) > beyond


def _has_got_more(triton: FakeTriton, documents: int) -> bool:
    return len(triton.documents) > documents


async def test_a_rolling_restart_of_the_gateways_fails_no_request(running: Site) -> None:
    for gateway in running.gateways:
        gateway.triton.delay_s = 0.1
    statuses: list[int] = []
    done = asyncio.Event()

    async def ask() -> None:
        while not done.is_set():
            statuses.append((await running.client.post("/layout-parsing", json=DOCUMENT)).status_code)

    clients = [asyncio.create_task(ask()) for _ in range(12)]
    for gateway in running.gateways:
        before = len(statuses)
        await eventually(partial(_has_grown, statuses, before + 60), 60)
        await gateway.stop()
        await gateway.start()
        await eventually(partial(_has_got_more, gateway.triton, len(gateway.triton.documents)), 20)  # from the proxy
    done.set()
    await asyncio.gather(*clients)
    print(f"{len(statuses)} requests during a restart of both gateways, one after the other")
    assert set(statuses) == {200}


async def test_a_killed_gateway_costs_what_it_had_in_work_and_nothing_else(running: Site) -> None:
    first, second = running.gateways
    assert first.process is not None
    before = len(second.triton.documents)
    first.process.kill()
    first.process.wait()
    first.process = None
    responses = [await running.client.post("/layout-parsing", json=DOCUMENT) for _ in range(20)]
    assert {response.status_code for response in responses} == {200}
    assert len(second.triton.documents) - before == 20
    await first.start()


async def test_large_bodies_and_answers_refusals_and_keys_pass(running: Site) -> None:
    refused = await running.client.post("/layout-parsing", json=DOCUMENT, headers={"Authorization": "Bearer hps_no"})
    assert (refused.status_code, refused.json()["errorCode"]) == (401, 401)
    large = DOCUMENT | {"file": "QUJD" * (8 * 2**18)}
    assert (await running.client.post("/layout-parsing", json=large)).status_code == 200
    invalid = await running.client.post("/layout-parsing", json={})
    assert (invalid.status_code, invalid.json()["errorCode"]) == (422, 422)


async def test_an_answer_may_take_long_and_a_reload_for_a_new_certificate_disturbs_none(running: Site) -> None:
    for gateway in running.gateways:
        gateway.triton.delay_s = 4.0
    slow = [asyncio.create_task(running.client.post("/layout-parsing", json=DOCUMENT)) for _ in range(6)]
    await asyncio.sleep(1.0)
    running.proxy.send_signal(signal.SIGUSR2)
    assert [response.status_code for response in await asyncio.gather(*slow)] == [200] * 6
    for gateway in running.gateways:
        gateway.triton.delay_s = 0.0
    again = [(await running.client.post("/layout-parsing", json=DOCUMENT)).status_code for _ in range(20)]
    assert again == [200] * 20


async def test_questions_of_acme_do_not_lead_to_tls(running: Site) -> None:
    url = f"http://{LOOPBACK}:{running.http_port}/.well-known/acme-challenge/token"
    async with httpx.AsyncClient(trust_env=False, timeout=30) as plain:
        assert (await plain.get(url)).status_code == 503  # nobody asks for a certificate now
