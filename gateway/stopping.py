"""A stop that proxies see coming."""

import asyncio
import signal
from types import FrameType

from hps.errors import Unavailable


class Stopping:
    """SIGTERM takes effect `delay_s` later; until then requests are answered as before, and health checks are not.

    A proxy that asks for /health so learns to send its requests elsewhere while they still arrive safely: a connection
    that is opened in the moment a server stops to listen is lost, and a POST in it must not be repeated.
    """

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._is_announced = False

    def watch(self) -> None:
        """From the event loop of the main thread, once the server has its own handler of the signal in place."""
        stop = signal.getsignal(signal.SIGTERM)
        if not self._delay_s or not callable(stop):
            return
        loop = asyncio.get_running_loop()

        def announce(number: int, frame: FrameType | None) -> None:
            if self._is_announced:  # told twice: at once
                stop(number, frame)
            self._is_announced = True
            loop.call_soon_threadsafe(loop.call_later, self._delay_s, stop, number, None)

        signal.signal(signal.SIGTERM, announce)

    def check(self) -> None:
        """Raises Unavailable once a stop is announced."""
        if self._is_announced:
            raise Unavailable("The service is stopping")
