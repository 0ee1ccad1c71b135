"""The amount that waits on the way to a receiver that is behind, counted and not timed: messages grow old there.

The receiver stands still in a thread of its own, and the publisher sends until it has to wait.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import uvloop

import iris_py
from iris_py.link.config import LinkConfig
from iris_py.net.driver import RECEIVE_BUFFER_BYTES, WRITE_BATCH_BYTES, WRITE_BUFFER_BYTES
from iris_py.net.sockets import NOTSENT_BYTES_MAX
from iris_py.patterns.topic.bodies import PublicationBatch
from iris_py.patterns.topic.publisher import Publisher
from iris_py.peers.group import BODY_BYTES
from iris_security import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

SECRET = Secret(bytes(range(32)))
SIZE = 1024
WARM_UP = 100
#: Messages of 16 KiB in a full batch (``RUN_BODY_BYTES_MAX``).
FULL_MESSAGES = 14
#: More than any bound, and than the buffers of two sockets without bounds.
MOST = 64 * 1024
#: Turns of the event loop without progress, after which the publisher waits for the receiver.
STANDING_TURNS = 2_000
#: The receive buffer with which the system begins (tcp(7), tcp_rmem); it grows only while the receiver reads.
SOCKET_BYTES = 256 * 1024
#: What the link and its transport take before their senders wait, with the body and the batch that exceed the limits.
QUEUE_BYTES = LinkConfig().queue_bytes_high + 4 * BODY_BYTES + WRITE_BUFFER_BYTES + 2 * WRITE_BATCH_BYTES


class Receiver(threading.Thread):
    """A node with a subscription, in a thread that can be made to stand still."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.is_subscribed = threading.Event()
        self.is_warm = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.batches: list[int] = []
        self.wanted = WARM_UP
        self._address = address

    def run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        async with (
            iris_py.connect(secret=SECRET, seeds=[self._address], discovery=False) as node,
            node.subscribe("news", policy="block") as news,
        ):
            self.is_subscribed.set()
            async for batch in news.batches():
                self.batches.append(len(batch))
                if sum(self.batches) >= WARM_UP:
                    self.is_warm.set()
                    self.goes_on.wait()
                if sum(self.batches) >= self.wanted:
                    return


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - events of another thread
            await asyncio.sleep(0)


def test_a_receiver_that_is_behind_has_little_on_the_way() -> None:
    published = 0

    async def publish(node: iris_py.Node) -> None:
        nonlocal published
        for _ in range(MOST):
            await node.publish("news", bytes(SIZE))
            published += 1

    async def main() -> tuple[int, list[int]]:
        async with iris_py.connect(secret=SECRET, discovery=False) as node:
            receiver = Receiver(node.address)
            receiver.start()
            await until(receiver.is_subscribed.is_set)
            receiver.goes_on.clear()
            for _ in range(WARM_UP):
                await node.publish("news", bytes(SIZE))
            await until(receiver.is_warm.is_set)
            publishing = asyncio.create_task(publish(node))
            seen, standing = -1, 0
            while standing < STANDING_TURNS:
                await asyncio.sleep(0)
                seen, standing = published, standing + 1 if published == seen else 0
            publishing.cancel()
            receiver.wanted += seen
            receiver.goes_on.set()
            await until(lambda: not receiver.is_alive())
            return seen, receiver.batches

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seen, batches = runner.run(main())
    assert LinkConfig().queue_bytes_high < seen * SIZE < QUEUE_BYTES + NOTSENT_BYTES_MAX + SOCKET_BYTES
    assert sum(batches) == WARM_UP + seen
    assert max(batches) * SIZE <= RECEIVE_BUFFER_BYTES, "a subscription gets no more than one read in a turn"


def test_a_turn_of_a_publisher_ends_behind_a_full_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the turn ended within a batch, a quarter of the bodies would be cut short, to 4 of these messages.

    The publisher looks at receivers once for a batch, and not each time that the batch is lengthened.
    """
    counts: list[int] = []
    looks = looks_alone = 0
    encode, publish = PublicationBatch.encode, Publisher.publish

    def note(self: PublicationBatch, first: int) -> tuple[list[bytes], int]:
        counts.append(len(self.payloads))
        return encode(self, first)

    def note_look(self: Publisher, topic: str, payload: bytes, *values: Any) -> int | None:
        nonlocal looks
        looks += 1
        return publish(self, topic, payload, *values)

    monkeypatch.setattr(PublicationBatch, "encode", note)
    monkeypatch.setattr(Publisher, "publish", note_look)
    size, count = 16 * SIZE, 56 * FULL_MESSAGES
    payloads = [number.to_bytes(2, "big") + bytes(size - 2) for number in range(count)]

    async def main() -> list[bytes]:
        nonlocal looks_alone
        async with (
            iris_py.connect(secret=SECRET, discovery=False) as node,
            iris_py.connect(secret=SECRET, seeds=[node.address], discovery=False) as member,
            member.subscribe("news", policy="block") as news,
        ):
            iterator = aiter(news)
            await node.publish("news", b"warm")
            await anext(iterator)
            counts.clear()

            async def read() -> list[bytes]:
                return [(await anext(iterator)).payload for _ in range(count)]

            reading = asyncio.create_task(read())
            for payload in payloads[: count // 2]:
                await node.publish("news", payload)
            looks_alone = looks
            await asyncio.gather(*(node.publish("news", payload) for payload in payloads[count // 2 :]))  # keeps the order, too
            return await reading

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == payloads
    assert max(counts) == FULL_MESSAGES
    assert count / len(counts) > 0.8 * FULL_MESSAGES, counts
    assert looks_alone < 2.5 * count / 2 / FULL_MESSAGES, "once, and once more while a link is congested"
