"""Free ports of loopback for servers that are about to start."""

import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

LOOPBACK = "127.0.0.1"
_LOWEST = 20_000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@contextlib.contextmanager
def reserved(count: int, *, but: int | None = None) -> Iterator[list[int]]:
    """Different free ports, none of them `but`, that nobody else who looks for a free one gets until the end.

    Each is held by a bound socket that does not listen: a server that sets SO_REUSEADDR, as servers do, can still take
    the port, and give it back and take it again. Raises OSError when there are not as many.
    """
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        candidates = [port for port in _range() if port != but]
        random.shuffle(candidates)
        for port in candidates:
            if len(found) == count:
                break
            holder = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                holder.bind((LOOPBACK, port))
                # After the bind, so that it fails for a port that another one holds.
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                found.append(port)
        if len(found) < count:
            raise OSError(f"no {count} free ports in {_range()}")
        yield found


def free_ports(count: int) -> list[int]:
    """Different ports that were free a moment ago; for servers that bind them soon."""
    with reserved(count) as ports:
        return ports


def free_port() -> int:
    """As `free_ports`."""
    return free_ports(1)[0]


def check_free(host: str, port: int) -> None:
    """Raises OSError, whose message is for the user, when a server at this address would fail to start."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(error.errno, f"port {port} of {host} cannot be used: {error.strerror}") from None


def reachable(host: str) -> str:
    """The address at which a client on this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)


def _range() -> range:
    """Below what the kernel gives to outgoing connections: one of those could take a port before its server starts."""
    try:
        first_ephemeral = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError):
        first_ephemeral = 32_768
    return range(_LOWEST, first_ephemeral) if first_ephemeral > _LOWEST + 1000 else range(_LOWEST, 65_536)
