"""`hps tune`: tries settings on the user's machine and pages, each in a service that is started with them."""

import asyncio
import contextlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from hps.bench import chain, measure, page_mix, sweep
from hps.bench.load import Service
from hps.bench.measure import Plan, Say, Target
from hps.bench.report import SERVICE, Run
from hps.bench.sweep import STEPS, Settings, Step, Trial
from hps.embedded.part import Part, StartFailed

VLM_START_S = 900.0  # vLLM compiles at its first start
RESTART_S = 900.0


@dataclass(frozen=True, slots=True)
class Means:
    """How settings come into force. restart: a shell command that starts the service of `plan.url` anew, with the
    settings in its environment (`docker compose up -d --wait`). vlm: a shell command that runs VLM servers from the
    port of the first of `plan.vlm_urls` on. Without either, gateway and pipeline are started here."""

    restart: str | None = None
    vlm: str | None = None


def steps(means: Means) -> tuple[Step, ...]:
    """What may be tried with these means."""
    return tuple(step for step in STEPS if step.part == "chain" or means.restart or means.vlm)


def common(plan: Plan) -> dict[str, str]:
    """What all trials need: room for the requests in flight."""
    in_flight = str(plan.concurrencies[0])
    return dict.fromkeys(("HPS_MAX_CONCURRENT_INFERENCE_REQUESTS", "HPS_MAX_PIPELINE_REQUESTS"), in_flight)


async def tuned(plan: Plan, means: Means, say: Say) -> tuple[Trial, list[Trial]]:
    """Raises StartFailed, ValueError or an httpx error when the first trial cannot be run."""
    mix = page_mix.pages(plan.mix_pages) if plan.folder is None else []
    with tempfile.TemporaryDirectory(prefix="hps-tune-") as temporary:
        boxes = Path(temporary) / "mix.json"
        page_mix.write_table(mix, boxes)
        sent = await asyncio.to_thread(measure.documents_of, plan, mix)

        async def run_with(settings: Settings) -> Run:
            wanted = {**plan.environ, **common(plan), **settings}
            async with _service(replace(plan, environ=wanted), means, settings, boxes) as target:
                await measure.warm_up(target, sent)
                (load,) = measure.loads(replace(plan, rates=()), target, sent)
                return await load.run()

        def tried(trial: Trial) -> None:
            values = " ".join(f"{name}={value}" for name, value in trial.settings.items())
            say(f"{values}: {trial.run.pages_per_s:.2f} pages/s")

        return await sweep.best(steps(means), run_with, tried)


@contextlib.asynccontextmanager
async def _service(plan: Plan, means: Means, settings: Settings, boxes: Path) -> AsyncIterator[Target]:
    if means.restart is not None:
        await _restart(means.restart, plan)
        assert plan.url is not None
        async with Service(plan.url, api_key=plan.api_key) as service:
            yield Target(SERVICE, service, plan.metrics)
        return
    async with contextlib.AsyncExitStack() as stack:
        if means.vlm is not None:
            await stack.enter_async_context(_vlm(means.vlm, plan, int(settings["HPS_VLM_REPLICAS"])))
        yield await stack.enter_async_context(measure.service(plan, boxes))


async def _restart(command: str, plan: Plan) -> None:
    environ = os.environ | dict(plan.environ)
    process = await asyncio.create_subprocess_shell(command, env=environ, stdout=subprocess.DEVNULL)
    if (code := await process.wait()) != 0:
        raise StartFailed(f"{shlex.quote(command)} ended with {code}")
    try:
        async with asyncio.timeout(RESTART_S), httpx.AsyncClient(trust_env=False, timeout=10) as http:
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if (await http.get(f"{plan.url}/health/ready")).status_code == httpx.codes.OK:
                        return
                await asyncio.sleep(chain.POLL_S)
    except TimeoutError:
        raise StartFailed(f"the service is not ready after {shlex.quote(command)}") from None


@contextlib.asynccontextmanager
async def _vlm(command: str, plan: Plan, servers: int) -> AsyncIterator[None]:
    first = httpx.URL(plan.vlm_urls[0])
    assert first.port is not None
    with tempfile.TemporaryDirectory(prefix="hps-tune-") as temporary:
        environ = os.environ | dict(plan.environ) | {"HPS_VLM_PORT": str(first.port)}
        part = Part("vlm", ["sh", "-c", f"exec {command}"], environ, Path(temporary) / "vlm.log")
        try:
            part.start()
            for port in range(first.port, first.port + servers):
                await chain.healthy(part, f"{first.copy_with(port=port)}/health", VLM_START_S)
            yield
        finally:
            await part.stop(chain.STOP_S)
