"""How the C library of a process deals with the memory of large blocks: bodies, bitmaps, encoded images."""

import ctypes
import logging
from typing import Final

log = logging.getLogger(__name__)

# From malloc.h of glibc.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_MIB: Final = 2**20


def keep_freed_memory(*, kept_mib: int, largest_block_mib: int) -> None:
    """Up to `kept_mib` of freed memory stay with each arena of the process; larger blocks than `largest_block_mib` (at
    most 32) go back at once. (Triton and its model processes get the like by their environment: hps.triton.binary.)

    By default every block over 128 KiB is mapped afresh and given back, and the kernel clears its pages one by one:
    that costs more than the copying. Where the C library is not glibc this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        log.info("the C library has no mallopt; large blocks cost more")
        return
    mallopt(_M_MMAP_THRESHOLD, largest_block_mib * _MIB)
    mallopt(_M_TRIM_THRESHOLD, kept_mib * _MIB)
