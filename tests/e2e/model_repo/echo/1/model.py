"""Sleeps, fails and echoes as a request says: `{"sleep": seconds, "fail": bool, "raise": text, "logId": str}`."""

import asyncio
import json
import os
import subprocess

import triton_python_backend_utils as pb_utils

from hps import contract
from hps.errors import InvalidInput, Unavailable
from hps.triton.model_process import settings_of_process
from hps.triton.serving import RequestServer


class Echo:
    def __init__(self):
        self.cancelled = 0
        self.in_work = 0
        # Stands for a decode worker: it must be gone with the server, too.
        self.child = subprocess.Popen(["sleep", "600"])

    async def start(self):
        if os.environ.get("ECHO_FAILS"):
            raise RuntimeError("no weights")

    async def handle(self, body, context):
        request = json.loads(body)
        self.in_work += 1
        try:
            await asyncio.sleep(request.get("sleep", 0))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_work -= 1
        if request.get("fail"):
            raise InvalidInput("Input file is invalid: asked to fail")
        if request.get("raise"):
            raise ValueError(request["raise"])
        result = {"pid": os.getpid(), "cancelled": self.cancelled, "in_work": self.in_work, "child": self.child.pid}
        return contract.success(
            request.get("logId", context.id), result | {"echo": request.get("echo"), "left_s": context.remaining_s()}
        )

    async def probe(self):
        if self.child.poll() is not None:
            raise Unavailable("worker gone")

    async def close(self):
        self.child.kill()
        self.child.wait()


class TritonPythonModel:
    def initialize(self, args):
        self.server = RequestServer.of(pb_utils, Echo(), settings_of_process())

    def execute(self, requests):
        return self.server.submit(requests)

    def finalize(self):
        self.server.close()
