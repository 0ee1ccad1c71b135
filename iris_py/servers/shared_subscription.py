"""A subscription of the node that clients of a door share: open while it has users, and a short time longer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from iris_py.api.lifecycle import parts_of
from iris_py.errors import NodeClosed
from iris_py.wire.names import CLOUD_MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.api.node import Node
    from iris_py.api.subscription import Subscription
    from iris_py.patterns.messages import Message
    from iris_py.patterns.topic.queue import OverflowPolicy

__all__ = ["SharedSubscription", "deliver_messages"]

#: Time that a subscription stays open without users (seconds). Too small: clients that reconnect cost a subscription each; too
#: large: the node receives messages for nobody.
LINGER_S: Final = 5.0
#: Messages that streams get before their connections have a turn. Too small: much work for each message; too large: windows of
#: clients overflow that keep pace.
SLICE_MESSAGES: Final = 64


async def deliver_messages(
    subscription: Subscription, slice_messages: Callable[[], int], deliver: Callable[[Sequence[Message[bytes]]], None]
) -> None:
    """Deliver the messages of a subscription until it is closed, at most as many at a time as ``slice_messages`` returns.

    Raises:
        IrisError: The subscription has ended.
    """
    async for batch in subscription.batches():
        count = slice_messages()
        deliver(batch[:count])
        for start in range(count, len(batch), count):
            await asyncio.sleep(0)  # connections take what they have got
            deliver(batch[start : start + count])
        del batch  # no message stays in memory while none comes


class SharedSubscription:
    """A subscription with users.

    Args:
        node: The node.
        pattern: The pattern.
        slice_messages: Returns the number of messages delivered at a time.
        deliver: Called with the pattern and messages.
        ended: Called with the subscription and its error; or with None after `LINGER_S` without users. The owner forgets it.
        group: The group, for a shared subscription (docs/design.md 8.14), which ends at once without users: the messages would
            be lost. Empty for none.
        takes_own: Whether messages of the node itself are delivered, too. A group takes them in any case. Without them, the
            subscription takes no task before its first message.

    Attributes:
        group: As passed.
        pattern: As passed.
        users: The number of users.
    """

    def __init__(
        self,
        node: Node,
        pattern: str,
        slice_messages: Callable[[], int],
        deliver: Callable[[str, Sequence[Message[bytes]]], None],
        ended: Callable[[SharedSubscription, Exception | None], None],
        *,
        group: str = "",
        takes_own: bool = True,
    ) -> None:
        self.pattern = pattern
        self.group = group
        self.users = 0
        self._node = node
        self._slice_messages = slice_messages
        self._deliver_messages = deliver
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._subscription: Subscription | None = None
        self._is_open = False
        self._when_open: list[Callable[[SharedSubscription], object]] = []
        self._has_ended = False
        self._error: Exception | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None  # delivers messages; None before the first one
        if takes_own or group or CLOUD_MARK in pattern:
            self._task = self._loop.create_task(self._open_and_deliver())
        else:
            self._begin()

    def hold(self) -> None:
        """Add a user."""
        self.users += 1
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def release(self) -> None:
        """Remove a user."""
        self.users -= 1
        if not self.users and not self._has_ended:
            self._linger = self._loop.call_later(0.0 if self.group else LINGER_S, self._ended, self, None)

    async def wait_until_open(self) -> None:
        """Return when every publisher knows of the subscription.

        Raises:
            IrisError: The node cannot subscribe.
        """
        if not (self._is_open or self._has_ended):
            settled = self._loop.create_future()
            self._when_open.append(lambda _shared: None if settled.done() else settled.set_result(None))
            await settled
            await asyncio.sleep(0)  # a subscription that ends at once counts as failed
        if self._error is not None or not self._is_open:
            raise self._error or NodeClosed()

    def when_open(self, callback: Callable[[SharedSubscription], object]) -> None:
        """Call a function once, when every publisher knows of the subscription or it has failed, but not in this call."""
        if self._is_open or self._has_ended:
            self._loop.call_soon(callback, self)
        else:
            self._when_open.append(callback)

    def check_running(self) -> None:
        """Check that the subscription has not ended since it was open: a stream would wait for its messages in vain.

        Raises:
            Exception: The error that has ended the subscription.
        """
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """End the subscription. Harmless if repeated."""
        if self._linger is not None:
            self._linger.cancel()
        if self._subscription is not None:
            await self._subscription.close()
        elif self._task is not None:
            self._task.cancel()
        if self._task is not None:
            await asyncio.wait((self._task,))
        self._settle(has_ended=True)

    # --

    def _begin(self) -> None:
        """Subscribe to messages of other nodes at once. A task begins with the first message: most patterns have none."""
        topics = parts_of(self._node).topics
        try:
            self._subscription = topics.subscribe_to_others(self.pattern, self._note_open, self._begin_delivery)
        except Exception as exc:
            self._loop.call_soon(self._fail, exc)  # the owner does not know the subscription yet

    def _begin_delivery(self) -> None:
        if not self._has_ended:
            self._task = self._loop.create_task(self._deliver())

    async def _open_and_deliver(self) -> None:
        try:
            # The queue of a group is short, and a client writes many messages at a time: publishers wait instead of a loss.
            policy: OverflowPolicy = "block" if self.group else "drop_oldest"
            self._subscription = await self._node.subscribe(self.pattern, policy=policy, group=self.group)
        except Exception as exc:
            self._fail(exc)
        else:
            self._note_open()
            await self._deliver()
        finally:
            self._settle(has_ended=True)

    async def _deliver(self) -> None:
        assert self._subscription is not None
        try:
            await deliver_messages(self._subscription, self._slice_messages, self._pass_on)
        except Exception as exc:
            self._fail(exc)
        finally:
            self._settle(has_ended=True)

    def _note_open(self) -> None:
        self._is_open = True
        self._settle(has_ended=False)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._settle(has_ended=True)
        self._ended(self, error)

    def _settle(self, *, has_ended: bool) -> None:
        """Call the functions that wait for the beginning or the end."""
        self._has_ended = has_ended or self._has_ended
        calls, self._when_open = self._when_open, []
        for call in calls:
            call(self)

    def _pass_on(self, messages: Sequence[Message[bytes]]) -> None:
        self._deliver_messages(self.pattern, messages)
