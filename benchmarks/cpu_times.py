"""CPU time by part of a running chain: the cost of a request, also on a busy machine, where latencies say nothing."""

import contextlib

import psutil

from tests.e2e.chain import STUB, Chain


def by_process(chain: Chain) -> dict[str, float]:
    """Seconds of CPU so far, by the name of the process."""
    seconds: dict[str, float] = {}
    for part_name, part in chain.parts.items():
        for process in part.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                name = _name(part_name, process)
                seconds[name] = seconds.get(name, 0.0) + times.user + times.system
    return seconds


def milliseconds_each(before: dict[str, float], after: dict[str, float], requests: int) -> dict[str, float]:
    """By process, what one of `requests` cost; those below 0.01 ms are left out."""
    spent = {name: (seconds - before.get(name, 0.0)) * 1000 / requests for name, seconds in after.items()}
    return {name: milliseconds for name, milliseconds in spent.items() if milliseconds >= 0.01}


def _name(part: str, process: psutil.Process) -> str:
    command = process.cmdline()
    if process.name() in (STUB, STUB[:15]):
        return next(argument for argument in command if "/1/model.py" in argument).split("/")[-3]
    if "hps.inputs.worker" in command:
        return "decoders"
    return part if process.name().startswith("python") or part != "triton" else process.name()
