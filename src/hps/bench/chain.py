"""Gateway and pipeline in front of a VLM server that runs already, on this machine, for as long as a benchmark needs.

Boxes come from a file (layout backend `fixed`): what is measured is everything but the layout model's own work.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from hps import ports
from hps import settings as settings_module
from hps.embedded.part import Part, StartFailed
from hps.ports import LOOPBACK
from hps.triton import shared_memory

START_S = 120.0
POLL_S = 0.1
STOP_S = 15.0


@dataclass(frozen=True, slots=True)
class Chain:
    """url: the gateway. metrics: of gateway, pipeline and Triton."""

    url: str
    metrics: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def pids(self) -> dict[str, int]:
        return {part.name: part.process.pid for part in self.parts if part.process is not None}

    def log_tail(self) -> str:
        """The end of what the parts have said."""
        return "\n".join(f"{part.name}:\n{part.log_tail()}" for part in self.parts)


@contextlib.asynccontextmanager
async def running(vlm_url: str, boxes: Path, environ: Mapping[str, str]) -> AsyncIterator[Chain]:
    """environ: settings (HPS_…) beside those that follow from the ports. Raises StartFailed with the end of a log."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hps-bench-")))
        gateway_port, http, grpc, triton_metrics, *own = stack.enter_context(ports.reserved(6))
        metrics = tuple(f"http://{LOOPBACK}:{port}/metrics" for port in (*own, triton_metrics))
        fixed = {
            "host": LOOPBACK,
            "port": gateway_port,
            "triton_host": LOOPBACK,
            "triton_http_port": http,
            "triton_grpc_port": grpc,
            "triton_metrics_port": triton_metrics,
            "triton_url": f"{LOOPBACK}:{grpc}",
            "vlm_url": vlm_url,
            "metrics_host": LOOPBACK,
            "metrics_gateway_port": own[0],
            "metrics_pipeline_port": own[1],
            "layout_backend": "fixed",
            "layout_fixed_file": boxes,
            "state_dir": folder,
        }
        base = {name: value for name, value in os.environ.items() if not name.startswith(settings_module.PREFIX)}
        variables = {settings_module.variable(name): str(value) for name, value in fixed.items()}
        full = base | variables | dict(environ) | {"PYTHONUNBUFFERED": "1"}
        triton = Part("triton", [sys.executable, "-m", "hps", "triton"], full, folder / "triton.log")
        gateway = Part("gateway", [sys.executable, "-m", "gateway"], full, folder / "gateway.log")
        url = f"http://{LOOPBACK}:{gateway_port}"
        try:
            for part, health in (
                (triton, f"http://{LOOPBACK}:{http}/v2/health/ready"),
                (gateway, f"{url}/health/ready"),
            ):
                part.start()
                await healthy(part, health)
            yield Chain(url, metrics, (triton, gateway))
        finally:
            await gateway.stop(STOP_S)
            await triton.stop(STOP_S)
            shared_memory.remove_orphaned()


async def healthy(part: Part, url: str, within_s: float = START_S) -> None:
    """Returns when the part answers there. Raises StartFailed when it ends instead, or takes too long."""
    async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
        try:
            async with asyncio.timeout(within_s):
                while True:
                    if part.start_failed:
                        raise StartFailed(f"{part.name} does not start; the end of its log:\n{part.log_tail()}")
                    with contextlib.suppress(httpx.HTTPError):
                        if (await http.get(url)).status_code == httpx.codes.OK:
                            part.has_started = True
                            return
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise StartFailed(f"{part.name} is not healthy in time; the end of its log:\n{part.log_tail()}") from None
