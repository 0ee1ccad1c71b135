"""An outsider, who holds no secret but has recorded what honest nodes said, against a real node (docs/security.md)."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from tests.attack.recorder import Recorder, address_of, let_read, linked

if TYPE_CHECKING:
    from tests.integration.conftest import Loops

SECRET = bytes(range(32))
#: Where the first message has its length, and where that ends.
LENGTH_AT, PREAMBLE_BYTES = 17, 19
#: How long an outsider waits for an answer that must not come (seconds). It waits for the end of the connection, so this only
#: bounds a test that fails.
PATIENCE_S = 30.0
#: Connections at once: fewer than a node has room for strangers, or it would end some for want of room.
AT_ONCE = 32


async def record_session(node: iris.Node) -> list[bytes]:
    """Let an honest node ask something, and return what it sent: the first message, then each record."""
    client = Recorder(SECRET)
    await client.connect(*address_of(node))
    assert await client.ask("echo", b"once") == b"once"
    await client.close()
    return client.recorded


async def say(node: iris.Node, data: bytes) -> bytes:
    """Send bytes on a connection of their own, and end our side; return what the node says until it ends the connection."""
    reader, writer = await asyncio.open_connection(*address_of(node))
    try:
        writer.write(data)
        await writer.drain()
        writer.write_eof()  # or it would wait for the rest of what is not complete
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def say_all(node: iris.Node, messages: list[bytes]) -> list[bytes]:
    """Say each on a connection of its own, a few at once; return the answers in order."""
    answers: list[bytes] = []
    for start in range(0, len(messages), AT_ONCE):
        answers += await asyncio.gather(*(say(node, message) for message in messages[start : start + AT_ONCE]))
    return answers


class Echo(iris.Handler):
    """Answers, and counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    async def on_request(self, request: iris.Request) -> bytes:
        self.asked.append(request.payload)
        return request.payload


def test_a_session_that_is_played_again_is_not_executed_again(loop: Loops) -> None:
    async def main() -> None:
        handler = Echo()
        async with iris.connect(secret=SECRET, discovery=False) as node, node.join("echo", handler):
            sessions = [await record_session(node) for _ in range(2)]
            assert handler.asked == [b"once"] * 2
            first, second = sessions
            played = [
                b"".join(first),
                first[0] + b"".join(second[1:]),  # records of one behind the handshake of another
                b"".join(first[:1] * 2 + first[1:]),
                b"".join(first[1:]),  # no handshake
                first[0] + b"".join(reversed(first[1:])),
                first[0] + b"".join(first[2:]),  # without its HELLO
                b"".join(first[:2]),
            ]
            answers = await say_all(node, played * 5)
            assert handler.asked == [b"once"] * 2
            for answer in answers:  # message 2 is all that whoever repeats message 1 ever gets
                assert not answer or len(answer) == 2 + struct.unpack_from(">H", answer)[0]
            assert await node.request("echo", b"still here") == b"still here"
            assert len(node.nodes()) == 1

    loop.run(main())


def test_each_bit_of_the_first_message_counts(loop: Loops) -> None:
    async def main() -> None:
        async with iris.connect(secret=SECRET, discovery=False) as node:
            (message, *_records) = await record_first_message(node)
            changed = []
            for bit in range(8 * len(message)):
                flipped = bytearray(message)
                flipped[bit // 8] ^= 1 << bit % 8
                changed.append(bytes(flipped))
            assert await say_all(node, changed) == [b""] * len(changed)

    loop.run(main())


async def record_first_message(node: iris.Node) -> list[bytes]:
    client = Recorder(SECRET)
    await client.connect(*address_of(node))
    await client.close()
    return client.recorded


@pytest.mark.parametrize("length", [0, 1, 47, 49, 4096, 4097, 0xFFFF])
def test_lengths_that_lie_are_answered_with_nothing(loop: Loops, length: int) -> None:
    async def main() -> None:
        async with iris.connect(secret=SECRET, discovery=False) as node:
            (message, *_records) = await record_first_message(node)
            lying = message[:LENGTH_AT] + struct.pack(">H", length) + message[PREAMBLE_BYTES:]
            assert await say(node, lying + bytes(5_000)) == b""

    loop.run(main())


def test_a_first_message_in_two_pieces_cut_anywhere_is_answered(loop: Loops) -> None:
    async def main() -> None:
        async with iris.connect(secret=SECRET, discovery=False) as node:
            (message, *_records) = await record_first_message(node)

            async with linked(Recorder(SECRET), node) as friend:
                for at in range(1, len(message)):
                    reader, writer = await asyncio.open_connection(*address_of(node))
                    try:
                        writer.write(message[:at])
                        await let_read(friend)
                        writer.write(message[at:])
                        async with asyncio.timeout(PATIENCE_S):
                            assert await reader.readexactly(struct.unpack(">H", await reader.readexactly(2))[0])
                    finally:
                        writer.close()

    loop.run(main())
