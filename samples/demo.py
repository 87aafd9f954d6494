"""`make demo`: starts the service on a free port, parses two sample documents, prints their Markdown, stops it."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

from hps.ports import free_port

SAMPLES = Path(__file__).parent
DOCUMENTS = ("paper-two-columns.pdf", "invoice.png")
START_TIMEOUT_S = 120


def main() -> int:
    hps = [sys.executable, "-m", "hps"]
    # A terminated demo must end the service too, which the default action of SIGTERM would skip.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print("starting the service (Triton, recogniser, gateway) ...", file=sys.stderr)
    service = subprocess.Popen(
        [*hps, "up", "--port", str(free_port())], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    overdue = threading.Timer(START_TIMEOUT_S, service.terminate)
    overdue.start()
    try:
        assert service.stdout is not None
        ready = service.stdout.readline().split()
        overdue.cancel()
        if ready[:1] != ["ready"]:
            print("the service did not start", file=sys.stderr)
            return 1
        return subprocess.run([*hps, "parse", "--url", ready[1], *(SAMPLES / name for name in DOCUMENTS)]).returncode
    finally:
        overdue.cancel()
        service.send_signal(signal.SIGTERM)
        service.wait()


if __name__ == "__main__":
    raise SystemExit(main())
