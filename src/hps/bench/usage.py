"""What a run cost: CPU by process, the machine's share, and the GPU where there is one."""

import asyncio
import contextlib
import shutil
import statistics
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import psutil

STUB = "triton_python_backend_stub"
_QUERY = ["--query-gpu=utilization.gpu,power.draw", "--format=csv,noheader,nounits", "-lms", "500"]


@dataclass(slots=True)
class Usage:
    """cpu_s: seconds of CPU by process name, of the chain's processes on this machine. cpu_busy: share of the whole
    machine, 0 to 1. gpu_busy (0 to 1) and gpu_watts: means over the run and the GPUs; None without nvidia-smi."""

    cpu_s: Mapping[str, float] = field(default_factory=dict)
    cpu_busy: float = 0.0
    gpu_busy: float | None = None
    gpu_watts: float | None = None


def cpu_by_process(roots: Mapping[str, int]) -> dict[str, float]:
    """Seconds of CPU so far by process name. roots: name → pid of a part; what it started is told apart where it is
    known: decoders, and Triton's models by their names."""
    seconds: dict[str, float] = {}
    for part, pid in roots.items():
        for process in _tree(pid):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = process.cpu_times()
                name = process_name(part, process)
                seconds[name] = seconds.get(name, 0.0) + times.user + times.system
    return seconds


def process_name(part: str, process: psutil.Process) -> str:
    command = process.cmdline()
    if process.name() in (STUB, STUB[:15]):
        return next((argument.split("/")[-3] for argument in command if "/1/model.py" in argument), STUB)
    if "hps.inputs.worker" in command:
        return "decoders"
    return "tritonserver" if process.name() == "tritonserver" else part


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@contextlib.asynccontextmanager
async def measured(roots: Mapping[str, int]) -> AsyncIterator[Usage]:
    """Fills what it yields when the block ends."""
    usage = Usage()
    before = cpu_by_process(roots)
    psutil.cpu_percent()
    async with _gpu_samples() as samples:
        yield usage
    usage.cpu_busy = psutil.cpu_percent() / 100
    usage.cpu_s = {name: spent - before.get(name, 0.0) for name, spent in cpu_by_process(roots).items()}
    if samples:
        usage.gpu_busy = statistics.fmean(busy for busy, _ in samples) / 100
        usage.gpu_watts = statistics.fmean(watts for _, watts in samples)


@contextlib.asynccontextmanager
async def _gpu_samples() -> AsyncIterator[list[tuple[float, float]]]:
    """(busy %, watts) twice a second of every GPU."""
    samples: list[tuple[float, float]] = []
    program = shutil.which("nvidia-smi")
    if program is None:
        yield samples
        return
    process = await asyncio.create_subprocess_exec(program, *_QUERY, stdout=asyncio.subprocess.PIPE)
    reader = asyncio.create_task(_read(process.stdout, samples))
    try:
        yield samples
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reader


async def _read(output: asyncio.StreamReader | None, samples: list[tuple[float, float]]) -> None:
    assert output is not None
    async for line in output:
        with contextlib.suppress(ValueError):  # "[N/A]" for what a GPU does not tell
            busy, watts = (float(value) for value in line.decode().split(","))
            samples.append((busy, watts))
