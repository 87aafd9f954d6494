"""`python -m gateway`: serves until SIGTERM or Ctrl-C, then lets the requests in work end."""

import logging.config
import math
import signal
import sys

import uvicorn

from gateway import logs
from hps import settings as hps_settings
from hps.settings import SettingsError


def main() -> int:
    # While it serves, uvicorn handles the signal; afterwards it raises it again, which is no failure here.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        settings = hps_settings.load()
    except SettingsError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 2
    log_config = logs.configuration(settings)
    logging.config.dictConfig(log_config)
    logs.log_start(settings)
    uvicorn.run(
        "gateway.app:from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.uvicorn_workers,
        loop="uvloop",
        http="httptools",
        ws="none",
        server_header=False,
        log_config=log_config,
        log_level=settings.log_level.lower(),
        timeout_graceful_shutdown=math.ceil(settings.drain_timeout),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
