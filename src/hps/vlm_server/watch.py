"""Ends a server that hangs: it was well, its process lives, and it has not answered for a while. Run by supervisord,
which then starts it again: `python -m vlm_server.watch FOLDER HANG_S PORT…`.

A server that never was well since its start is loading, however long that takes.
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


@dataclass(slots=True)
class Watch:
    """Over one server. `look` is called with each result; true when the server is to be ended now."""

    hang_s: float
    clock: Callable[[], float] = time.monotonic
    _well_at: float | None = None
    _pid: int = 0

    def look(self, pid: int, is_well: bool) -> bool:
        """pid: of the running process; 0 when there is none."""
        if pid != self._pid:
            self._pid, self._well_at = pid, None
        if is_well:
            self._well_at = self.clock()
            return False
        if not pid or self._well_at is None or self.clock() - self._well_at < self.hang_s:
            return False
        self._well_at = None
        return True


def main(folder: Path, hang_s: float, ports: Sequence[int]) -> None:
    transport = SupervisorTransport(None, None, f"unix://{folder / SOCKET}")
    supervisor: Any = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport).supervisor
    watches = {port: Watch(hang_s) for port in ports}
    said: tuple[int, ...] = ()
    with ThreadPoolExecutor(len(ports)) as threads:
        while True:
            well = dict(zip(ports, threads.map(answers, ports), strict=True))
            for port, watch in watches.items():
                info = supervisor.getProcessInfo(name(port))
                if watch.look(int(info["pid"]), well[port]):
                    print(f"server {port} does not answer: ending it", flush=True)
                    supervisor.signalProcessGroup(name(port), "KILL")
            down = tuple(port for port in ports if not well[port])
            if down != said:
                said = down
                print(f"{len(ports) - len(down)} of {len(ports)} servers answer", flush=True)
            time.sleep(POLL_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), [int(port) for port in sys.argv[3:]])
