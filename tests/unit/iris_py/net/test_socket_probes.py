"""Trying sockets: ports, multicast."""

from __future__ import annotations

import asyncio
import socket

import pytest

from iris_py.net.socket_probes import hears_itself, try_port
from tests.ports import free_port


@pytest.mark.parametrize("is_udp", [False, True])
def test_a_port_is_tried_and_given_back(is_udp: bool) -> None:
    kind = socket.SOCK_DGRAM if is_udp else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as holder:
        holder.bind(("127.0.0.1", free_port()))  # a number that nobody takes when it is given back
        port = holder.getsockname()[1]
        if not is_udp:
            holder.listen()
        assert "in use" in asyncio.run(try_port("127.0.0.1", port, is_udp=is_udp))
    assert (
        asyncio.run(try_port("127.0.0.1", port, is_udp=is_udp)) == asyncio.run(try_port("127.0.0.1", port, is_udp=is_udp)) == ""
    )
    assert "assign" in asyncio.run(try_port("198.51.100.1", port, is_udp=is_udp))


def test_multicast_works_on_loopback_and_nowhere_else_by_mistake() -> None:
    assert asyncio.run(hears_itself("127.0.0.1"))
    assert not asyncio.run(hears_itself("198.51.100.1"))
