"""A subscription of the node that clients of a door share: open while it has users, and a short time longer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from iris_py.api.lifecycle import parts_of
from iris_py.defaults import SUBSCRIPTION_QUEUE_BYTES
from iris_py.errors import NodeClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.api.awaitable_context import Opening
    from iris_py.api.node import Node
    from iris_py.api.options import SubscribeOptions
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
        takes_own: Whether messages of the node itself are delivered, too. A group takes them in any case.

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
        self._takes_own = takes_own or bool(group)
        self.group = group
        self.users = 0
        self._node = node
        self._slice_messages = slice_messages
        self._deliver = deliver
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._subscription: Subscription | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._error: Exception | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(self._run())

    def hold(self) -> None:
        """Add a user."""
        self.users += 1
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def release(self) -> None:
        """Remove a user."""
        self.users -= 1
        if not self.users and not self._task.done():
            self._linger = self._loop.call_later(0.0 if self.group else LINGER_S, self._ended, self, None)

    async def wait_until_open(self) -> None:
        """Return when every publisher knows of the subscription.

        Raises:
            IrisError: The node cannot subscribe.
        """
        await asyncio.shield(self._opened)

    def when_open(self, callback: Callable[[SharedSubscription], None]) -> None:
        """Call a function soon after every publisher knows of the subscription, or it has failed."""
        self._opened.add_done_callback(lambda _opened: callback(self))

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
        else:
            self._task.cancel()
        await asyncio.wait((self._task,))

    # --

    def _open(self) -> Opening[Subscription[bytes]]:
        if self._takes_own:
            # The queue of a group is short, and a client writes many messages at a time: publishers wait instead of a loss.
            policy: OverflowPolicy = "block" if self.group else "drop_oldest"
            return self._node.subscribe(self.pattern, policy=policy, group=self.group)
        options: SubscribeOptions = {
            "policy": "drop_oldest",
            "queue_messages": None,
            "queue_bytes": SUBSCRIPTION_QUEUE_BYTES,
            "group": "",
            "weight": 1.0,
        }
        return parts_of(self._node).topics.subscribe_to_others(self.pattern, options)

    async def _run(self) -> None:
        try:
            self._subscription = await self._open()
            self._opened.set_result(None)
            await deliver_messages(self._subscription, self._slice_messages, self._pass_on)
        except Exception as exc:
            self._error = exc
            self._fail_opening(exc)
            self._ended(self, exc)
        finally:
            self._fail_opening(NodeClosed())

    def _fail_opening(self, error: Exception) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # perhaps nobody waits for it any more

    def _pass_on(self, messages: Sequence[Message[bytes]]) -> None:
        self._deliver(self.pattern, messages)
