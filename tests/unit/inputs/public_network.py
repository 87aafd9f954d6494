"""Run inside a network namespace of its own: hosts with public and with private addresses, all of them reachable.

Prints, as JSON, what became of each URL under HPS_URL_INPUT=public.
"""

import asyncio
import json
import subprocess

from hps.context import RequestContext
from hps.errors import HpsError
from hps.inputs.fetch import UrlFetcher

PUBLIC = ("93.184.215.14", "2606:2800:220:1::1")
PRIVATE = ("10.0.0.5", "169.254.169.254", "fd00:ec2::254", "100.64.0.1")
REDIRECTS = {
    "/to-public": "http://93.184.215.14/a.pdf",
    "/to-private": "http://10.0.0.5/a.pdf",
    "/to-metadata": "http://169.254.169.254/latest/meta-data/",
    "/to-loopback": "http://127.0.0.1/a.pdf",
}
URLS = (
    "http://93.184.215.14/a.pdf",
    "http://93.184.215.14:8080/a.pdf",
    "http://[2606:2800:220:1::1]/a.pdf",
    "http://1572394766/a.pdf",
    "http://93.184.215.14:6379/a.pdf",
    "http://127.0.0.1/a.pdf",
    "http://10.0.0.5/a.pdf",
    "http://169.254.169.254/a.pdf",
    "http://[fd00:ec2::254]/a.pdf",
    "http://100.64.0.1/a.pdf",
    *(f"http://93.184.215.14{path}" for path in REDIRECTS),
)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
    if path in REDIRECTS:
        head = f"HTTP/1.1 302 Found\r\nLocation: {REDIRECTS[path]}\r\nContent-Length: 0\r\n\r\n"
    else:
        head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n%PDF-"
    writer.write(head.encode())
    await writer.drain()
    writer.close()


async def result(url: str) -> str:
    try:
        await UrlFetcher("public", timeout_s=5).fetch(url, RequestContext.within("r", 10))
    except HpsError as error:
        return error.message
    return "fetched"


def set_up() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (*PUBLIC, *PRIVATE):
        flags = ["nodad"] if ":" in address else []
        subprocess.run(["ip", "address", "add", address, "dev", "lo", *flags], check=True)


async def main() -> None:
    servers = [await asyncio.start_server(serve, None, port) for port in (80, 8080, 6379)]
    print(json.dumps({url: await result(url) for url in URLS}))
    for server in servers:
        server.close()


if __name__ == "__main__":
    set_up()
    asyncio.run(main())
