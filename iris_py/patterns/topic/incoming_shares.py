"""The member's side of shared subscriptions: messages of publishers for the groups of a node (docs/design.md 8.16).

A *member* is the node in a group, with at least a subscription. A dense count of messages for every publisher makes gaps exact.
The member tells the publisher the number of taken messages: after half of the window, else ``TOLD_S`` after the first.

A fast program takes a message in less time than its count would take. So :meth:`IncomingShares.settle` counts many at once:
when the program waits for messages, after ``SharedQueue.in_hand_max`` of them, and at the time of a TAKEN.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import count, repeat
from math import ceil
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.patterns.messages import Message
from iris_py.patterns.topic.deliveries import BodySender
from iris_py.patterns.topic.message_runs import imported_run
from iris_py.patterns.topic.names import TopicTrie, parse_topic
from iris_py.patterns.topic.queue import TAKEN_BYTES_MAX, SubscriptionQueue
from iris_py.patterns.topic.share_index import Share
from iris_py.patterns.topic.shared_slices import SharedSlice
from iris_py.peers.balancer import SERVICE_TIME_WEIGHT
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.flows import COUNT_MASK, messages_between
from iris_py.wire.headers import NO_HEADERS, take_headers
from iris_py.wire.imported import decode_imported
from iris_py.wire.shares import FIRST_WINDOW, FOREIGN, SERVICE_US_MAX, WINDOW_MAX, TakenCounts, decode_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_overlay.ids import NodeId
    from iris_py.observe.histogram import Histogram
    from iris_py.patterns.topic.deliveries import Deliveries
    from iris_py.patterns.topic.names import Tokens
    from iris_py.peers.group import Group
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer
    from iris_py.wire.shares import SharedNumber

#: Time after which a publisher is told of taken messages (seconds). Too small: packets for single messages; too large: a
#: publisher chooses by an old load, and counts more as lost when the member dies.
TOLD_S: Final = 0.02
#: Messages that an iteration takes out of a queue at once if the program's time for a message is unknown or long. Too small:
#: the overhead of taking is paid more often; too large: a slow program holds messages that no policy can drop.
IN_HAND_MIN: Final = 16
#: Messages that an iteration of a fast program takes at once. Too small and too large: as above.
IN_HAND_MAX: Final = 256
#: Time for which the messages taken at once may occupy the program (seconds). Too small: an iteration of a fast program that
#: waits for a processor takes few messages at once; too large: as above.
IN_HAND_S: Final = 0.02
#: The smallest window. Too small: a member with many publishers idles while messages are on the way; too large: its queue
#: overflows.
WINDOW_MIN: Final = 16
#: Time for which a publisher counts as one that uses the member (seconds). Too small: windows are too large together; too
#: large: too small.
USED_S: Final = 10.0
#: Counts of publishers; beyond it the longest unused is forgotten. Too small: the gap of a forgotten publisher is unknown. Too
#: large: memory, some 300 bytes for each.
COUNTS_MAX: Final = 4096
#: Topics with cached subscriptions. Forgetting one costs another look-up.
TOPICS_MAX: Final = 1024
#: Differences of counts modulo 2^32 from this one on are negative.
_BEHIND: Final = (COUNT_MASK + 1) // 2


class SharedQueue(SubscriptionQueue):
    """The queue of a subscription with a group.

    Args:
        group: The name of the group.
        weight: The share of the messages, relative to other members.
        pattern: As for :class:`~iris_py.patterns.topic.queue.SubscriptionQueue`, like all further arguments.

    Attributes:
        in_hand: Returns the number of messages outside the queue and not done by the program.
        in_hand_max: Messages that an iteration takes out of the queue at once: some ``IN_HAND_S`` of work.
        settle_at: The value of ``taken`` from which :meth:`IncomingShares.settle` is due; 0 if it is due for the next message.
        busy_since: Time from which the program works on the next message (seconds).
        givers: The counts of the messages in the queue and in hand, the oldest first, with numbers of messages.
        settled: Number of messages removed from ``givers``.
        is_leaving: Whether publishers are told of the end. Until then the queue takes their messages.
        is_closed: Whether the queue is at an end.
        unused: Number of messages that the program had not taken at the end.
    """

    __slots__ = (
        "busy_since",
        "givers",
        "group",
        "in_hand",
        "in_hand_max",
        "is_closed",
        "is_leaving",
        "settle_at",
        "settled",
        "unused",
        "weight",
    )

    def __init__(
        self,
        group: str,
        weight: float,
        pattern: Tokens,
        name: str,
        policy: str,
        messages_max: int,
        bytes_max: int,
        lags: Histogram | None = None,
    ) -> None:
        super().__init__(pattern, name, policy, messages_max, bytes_max, lags)
        self.group = group
        self.weight = weight
        self.is_blocking = False  # publishers wait for the window, not for PAUSE
        self.in_hand: Callable[[], int] = int
        self.givers: deque[tuple[IncomingCount, int]] = deque()
        self.settled = self.settle_at = 0
        self.in_hand_max = IN_HAND_MIN
        self.busy_since = 0.0
        self.is_leaving = False
        self.is_closed = False
        self.unused = 0

    @property
    def blocks(self) -> bool:
        """Whether publishers wait when the queues of all members are full."""
        return self.policy == "block"

    def take_some(self) -> list[Message]:
        """Take some of the oldest messages, at most ``in_hand_max``."""
        messages_max = max(1, min(self.in_hand_max, self.messages_max // 4))
        if self.headed_bytes or self.lost:
            return [self.pop() for _ in range(min(messages_max, len(self.waiting)))]
        return self.take_up_to(messages_max, TAKEN_BYTES_MAX)

    def clear(self, reason: str, taken: int = 0) -> int:
        """Drop all messages at the end of the subscription; return their number."""
        self.is_closed = True
        self.unused = super().clear(reason, taken)
        return self.unused


class OwnMember:
    """The local node in a group.

    Attributes:
        name: The name of the group.
        queues: The queues of the subscriptions.
        publishers: The publishers of the last time, with the time, the longest silent first.
        service_s: The program's mean time for a message (seconds); 0 before the first.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: dict[SharedQueue, None] = {}
        self.publishers: OrderedDict[NodeId, float] = OrderedDict()
        self.service_s = 0.0

    def observe(self, duration_s: float, messages: int) -> None:
        """Add the time for some messages to the mean."""
        weight = 1 - (1 - SERVICE_TIME_WEIGHT) ** messages if self.service_s else 1.0
        self.service_s += weight * (duration_s / messages - self.service_s)

    def use(self, publisher: NodeId, now: float) -> None:
        """Note the use by a publisher."""
        self.publishers[publisher] = now
        self.publishers.move_to_end(publisher)

    def window(self, now: float) -> int:
        """Return the largest number of outstanding messages for a publisher."""
        publishers = self.publishers
        while publishers and next(iter(publishers.values())) + USED_S <= now:
            publishers.popitem(last=False)
        if self.queues and all(queue.is_full for queue in self.queues):
            return 0
        room = sum(queue.messages_max for queue in self.queues)
        return max(WINDOW_MIN, min(WINDOW_MAX, room // max(1, len(publishers))))


class IncomingCount:
    """The count of messages from a publisher to the local node in a group.

    Attributes:
        peer: The publisher.
        group: The group of the realm, by the publisher's key.
        tag: The tag of the group.
        member: The local node in the group.
        name: The name of the count.
        received: Messages up to the last received message, including missing messages.
        missed: The missing messages in ``received``.
        taken: The taken or dropped messages in ``received``.
        told: ``taken`` and ``missed`` together, as the publisher knows.
        window: The window as the publisher knows.
    """

    __slots__ = ("group", "member", "missed", "name", "peer", "received", "tag", "taken", "told", "window")

    def __init__(self, peer: Peer, group: Group, tag: int, member: OwnMember, name: int) -> None:
        self.peer = peer
        self.group = group
        self.tag = tag
        self.member = member
        self.name = name
        self.received = self.missed = self.taken = self.told = 0
        self.window = FIRST_WINDOW

    @property
    def queued(self) -> int:
        """The messages that wait to be taken."""
        return self.received - self.missed - self.taken

    def accept(self, before: int, messages: int) -> tuple[int, int]:
        """Accept messages; return how many to drop from the start, as late or repeated, and how many are missing before.

        Args:
            before: Number of messages before the first, modulo 2^32.
            messages: Their number, at least 1.
        """
        ahead = messages_between(self.received, before)
        late = 0
        if ahead >= _BEHIND:
            late, ahead = min(messages, COUNT_MASK + 1 - ahead), 0
        self.missed += ahead
        self.received += ahead + messages - late
        return late, ahead


class IncomingShares:
    """The groups of the local node.

    Args:
        deliveries: Puts messages into queues.
        outbound: Sends TAKEN.
        count_drop: Counts drops, by reason.

    Attributes:
        tell_local: Tells the local publisher: (tag, state, now); set by the publisher.
    """

    tell_local: Callable[[int, TakenCounts, float], None]

    def __init__(self, deliveries: Deliveries, outbound: Outbound, local: Peer, count_drop: Callable[..., int]) -> None:
        self._deliveries = deliveries
        self._outbound = outbound
        self._local = local
        self._count_drop = count_drop
        self._members: dict[str, OwnMember] = {}
        self._trie: TopicTrie[SharedQueue] = TopicTrie()
        self._matches: dict[str, list[SharedQueue]] = {}
        self._tags: dict[tuple[bytes, int], str] = {}  # names of groups, by table and tag
        self._counts: OrderedDict[tuple[NodeId, bytes, int], IncomingCount] = OrderedDict()  # the longest unused first
        self._has_forgotten = False
        self._untold: dict[IncomingCount, None] = {}  # those of which the publisher is to be told
        self._busy: dict[SharedQueue, None] = {}  # those with messages in hand
        self._tell_at: float | None = None  # one time for all: a timer costs more than a TAKEN

    # -- subscriptions

    def add(self, queue: SharedQueue) -> None:
        """Start a subscription."""
        self._members.setdefault(queue.group, OwnMember(queue.group)).queues[queue] = None
        self._trie.add(queue.pattern, queue)
        self._matches.clear()

    def remove(self, queue: SharedQueue, now: float) -> bool:
        """End a subscription; return whether it existed. Messages that the program has not taken count as missed."""
        if not self._trie.remove(queue.pattern, queue):
            return False
        self.settle(queue, now)
        for giver, messages in queue.givers:
            giver.missed += messages
            self._note(giver, now)
        queue.givers.clear()
        self._busy.pop(queue, None)
        member = self._members[queue.group]
        del member.queues[queue]
        if not member.queues:
            del self._members[queue.group]
        self._matches.clear()
        for counted in [counted for counted in self._untold if counted.member is member]:
            del self._untold[counted]
            self._tell(counted, now)  # at once, because the node may close next
        return True

    def name_tag(self, table: bytes, tag: int, name: str) -> None:
        """Note the tag of a group in the table of a generation."""
        self._tags[table, tag] = name

    def forget_table(self, table: bytes) -> None:
        """Forget the tags of a generation."""
        self._tags = {key: name for key, name in self._tags.items() if key[0] != table}

    @property
    def has_members(self) -> bool:
        """Whether this node is a member of a group, with ending subscriptions, too."""
        return bool(self._members)

    def names(self) -> set[str]:
        """Return the names of the groups, without ending subscriptions."""
        return {name for name, member in self._members.items() if any(not queue.is_leaving for queue in member.queues)}

    def groups_of(self, topic: Tokens) -> dict[str, Share]:
        """Return the groups with a subscription to a topic, and the local shares."""
        matching = self._trie.match(topic) if self._members else []
        names = {queue.group for queue in matching if not queue.is_leaving}
        return {name: share_of(self._members[name].queues) for name in names}

    def has_pattern(self, pattern: Tokens) -> bool:
        """Tell whether a group has a subscription with exactly this pattern."""
        return any(queue.pattern == pattern and not queue.is_leaving for queue in self._trie.match(pattern))

    def literal_bits(self, topic: Tokens) -> int:
        """Return the positions of the tokens read by :meth:`groups_of`, as bits."""
        return self._trie.literal_bits(topic)

    def settle(self, queue: SharedQueue, now: float) -> None:
        """Count the messages taken from a queue by the program."""
        in_hand = queue.in_hand()
        left = queue.taken - in_hand - queue.settled - queue.unused
        if left > 0:
            member = self._members[queue.group]
            member.observe(now - queue.busy_since, left)
            queue.busy_since = now
            if member.service_s > 0:
                queue.in_hand_max = max(IN_HAND_MIN, min(int(IN_HAND_S / member.service_s), IN_HAND_MAX))
        while left > 0:
            giver, messages = queue.givers.popleft()
            if messages > left:
                queue.givers.appendleft((giver, messages - left))
                messages = left
            left -= messages
            queue.settled += messages
            giver.taken += messages
            self._note(giver, now)
        if in_hand:
            self._busy[queue] = None
            self._set_time(now)
        queue.settle_at = queue.taken + queue.in_hand_max if queue in self._busy else 0

    # -- messages

    def receive(
        self, group: Group, peer: Peer, flags: int, number: int, head: bytes, payloads: list[bytes], now: float
    ) -> None:
        """Handle a SHARED.

        Args:
            group: The group of the realm whose key encrypted it.
            peer: The publisher.
            flags: The flags of the message.
            number: The publisher's number of the first publication.
            head: Its head.
            payloads: The published payloads; at least one.
        """
        decoded = decode_numbers(head)
        if decoded is None:
            self._count_drop("malformed", len(payloads))
            return
        numbers, head = decoded
        imported, headers = None, NO_HEADERS
        if flags & FOREIGN:
            of_origin = decode_imported(head, len(payloads))
            if of_origin is None:
                self._count_drop("malformed", len(payloads))
                return
            imported, head = of_origin
        if flags & packets.HEADED:
            split = take_headers(head)
            if split is None:
                self._count_drop("malformed_headers", len(payloads))
                return
            headers, head = split
        try:
            topic = head.decode()
            self._match(topic)
        except ValueError:
            self._count_drop("malformed", len(payloads))
            return
        self.accept(group, peer, SharedSlice(topic, 0, number, payloads, headers, imported), numbers, now)

    def accept(self, group: Group, peer: Peer, part: SharedSlice, numbers: Iterable[SharedNumber], now: float) -> None:
        """Take a slice of a publisher, possibly of this node, for some groups."""
        queues = self._match(part.topic)
        for number in numbers:
            name = self._tags.get((group.id, number.group), "")
            member = self._members.get(name)
            if member is None:
                self._count_drop("share_gone", len(part.payloads))
                continue
            counted, is_unknown = self._count(peer, group, member, number)
            late, gap = counted.accept(number.before, len(part.payloads))
            if late:
                self._count_drop("late_publication", late)
                if late == len(part.payloads):
                    continue
            member.use(peer.id, now)
            matching = [queue for queue in queues if queue.group == name and not queue.is_closed]
            if not matching:
                counted.missed += len(part.payloads) - late
                self._count_drop("share_gone", len(part.payloads) - late)
                self._note(counted, now)
                continue
            queue = min(matching, key=_load)
            self._hand_out(queue, counted, part, late, gap, now, is_unknown=is_unknown)

    # -- time

    def handle_timeout(self, now: float) -> None:
        """Tell publishers of taken messages; harmless if early."""
        if self._tell_at is None or now < self._tell_at:
            return
        self._tell_at = None
        busy, self._busy = self._busy, {}
        for queue in busy:
            self.settle(queue, now)
        untold, self._untold = self._untold, {}
        for counted in untold:
            if counted.told != counted.taken + counted.missed:
                self._tell(counted, now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._tell_at

    # --

    def _match(self, topic: str) -> list[SharedQueue]:
        queues = self._matches.get(topic)
        if queues is None:
            tokens = parse_topic(topic)
            if len(self._matches) >= TOPICS_MAX:
                self._matches.clear()
            queues = self._matches[topic] = self._trie.match(tokens)
        return queues

    def _count(self, peer: Peer, group: Group, member: OwnMember, number: SharedNumber) -> tuple[IncomingCount, bool]:
        """Return the count of a publisher, and whether messages may be missing in an unknown number."""
        key = peer.id, group.id, number.group
        counted = self._counts.get(key)
        if counted is not None and counted.name == number.name:
            self._counts.move_to_end(key)
            counted.member, counted.peer, counted.group = member, peer, group
            return counted, False
        is_unknown = counted is None and self._has_forgotten and number.before > 0
        counted = self._counts[key] = IncomingCount(peer, group, number.group, member, number.name)
        if is_unknown:
            counted.received = counted.taken = counted.told = number.before
        self._counts.move_to_end(key)
        if len(self._counts) > COUNTS_MAX:
            _, oldest = self._counts.popitem(last=False)
            self._untold.pop(oldest, None)
            self._has_forgotten = True
        return counted, is_unknown

    def _hand_out(
        self,
        queue: SharedQueue,
        counted: IncomingCount,
        part: SharedSlice,
        late: int,
        gap: int,
        now: float,
        *,
        is_unknown: bool,
    ) -> None:
        payloads = part.payloads[late:]
        if part.imported is not None:
            run = imported_run(part.imported.after(late), part.topic, payloads, part.headers)
        else:
            source, first = counted.peer.name, part.first + late
            run = list(
                map(
                    Message,
                    payloads,
                    repeat(source),
                    count(first),
                    repeat(""),
                    repeat(part.topic),
                    repeat(0),
                    repeat(part.headers),
                )
            )
        if gap or is_unknown:
            run[0] = msgspec.structs.replace(run[0], gap=gap, has_unknown_gap=is_unknown)
        self._deliveries.count_shared(part.topic, len(run), gap)
        before = queue.taken + len(queue.waiting)
        sender = BodySender(counted.peer, counted.group, None)
        self._deliveries.hand_out(run, sum(map(len, payloads)), (queue,), sender, now, has_gap=True)
        accepted = queue.taken + len(queue.waiting) - before
        if accepted:
            if not queue.givers:
                queue.busy_since = now
            queue.givers.append((counted, accepted))
        if accepted < len(run):
            counted.taken += len(run) - accepted
            self._note(counted, now)
        if queue.taken >= queue.settle_at:
            self.settle(queue, now)

    def _note(self, counted: IncomingCount, now: float) -> None:
        """Tell a publisher of taken messages, at once or soon."""
        if 2 * (counted.taken + counted.missed - counted.told) >= max(WINDOW_MIN, counted.window):
            self._tell(counted, now)
        else:
            self._untold[counted] = None
            self._set_time(now)

    def _set_time(self, now: float) -> None:
        if self._tell_at is None:
            self._tell_at = now + TOLD_S
            self._outbound.has_events = True  # the deadline has changed

    def _tell(self, counted: IncomingCount, now: float) -> None:
        member = counted.member
        counted.told = counted.taken + counted.missed
        counted.window = member.window(now)
        others = max(0, sum(map(_load, member.queues)) - counted.queued)
        told = TakenCounts(
            counted.name,
            counted.received,
            counted.missed,
            counted.taken,
            counted.window,
            min(others, WINDOW_MAX),
            min(ceil(member.service_s * 1e6), SERVICE_US_MAX),
            member.name,
        )
        if counted.peer is self._local:
            self.tell_local(counted.tag, told, now)
            return
        argument = told.taken & COUNT_MASK
        message = PeerMessage(counted.group, counted.peer, packets.TAKEN, counted.tag, argument, told.encode())
        self._outbound.gather(message, now)


def share_of(queues: Iterable[SharedQueue]) -> Share:
    """Return the share of subscriptions of a node in a group, without ending subscriptions."""
    weight, blocks = 0.0, False
    for queue in queues:
        if queue.is_leaving:
            continue
        weight += queue.weight
        blocks = blocks or queue.blocks
    return Share(weight, blocks)


def _load(queue: SharedQueue) -> int:
    return len(queue.waiting) + queue.taken - queue.settled - queue.unused
