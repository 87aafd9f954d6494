"""What every model process does first: settings from the environment, one way of logging."""

import logging
import sys

from hps.settings import Settings, load


def settings_of_process() -> Settings:
    """The settings that `hps triton` passed on. Sets up logging, whose lines Triton's output carries along."""
    # Image work ends in threads, which then wait so long, at most, for the loop to let go of the interpreter lock.
    sys.setswitchinterval(0.001)
    settings = load()
    logging.basicConfig(
        stream=sys.stderr, level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    logging.getLogger("httpx").setLevel(max(logging.WARNING, logging.getLevelName(settings.log_level)))
    return settings
