"""A subscription between the node that fills its queue and the callback that empties it."""

from __future__ import annotations

import asyncio

from iris_py.api.subscription import Subscription
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.queue import SubscriptionQueue


def message(sequence: int) -> Message:
    return Message(b"x", "source", sequence, "", "a", 0)


class Subscribed:
    """A subscription with a callback, and what the node does with it."""

    def __init__(self) -> None:
        self.queue = SubscriptionQueue(("a",), ("a",), "a", "drop_oldest", 100, 1000)
        self.seen: list[int] = []
        self.subscription = Subscription(self.queue, self.take, self.leave, lambda _queue: None, None)

    def take(self, message: Message) -> None:
        self.seen.append(message.sequence)
        if message.sequence == 1:
            asyncio.get_running_loop().call_soon(self.put, 2)

    def put(self, sequence: int) -> None:
        self.queue.put(message(sequence))
        self.subscription._handle_ready()

    async def leave(self, _subscription: Subscription) -> None:
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


def test_what_comes_when_the_callback_is_cancelled_starts_it_no_more() -> None:
    async def main() -> Subscribed:
        subscribed = Subscribed()
        subscribed.put(1)
        consumer = subscribed.subscription._consumer
        assert consumer is not None
        consumer.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert consumer.cancelled()
        assert subscribed.subscription._consumer is None
        return subscribed

    assert asyncio.run(main()).seen == []
