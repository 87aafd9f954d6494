"""The faults, one by one: what is done to the chain, and how it is undone."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import psutil

from tests.faults.stage import FAKETIME, SHARED_MEMORY, Stage, stopped_and_continued

Kind = Literal["fault", "restart"]


@dataclass(frozen=True)
class Scenario:
    """begin: the fault. end: what an operator or nature does to end it, after `active_s`; None: the kit must itself.

    kind: of a restart no request at all may fail. one_vlm, faked_clock: the chain that it needs. repeat: with requests
    that the cache may answer.
    """

    name: str
    begin: Callable[[Stage], None]
    end: Callable[[Stage], None] | None = None
    active_s: float = 6.0
    kind: Kind = "fault"
    one_vlm: bool = False
    faked_clock: bool = False
    repeat: bool = False


def _kill(name: str, find: Callable[[Stage], psutil.Process]) -> Scenario:
    def begin(stage: Stage) -> None:
        victim = find(stage)
        # The first process of a container takes all others with it.
        for process in [victim, *(victim.children(recursive=True) if name in FIRST else ())]:
            process.kill()

    return Scenario(f"SIGKILL {name}", begin)


def _stop(name: str, find: Callable[[Stage], psutil.Process], *, for_s: float | None = None) -> Scenario:
    """for_s None: nobody sends SIGCONT."""
    undo: dict[str, Callable[[], None]] = {}

    def begin(stage: Stage) -> None:
        stop, undo["go on"] = stopped_and_continued(lambda: find(stage))
        stop()

    if for_s is None:
        return Scenario(f"SIGSTOP {name}", begin)
    return Scenario(f"SIGSTOP {name}, {for_s:.0f} s", begin, lambda _: undo["go on"](), for_s)


def _mode(name: str, mode: str, *numbers: int) -> Scenario:
    return Scenario(name, lambda stage: stage.mode(mode, *numbers), lambda stage: stage.mode("well"))


def _vlm(number: int) -> Callable[[Stage], psutil.Process]:
    return lambda stage: psutil.Process(stage.vlms[number].pid)


def _part(name: str) -> Callable[[Stage], psutil.Process]:
    return lambda stage: psutil.Process(stage.chain.parts[name].pid)


def _model(name: str) -> Callable[[Stage], psutil.Process]:
    return lambda stage: stage.model(name)


def _resets(stage: Stage) -> None:
    """Clients that go away in the middle of a request, with a reset, two hundred of them."""
    address = urlsplit(stage.url)
    head = b"POST /layout-parsing HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n{"

    def one() -> None:
        with contextlib.suppress(OSError), socket.create_connection((address.hostname, address.port), 5) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(head)

    threads = [threading.Thread(target=one) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _jump(stage: Stage, offset: str) -> None:
    assert stage.clock is not None
    stage.clock.write_text(offset)


def _redis_away(stage: Stage) -> None:
    stage.redis.kill()


FIRST = ("gateway", "Triton's launcher", "VLM server")
PROCESSES: dict[str, Callable[[Stage], psutil.Process]] = {
    "gateway worker": lambda stage: stage.worker(),
    "gateway": _part("gateway"),
    "tritonserver": lambda stage: stage.server(),
    "Triton's launcher": _part("triton"),
    "model layout-parsing": _model("layout-parsing"),
    "model layout-detection": _model("layout-detection"),
    "model restructure-pages": _model("restructure-pages"),
    "decoder": lambda stage: stage.decoder(),
    "VLM server": _vlm(0),
}

SCENARIOS: tuple[Scenario, ...] = (
    *(_kill(name, find) for name, find in PROCESSES.items()),
    # Who watches these is the container's health check, or the VLM container's own watch: not part of this stage.
    *(_stop(name, PROCESSES[name], for_s=8) for name in FIRST),
    *(_stop(name, find) for name, find in PROCESSES.items() if name not in (*FIRST, "model restructure-pages")),
    *(_mode(f"one VLM server: {mode}", mode, 0) for mode in ("500", "503", "garbage", "half", "nothing", "slow")),
    _mode("all VLM servers: 503", "503"),
    _mode("all VLM servers: slow", "slow"),
    _mode("VLM connections reset", "reset", 0),
    Scenario("clients' connections reset", _resets),
    Scenario("disk full", lambda stage: stage.fill(stage.disk), lambda stage: stage.empty(stage.disk)),
    Scenario("/dev/shm full", lambda stage: stage.fill(SHARED_MEMORY), lambda stage: stage.empty(SHARED_MEMORY)),
    Scenario("Redis gone", _redis_away, lambda stage: stage.redis.start(), repeat=True),
    *(
        (
            Scenario("clock an hour ahead", lambda stage: _jump(stage, "+3600"), faked_clock=True),
            Scenario("clock a day behind", lambda stage: _jump(stage, "-86400"), faked_clock=True),
        )
        if FAKETIME.exists()
        else ()
    ),
    Scenario("restart of a VLM server, of two", lambda stage: stage.restart("vlm 0"), kind="restart"),
    Scenario("restart of Triton", lambda stage: stage.restart("triton"), kind="restart"),
    Scenario("restart of the only VLM server", lambda stage: stage.restart("vlm 0"), kind="restart", one_vlm=True),
)
