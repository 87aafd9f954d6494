"""Limits that suit the GPUs of a host. Pure; the figures are from docs/performance.md.

One H200: 256 blocks in flight feed one server (5.3 pages/s), 512 feed four (10.5), 1024 eight with MPS. A page is about
12 blocks, but a request in work holds only about 3 of them at the VLM; the rest of it is being rendered, looked at or
assembled.
"""

import math
from dataclasses import dataclass
from typing import Final

from hps.vlm_server import sizing as servers

_BLOCKS_A_SERVER: Final = 128
_LEAST_BLOCKS: Final = 256
_BLOCKS_A_REQUEST: Final = 3
_REQUESTS_A_COORDINATOR: Final = 256  # HPS_MAX_PIPELINE_REQUESTS
_CORES_A_GPU: Final = 4  # a coordinator, its decoders and the gateway; the rest is for the VLM servers
_SERVER_MEMORY_GIB: Final = 10.0  # of the host, for each VLM server
_OTHER_MEMORY_GIB: Final = 8.0  # gateway, pipeline, Docker


@dataclass(frozen=True, slots=True)
class Limits:
    """replicas: VLM servers on each GPU. vlm_concurrency: blocks in flight from one coordinator. requests: in work at
    once in the gateway."""

    replicas: int
    coordinators: int
    vlm_concurrency: int
    requests: int


def limits(gpu_memory_gib: float, gpus: int, cores: int, memory_gib: float, *, mps: bool) -> Limits:
    """For `gpus` GPUs, the smallest with that much memory, in a host with so many cores and so much memory."""
    carried = int((memory_gib - _OTHER_MEMORY_GIB) / (_SERVER_MEMORY_GIB * gpus))
    replicas = max(1, min(servers.replicas(gpu_memory_gib, mps=mps), carried))
    blocks = gpus * max(_LEAST_BLOCKS, _BLOCKS_A_SERVER * replicas)
    requests = 16 * math.ceil(blocks / _BLOCKS_A_REQUEST / 16)
    needed = max(gpus, math.ceil(requests / _REQUESTS_A_COORDINATOR))
    coordinators = max(1, min(needed, cores // _CORES_A_GPU))
    return Limits(
        replicas=replicas,
        coordinators=coordinators,
        vlm_concurrency=math.ceil(blocks / coordinators),
        requests=min(requests, _REQUESTS_A_COORDINATOR * coordinators),
    )


def needed_memory_gib(replicas: int, gpus: int) -> float:
    """Of the host, for that many VLM servers on each GPU."""
    return _OTHER_MEMORY_GIB + _SERVER_MEMORY_GIB * replicas * gpus
