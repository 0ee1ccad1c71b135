"""A subscription between the node that fills its queue and the callback that empties it."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, cast

import pytest

from iris_py.api.hooks import hook_of
from iris_py.api.ordered_calls import CALLS_PER_TURN_MAX
from iris_py.api.subscription import Inbox, Subscription
from iris_py.api.threads import DaemonThreads
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.own_interest import OwnEntry
from iris_py.patterns.topic.queue import SubscriptionQueue
from iris_py.testing.clock import run

if TYPE_CHECKING:
    from iris_py.peers.peer import Peer


def message(sequence: int) -> Message:
    return Message(b"x", "source", sequence, "", "a", 0)


class Subscribed:
    """A subscription with a callback, and what the node does with it."""

    def __init__(self) -> None:
        self.queue = SubscriptionQueue(("a",), "a", "drop_oldest", 100, 1000)
        self.seen: list[int] = []
        self.subscription = Subscription(Inbox(self.queue, hook_of(self.take, None), self.leave, lambda _queue: None))

    def take(self, message: Message) -> None:
        self.seen.append(message.sequence)
        if message.sequence == 1:
            asyncio.get_running_loop().call_soon(self.put, 2)

    def put(self, sequence: int) -> None:
        self.queue.put(message(sequence))
        self.subscription._inbox.handle_ready()

    async def leave(self, _inbox: Inbox) -> None:
        """Nobody has to be told."""


def test_what_comes_when_the_callback_has_just_taken_the_last_is_not_left_behind() -> None:
    """It comes between the end of the task and the call that tells of that end."""

    async def main() -> Subscribed:
        subscribed = Subscribed()
        subscribed.put(1)
        for _ in range(10):
            await asyncio.sleep(0)
        return subscribed

    subscribed = asyncio.run(main())
    assert subscribed.seen == [1, 2]
    assert not subscribed.queue.waiting


@pytest.fixture
def large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a thread more and more at once, however busy the machine is."""
    monkeypatch.setattr("iris_py.api.ordered_calls.BATCH_S", math.inf)


class InThread:
    """A subscription whose callback runs in a thread, and stops there at its first message."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.seen: list[int] = []
        self.threads = DaemonThreads(1, "test")
        self.queue = SubscriptionQueue(("a",), "a", "drop_oldest", 1000, 10_000)
        hook = hook_of(self.take, self.threads)
        self.subscription = Subscription(Inbox(self.queue, hook, self.leave, lambda _queue: None))

    def take(self, message: Message) -> None:
        self.seen.append(message.sequence)
        self.begun.set()
        self.go_on.wait(60)

    def put(self, *sequences: int) -> None:
        for sequence in sequences:
            self.queue.put(message(sequence))
        self.subscription._inbox.handle_ready()

    async def take_many(self, count: int) -> None:
        """Take so many without a stop, so that the next batch is a large one."""
        self.go_on.set()
        self.put(*range(count))
        consumer = self.subscription._inbox.consumer
        assert consumer is not None
        await asyncio.wait([consumer])
        self.go_on.clear()
        self.begun.clear()

    async def leave(self, _inbox: Inbox) -> None:
        """Nobody has to be told."""


@pytest.mark.usefixtures("large_batches")
def test_closing_gives_a_callback_in_a_thread_what_waits_for_it() -> None:
    async def main() -> None:
        subscribed = InThread()
        await subscribed.take_many(100)
        subscribed.put(100)
        await asyncio.to_thread(subscribed.begun.wait, 60)
        subscribed.put(101, 102)
        assert subscribed.subscription.queued_messages == 2
        assert subscribed.subscription.queued_bytes == 2
        closing = asyncio.create_task(subscribed.subscription.close())
        await asyncio.sleep(0)
        subscribed.go_on.set()
        await closing
        assert subscribed.seen == list(range(103))
        assert subscribed.subscription.dropped == {}
        subscribed.threads.shutdown()

    asyncio.run(main())


@pytest.mark.usefixtures("large_batches")
def test_what_a_thread_has_in_hand_is_counted_and_dropped_when_closing_takes_too_long() -> None:
    async def main() -> None:
        subscribed = InThread()
        await subscribed.take_many(100)
        subscribed.put(*range(100, 110))
        await asyncio.to_thread(subscribed.begun.wait, 60)
        assert subscribed.queue.waiting == deque()
        assert subscribed.subscription.queued_messages == 9
        assert subscribed.subscription.queued_bytes == 9
        await subscribed.subscription.close(timeout=0.0)
        assert subscribed.subscription.dropped == {"closed": 9}
        subscribed.go_on.set()
        await asyncio.to_thread(subscribed.threads.submit(int).result)  # behind whatever else the only thread does
        assert subscribed.seen == list(range(101))
        subscribed.threads.shutdown()

    asyncio.run(main())


def test_what_comes_when_the_callback_is_cancelled_starts_it_no_more() -> None:
    async def main() -> Subscribed:
        subscribed = Subscribed()
        subscribed.put(1)
        consumer = subscribed.subscription._inbox.consumer
        assert consumer is not None
        consumer.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert consumer.cancelled()
        assert subscribed.subscription._inbox.consumer is None
        return subscribed

    assert asyncio.run(main()).seen == []


class Blocked:
    """A subscription whose queue is full, so that a publisher was asked to wait."""

    def __init__(self, *, calls: bool = False) -> None:
        self.queue = SubscriptionQueue(("a",), "a", "block", 8, 1000)
        self.told: list[int] = []
        self.subscription = Subscription(
            Inbox(self.queue, hook_of(self.take, None) if calls else None, self.leave, self.drained)
        )
        for sequence in range(8):
            self.queue.put(message(sequence))
        self.queue.blocked[None, cast("Peer", "publisher"), OwnEntry(("a",), 1)] = None
        self.subscription._inbox.handle_ready()

    def take(self, _message: Message) -> None:
        """It takes whatever comes."""

    async def leave(self, _inbox: Inbox) -> None:
        """Nobody has to be told."""

    def drained(self, queue: SubscriptionQueue) -> None:
        self.told.append(len(queue.waiting))
        queue.blocked.clear()


def test_a_publisher_that_waits_is_told_when_a_quarter_is_left() -> None:
    async def main() -> None:
        blocked = Blocked()
        for number in range(8):
            assert (await anext(blocked.subscription)).sequence == number
            assert blocked.told == ([2] if len(blocked.queue.waiting) <= 2 else [])
        assert blocked.subscription.queued_bytes == 0

    asyncio.run(main())


def test_a_publisher_that_waits_is_told_when_a_callback_or_a_batch_has_taken_enough() -> None:
    async def main() -> None:
        blocked = Blocked(calls=True)
        await asyncio.sleep(0.01)
        assert blocked.told == [2]
        blocked = Blocked()
        assert len(await anext(blocked.subscription.batches())) == 8
        assert blocked.told == [0]

    run(main(), limit_s=1.0)


def test_a_batch_stays_in_memory_no_longer_than_its_reader_keeps_it() -> None:
    async def main() -> int:
        batches = Blocked().subscription.batches()
        first = (await anext(batches))[0]
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0)
        assert not waiting.done()
        references = sys.getrefcount(first)
        waiting.cancel()
        return references

    assert run(main(), limit_s=1.0) == 2, "that of this test, and that of the call"


def test_others_have_a_turn_between_many_calls_of_a_callback() -> None:
    async def main() -> None:
        subscribed = Subscribed()
        subscribed.queue.messages_max = subscribed.queue.bytes_max = 10_000
        for sequence in range(2, 2 * CALLS_PER_TURN_MAX + 12):
            subscribed.queue.put(message(sequence))
        subscribed.subscription._inbox.handle_ready()
        seen = []
        while subscribed.queue.waiting:
            await asyncio.sleep(0)
            seen.append(len(subscribed.seen))
        assert seen == [CALLS_PER_TURN_MAX, 2 * CALLS_PER_TURN_MAX, 2 * CALLS_PER_TURN_MAX + 10]

    asyncio.run(main())


@pytest.mark.parametrize("takes_s", [0.5, 5.0])
def test_a_callback_that_still_runs_is_waited_for_and_then_cancelled(takes_s: float, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ends: list[float] = []

        async def take(_message: Message) -> None:
            began = loop.time()
            try:
                await asyncio.sleep(takes_s)
            finally:
                ends.append(loop.time() - began)

        blocked = Blocked()
        queue = SubscriptionQueue(("a",), "a", "drop_oldest", 100, 1000)
        subscription = Subscription(Inbox(queue, hook_of(take, None), blocked.leave, blocked.drained))
        queue.put(message(1))
        subscription._inbox.handle_ready()
        await asyncio.sleep(0)
        await subscription.close(timeout=1.0)
        await asyncio.sleep(0.01)
        assert ends == [pytest.approx(min(takes_s, 1.0))]

    run(main(), limit_s=10.0)
    assert ["still runs after 1 s and is cancelled" in record.getMessage() for record in caplog.records] == [True] * (
        takes_s > 1.0
    )


def test_what_was_not_taken_when_it_is_closed_is_counted() -> None:
    async def main() -> None:
        blocked = Blocked()
        await blocked.subscription.close()
        assert blocked.subscription.dropped == {"closed": 8}
        assert [each async for each in blocked.subscription] == []

    asyncio.run(main())


class Filled:
    """A subscription that is iterated over."""

    def __init__(self, count: int, messages_max: int = 40) -> None:
        self.queue = SubscriptionQueue(("a",), "a", "drop_oldest", messages_max, 1000)
        self.subscription = Subscription(Inbox(self.queue, None, self.leave, lambda _queue: None))
        self.put(*range(count))

    async def leave(self, _inbox: Inbox) -> None:
        """Nobody has to be told."""

    def put(self, *sequences: int) -> None:
        for sequence in sequences:
            self.queue.put(message(sequence))
        self.subscription._inbox.handle_ready()

    async def take(self, count: int) -> list[int]:
        seen = []
        async for each in self.subscription:
            seen.append(each.sequence)
            if len(seen) == count:
                break
        return seen


def test_a_loop_that_is_left_leaves_the_rest_to_the_next_in_order() -> None:
    async def main() -> None:
        filled = Filled(30)
        assert await filled.take(3) == [0, 1, 2]
        assert (filled.subscription.queued_messages, filled.subscription.queued_bytes) == (27, 27)
        assert (await anext(filled.subscription)).sequence == 3
        assert await filled.take(10) == list(range(4, 14))
        assert [each.sequence for each in await anext(filled.subscription.batches())] == list(range(14, 30))
        assert filled.subscription.queued_messages == 0

    asyncio.run(main())


def test_a_loop_that_is_cancelled_while_it_waits_loses_nothing() -> None:
    async def main() -> None:
        filled = Filled(1)
        task = asyncio.create_task(filled.take(3))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        filled.put(1, 2)
        await asyncio.wait([task])
        assert task.cancelled()
        assert await filled.take(2) == [1, 2]

    asyncio.run(main())


def test_several_tasks_share_what_one_of_them_has_taken() -> None:
    """Each message comes to one of them, though one is busy with what it was given."""

    async def main() -> None:
        filled = Filled(0)
        first, second = aiter(filled.subscription), aiter(filled.subscription)
        waiting = [asyncio.ensure_future(anext(each)) for each in (first, second)]
        await asyncio.sleep(0)
        filled.put(0, 1, 2)
        assert [each.sequence for each in await asyncio.gather(*waiting)] == [0, 1]
        assert (await anext(first)).sequence == 2
        last = asyncio.ensure_future(anext(second))
        await asyncio.sleep(0)
        filled.put(3)
        assert (await last).sequence == 3

    asyncio.run(main())


def test_an_iteration_holds_a_quarter_of_the_queue_and_the_newest_still_come() -> None:
    async def main() -> None:
        filled = Filled(40)
        assert await filled.take(1) == [0]
        assert len(filled.queue.waiting) == 30
        filled.put(*range(40, 100))
        assert await filled.take(11) == [*range(1, 10), 60, 61]
        assert filled.subscription.dropped == {"oldest": 50}

    asyncio.run(main())


def test_what_was_taken_and_not_given_is_dropped_when_it_is_closed() -> None:
    async def main() -> None:
        filled = Filled(40)
        assert await filled.take(1) == [0]
        await filled.subscription.close()
        assert filled.subscription.queued_messages == 0
        assert filled.subscription.dropped == {"closed": 39}
        assert await filled.take(1) == []

    asyncio.run(main())
