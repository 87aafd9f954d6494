"""The pool's end of one worker process. Blocking: called from threads, one job at a time."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from hps.document import Image
from hps.errors import BackendError, InvalidInput
from hps.inputs import channel
from hps.inputs.bitmaps import ReceivedBitmaps
from hps.inputs.limits import DecodeLimits
from hps.inputs.sources import FileType

_EXIT_TIMEOUT_S: Final = 5.0


class WorkerLost(Exception):
    """The process is gone. was_ready: it had come up before, so that its job may be what killed it."""

    def __init__(self, was_ready: bool) -> None:
        super().__init__("decoder process lost")
        self.was_ready = was_ready


@dataclass(frozen=True, slots=True)
class Job:
    """op: "open" or "page". file: descriptor of the document's memory file, owned by whoever made the job."""

    op: str
    document: str
    file: int
    file_type: FileType
    max_pages: int | None
    index: int


def default_python() -> str:
    """The interpreter to run workers with. Inside an embedding program (Triton's Python stub) `sys.executable` names
    that program or nothing; then the interpreter of the same prefix, then the first python3 of PATH."""
    candidates = (sys.executable, str(Path(sys.prefix, "bin", "python3")), shutil.which("python3") or "")
    for candidate in candidates:
        if Path(candidate).name.startswith("python") and os.access(candidate, os.X_OK):
            return candidate
    raise BackendError("no Python interpreter for the decoder processes")


class DecoderProcess:
    """Spawned, never forked: the parent has threads, and a child must not inherit its sockets and secrets."""

    def __init__(self, python: str, limits: DecodeLimits) -> None:
        self.documents: set[str] = set()  # what it may hold open
        self.is_lost = False
        self.is_ready = False
        self._bitmaps = ReceivedBitmaps()
        self.connection, theirs = socket.socketpair()
        module = [python, "-W", "ignore", "-m", "hps.inputs.worker"]
        try:
            self._process = subprocess.Popen(
                [*module, str(theirs.fileno()), json.dumps(asdict(limits))],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_environment(),
            )
        except OSError:
            self.connection.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self, timeout_s: float) -> None:
        """Raises WorkerLost if it ended instead (its stderr says why), TimeoutError."""
        if self.is_ready:
            return
        try:
            channel.receive(self.connection, timeout_s)
        except EOFError as error:
            raise WorkerLost(was_ready=False) from error
        self.is_ready = True

    def run(self, job: Job, timeout_s: float) -> tuple[dict[str, Any], Image | None]:
        """The reply's header and the page that came with it. Raises InvalidInput or BackendError as the reply says;
        WorkerLost or TimeoutError, after which the process has been killed."""
        deadline = time.monotonic() + timeout_s
        self.documents.add(job.document)
        try:
            self.wait_until_ready(timeout_s)
            channel.send(self.connection, self._request(job, timeout_s), job.file)
            reply, file = channel.receive(self.connection, deadline - time.monotonic())
        except (WorkerLost, TimeoutError):
            self.kill()
            raise
        except (EOFError, OSError) as error:
            self.kill()
            raise WorkerLost(was_ready=True) from error
        if "invalid" in reply:
            self.documents.discard(job.document)
            raise InvalidInput(reply["invalid"])
        if "failed" in reply:
            self.documents.discard(job.document)
            raise BackendError from RuntimeError(reply["failed"])
        if "bitmap" not in reply:
            if file is not None:  # no worker of ours sends one with other replies
                os.close(file)
            return reply, None
        width, height = reply["size"]
        return reply, self._bitmaps.image(reply["bitmap"], file, (width, height))

    def forget(self, document: str) -> None:
        """For an idle process. If it is gone, so are its documents, and the next job finds out."""
        self.documents.discard(document)
        with contextlib.suppress(OSError):
            message = {"op": "forget", "documents": [document], "bitmaps": self._bitmaps.returned()}
            channel.send(self.connection, message)

    def interrupt(self) -> None:
        """From any thread: ends the running job, whose thread then finds the process lost."""
        self._process.kill()

    def kill(self) -> None:
        """At once and for good; reaps it."""
        self.is_lost = True
        self._process.kill()
        self._process.wait()
        self.connection.close()

    def close(self) -> None:
        """Lets it end by itself, then makes it."""
        self.connection.close()
        try:
            self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def _request(self, job: Job, timeout_s: float) -> dict[str, Any]:
        return {
            "op": job.op,
            "document": job.document,
            "file_type": job.file_type,
            "max_pages": job.max_pages,
            "index": job.index,
            "timeout_s": timeout_s,
            "bitmaps": self._bitmaps.returned(),
        }


def _environment() -> dict[str, str]:
    """No more than a worker needs. It finds what we find, and holds no key that a hostile document could read."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PATH") if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "LC_ALL": "C.UTF-8",
        "OPENBLAS_NUM_THREADS": "1",  # numpy's: no buffers for threads that a decoder never has
    }
