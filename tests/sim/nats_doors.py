"""NATS doors and their clients on the simulated network: real doors and connections, with a simulated listener.

A client has a host of its own, so faults between doors do not concern it. A connection between it and a door is a simulated
one: bytes take time, and break with the host of the door.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from iris_py.doors.settings import parse_settings
from iris_py.servers.nats.connection import NatsConnection
from iris_py.servers.nats.door import NatsDoor
from tests.nats_client import MovingClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.api.node import Node
    from iris_py.testing import NodeSimulation
    from iris_py.testing.network import MemoryHost, MemoryListener

PORT = 4222
_BUFFER_BYTES = 65_536


class Unbuffered(asyncio.BufferedProtocol):
    """Passes the bytes of a simulated connection on to a protocol without a buffer of its own.

    Args:
        inner: The protocol.

    Attributes:
        transport: The transport, once connected.
    """

    def __init__(self, inner: asyncio.Protocol) -> None:
        self.transport: Any = None
        self._inner = inner
        self._buffer = bytearray(_BUFFER_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._inner.connection_made(transport)

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class VirtualAcceptor:
    """Listens on the host of a node in place of the door's acceptor.

    Attributes:
        address: The listening address; empty before `listen`.
    """

    def __init__(self, host: MemoryHost, door: NatsDoor) -> None:
        self.address = ""
        self._host = host
        self._door = door
        self._listener: MemoryListener | None = None
        self._accepted = 0

    async def listen(self, host: str, port: int) -> None:
        self._listener = await self._host.listen(self._accept, host, port)
        self.address = f"{host}:{port}"

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

    def _accept(self) -> Unbuffered:
        connections = self._door._connections
        self._accepted += 1
        address = f"client {self._accepted}"
        place = connections.counts.open(address)
        assert not isinstance(place, str), place
        connections._empty.clear()
        return Unbuffered(NatsConnection(self._door._parts, place, address))


async def open_virtual_door(simulation: NodeSimulation, node: Node) -> NatsDoor:
    """Open a door on the host of a node."""
    host = simulation.host_of(node)
    door = NatsDoor(node, parse_settings(f"[nats]\nlisten = '{host}:{PORT}'\n", "door.toml"))
    door._acceptor = VirtualAcceptor(simulation.network.host(host), door)  # type: ignore[assignment]
    await door.begin()
    return door


def kill_door(simulation: NodeSimulation, door: NatsDoor) -> None:
    """End a door and its node as a crash of the process would."""
    simulation.kill(door.node)
    for each in (door._task, door._cluster._task):
        if each is not None:
            each.cancel()


def make_client(simulation: NodeSimulation, name: str, servers: Sequence[str]) -> MovingClient:
    """Return a client on a host of its own."""
    host = simulation.network.host(f"client {name}")
    return MovingClient(name, partial(_dial, host), list(servers))


async def _dial(host: MemoryHost, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name, port = address.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    make: Callable[[], Unbuffered] = partial(Unbuffered, protocol)
    outer = await host.dial(make, name, int(port))
    return reader, asyncio.StreamWriter(outer.transport, protocol, reader, loop)
