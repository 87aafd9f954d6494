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
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from hps import ports, processes
from hps import settings as settings_module
from hps.embedded.part import Part, StartFailed
from hps.ports import LOOPBACK
from hps.settings import Settings
from hps.triton import shared_memory

log = logging.getLogger(__name__)

START_TIMEOUT_S = 120.0
HEALTH_POLL_S = 0.1
DRAIN_S = 4.0
# Small limits suit two CPU cores: what is in flight beyond them only waits inside a part, first come first served,
# where fairness between requests no longer holds.
EMBEDDED_LIMITS = {"drain_timeout": DRAIN_S, "vlm_max_concurrency": 4, "layout_in_flight": 4}
MODEL_NAME = "PP-OCRv6-{quality}-embedded-cpu"
PORTS = 6  # of the recogniser, of Triton's HTTP, gRPC and metrics, and of our own metrics


def embedded_settings(settings: Settings, free: Sequence[int]) -> Settings:
    """The chain's settings: everything on loopback at the `PORTS` ports of `free`, limits for a small machine."""
    vlm_port, http_port, grpc_port, metrics_port, *own_metrics = free
    given = settings.model_fields_set
    fixed: dict[str, Any] = {
        "host": settings.host if "host" in given else LOOPBACK,
        "metrics_host": LOOPBACK,
        "triton_host": LOOPBACK,
        "triton_http_port": http_port,
        "triton_grpc_port": grpc_port,
        "triton_metrics_port": metrics_port,
        "triton_url": f"{LOOPBACK}:{grpc_port}",
        "vlm_url": f"http://{LOOPBACK}:{vlm_port}",
        "vlm_model_name": settings.vlm_model_name or MODEL_NAME.format(quality=settings.embedded_quality),
    }
    # What a user may want otherwise.
    chosen = EMBEDDED_LIMITS | dict(zip(("metrics_gateway_port", "metrics_pipeline_port"), own_metrics, strict=True))
    return settings.model_copy(update=fixed | {key: value for key, value in chosen.items() if key not in given})


class Supervisor:
    """The chain. `await run()` returns when the service was told to stop and has stopped."""

    def __init__(self, settings: Settings, state_dir: Path) -> None:
        """settings: as `embedded_settings` makes them. state_dir: for the parts' logs and Triton's models."""
        self._settings = settings.model_copy(update={"state_dir": state_dir})
        environ = {name: value for name, value in os.environ.items() if not name.startswith(settings_module.PREFIX)}
        environ |= settings_module.environment(self._settings) | {"PYTHONUNBUFFERED": "1"}
        vlm_port = str(httpx.URL(settings.vlm_url).port)
        recogniser = ["hps.embedded.chat_api", "--port", vlm_port, "--quality", settings.embedded_quality]
        recogniser += ["--model-name", str(settings.vlm_model_name), "--threads", str(settings.embedded_threads)]

        births = asyncio.Lock()

        def part(name: str, *arguments: str) -> Part:
            log_file = state_dir / f"{name}.log"
            return Part(name, [sys.executable, "-m", *arguments], environ, log_file, births, self._end_orphans)

        self.recogniser = part("recogniser", *recogniser)
        self.triton = part("triton", "hps", "triton")
        self.gateway = part("gateway", "gateway")
        host = ports.reachable(settings.host)
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
        self._health = {
            "recogniser": f"{settings.vlm_url}/health",
            "triton": f"http://{LOOPBACK}:{settings.triton_http_port}/v2/health/ready",
            "gateway": f"{self.url}/health/ready",
        }

    async def run(self) -> None:
        """Raises StartFailed, with nothing left running."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        stopped = asyncio.create_task(stop.wait())
        started = asyncio.create_task(self._start())
        try:
            await asyncio.wait([started, stopped], return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                started.result()
                print(f"ready {self.url}", flush=True)
                await stopped
        finally:
            started.cancel()
            stopped.cancel()
            await asyncio.wait([started, stopped])
            await self._stop()

    async def _start(self) -> None:
        try:
            # Another server's health at our address must not pass for ours.
            ports.check_free(self._settings.host, self._settings.port)
        except OSError as error:
            raise StartFailed(f"{error.strerror}; choose another port with --port or HPS_PORT") from error
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
                    part.has_started = True
                    return
            for each in (self.recogniser, self.triton, self.gateway):
                if each.start_failed:
                    raise StartFailed(f"{each.name} does not start; the end of its log:\n{each.log_tail()}")
            if time.monotonic() > deadline:
                raise StartFailed(f"{part.name} is not healthy in time; the end of its log:\n{part.log_tail()}")
            await asyncio.sleep(HEALTH_POLL_S)

    def _end_orphans(self) -> None:
        """Ends what a killed part had started: it would hold ports that the next one needs."""
        parts = (self.recogniser, self.triton, self.gateway)
        processes.kill_descendants(but=[part.process.pid for part in parts if part.process is not None])

    async def _stop(self) -> None:
        """From the outside in, so that what is in work can finish."""
        grace = self._settings.drain_timeout
        await self.gateway.stop(grace + 0.5)
        await asyncio.gather(self.triton.stop(grace + 1.5), self.recogniser.stop(grace + 1.5))
        processes.kill_descendants()
        shared_memory.remove_orphaned()


def main(settings: Settings) -> int:
    """Runs until SIGTERM or Ctrl-C. Exit code 0 after an orderly stop, 1 when a part cannot be started."""
    processes.adopt_orphans()
    temporary = settings.state_dir is None
    state_dir = Path(tempfile.mkdtemp(prefix="hps-")) if settings.state_dir is None else settings.state_dir
    state_dir.mkdir(parents=True, exist_ok=True)
    log.info("logs of the parts: %s/{recogniser,triton,gateway}.log", state_dir)
    try:
        with ports.reserved(PORTS, but=settings.port) as free:
            asyncio.run(Supervisor(embedded_settings(settings, free), state_dir).run())
    except StartFailed as error:
        print(f"hps: {error}", file=sys.stderr)
        return 1
    finally:
        if temporary:
            shutil.rmtree(state_dir, ignore_errors=True)
    return 0
