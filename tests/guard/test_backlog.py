"""The amount that waits on the way to a receiver that is behind, counted and not timed: messages grow old there.

The receiver stands still in a thread of its own, and the publisher sends until it has to wait.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import uvloop

import iris_py
from iris_py.link.config import LinkConfig
from iris_py.net.driver import RECEIVE_BUFFER_BYTES, WRITE_BATCH_BYTES, WRITE_BUFFER_BYTES
from iris_py.net.sockets import NOTSENT_BYTES_MAX
from iris_py.peers.group import BODY_BYTES
from iris_security import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = Secret(bytes(range(32)))
SIZE = 1024
WARM_UP = 100
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
