"""Messages that a thread takes out of a subscription: at once, one by one, and how long it waits for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from iris_py.api.subscription import Inbox
from iris_py.api.subscription import Subscription as AsyncSubscription
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.incoming_shares import IN_HAND_MIN, SharedQueue
from iris_py.patterns.topic.queue import TAKEN_BYTES_MAX, SubscriptionQueue
from iris_py.sync.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from iris_py.sync.background import Background


QUEUE_MESSAGES = 400


class Here:
    """The event loop, which runs while this thread waits for it."""

    is_gone = False

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.waits = 0

    def check(self) -> None:
        """It may be used."""

    def wait(self, function: Callable[..., Coroutine[Any, Any, object]], *args: object, **options: object) -> object:
        self.waits += 1
        return self.runner.run(function(*args, **options))


class World:
    """A subscription of a thread, and what arrives in its queue."""

    def __init__(self, runner: asyncio.Runner, queue: SubscriptionQueue | None = None) -> None:
        self.here = Here(runner)
        self.queue = queue or SubscriptionQueue(("a",), "a", "drop_oldest", QUEUE_MESSAGES, 1 << 30)
        self.inner = runner.run(self.make())
        self.subscription = Subscription(self.inner, cast("Background", self.here))

    async def make(self) -> AsyncSubscription:
        return AsyncSubscription(Inbox(self.queue, None, self.leave, lambda _queue: None))

    async def leave(self, _inbox: Inbox) -> None:
        """Nobody has to be told."""

    def put(self, *sequences: int, payload: bytes = b"x") -> None:
        for sequence in sequences:
            self.queue.put(Message(payload, "source", sequence, "", "a", 0))
        self.inner._inbox.handle_ready()

    def put_later(self, *sequences: int) -> None:
        """Let them come when somebody waits."""
        self.here.runner.get_loop().call_soon(self.put, *sequences)

    def take(self, timeout: float | None = None) -> list[int]:
        return [message.sequence for message in self.subscription.take(timeout=timeout)]


@pytest.fixture
def world() -> Iterator[World]:
    with asyncio.Runner() as runner:
        yield World(runner)


def test_who_takes_waits_for_the_first_message_and_not_without_end(world: World) -> None:
    world.put_later(1, 2)
    assert world.take() == [1, 2]
    assert world.take(timeout=0.0) == []
    world.put(3)
    assert world.take(timeout=0.0) == [3]


def test_what_a_loop_has_taken_out_comes_first(world: World) -> None:
    world.put(1, 2, 3)
    assert next(world.subscription).sequence == 1
    assert (world.subscription.queued_messages, world.subscription.queued_bytes) == (2, 2)
    world.put(4)
    assert (world.subscription.queued_messages, world.subscription.queued_bytes) == (3, 3)
    assert world.take() == [2, 3, 4]
    world.put(5, 6)
    assert next(world.subscription).sequence == 5
    waits = world.here.waits
    assert world.take() == [6]
    assert world.here.waits == waits, "it is there, and nothing else is"


def test_a_loop_takes_out_so_many_at_once(world: World) -> None:
    count = QUEUE_MESSAGES // 4
    world.put(*range(count + 1))
    assert [next(world.subscription).sequence for _ in range(count)] == list(range(count))
    assert world.here.waits == 1
    assert next(world.subscription).sequence == count
    assert world.here.waits == 2


def test_a_loop_takes_out_so_much_at_once(world: World) -> None:
    world.put(1, 2, 3, payload=bytes(TAKEN_BYTES_MAX // 2))
    assert [next(world.subscription).sequence for _ in range(2)] == [1, 2]
    assert world.here.waits == 1
    assert next(world.subscription).sequence == 3
    assert world.here.waits == 2


def test_batches_are_all_that_is_there_until_it_is_closed(world: World) -> None:
    batches = world.subscription.batches()
    world.put(*range(QUEUE_MESSAGES))
    assert len(next(batches)) == QUEUE_MESSAGES
    world.put_later(1)
    assert [message.sequence for message in next(batches)] == [1]
    world.subscription.close()
    assert list(batches) == []
    assert list(world.subscription) == []
    assert world.take() == []


def test_messages_of_a_group_are_in_hand_until_the_thread_asks_for_more() -> None:
    with asyncio.Runner() as runner:
        queue = SharedQueue("g", 1.0, ("a",), "a", "drop_oldest", QUEUE_MESSAGES, 1 << 30)
        world = World(runner, queue)
        world.put(*range(2 * IN_HAND_MIN))
        next(world.subscription)
        assert queue.in_hand() == IN_HAND_MIN, "one that the thread works on, and others that wait for it"
        next(world.subscription)
        assert queue.in_hand() == IN_HAND_MIN - 1
        assert len(world.subscription.take()) == 2 * IN_HAND_MIN - 2
        assert queue.in_hand() == 2 * IN_HAND_MIN - 2
        world.put(1)
        next(world.subscription)
        assert queue.in_hand() == 1
        world.put(2, 3)
        assert len(next(world.subscription.batches())) == 2
        assert queue.in_hand() == 2
