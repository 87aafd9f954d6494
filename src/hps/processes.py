"""Facts about processes that the standard library does not offer."""

import ctypes
import signal

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """For `preexec_fn`: SIGTERM when the thread that started us ends, so that a killed parent leaves nothing behind."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
