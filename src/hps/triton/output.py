"""Triton's output on its way to ours: without the lines that mean nothing, with the last errors remembered."""

import re
import sys
import threading
from collections import deque
from typing import IO, TextIO

# Triton's own form: level, date, time, process, source ("E1130 21:40:00.123456 17 pinned_memory_manager.cc:273] …").
_TRITON = re.compile(r'^(?P<level>[IWE])\d{4} [\d:.]+ \d+ (?P<source>[\w./]+):\d+\] "?(?P<text>.*)')

# What every machine without a GPU says at each start and what has no consequence there.
_HARMLESS_WITHOUT_GPU = re.compile(
    r"nvml|dcgm|pinned.memory|cuda memory pool|CudaDriverHelper|CUDA driver version is insufficient|GPU metrics",
    re.IGNORECASE,
)
# Tables (of models, backends and all options) with the lines that announce them: for those who ask for details.
_DETAIL = re.compile(r"^[|+].*[|+]$|^I\d{4} [^\]]+\] $")


class Output:
    """Copies a pipe to a stream in a thread, line by line, until the last writer closes it."""

    def __init__(self, pipe: IO[bytes], *, gpu: bool, detailed: bool, stream: TextIO | None = None) -> None:
        self._pipe = pipe
        self._gpu = gpu
        self._detailed = detailed
        self._stream = stream or sys.stdout
        self._errors: deque[str] = deque(maxlen=20)
        self._thread = threading.Thread(target=self._copy, name="triton-output", daemon=True)
        self._thread.start()

    def errors(self) -> list[str]:
        """The last error lines, oldest first."""
        return list(self._errors)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _copy(self) -> None:
        with self._pipe:
            for raw in self._pipe:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                if not self._is_wanted(line):
                    continue
                if (match := _TRITON.match(line)) and match["level"] == "E":
                    self._errors.append(match["text"].removesuffix('"'))
                try:
                    print(line, file=self._stream, flush=True)
                except (OSError, ValueError):  # nobody reads us any more; Triton must not block on that
                    continue

    def _is_wanted(self, line: str) -> bool:
        if not line.strip() or (not self._gpu and _TRITON.match(line) and _HARMLESS_WITHOUT_GPU.search(line)):
            return False
        return self._detailed or not _DETAIL.match(line)
