"""`python -m gateway`: serves until SIGTERM or Ctrl-C, then lets the requests in work end."""

import logging
import logging.config
import math
import sys
from typing import Any

import uvicorn

from hps import settings as hps_settings
from hps.settings import Settings, SettingsError

log = logging.getLogger("gateway")


class NotHealth(logging.Filter):
    """Drops the access log's lines about /health…; its records are (client, method, path, HTTP version, status)."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (isinstance(record.args, tuple) and len(record.args) > 2 and "/health" in str(record.args[2]))


def log_config(settings: Settings) -> dict[str, Any]:
    """For logging.config.dictConfig, here and in every worker."""
    filters = ["not_health"] if settings.filter_health_access_log else []
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
        "filters": {"not_health": {"()": NotHealth}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"level": settings.log_level, "handlers": ["stderr"]},
        "loggers": {
            "uvicorn.access": {"filters": filters},
            "httpx": {"level": "WARNING"},  # a line for every health check
        },
    }


def log_start(settings: Settings) -> None:
    log.info("settings: %s", " ".join(f"{name}={value}" for name, value in hps_settings.effective(settings).items()))
    workers = settings.uvicorn_workers
    if workers > 1:
        log.warning(
            "%d workers, each with its own limits: together up to %d inference and %d other requests in work, "
            "and %d waiting in front of each",
            workers,
            workers * settings.max_concurrent_inference_requests,
            workers * settings.max_concurrent_non_inference_requests,
            workers * settings.max_queued_requests,
        )


def main() -> int:
    try:
        settings = hps_settings.load()
    except SettingsError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 2
    logging.config.dictConfig(log_config(settings))
    log_start(settings)
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
        log_config=log_config(settings),
        log_level=settings.log_level.lower(),
        timeout_graceful_shutdown=math.ceil(settings.drain_timeout),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
