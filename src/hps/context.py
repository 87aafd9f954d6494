"""What travels with a request from stage to stage: who asks, until when, and how long each stage took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hps.errors import DeadlineExceeded


@dataclass(frozen=True, slots=True)
class RequestContext:
    """`deadline` is a reading of `time.monotonic()` in seconds; it is set once, at arrival, and only ever compared."""

    id: str
    deadline: float
    caller: str = ""
    trace: str = ""

    @classmethod
    def within(cls, request_id: str, timeout_s: float, *, caller: str = "", trace: str = "") -> "RequestContext":
        return cls(request_id, time.monotonic() + timeout_s, caller, trace)

    def remaining_s(self) -> float:
        """Seconds left. Raises DeadlineExceeded when there are none."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded
        return left


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds by stage, summed over the pages of a request (waiting for one's turn included)."""

    decode: float = 0.0
    layout: float = 0.0
    crop: float = 0.0
    vlm: float = 0.0
    assembly: float = 0.0
    render: float = 0.0

    def __add__(self, other: "StageTimes") -> "StageTimes":
        return StageTimes(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def milliseconds(self) -> dict[str, int]:
        return {f"{name}_ms": round(getattr(self, name) * 1000) for name in self.__slots__}


@dataclass(slots=True)
class Stopwatch:
    """Collects one page's stage times while it is worked on; `times()` freezes them."""

    _seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started

    def times(self) -> StageTimes:
        return StageTimes(**self._seconds)
