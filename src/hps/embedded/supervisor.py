"""`hps up`: starts recogniser, Triton and gateway on this machine, watches them, and stops them in order.

The three parts are the same programs that the containers run; only the VLM server is the small CPU recogniser. A part
that dies is started again; the others go on. Stopping goes from the outside in, so that what is in work can finish: the
gateway stops accepting and drains, then Triton, then the recogniser.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from hps import settings as settings_module
from hps.processes import die_with_parent
from hps.settings import Settings

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 120.0
DRAIN_S = 4.0
# Small limits suit two CPU cores: what is in flight beyond them only waits inside a part, first come first served,
# where fairness between requests no longer holds.
EMBEDDED_LIMITS = {"drain_timeout": DRAIN_S, "vlm_max_concurrency": 4, "layout_in_flight": 4}
MODEL_NAME = "PP-OCRv6-{quality}-embedded-cpu"


class StartFailed(RuntimeError):
    """A part did not become healthy; the message ends with the last lines of its log."""


@dataclass(slots=True)
class Part:
    """One child process, restarted whenever it ends on its own."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    log_file: Path
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    stopping: bool = False
    _watch: asyncio.Task[None] | None = field(default=None, repr=False)

    def start(self) -> None:
        self._watch = asyncio.create_task(self._run(), name=f"watch {self.name}")

    async def _run(self) -> None:
        while not self.stopping:
            started = time.monotonic()
            with self.log_file.open("ab") as output:
                # A session of its own: Ctrl-C must reach the supervisor alone, which then stops the parts in order.
                self.process = await asyncio.create_subprocess_exec(
                    *self.command,
                    env=dict(self.environ),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
            code = await self.process.wait()
            if self.stopping:
                return
            self.restarts += 1
            log.warning("%s ended with code %d; starting it again", self.name, code)
            if time.monotonic() - started < 5:
                await asyncio.sleep(min(0.2 * 2**self.restarts, 5))

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, then SIGKILL when `grace_s` have passed."""
        self.stopping = True
        if self._watch is None:
            return
        if self.process is None or self.process.returncode is not None:
            self._watch.cancel()
        else:
            self.process.terminate()
        with contextlib.suppress(asyncio.CancelledError):
            done, _ = await asyncio.wait([self._watch], timeout=grace_s)
            if not done and self.process is not None and self.process.returncode is None:
                log.warning("%s did not stop within %.0f s; killing it", self.name, grace_s)
                self.process.kill()
            await self._watch

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


class Supervisor:
    """The chain on loopback. `await run()` returns when the service was told to stop and has stopped."""

    def __init__(self, settings: Settings, state_dir: Path) -> None:
        quality = settings.embedded_quality
        vlm_port = free_port()
        model = settings.vlm_model_name or MODEL_NAME.format(quality=quality)
        given = settings.model_fields_set
        self.settings = settings.model_copy(
            update={key: value for key, value in EMBEDDED_LIMITS.items() if key not in given}
            | {
                "host": settings.host if "host" in given else LOOPBACK,
                "triton_host": LOOPBACK,
                "triton_http_port": free_port(),
                "triton_grpc_port": (grpc_port := free_port()),
                "triton_metrics_port": free_port(),
                "triton_url": f"{LOOPBACK}:{grpc_port}",
                "vlm_url": f"http://{LOOPBACK}:{vlm_port}",
                "vlm_model_name": model,
                "state_dir": state_dir,
            }
        )
        environ = {name: value for name, value in os.environ.items() if not name.startswith(settings_module.PREFIX)}
        environ |= settings_module.environment(self.settings) | {"PYTHONUNBUFFERED": "1"}
        python = sys.executable
        recogniser = [python, "-m", "hps.embedded.chat_api", "--port", str(vlm_port), "--quality", quality]
        recogniser += ["--model-name", model, "--threads", str(settings.embedded_threads)]

        def part(name: str, *command: str) -> Part:
            return Part(name, command, environ, state_dir / f"{name}.log")

        self.recogniser = part("recogniser", *recogniser)
        self.triton = part("triton", python, "-m", "hps", "triton")
        self.gateway = part("gateway", python, "-m", "gateway")
        self.url = f"http://{LOOPBACK}:{settings.port}"
        self._health = {
            "recogniser": f"{self.settings.vlm_url}/health",
            "triton": f"http://{LOOPBACK}:{self.settings.triton_http_port}/v2/health/ready",
            "gateway": f"{self.url}/health/ready",
        }

    async def run(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        try:
            started = asyncio.create_task(self._start())
            await asyncio.wait([started, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                started.result()
                print(f"ready {self.url}", flush=True)
                await stop.wait()
            else:
                started.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await started
        finally:
            await self._stop()

    async def _start(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
            self.recogniser.start()
            self.triton.start()
            await self._healthy(http, self.recogniser)
            await self._healthy(http, self.triton)
            self.gateway.start()
            await self._healthy(http, self.gateway)

    async def _healthy(self, http: httpx.AsyncClient, part: Part) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if (await http.get(self._health[part.name])).status_code == 200:
                    return
            if part.restarts >= 3 or time.monotonic() > deadline:
                raise StartFailed(f"{part.name} does not start; the end of its log:\n{part.log_tail()}")
            await asyncio.sleep(0.1)

    async def _stop(self) -> None:
        grace = self.settings.drain_timeout
        await self.gateway.stop(grace + 0.5)
        await asyncio.gather(self.triton.stop(grace + 1.5), self.recogniser.stop(grace + 1.5))


def main(settings: Settings) -> int:
    """Runs until SIGTERM or Ctrl-C. Exit code 0 after an orderly stop, 1 when a part cannot be started."""
    temporary = settings.state_dir is None
    state_dir = Path(tempfile.mkdtemp(prefix="hps-")) if settings.state_dir is None else settings.state_dir
    state_dir.mkdir(parents=True, exist_ok=True)
    log.info("logs of the parts: %s/{recogniser,triton,gateway}.log", state_dir)
    try:
        asyncio.run(Supervisor(settings, state_dir).run())
    except StartFailed as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if temporary:
            shutil.rmtree(state_dir, ignore_errors=True)
    return 0
