"""An honest node whose bytes somebody has recorded, and datagrams of one that answers none."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, TypeVar

from tests.wire.client import PING, PONG, REPLY, REQUEST, WireClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    import iris_py as iris

Client = TypeVar("Client", bound=WireClient)

#: Datagrams get lost. So often one is sent before a test fails that wants an answer, which it waits for so long each time.
ATTEMPTS_MAX, ANSWER_S = 60, 0.5


def address_of(node: iris.Node) -> tuple[str, int]:
    host, port = node.address.split(":")
    return host, int(port)


@asynccontextmanager
async def linked(client: Client, node: iris.Node) -> AsyncIterator[Client]:
    """Link to a node; the connection is gone afterwards, whatever happens."""
    try:
        await client.connect(*address_of(node))
        yield client
    finally:
        client._writer.transport.abort()


async def let_read(friend: WireClient) -> None:
    """Return when a node has read what was sent to it before: it answers what another link brings later."""
    friend.send_frame(PING, b"")
    while (await friend.next_frame())[0] != PONG:
        pass


class Recorder(WireClient):
    """A stranger's node; it keeps what it writes, and what it reads.

    Attributes:
        recorded: What it sent: the first message, then each record.
        heard: All bytes that came.
    """

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self.recorded: list[bytes] = []
        self.heard = bytearray()

    async def dial(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await super().dial(host, port)
        write, read = writer.write, reader.readexactly

        def record(data: bytes) -> None:
            self.recorded.append(bytes(data))
            write(data)

        async def hear(count: int) -> bytes:
            data = await read(count)
            self.heard += data
            return data

        writer.write = record  # type: ignore[assignment,method-assign]
        reader.readexactly = hear  # type: ignore[assignment,method-assign]
        return reader, writer

    async def ask(self, cluster: str, payload: bytes) -> bytes:
        """Ask the peer something, as a member that it is linked to."""
        self.send(self.group("cluster", cluster), REQUEST, 7, 5_000, payload)
        kind, _group, id_, _argument, _head, answer, _flags = await self.next_body()
        assert (kind, id_) == (REPLY, 7)
        return bytes(answer)


class DatagramSocket:
    """A socket for datagrams to one node, for use with `with`."""

    def __init__(self, node: iris.Node) -> None:
        self._node = address_of(node)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __enter__(self) -> Self:
        self._socket.setblocking(False)
        self._socket.bind(("127.0.0.1", 0))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def send(self, datagram: bytes) -> None:
        self._socket.sendto(datagram, self._node)

    async def ping(self, client: WireClient, target: bytes) -> bytes:
        """Ask a node whether it lives, until it answers; return the datagram that was answered.

        Answers are told by their key id and sender; nobody else sends here.
        """
        loop = asyncio.get_running_loop()
        for number in range(ATTEMPTS_MAX):
            datagram = client.seal_datagram([65, number, client.id, target, None])
            self.send(datagram)
            try:
                async with asyncio.timeout(ANSWER_S):
                    answer = await loop.sock_recv(self._socket, 2048)
            except TimeoutError:
                continue
            assert answer[9:25] == target
            return datagram
        raise AssertionError("the node does not answer")

    def answers(self) -> list[bytes]:
        """Return what came and was not taken."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(2048))
            except BlockingIOError:
                return found
