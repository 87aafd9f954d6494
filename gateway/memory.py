"""Makes the C library keep the memory that bodies have used instead of giving it back after each request."""

import ctypes
import logging

log = logging.getLogger(__name__)

# From malloc.h of glibc.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

KEPT_BYTES = 128 * 2**20
LARGEST_KEPT_BYTES = 32 * 2**20


def keep_freed_memory() -> None:
    """Up to KEPT_BYTES of freed memory stay with the process; blocks over LARGEST_KEPT_BYTES go back at once.

    A body of 1 MB is copied a few times on its way. By default every copy maps fresh pages and unmaps them again,
    which costs more than the copying (measured: 1.36 ms against 0.14 ms for building one request). Where the C library
    is not glibc this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        log.info("the C library has no mallopt; large bodies cost more")
        return
    mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
