"""Limits that suit the GPUs of a host. Pure; the figures are from docs/performance.md.

Measured on one H200 with four VLM servers: 384 one-page requests in work reach 97 % of what the servers can do, 256
reach 91 %, with 512 blocks allowed from each of two coordinators. A page is about 12 blocks, but much of a request's
time is decoding, layout and assembly, and its blocks do not all take equally long.
"""

import math
from dataclasses import dataclass
from typing import Final

from hps.vlm_server import sizing as servers

_BLOCKS_A_SERVER: Final = 256  # as many as a server runs at once; coordinators send fewer while they queue there
_REQUESTS_A_SERVER: Final = 96
_REQUESTS_A_COORDINATOR: Final = 256  # HPS_MAX_PIPELINE_REQUESTS
_CORES_A_COORDINATOR: Final = 4  # itself, its decoders and the gateway; the rest is for the VLM servers
_SERVER_MEMORY_GIB: Final = 10.0  # of the host, for each VLM server
_OTHER_MEMORY_GIB: Final = 8.0  # gateway, pipeline, Docker
_LEAST_PIPELINE_MEMORY_GIB: Final = 32  # the default of HPS_PIPELINE_MEMORY
_PIPELINE_MEMORY_GIB: Final = 8.0  # model processes, /dev/shm, /tmp
_REQUEST_MEMORY_GIB: Final = 1 / 16  # HPS_PAGE_WINDOW A4 pages at 144 dpi, 6 MB each, and what is made of them


@dataclass(frozen=True, slots=True)
class Limits:
    """replicas: VLM servers on each GPU. vlm_concurrency: blocks in flight from one coordinator. requests: in work at
    once in the gateway. pipeline_memory_gib: what the pipeline's container may take if all of them have many pages."""

    replicas: int
    coordinators: int
    vlm_concurrency: int
    requests: int
    pipeline_memory_gib: int

    def variables(self) -> dict[str, str]:
        """As .env has them, less those that are the defaults of the Compose files on every host."""
        values = {
            "HPS_VLM_REPLICAS": str(self.replicas),
            "HPS_COORDINATORS": str(self.coordinators),
            "HPS_VLM_MAX_CONCURRENCY": str(self.vlm_concurrency),
            "HPS_MAX_CONCURRENT_INFERENCE_REQUESTS": str(self.requests),
        }
        if self.pipeline_memory_gib > _LEAST_PIPELINE_MEMORY_GIB:
            values["HPS_PIPELINE_MEMORY"] = f"{self.pipeline_memory_gib}g"
        return values


def limits(gpu_memory_gib: float, gpus: int, cores: int, memory_gib: float, *, mps: bool) -> Limits:
    """For `gpus` GPUs, the smallest with that much memory, in a host with so many cores and so much memory."""
    carried = int((memory_gib - _OTHER_MEMORY_GIB) / (_SERVER_MEMORY_GIB * gpus))
    replicas = max(1, min(servers.replicas(gpu_memory_gib, mps=mps), carried))
    requests = _REQUESTS_A_SERVER * replicas * gpus
    needed = max(gpus, math.ceil(requests / _REQUESTS_A_COORDINATOR))
    coordinators = max(1, min(needed, cores // _CORES_A_COORDINATOR))
    requests = min(requests, _REQUESTS_A_COORDINATOR * coordinators)
    return Limits(
        replicas=replicas,
        coordinators=coordinators,
        vlm_concurrency=math.ceil(_BLOCKS_A_SERVER * replicas * gpus / coordinators),
        requests=requests,
        pipeline_memory_gib=max(
            _LEAST_PIPELINE_MEMORY_GIB, math.ceil(_PIPELINE_MEMORY_GIB + _REQUEST_MEMORY_GIB * requests)
        ),
    )


def needed_memory_gib(replicas: int, gpus: int) -> float:
    """Of the host, for that many VLM servers on each GPU."""
    return _OTHER_MEMORY_GIB + _SERVER_MEMORY_GIB * replicas * gpus
