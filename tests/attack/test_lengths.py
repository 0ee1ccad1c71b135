"""Lengths that lie, pieces cut at every byte, and bits that are flipped: in the handshake, and on a link that runs."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from tests.attack.insider import SECRET
from tests.attack.recorder import Recorder, address_of, let_read, linked
from tests.wire.client import CLOSE, HELLO, PING, REQUEST, UNICAST, WireClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.awaitable_context import Opening
    from tests.integration.conftest import Loops

RECORD_BYTES_MAX = 320 * 1024
TAG_BYTES = 16
#: Handshakes at once: fewer than a node has room for.
AT_ONCE = 32
#: For an answer that has to come; a test that fails waits for so long (seconds).
PATIENCE_S = 30.0


async def echo(request: iris.Request) -> bytes:
    return request.payload


def connect(*seeds: str) -> Opening[iris.Node]:
    return iris.connect(secret=SECRET, discovery=False, seeds=seeds)


# -- the handshake


class Changed(Recorder):
    """A node whose bytes are changed on their way: all that it writes, as one stream, until the link is open.

    Args:
        change: Given the stream up to now and its next piece, returns what is sent; None to end it there.
    """

    def __init__(self, change: Callable[[int, bytes], bytes | None]) -> None:
        super().__init__(SECRET)
        self._change = change
        self.written = 0

    async def dial(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await super().dial(host, port)
        write = writer.write

        def change(data: bytes) -> None:
            changed = self._change(self.written, bytes(data))
            self.written += len(data)
            if changed is None:
                writer.write_eof()
            else:
                write(changed)
                if len(changed) < len(data):
                    writer.write_eof()

        writer.write = change  # type: ignore[assignment,method-assign]
        return reader, writer


async def is_refused(node: iris.Node, client: Changed) -> bool:
    """Tell whether a node ends a link before it is open."""
    try:
        async with asyncio.timeout(PATIENCE_S), linked(client, node):
            return False
    except (asyncio.IncompleteReadError, ConnectionError, RuntimeError):  # it cannot write after the end
        return True


async def refuse_all(node: iris.Node, clients: list[Changed]) -> None:
    for start in range(0, len(clients), AT_ONCE):
        refused = await asyncio.gather(*(is_refused(node, client) for client in clients[start : start + AT_ONCE]))
        assert all(refused), [start + number for number, each in enumerate(refused) if not each]


def test_a_handshake_that_ends_at_any_byte_leads_to_nothing(loop: Loops) -> None:
    def cut_at(end: int) -> Callable[[int, bytes], bytes | None]:
        return lambda start, data: data[: end - start] if start < end else None

    async def main() -> None:
        async with connect() as node, node.join("echo", echo):
            whole = Changed(lambda _start, data: data)
            async with linked(whole, node):
                pass
            await refuse_all(node, [Changed(cut_at(end)) for end in range(whole.written)])
            assert await node.request("echo", b"still here") == b"still here"
            assert len(node.nodes()) == 1
            await loop.until(lambda: not node._core.peers.peer_by_link, "nothing is left of them")

    loop.run(main())


@pytest.mark.timeout(300)  # a thousand handshakes and more, of which a quiet machine makes 150 a second
def test_each_flipped_bit_of_a_hello_leads_to_nothing(loop: Loops) -> None:
    def flip(bit: int) -> Callable[[int, bytes], bytes]:
        def change(start: int, data: bytes) -> bytes:
            changed = bytearray(data)
            if start <= bit // 8 < start + len(data):
                changed[bit // 8 - start] ^= 1 << bit % 8
            return bytes(changed)

        return change

    async def main() -> None:
        async with connect() as node:
            whole = Changed(lambda _start, data: data)
            async with linked(whole, node):
                pass
            # Behind the first message, and behind the length of the record: one that is too large is waited for.
            begin = len(whole.recorded[0]) + 4
            await refuse_all(node, [Changed(flip(bit)) for bit in range(8 * begin, 8 * whole.written)])
            assert len(node.nodes()) == 1

    loop.run(main(), patience_s=270)


class Truncated(Recorder):
    """An insider whose first frame is shorter than it says, or as short as it says."""

    def __init__(self, size: int) -> None:
        super().__init__(SECRET)
        self.size = size
        self.full = 0

    def send_frame(self, kind: int, body: bytes) -> None:
        if kind == HELLO:
            self.full = len(body)
            body = body[: self.size]
        super().send_frame(kind, body)


def test_a_hello_that_is_cut_at_any_byte_is_refused(loop: Loops) -> None:
    async def main() -> None:
        async with connect() as node:
            async with linked(Truncated(1 << 16), node) as whole:
                pass

            async def refused(size: int) -> None:
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    async with asyncio.timeout(PATIENCE_S), linked(Truncated(size), node):
                        pass

            for start in range(0, whole.full, AT_ONCE):
                await asyncio.gather(*map(refused, range(start, min(start + AT_ONCE, whole.full))))
            assert len(node.nodes()) == 1

    loop.run(main())


def test_a_conversation_of_two_nodes_goes_through_byte_by_byte(loop: Loops) -> None:
    async def main() -> None:
        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1 << 16):
                for byte in data:
                    writer.write(bytes((byte,)))
                    await asyncio.sleep(0)  # so that it is read before the next one comes
            writer.close()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection(*address_of(node))
            await asyncio.gather(forward(reader, back), forward(there, writer))

        async with connect() as node, node.join("echo", echo):
            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            async with server, connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as caller:
                for size in (0, 1, 1_000):
                    assert await caller.request("echo", bytes(size)) == bytes(size)

    loop.run(main())


# -- a link that runs


def test_a_record_in_two_pieces_cut_anywhere_is_read(loop: Loops) -> None:
    async def main() -> None:
        async with (
            connect() as node,
            node.join("echo", echo),
            linked(Recorder(SECRET), node) as client,
            linked(Recorder(SECRET), node) as friend,
        ):
            written: list[bytes] = []
            write, client._writer.write = client._writer.write, written.append  # type: ignore[assignment,method-assign]
            group, at = client.group("cluster", "echo"), 1
            while True:
                client.send(group, REQUEST, at, 60_000, b"%d" % at)
                record = written.pop()
                if at == len(record):
                    break
                write(record[:at])
                await let_read(friend)
                write(record[at:])
                assert (await client.next_body())[2:6] == (at, 0, b"", b"%d" % at)
                at += 1
            assert at > TAG_BYTES

    loop.run(main())


@pytest.mark.parametrize("length", [0, 1, TAG_BYTES - 1, TAG_BYTES, RECORD_BYTES_MAX + 1, 1 << 31, (1 << 32) - 1])
def test_a_record_whose_length_lies_ends_its_link_at_once(loop: Loops, length: int) -> None:
    async def main() -> None:
        async with connect() as node, node.join("echo", echo), linked(Recorder(SECRET), node) as friend:
            async with linked(Recorder(SECRET), node) as client:
                client._writer.write(struct.pack(">I", length) + bytes(min(length, 1_000)))
                await ended(client)
            assert await friend.ask("echo", b"of another link") == b"of another link"

    loop.run(main())


async def ended(client: WireClient) -> None:
    """Return when the peer has ended the link."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while (await client.next_frame())[0] != CLOSE:
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


@pytest.mark.parametrize("kind", [*range(13), 255])
def test_frames_whose_length_lies_end_their_link_alone(loop: Loops, kind: int) -> None:
    empty, beyond = struct.pack(">BI", kind, 0), [struct.pack(">BI", kind, length) for length in (1, 5, (1 << 32) - 1)]
    whole = struct.pack(">BI", PING, 0)

    async def main() -> None:
        async with connect() as node, node.join("echo", echo), linked(Recorder(SECRET), node) as friend:
            for record in (*beyond, whole + beyond[0], *(whole + empty[:size] for size in range(1, 5))):
                async with linked(Recorder(SECRET), node) as client:
                    send_record(client, record)
                    await ended(client)
            async with linked(Recorder(SECRET), node) as client:
                send_record(client, empty * 10)  # of some kinds that is nothing, of others a violation
                await let_read(friend)
            assert await friend.ask("echo", b"of another link") == b"of another link"

    loop.run(main())


def send_record(client: WireClient, frames: bytes) -> None:
    """Send a record, whatever is in it."""
    sealed = client._seal.encrypt(bytes(4) + struct.pack(">Q", client._sent), frames, None)
    client._sent += 1
    client._writer.write(struct.pack(">I", len(sealed)) + sealed)


def test_a_body_that_is_cut_at_any_byte_and_sizes_that_lie_execute_nothing(loop: Loops) -> None:
    asked: list[bytes] = []

    def keep(request: iris.Request) -> bytes:
        asked.append(request.payload)
        return b""

    message = struct.pack(">BBHIQI", REQUEST, 0, 0, 8, 1, 60_000) + b"12345678"
    lying = [
        struct.pack(">BBHIQI", REQUEST, 0, head, size, 1, 60_000) + b"12345678"
        for head, size in ((0, 9), (0, 0xFFFF_FFFF), (9, 0), (1, 8), (0xFFFF, 0), (0xFFFF, 0xFFFF_FFFF))
    ]

    async def main() -> None:
        async with connect() as node, node.join("echo", keep), linked(Recorder(SECRET), node) as client:
            group = client.group("cluster", "echo")
            bodies = [*(message[:size] for size in range(1, len(message))), *lying]
            for number, body in enumerate((*bodies, b"", message)):
                nonce = struct.pack(">IQ", 1, number)
                sealed = group.body_key(client.id, 1).encrypt(nonce, body, group.id + client.id + client.peer[0])
                client.send_frame(UNICAST, group.id + nonce + sealed)
            await loop.until(lambda: asked, "the whole one was executed")
            assert asked == [b"12345678"]
            assert node.statistics().drops == {"malformed": len(bodies)}

    loop.run(main())
