"""One subscription of a node: its pattern, and the queue of what it has not yet taken (docs/design.md 8.5).

The events of publish and subscribe, for the owner of a node.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias, get_args

import msgspec

from iris_py.observe.histogram import Histogram
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.sequence import Fence
from iris_py.peers.group import SENDERS_MAX
from iris_py.wire.headers import NO_HEADERS, Headers

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_py.patterns.topic.names import Tokens
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer

#: What a queue that blocks takes beyond its bounds: what its publishers had sent before they heard that they shall wait. As
#: much as the sockets and the queue of a link hold, for a few publishers at once.
BLOCK_SLACK_BYTES: Final = 64 * 1024 * 1024
#: Counted for each message beyond the bounds, besides its bytes: what it costs to hold an empty one.
BLOCK_MESSAGE_BYTES: Final = 256

#: Runs of which it is known when they came. Too small: of a long queue the lag of the rest is not; too large: memory.
MARKS_MAX: Final = 1024

#: What who iterates over a subscription takes out of the queue at once. Too small: looking at the queue is paid more often; too
#: large: so much more than the queue may hold, and old when it is looked at.
TAKEN_BYTES_MAX: Final = 1024 * 1024

#: What happens when the queue of a subscription is full.
OverflowPolicy: TypeAlias = Literal["drop_oldest", "drop_newest", "block", "disconnect"]
POLICIES: Final = get_args(OverflowPolicy)


class SubscriptionQueue:
    """The messages that one subscription has received and the application has not taken yet.

    A single message that is larger than the bound is taken by an empty queue: it could never be received otherwise.

    Args:
        pattern: The tokens of the pattern.
        name: The pattern as the application wrote it.
        policy: One of ``POLICIES``: what happens when it is full.
        messages_max: How many messages it holds.
        bytes_max: How many bytes of payload and headers it holds.
        lags: Where the node counts the lag of all subscriptions.

    Attributes:
        waiting: The messages, the oldest first.
        bytes: The size of their payloads and headers.
        headed_bytes: What of that are headers. Most often none, and then nobody has to look for them.
        dropped: What was dropped, by reason.
        is_blocking: Whether its publishers wait when it is full.
        is_cut: Whether it was cut off because it was too slow: nothing comes any more.
        is_ready: Whether the owner is about to be told that something is there.
        blocked: The publishers that were asked to wait, and under which group.
        missed: By group and publisher, how many missed messages it knows of (:class:`~iris_py.patterns.topic.pubsub.PubSub`).
        prefix: The literal prefix of the pattern.
        taken: How many messages have left it, dropped ones of those that had been kept among them.
        marks: Of some runs, the oldest first: how many messages had left the queue when all of it has, and when it came.
        lag: How long runs waited until all of them was taken.
    """

    #: Whether it is for what came from other clouds, too.
    takes_imported: ClassVar[bool] = True

    __slots__ = (
        "_fence",
        "blocked",
        "bytes",
        "bytes_max",
        "dropped",
        "headed_bytes",
        "is_blocking",
        "is_cut",
        "is_ready",
        "lag",
        "lost",
        "marks",
        "messages_max",
        "missed",
        "name",
        "pattern",
        "policy",
        "prefix",
        "taken",
        "waiting",
    )

    def __init__(
        self,
        pattern: Tokens,
        prefix: Tokens,
        name: str,
        policy: str,
        messages_max: int,
        bytes_max: int,
        lags: Histogram | None = None,
    ) -> None:
        self.pattern = pattern
        self.prefix = prefix
        self.name = name
        self.policy = policy
        self.is_blocking = policy == "block"
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.waiting: deque[Message] = deque()
        self.bytes = 0
        self.dropped: dict[str, int] = {}
        self.is_cut = False
        self.is_ready = False
        self.blocked: dict[tuple[Group, Peer], None] = {}
        self.missed: dict[tuple[Group, NodeId], int] = {}
        self.headed_bytes = 0
        self.taken = 0
        self.marks: deque[tuple[int, float]] = deque()
        self.lag = Histogram(lags)
        self._fence: Fence | None = None  # until something comes from another cloud
        self.lost: dict[str, int] = {}  # dropped from here since the last message that was kept or taken, by source

    @property
    def fence(self) -> Fence:
        """Knows what it has had of other clouds."""
        fence = self._fence
        if fence is None:
            fence = self._fence = Fence()
        return fence

    @property
    def is_full(self) -> bool:
        """Whether the bounds are reached: a queue that blocks makes its publishers wait."""
        return len(self.waiting) >= self.messages_max or self.bytes >= self.bytes_max

    @property
    def is_low(self) -> bool:
        """Whether there is so much room again that publishers need not wait."""
        return len(self.waiting) * 4 <= self.messages_max and self.bytes * 4 <= self.bytes_max

    def put(self, message: Message) -> int:
        """Take a message; returns how many were dropped for it, itself included."""
        waiting = self.waiting
        size = size_of(message)
        if waiting and (len(waiting) >= self.messages_max or self.bytes + size > self.bytes_max):
            return self._put_full(message, size)
        if self.lost and self.policy != "drop_oldest":
            message = self._with_lost(message)
        self._append(message, size)
        return 0

    def put_all(self, messages: list[Message], size: int, group: Group | None = None) -> int:
        """Take messages, in order; returns how many were dropped for them. Once it is cut off nothing is taken, nor counted.

        Args:
            messages: What arrived.
            size: Of their payloads together, in bytes.
            group: Under which they came, which an application is not told.
        """
        waiting = self.waiting
        if (
            not self.lost
            and messages[0].headers is NO_HEADERS  # what comes as one run has the same
            and len(waiting) + len(messages) <= self.messages_max
            and self.bytes + size <= self.bytes_max
        ):
            waiting += messages
            self.bytes += size
            return 0
        if messages[0].headers is NO_HEADERS:
            if self.policy == "drop_oldest" and not self.headed_bytes:
                return self._put_over_oldest(messages, size)
            if self.policy == "drop_newest" and self._has_no_room(messages):
                return self._drop_newest(messages)
            if self.policy == "block" and not self.lost and self._has_slack(messages, size):
                waiting += messages
                self.bytes += size
                return 0
        dropped = 0
        for message in messages:
            if self.is_cut:
                break
            dropped += self.put(message)
        return dropped

    def mark(self, now: float) -> None:
        """Note when a run has come, behind :meth:`put` or :meth:`put_all`; of many that wait not of each."""
        if len(self.marks) < MARKS_MAX:
            self.marks.append((self.taken + len(self.waiting), now))

    def note_lag(self, now: float) -> None:
        """Take in how long the runs waited that have been taken."""
        marks = self.marks
        while marks and marks[0][0] <= self.taken:
            self.lag.observe(now - marks.popleft()[1])

    def oldest_s(self, now: float) -> float:
        """Return how long the oldest message has waited (seconds)."""
        return now - self.marks[0][1] if self.waiting and self.marks else 0.0

    def pop(self) -> Message:
        """Take the oldest message, which is there."""
        message = self.waiting.popleft()
        self.taken += 1
        self.bytes -= len(message.payload)
        if self.headed_bytes:
            self._forget_headers(message)
        return self._with_lost(message) if self.lost and self.policy == "drop_oldest" else message

    def take(self) -> list[Message]:
        """Take all messages."""
        messages = list(self.waiting)
        self.taken += len(messages)
        self.waiting.clear()
        self.bytes = self.headed_bytes = 0
        if self.lost and self.policy == "drop_oldest":
            for index, message in enumerate(messages):
                messages[index] = self._with_lost(message)
                if not self.lost:
                    break
        return messages

    def take_some(self) -> list[Message]:
        """Take the oldest messages, at least one: up to a quarter of what the queue may hold, and about ``TAKEN_BYTES_MAX``."""
        waiting = self.waiting
        messages_max, bytes_max = self.messages_max // 4, min(self.bytes_max // 4, TAKEN_BYTES_MAX)
        if len(waiting) <= messages_max and self.bytes <= bytes_max:
            return self.take()
        batch = [self.pop()]
        if self.headed_bytes or self.lost:
            return batch
        first = size = size_of(batch[0])
        while waiting and len(batch) < messages_max and size < bytes_max:
            message = waiting.popleft()
            size += len(message.payload)
            batch.append(message)
        self.bytes -= size - first
        self.taken += len(batch) - 1
        return batch

    def clear(self, reason: str, taken: int = 0) -> int:
        """Drop everything; returns how many messages that were.

        Args:
            reason: Why.
            taken: Messages that were taken before and are dropped as well.
        """
        count = len(self.waiting) + taken
        self.taken += len(self.waiting)
        self.marks.clear()
        self.waiting.clear()
        self.bytes = self.headed_bytes = 0
        self.lost.clear()
        if count:
            self._count(reason, count)
        return count

    # --

    def _put_full(self, message: Message, size: int) -> int:
        waiting = self.waiting
        if self.policy == "drop_oldest":
            count = 0
            while waiting and (len(waiting) >= self.messages_max or self.bytes + size > self.bytes_max):
                oldest = waiting.popleft()
                self.bytes -= len(oldest.payload)
                self._forget_headers(oldest)
                self._lose(oldest.source, 1 + oldest.gap)
                count += 1
            self._pass_over(count)
            self._append(message, size)
            self._count("oldest", count)
            return count
        if self.policy == "block":
            over = max(0, self.bytes - self.bytes_max) + max(0, len(waiting) - self.messages_max) * BLOCK_MESSAGE_BYTES
            if over + size <= BLOCK_SLACK_BYTES:
                self._append(self._with_lost(message) if self.lost else message, size)
                return 0
            reason = "over_block"
        elif self.policy == "disconnect":
            self.is_cut = True
            reason = "cut_off"
        else:
            reason = "newest"
        self._lose(message.source, 1 + message.gap)
        self._count(reason, 1)
        return 1

    def _put_over_oldest(self, messages: list[Message], size: int) -> int:
        """Take messages, and drop what is too much in the end, the oldest first; nothing that waits has headers."""
        waiting = self.waiting
        waiting += messages
        self.bytes += size
        dropped = [waiting.popleft() for _ in range(len(waiting) - self.messages_max)]
        left = self.bytes - sum([len(message.payload) for message in dropped])
        while left > self.bytes_max and len(waiting) > 1:
            oldest = waiting.popleft()
            left -= len(oldest.payload)
            dropped.append(oldest)
        self.bytes = left
        self._pass_over(len(dropped))
        for source, of_source in groupby(dropped, attrgetter("source")):
            self._lose(source, sum([1 + message.gap for message in of_source]))
        if dropped:
            self._count("oldest", len(dropped))
        return len(dropped)

    def _pass_over(self, count: int) -> None:
        """So many of the oldest messages were dropped: nobody took the runs that ended with one of them."""
        self.taken += count
        marks = self.marks
        while marks and marks[0][0] <= self.taken:
            marks.popleft()

    def _has_no_room(self, messages: list[Message]) -> bool:
        """Tell whether none of some messages without headers fits."""
        waiting = self.waiting
        if not waiting:
            return False
        smallest = min([len(message.payload) for message in messages])
        return len(waiting) >= self.messages_max or self.bytes + smallest > self.bytes_max

    def _drop_newest(self, messages: list[Message]) -> int:
        self._lose(messages[0].source, sum([1 + message.gap for message in messages]))
        self._count("newest", len(messages))
        return len(messages)

    def _has_slack(self, messages: list[Message], size: int) -> bool:
        """Tell whether a queue that blocks takes some more messages beyond its bounds."""
        over = max(0, len(self.waiting) + len(messages) - self.messages_max)
        return max(0, self.bytes + size - self.bytes_max) + over * BLOCK_MESSAGE_BYTES <= BLOCK_SLACK_BYTES

    def _append(self, message: Message, size: int) -> None:
        self.waiting.append(message)
        self.bytes += size
        self.headed_bytes += size - len(message.payload)

    def _forget_headers(self, message: Message) -> None:
        """The headers of a message are not here any more."""
        size = size_of(message) - len(message.payload)
        self.bytes -= size
        self.headed_bytes -= size

    def _lose(self, source: str, count: int) -> None:
        lost = self.lost
        if source not in lost and len(lost) >= SENDERS_MAX:
            del lost[next(iter(lost))]
        lost[source] = lost.get(source, 0) + count

    def _with_lost(self, message: Message) -> Message:
        lost = self.lost.pop(message.source, 0)
        if not lost:
            return message
        gap, cloud = message.gap + lost, message.cloud
        return Message(message.payload, message.source, message.sequence, "", message.topic, gap, message.headers, cloud)

    def _count(self, reason: str, times: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + times


def size_of(message: Message) -> int:
    """Return how many bytes of payload and headers a message has."""
    headers = message.headers
    return len(message.payload) + (len(headers.encoded) if isinstance(headers, Headers) else 0)


class RoomMade(msgspec.Struct):
    """A link that was congested has room again, or is gone: who waited for room may try again."""


class SubscriptionReady(msgspec.Struct):
    """Something has arrived for a subscription, or it was cut off."""

    queue: SubscriptionQueue


class SubscriptionTold(msgspec.Struct):
    """Every publisher knows of a subscription."""

    queue: SubscriptionQueue


TopicEvent: TypeAlias = RoomMade | SubscriptionReady | SubscriptionTold
