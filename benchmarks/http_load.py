"""A client that costs next to nothing, so that what is measured is the service on the same machine."""

import asyncio
import time
from urllib.parse import urlsplit


class Client:
    """One connection, one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connected(cls, url: str) -> "Client":
        address = urlsplit(url)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def parse(self, body: bytes) -> float:
        """Sends a /layout-parsing request; seconds until all of its answer is there. The answer must be a success."""
        started = time.perf_counter()
        head = f"POST /layout-parsing HTTP/1.1\r\nHost: service\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n")
        self._writer.write(body)
        answer_head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer_head.split(b"content-length: ")[1].split(b"\r\n")[0])
        answer = await self._reader.readexactly(length)
        seconds = time.perf_counter() - started
        assert b'"errorCode":0' in answer[-200:], answer[:200]
        return seconds

    def close(self) -> None:
        self._writer.close()
