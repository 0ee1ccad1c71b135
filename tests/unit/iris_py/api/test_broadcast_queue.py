"""The queue of received broadcasts: order, slowing senders down, and what happens when the handler is stuck."""

from __future__ import annotations

import asyncio
import math
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, cast

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.api import broadcast_queue
from iris_py.api.broadcast_queue import PAUSE_S_MAX, QUEUE_HIGH, BroadcastQueue
from iris_py.api.handler_exceptions import FailureLog
from iris_py.api.hooks import hook_of
from iris_py.api.threads import DaemonThreads
from iris_py.patterns.request.registration import BroadcastReceived, Registration
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.testing.clock import run
from iris_py.wire.headers import encode_headers
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.link.link import Link
    from iris_py.node.core import NodeCore
    from iris_py.patterns.messages import Message


class Counter:
    """Counts drops, as a node does."""

    def __init__(self) -> None:
        self.drops = 0

    def count_drop(self, reason: str) -> int:
        assert reason == "broadcast_queue_full"
        self.drops += 1
        return self.drops


class World:
    """A queue, what its handler was given, and which links are paused."""

    def __init__(self, handle: Callable[[Message], Awaitable[None] | None], threads: DaemonThreads | None = None) -> None:
        self.counter = Counter()
        self.paused: list[Link] = []
        self.pauses = 0
        self.queue = BroadcastQueue(
            cast("NodeCore", self.counter),
            hook_of(handle, threads),
            copy_context(),
            self.pause,
            self.paused.remove,
            FailureLog("it"),
        )
        keys = Keyring(Secret.from_bytes(bytes(32))).cluster("name")
        group = Group("name", keys, NodeId(bytes(16)), 1)
        self.registration = Registration(group, 1, 1)

    def pause(self, link: Link) -> None:
        self.paused.append(link)
        self.pauses += 1

    def peer(self, number: int) -> Peer:
        return Peer(NodeInfo(NodeId(bytes([number]) * 16), ("127.0.0.1:1",)), cast("Link", f"link {number}"))

    def put(self, peer: Peer, sequence: int, payload: bytes = b"") -> None:
        self.queue.put(BroadcastReceived(self.registration, peer, sequence, payload))


def test_a_burst_is_handled_in_order_and_nothing_is_lost() -> None:
    async def main() -> None:
        taken: list[int] = []

        async def handle(message: Message) -> None:
            taken.append(message.sequence)

        world = World(handle)
        peer = world.peer(1)
        for sequence in range(10_000):
            world.put(peer, sequence)
        assert world.paused == [peer.link]
        await world.queue.join()

        assert taken == list(range(10_000))
        assert world.paused == []
        assert world.counter.drops == 0
        world.queue.abort()

    run(main(), limit_s=1.0)


def test_what_comes_while_a_thread_handles_the_last_one_is_handled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.api.ordered_calls.BATCH_S", math.inf)  # it asks for more than there is
    taken: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        taken.append(message.sequence)
        begun.set()
        go_on.wait(60)

    async def main() -> None:
        threads = DaemonThreads(None, "test")
        world = World(handle, threads)
        peer = world.peer(1)
        go_on.set()
        for sequence in range(10):
            world.put(peer, sequence)
        await world.queue.join()
        go_on.clear()
        begun.clear()
        world.put(peer, 10)
        await asyncio.to_thread(begun.wait, 60)
        for sequence in range(11, 15):
            world.put(peer, sequence)
        go_on.set()
        await world.queue.join()
        assert taken == list(range(15))
        world.queue.abort()
        threads.shutdown()

    asyncio.run(main())


def test_only_the_links_that_fill_the_queue_are_paused_and_only_until_it_is_short() -> None:
    async def main() -> None:
        allowed = asyncio.Semaphore(0)

        async def handle(message: Message) -> None:
            await allowed.acquire()

        world = World(handle)
        quiet, loud = world.peer(1), world.peer(2)
        world.put(quiet, 1)
        for sequence in range(QUEUE_HIGH):
            world.put(loud, sequence)
        assert world.paused == [loud.link]
        for _ in range(QUEUE_HIGH // 2):
            allowed.release()
        await asyncio.sleep(PAUSE_S_MAX / 2)
        assert world.paused == [loud.link]
        for _ in range(QUEUE_HIGH // 4 + 1):
            allowed.release()
        await asyncio.sleep(0.01)
        assert world.paused == []
        world.queue.abort()

    run(main(), limit_s=1.0)


def test_a_stuck_handler_pauses_a_link_for_a_bounded_time_and_once() -> None:
    async def main() -> None:
        stuck = asyncio.Event()

        async def handle(message: Message) -> None:
            await stuck.wait()

        world = World(handle)
        peer = world.peer(1)
        for sequence in range(QUEUE_HIGH + 2):
            world.put(peer, sequence)
        await asyncio.sleep(PAUSE_S_MAX - 0.01)
        assert world.paused == [peer.link]
        await asyncio.sleep(0.02)
        assert world.paused == []
        world.put(peer, QUEUE_HIGH + 2)
        assert world.pauses == 1  # others would wait again and again for a handler that may never come back
        stuck.set()
        await world.queue.join()
        for sequence in range(QUEUE_HIGH + 2):
            world.put(peer, sequence)
        assert world.pauses == 2  # it has caught up since
        world.queue.abort()
        assert world.paused == []

    run(main(), limit_s=2.0)


@pytest.mark.parametrize(("size", "kept"), [(0, 100), (10, 50)])
def test_what_the_queue_cannot_hold_is_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, size: int, kept: int
) -> None:
    monkeypatch.setattr(broadcast_queue, "QUEUE_MESSAGES_MAX", 100)
    monkeypatch.setattr(broadcast_queue, "QUEUE_BYTES_MAX", 500)

    async def main() -> None:
        taken: list[int] = []

        async def handle(message: Message) -> None:
            taken.append(message.sequence)

        world = World(handle)
        for sequence in range(200):
            world.put(world.peer(1), sequence, bytes(size))
        await world.queue.join()

        assert taken == list(range(kept))
        assert world.counter.drops == 200 - kept
        assert ["the newest are dropped" in record.getMessage() for record in caplog.records] == [True]
        world.queue.abort()

    run(main(), limit_s=1.0)


def test_the_first_drop_of_each_handler_is_logged_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broadcast_queue, "QUEUE_MESSAGES_MAX", 1)

    async def main() -> None:
        async def handle(message: Message) -> None:
            """There is nothing to do."""

        world, other = World(handle), World(handle)
        other.queue._core = world.queue._core  # handlers of the same node, which counts for all of them
        logged = []
        for sequence in range(4):
            world.put(world.peer(1), sequence)
            logged.append(len(caplog.records))
        assert logged == [0, 1, 1, 1]
        for sequence in range(3):
            other.put(world.peer(1), sequence)
        assert len(caplog.records) == 2
        world.queue.abort()
        other.queue.abort()

    run(main(), limit_s=1.0)


def test_a_handler_that_raises_is_given_the_next(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        taken: list[int] = []

        async def handle(message: Message) -> None:
            taken.append(message.sequence)
            raise ZeroDivisionError

        world = World(handle)
        for sequence in range(3):
            world.put(world.peer(1), sequence)
        await world.queue.join()

        assert taken == [0, 1, 2]
        world.queue.abort()

    run(main(), limit_s=1.0)
    assert len(caplog.records) == 1  # the others are like it


def test_headers_count_for_what_the_queue_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        taken: list[Message] = []

        async def handle(message: Message) -> None:
            taken.append(message)

        world = World(handle)
        headers = encode_headers({"a": bytes(60)})
        for _ in range(3):  # what was taken makes room again
            for sequence in range(3):
                world.queue.put(BroadcastReceived(world.registration, world.peer(1), sequence, b"x", headers))
            await world.queue.join()
        assert [message.headers for message in taken] == [headers] * 6
        assert world.counter.drops == 3
        world.queue.abort()

    monkeypatch.setattr(broadcast_queue, "QUEUE_BYTES_MAX", 2 * 66)
    run(main(), limit_s=1.0)
