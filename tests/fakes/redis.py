"""Debian's redis-server as a child process on a free port, its data in memory only."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis

from hps.ports import LOOPBACK, free_port


@dataclass
class RedisServer:
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    @property
    def client(self) -> "redis.Redis":
        return redis.Redis(host=LOOPBACK, port=self.port, socket_timeout=5)

    def start(self) -> None:
        command = ["redis-server", "--bind", LOOPBACK, "--port", str(self.port), "--save", "", "--appendonly", "no"]
        command += ["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru", "--enable-debug-command", "yes"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(redis.ConnectionError), self.client as client:
                client.ping()
                return
            assert time.monotonic() < deadline, "redis-server did not start"
            time.sleep(0.02)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def redis_server() -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server here")
    server = RedisServer(free_port())
    server.start()
    try:
        yield server
    finally:
        server.kill()
