"""What stops `hps prepare`."""


class PrepareError(Exception):
    """The host or the kit cannot be made ready. The message says what was found, what is needed, and what to do."""
