"""Ends a server that hangs: it was well, its process lives, and it has not answered for a while. Run by supervisord,
which then starts it again: `python -m vlm_server.watch FOLDER HANG_S PORT…`.

A server that has not been well since its start is loading, and gets START_S for that.
"""

import sys
import time
import xmlrpc.client
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.xmlrpc import SupervisorTransport

from .health import answers
from .supervision import SOCKET, name

POLL_S = 2.0
END = "hangs: ending it"
START_S = 1800.0  # weights from a slow disk, and a compilation


@dataclass(slots=True)
class Watch:
    """Over one server. What `look` returns is to be said; END also means that the server is to be ended now."""

    hang_s: float
    clock: Callable[[], float] = time.monotonic
    _pid: int = 0
    _is_well: bool = False
    _patience_ends: float = 0.0

    def look(self, pid: int, is_well: bool) -> str | None:
        """pid: of the running process; 0 when there is none."""
        now, was_well = self.clock(), self._is_well
        if pid != self._pid:
            self._pid, was_well, self._patience_ends = pid, False, now + START_S
        self._is_well = is_well
        if is_well:
            self._patience_ends = now + self.hang_s
            return None if was_well else "answers"
        if pid and now >= self._patience_ends:
            self._patience_ends = now + START_S
            return END
        return "does not answer" if was_well else None


def main(folder: Path, hang_s: float, ports: Sequence[int]) -> None:
    transport = SupervisorTransport(None, None, f"unix://{folder / SOCKET}")
    supervisor: Any = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport).supervisor
    watches = {port: Watch(hang_s) for port in ports}
    with ThreadPoolExecutor(len(ports)) as threads:
        while True:
            well = dict(zip(ports, threads.map(answers, ports), strict=True))
            for port, watch in watches.items():
                news = watch.look(int(supervisor.getProcessInfo(name(port))["pid"]), well[port])
                if news is not None:
                    print(f"server {port} {news}", flush=True)
                if news == END:
                    supervisor.signalProcessGroup(name(port), "KILL")
            time.sleep(POLL_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), [int(port) for port in sys.argv[3:]])
