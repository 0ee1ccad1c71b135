"""Figures of TCP connections, read from real ones."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from typing import TYPE_CHECKING, cast

import pytest
import uvloop

from iris_py.net.tcp_info import retransmissions, round_trip_s

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 60.0
CLIENTS = 5


class _Transport:
    """The transport of a socket."""

    def __init__(self, sock: socket.socket | None) -> None:
        self._sock = sock

    def get_extra_info(self, name: str) -> socket.socket | None:
        assert name == "socket"
        return self._sock


def read(sock: socket.socket | None) -> int | None:
    return retransmissions(cast("asyncio.BaseTransport", _Transport(sock)))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_segments_that_were_sent_again_are_counted() -> None:
    """A listener with a full queue drops the first segment of further connections, so the system sends it again."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address, clients = listener.getsockname(), [socket.socket() for _ in range(CLIENTS)]
        try:
            for client in clients:
                client.setblocking(False)
                client.connect_ex(address)
            deadline = time.monotonic() + PATIENCE_S
            while not read(clients[-1]):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert read(clients[0]) == 0
            assert 0 < round_trip_s(clients[0]) < PATIENCE_S
        finally:
            for client in clients:
                client.close()


def test_transports_without_such_a_socket_have_none() -> None:
    assert read(None) is None
    with socket.socket(socket.AF_UNIX) as other:
        assert read(other) is None
        other.close()
        assert read(other) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
@pytest.mark.parametrize("make_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_transports_of_both_event_loops_are_read(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> int | None:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            _reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            found = retransmissions(writer.transport)
            writer.close()
        return found

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(main()) == 0
