"""The command line of one vLLM server. Pure."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# vLLM releases from this one on refuse per-request pixel budgets, which some pages and options need, without the flag.
_TRUSTS_REQUEST_KWARGS = (0, 31)

Flags = Mapping[str, str | int | float | bool]
_SECRET = "--api-key"


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """model: folder or name. name: that it is served under. version: of vLLM, major and minor. memory_share: of the
    GPU's memory that must be free when it starts, None without a GPU. api_processes: HTTP and image preprocessing, for
    each server. overrides: flags by name without dashes, from a file; extra: a command line's
    end. Both win over ours, `extra` over `overrides`."""

    model: str
    name: str
    version: tuple[int, int]
    kv_cache_gib: float
    memory_share: float | None = None
    api_processes: int = 1
    max_sequences: int = 256
    host: str = "0.0.0.0"
    api_key: str | None = None
    overrides: Flags = field(default_factory=dict)
    extra: Sequence[str] = ()


def serve(plan: ServerPlan, port: int) -> list[str]:
    """`vllm serve …` with flags for this model: caches that a stream of different pages never hits are off, prompts of
    a page's largest crop fit, and no code is taken from the checkpoint (with transformers 5 that stops the start)."""
    flags: dict[str, str | int | float | bool] = {
        "served-model-name": plan.name,
        "host": plan.host,
        "port": port,
        "max-model-len": 16384,
        "max-num-batched-tokens": 16384,
        "max-num-seqs": plan.max_sequences,
        "enable-prefix-caching": False,
        "mm-processor-cache-gb": 0,
        "limit-mm-per-prompt": '{"image": 1}',
        "kv-cache-memory-bytes": int(plan.kv_cache_gib * 2**30),
        "disable-uvicorn-access-log": True,
    }
    if plan.memory_share is not None:
        # The cache has its size, but vLLM still refuses to start unless this much is free: by default 92 %, which it
        # never is for a server that is started again beside others.
        flags["gpu-memory-utilization"] = plan.memory_share
    if plan.api_processes > 1:
        flags["api-server-count"] = plan.api_processes
    if plan.version >= _TRUSTS_REQUEST_KWARGS:
        flags["trust-request-mm-kwargs"] = True
    if plan.api_key:
        flags["api-key"] = plan.api_key
    flags |= {name.lstrip("-").replace("_", "-"): value for name, value in plan.overrides.items()}
    return ["vllm", "serve", plan.model, *_arguments(flags), *plan.extra]


def shown(command: Sequence[str]) -> str:
    """The command as it may be logged."""
    parts = list(command)
    for index, part in enumerate(parts):
        if part == _SECRET and index + 1 < len(parts):
            parts[index + 1] = "***"
        elif part.startswith(f"{_SECRET}="):
            parts[index] = f"{_SECRET}=***"
    return shlex.join(parts)


def _arguments(flags: Flags) -> list[str]:
    arguments: list[str] = []
    for name, value in flags.items():
        if value is True:
            arguments.append(f"--{name}")
        elif value is False:
            arguments.append(f"--no-{name}")
        else:
            arguments += [f"--{name}", str(value)]
    return arguments
