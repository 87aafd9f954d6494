"""What the gateway logs: format, level, and which access-log lines are left out."""

import logging
from typing import Any

from hps import settings as hps_settings
from hps.settings import Settings

log = logging.getLogger(__name__)


class NotHealth(logging.Filter):
    """Drops the access log's lines about /health…; its records are (client, method, path, HTTP version, status)."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (isinstance(record.args, tuple) and len(record.args) > 2 and "/health" in str(record.args[2]))


def configuration(settings: Settings) -> dict[str, Any]:
    """For logging.config.dictConfig, here and in every worker process."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
        "filters": {"not_health": {"()": "gateway.logs.NotHealth"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"level": settings.log_level, "handlers": ["stderr"]},
        "loggers": {
            "uvicorn.access": {"filters": ["not_health"] if settings.filter_health_access_log else []},
            "httpx": {"level": "WARNING"},  # else a line for every health check
        },
    }


def log_start(settings: Settings) -> None:
    """The effective settings, and what the limits of several workers add up to."""
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
