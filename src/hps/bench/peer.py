"""PaddleX's own pipeline as a process of its own environment, for as long as a benchmark needs it."""

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from hps import ports
from hps.bench import chain
from hps.embedded.part import Part

PROGRAM = Path(__file__).with_name("paddlex_peer.py")
STOP_S = 2.0


@contextlib.asynccontextmanager
async def running(python: Path, vlm_urls: Sequence[str], boxes: Path, release: str) -> AsyncIterator[tuple[str, int]]:
    """Its URL and process number. python: of its environment, absolute. Raises StartFailed with the log's end."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hps-bench-")))
        (port,) = stack.enter_context(ports.reserved(1))
        command = [str(python), str(PROGRAM), "--port", str(port)]
        command += [argument for url in vlm_urls for argument in ("--vlm-url", url)]
        command += ["--boxes", str(boxes), "--release", release]
        # Its caches and logs stay out of the user's home; nothing of it looks for models in the network.
        environ = os.environ | {"PADDLE_PDX_CACHE_HOME": str(folder), "PADDLE_PDX_DISABLE_MODEL_SOURCE_CHECK": "True"}
        part = Part("paddlex", command, environ, folder / "paddlex.log")
        url = f"http://{ports.LOOPBACK}:{port}"
        try:
            part.start()
            await chain.healthy(part, f"{url}/health")
            assert part.process is not None
            yield url, part.process.pid
        finally:
            await part.stop(STOP_S)
