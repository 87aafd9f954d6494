"""How many servers a GPU carries, and how much memory each keeps for its KV cache. Pure.

Measured on one H200 with the 0.9B model (docs/performance.md): one server leaves the GPU mostly idle, as its engine
process launches kernels from one thread. Without MPS servers take turns, and two do as much as four. With MPS their
kernels overlap: four make a quarter more than two without.
"""

import math
from typing import Final

_SERVER_GIB: Final = 16.0  # 2 weights, 8 KV cache, about 5 activations and graphs, the CUDA context
_REST_GIB: Final = 8.0  # the layout model, its context, and air
_MOST: Final = 2
_MOST_WITH_MPS: Final = 4
_KV_GIB: Final = 8.0
_LEAST_KV_GIB: Final = 1.0
_OTHERS_GIB: Final = 8.0  # of a server, beside its KV cache


def replicas(memory_gib: float, *, mps: bool) -> int:
    """Servers for a GPU of that much memory; at least 1."""
    fitting = int((memory_gib - _REST_GIB) / _SERVER_GIB)
    return max(1, min(fitting, _MOST_WITH_MPS if mps else _MOST))


def kv_cache_gib(memory_gib: float, servers: int) -> float:
    """For each server. It has to be named: what one measures as free, its neighbours are about to take."""
    share = (memory_gib - _REST_GIB) / servers - _OTHERS_GIB
    return min(_KV_GIB, max(_LEAST_KV_GIB, float(int(share * 2)) / 2))


def memory_share(memory_gib: float, kv_cache_gib: float) -> float:
    """The share of the GPU's memory that one server takes, for vLLM's check at its start; above 0, at most 0.95."""
    return min(0.95, math.ceil((kv_cache_gib + _OTHERS_GIB) / memory_gib * 100) / 100)
