"""`python -m gateway`: serves until SIGTERM or Ctrl-C, then lets the requests in work end."""

import logging.config
import math
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from gateway import logs
from gateway.cache import AnswerCache
from gateway.connection import Connection
from hps import api_keys
from hps import settings as hps_settings
from hps.settings import Settings, SettingsError


def main() -> int:
    # While it serves, uvicorn handles the signal; afterwards it raises it again, which is no failure here.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        settings = hps_settings.load()
        if settings.api_keys_file is not None:
            api_keys.names(settings.api_keys_file)  # better no start than workers that die over it
        if settings.cache_url is not None:
            AnswerCache(settings)
    except SettingsError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 2
    log_config = logs.configuration(settings)
    logging.config.dictConfig(log_config)
    logs.log_start(settings)
    with _state_dir(settings) as folder:
        if settings.metrics_gateway_port:
            _serve_metrics(settings, folder / "gateway-metrics")
        uvicorn.run(
            "gateway.app:from_environment",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.uvicorn_workers,
            loop="uvloop",
            http=Connection,
            ws="none",
            server_header=False,
            log_config=log_config,
            log_level=settings.log_level.lower(),
            timeout_graceful_shutdown=math.ceil(settings.drain_timeout),
        )
    return 0


@contextmanager
def _state_dir(settings: Settings) -> Iterator[Path]:
    if settings.state_dir is not None:
        yield settings.state_dir
        return
    with tempfile.TemporaryDirectory(prefix="hps-gateway-") as temporary:
        yield Path(temporary)


def _serve_metrics(settings: Settings, folder: Path) -> None:
    """Here and not in a worker: together they are the gateway."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    from hps import metrics  # looks at the variable once, when it is imported

    metrics.clear(folder)
    metrics.serve(folder, settings.metrics_host, settings.metrics_gateway_port)


if __name__ == "__main__":
    sys.exit(main())
