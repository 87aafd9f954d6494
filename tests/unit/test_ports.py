"""Ports for servers that are about to start: different, free, and kept."""

import socket

import pytest

from hps import ports
from hps.ports import LOOPBACK


def test_reserved_ports_are_different_and_below_those_of_outgoing_connections() -> None:
    with ports.reserved(50) as found, socket.socket() as outgoing:
        outgoing.bind((LOOPBACK, 0))
        assert len(set(found)) == 50
        assert max(found) < outgoing.getsockname()[1]


def test_nobody_else_is_given_a_reserved_port() -> None:
    with ports.reserved(1) as (port,), socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, port))


def test_a_server_can_take_its_reserved_port_again_and_again() -> None:
    with ports.reserved(1) as (port,):
        for _ in range(2):
            with socket.create_server((LOOPBACK, port)):
                socket.create_connection((LOOPBACK, port)).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port))


def test_a_port_in_use_is_named() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} of 0.0.0.0 cannot be used: Address already in use"):
            ports.check_free("0.0.0.0", port)
    ports.check_free("0.0.0.0", port)


@pytest.mark.parametrize(("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.1.2.3", "10.1.2.3")])
def test_where_a_server_is_reached(host: str, reached: str) -> None:
    assert ports.reachable(host) == reached
