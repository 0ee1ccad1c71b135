"""One subscription of a node: its pattern, and the queue of received messages (docs/design.md 8.5).

The module also defines the events of publish and subscribe for the owner of a node.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias, get_args

import msgspec

from iris_py.observe.histogram import Histogram
from iris_py.observe.node_name import NodeName
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.imported_sequences import Fence
from iris_py.peers.group import SENDERS_MAX
from iris_py.peers.outbound import RoomMade
from iris_py.wire.headers import NO_HEADERS, Headers

if TYPE_CHECKING:
    from iris_py.patterns.messages import Message
    from iris_py.patterns.topic.incoming_flows import ReportedGaps
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.own_interest import OwnEntry
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer
    from iris_py.wire.flows import MatchesBefore

#: Bytes that a blocking queue accepts beyond its bounds: messages sent before the publishers received PAUSE. As much as the
#: sockets and the queue of a link hold, for a few publishers at once.
BLOCK_SLACK_BYTES: Final = 64 * 1024 * 1024
#: Bytes counted for each message beyond the bounds, besides its size: the overhead of an empty message.
BLOCK_MESSAGE_BYTES: Final = 256

#: Batches with a recorded arrival time. Too small: the lag of a long queue's rest is unknown; too large: memory.
MARKS_MAX: Final = 1024

#: Bytes that an iterator over a subscription takes at once. Too small: the overhead of taking is paid more often; too large:
#: these messages exceed the queue's bound, and are old when used.
TAKEN_BYTES_MAX: Final = 1024 * 1024

#: Publishers with a known first count for a subscription. Too small: a reader that counts across restarts does not learn what
#: it missed of further publishers before their next message. Too large: memory, some 300 bytes for each.
STARTS_MAX: Final = 4096

#: The reaction to a full queue.
OverflowPolicy: TypeAlias = Literal["drop_oldest", "drop_newest", "block", "disconnect"]
POLICIES: Final = get_args(OverflowPolicy)


_ENCODED: Final = attrgetter("headers.encoded")


class SubscriptionQueue:
    """The messages of a subscription not yet taken by the application.

    An empty queue accepts a single message above the bound, because it could never be received otherwise.

    Args:
        pattern: The tokens of the pattern.
        name: The pattern as the application wrote it.
        policy: The overflow policy, a member of ``POLICIES``.
        messages_max: Largest number of messages.
        bytes_max: Largest size of payloads and headers, in bytes.
        lags: Histogram of the lags of all subscriptions of the node.
        is_counted: Whether publishers count the matches of the pattern (docs/design.md 8.17). Messages with a number are
            :class:`~iris_py.patterns.messages.CountedMessage`.

    Attributes:
        waiting: The messages, the oldest first.
        bytes: Size of their payloads and headers.
        headed_bytes: Size of the headers. Usually 0, and then headers need no handling.
        dropped: Number of dropped messages, by reason.
        is_blocking: Whether publishers wait for a full queue.
        is_cut: Whether the subscription was disconnected as slow.
        is_ready: Whether the owner is about to be notified of messages.
        is_counted: As passed.
        starts: The first count of each publisher for this subscription, by source: the count before all messages with a
            number. At most ``STARTS_MAX``.
        blocked: The publishers asked to wait, with the groups and entries.
        entry: The entry that stands for the subscription; set at its start, like ``gaps``.
        gaps: The missed messages it has reported.
        taken: Number of messages that have left the queue, including drops.
        marks: For some batches, the oldest first: the value of ``taken`` at the batch's end, and its arrival time.
        lag: Time from the arrival of a batch until its last message was taken.
    """

    #: Whether it accepts messages from other clouds.
    takes_imported: ClassVar[bool] = True
    #: Whether it accepts messages of its own node.
    takes_own: ClassVar[bool] = True
    #: The group that the subscription belongs to; empty for a plain one.
    group: str = ""

    entry: OwnEntry
    gaps: ReportedGaps

    __slots__ = (
        "_fence",
        "blocked",
        "bytes",
        "bytes_max",
        "dropped",
        "entry",
        "gaps",
        "headed_bytes",
        "is_blocking",
        "is_counted",
        "is_cut",
        "is_ready",
        "lag",
        "lost",
        "marks",
        "messages_max",
        "name",
        "pattern",
        "policy",
        "starts",
        "taken",
        "waiting",
    )

    def __init__(
        self,
        pattern: Tokens,
        name: str,
        policy: str,
        messages_max: int,
        bytes_max: int,
        lags: Histogram | None = None,
        *,
        is_counted: bool = False,
    ) -> None:
        self.pattern = pattern
        self.name = name
        self.policy = policy
        self.is_blocking = policy == "block"
        self.is_counted = is_counted
        self.starts: dict[str, MatchesBefore] = {}
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.waiting: deque[Message] = deque()
        self.bytes = 0
        self.dropped: dict[str, int] = {}
        self.is_cut = False
        self.is_ready = False
        self.blocked: dict[tuple[Group | None, Peer, OwnEntry], None] = {}
        self.headed_bytes = 0
        self.taken = 0
        self.marks: deque[tuple[int, float]] = deque()
        self.lag = Histogram(lags)
        self._fence: Fence | None = None  # None until a message from another cloud arrives
        self.lost: dict[str, int] = {}  # messages dropped here since the last one kept or taken, by source

    @property
    def fence(self) -> Fence:
        """Tracks the received messages of other clouds."""
        fence = self._fence
        if fence is None:
            fence = self._fence = Fence()
        return fence

    @property
    def is_full(self) -> bool:
        """Whether a bound is reached; publishers to a blocking queue then wait."""
        return len(self.waiting) >= self.messages_max or self.bytes >= self.bytes_max

    @property
    def is_low(self) -> bool:
        """Whether the queue has drained enough for publishers to continue."""
        return len(self.waiting) * 4 <= self.messages_max and self.bytes * 4 <= self.bytes_max

    def put(self, message: Message) -> int:
        """Add a message; return the number of messages dropped, possibly including this one."""
        waiting = self.waiting
        size = size_of(message)
        if waiting and (len(waiting) >= self.messages_max or self.bytes + size > self.bytes_max):
            return self._put_full(message, size)
        if self.lost and self.policy != "drop_oldest":
            message = self._with_lost(message)
        self._append(message, size)
        return 0

    def put_all(self, messages: list[Message], size: int) -> int:
        """Add messages, in order; return the number dropped. A cut-off queue ignores and does not count them.

        Args:
            size: Total bytes of their payloads.
        """
        waiting = self.waiting
        # All messages of a batch have headers, or none has.
        headed = 0 if messages[0].headers is NO_HEADERS else sum(map(len, map(_ENCODED, messages)))
        if not self.lost and len(waiting) + len(messages) <= self.messages_max and self.bytes + size + headed <= self.bytes_max:
            waiting += messages
            self.bytes += size + headed
            self.headed_bytes += headed
            return 0
        if not headed:
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
        """Record the arrival of a batch, after :meth:`put` or :meth:`put_all`; beyond ``MARKS_MAX`` some are not recorded.

        Simultaneous batches count as a single batch.
        """
        marks, mark = self.marks, (self.taken + len(self.waiting), now)
        if marks and marks[-1][1] == now:  # another batch of the same turn
            marks[-1] = mark
        elif len(marks) < MARKS_MAX:
            marks.append(mark)

    def note_lag(self, now: float) -> None:
        """Record the lag of the batches that have been taken."""
        marks = self.marks
        while marks and marks[0][0] <= self.taken:
            self.lag.observe(now - marks.popleft()[1])

    def oldest_s(self, now: float) -> float:
        """Return the waiting time of the oldest message (seconds)."""
        return now - self.marks[0][1] if self.waiting and self.marks else 0.0

    def pop(self) -> Message:
        """Take the oldest message of a non-empty queue."""
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
        """Take the oldest messages, at least one: up to a quarter of the queue's bounds, and about ``TAKEN_BYTES_MAX``."""
        return self.take_up_to(self.messages_max // 4, min(self.bytes_max // 4, TAKEN_BYTES_MAX))

    def take_up_to(self, messages_max: int, bytes_max: int) -> list[Message]:
        """Take the oldest messages, at least one: up to some messages and about some bytes."""
        waiting = self.waiting
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
        """Drop all messages; return their number.

        Args:
            reason: The reason, for counting.
            taken: Number of messages taken before that are dropped as well.
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
        """Add messages, then drop the oldest beyond the bounds; no waiting message has headers."""
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
        """Skip the oldest messages, which were dropped, and discard the marks of their batches."""
        self.taken += count
        marks = self.marks
        while marks and marks[0][0] <= self.taken:
            marks.popleft()

    def _has_no_room(self, messages: list[Message]) -> bool:
        """Tell whether even the smallest of the messages, which have no headers, does not fit."""
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
        """Tell whether a blocking queue accepts messages beyond its bounds."""
        over = max(0, len(self.waiting) + len(messages) - self.messages_max)
        return max(0, self.bytes + size - self.bytes_max) + over * BLOCK_MESSAGE_BYTES <= BLOCK_SLACK_BYTES

    def _append(self, message: Message, size: int) -> None:
        self.waiting.append(message)
        self.bytes += size
        self.headed_bytes += size - len(message.payload)

    def _forget_headers(self, message: Message) -> None:
        """Subtract the headers of a removed message."""
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
        return msgspec.structs.replace(message, gap=message.gap + lost)

    def _count(self, reason: str, times: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + times


class OthersQueue(SubscriptionQueue):
    """A subscription to the messages of other nodes: its owner has the messages of its own node already."""

    takes_own = False

    __slots__ = ()


def size_of(message: Message) -> int:
    """Return the size of a message's payload and headers in bytes."""
    headers = message.headers
    return len(message.payload) + (len(headers.encoded) if isinstance(headers, Headers) else 0)


class SubscriptionReady(msgspec.Struct):
    """A subscription has messages, or was cut off."""

    queue: SubscriptionQueue


class SubscriptionTold(msgspec.Struct):
    """Every publisher knows a subscription."""

    queue: SubscriptionQueue


class SubscriptionEnded(msgspec.Struct):
    """Every publisher knows the end of a subscription."""

    queue: SubscriptionQueue


class PublicationsFlushed(msgspec.Struct):
    """All publishers have answered the last question for everything published so far."""


class SharedMessagesLost(msgspec.Struct):
    """A member of a group, or its link, was lost with messages that it had not taken."""

    group: str
    """The name of the group; its tag while no member has told the name."""
    node: NodeName
    """The member."""
    count: int
    """The number of messages; an upper bound."""


TopicEvent: TypeAlias = (
    RoomMade | SubscriptionReady | SubscriptionTold | SubscriptionEnded | PublicationsFlushed | SharedMessagesLost
)
