"""Received publications: detect late, repeated and missing ones, and deliver the rest (docs/design.md 8.2-8.5).

A *batch* of consecutive publications to a topic is examined once and delivered to a subscription as a whole.
"""

from __future__ import annotations

from itertools import count, repeat
from typing import TYPE_CHECKING

import msgspec

from iris_py.observe.histogram import Histogram
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.names import Tokens, TopicTrie, group_name, parse_topic, prefixes
from iris_py.patterns.topic.queue import RoomMade, SubscriptionReady
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, decode_headers
from iris_py.wire.imported import decode_imported
from iris_py.wire.packets import CROSSED, HEADED, NUMBERED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_overlay.ids import NodeId
    from iris_py.patterns.topic.queue import SubscriptionQueue, TopicEvent
    from iris_py.peers.group import Group
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers
    from iris_py.wire.imported import ImportedHead

#: Topics with cached subscriptions. Forgetting one costs another look-up.
TOPICS_MAX = 4096
#: Publishers whose missed messages are remembered, by group. Forgetting one costs unreported gaps.
MISSED_MAX = 4096
#: Numbered publications remembered, of all publishers together: as many as arrive while a node changes its groups.
NUMBERS_MAX = 8192
#: Remembered paths of other clouds' publications: gateways, with the group each publishes under. Forgetting one costs possibly
#: false gaps. Equal to the number of remembered publishers, because a path corresponds to one.
WAYS_MAX = MISSED_MAX
#: Publishers that wait for subscriptions, counted per group. Further publishers are not asked to wait: messages beyond a full
#: queue's slack are dropped and counted. Too small: with many publishers, some lose messages. Too large: memory, because an
#: attacker can be a new publisher with each new id.
BLOCKED_MAX = 4096
#: Interval at which a publisher is asked again to wait, a few times within its own timeout.
PAUSE_AGAIN_S = 1.0


class Deliveries:
    """The messages received by a node for subscriptions.

    Args:
        outbound: Sends PAUSE and RESUME to publishers.

    Attributes:
        received: Accepted publications of other nodes.
        queues: The subscriptions, in order of their start.
        lags: Waiting times of the messages of all subscriptions, including ended ones.
    """

    def __init__(self, outbound: Outbound, local: Peer, count_drop: Callable[..., int], events: list[TopicEvent]) -> None:
        self.received = 0
        self.lags = Histogram()
        self._outbound = outbound
        self._local = local
        self._count_drop = count_drop
        self._events = events
        self._trie: TopicTrie[SubscriptionQueue] = TopicTrie()
        self.queues: dict[SubscriptionQueue, None] = {}
        self._matches: dict[bytes, tuple[str, list[SubscriptionQueue]]] = {}
        # waiting publishers, with the subscriptions they wait for
        self._blocked: dict[tuple[Group, Peer], dict[SubscriptionQueue, None]] = {}
        self._pause_again_at: float | None = None
        self._numbers: dict[tuple[NodeId, bytes], None] = {}
        self._missed: dict[tuple[Group, NodeId], int] = {}
        self._ways: dict[tuple[Group, NodeId], int] = {}
        self._last_way = 0

    # -- subscriptions

    def add(self, queue: SubscriptionQueue) -> None:
        """Start a subscription."""
        self._trie.add(queue.pattern, queue)
        self.queues[queue] = None
        self._matches.clear()
        if self._missed:
            names = {group_name(each) for each in prefixes(queue.prefix)}
            queue.missed = {key: missed for key, missed in self._missed.items() if key[0].name in names}

    def remove(self, queue: SubscriptionQueue, now: float) -> bool:
        """End a subscription; return whether it existed."""
        if not self._trie.remove(queue.pattern, queue):
            return False
        del self.queues[queue]
        queue.lag.settle()
        self._matches.clear()
        self.drained(queue, now)
        return True

    def match(self, topic: Tokens) -> list[SubscriptionQueue]:
        """Return the subscriptions that match a topic."""
        return self._trie.match(topic)

    def drained(self, queue: SubscriptionQueue, now: float) -> None:
        """Let the publishers of a drained subscription continue."""
        blocked, queue.blocked = queue.blocked, {}
        for group, peer in blocked:
            queues = self._blocked[group, peer]
            del queues[queue]
            if queues:
                continue
            del self._blocked[group, peer]
            if peer is self._local:
                self._events.append(RoomMade())
            else:
                self._outbound.gather(PeerMessage(group, peer, packets.RESUME, 0), now)

    def memberships_changed(self, covers: Callable[[Tokens, float], list[Group]], now: float) -> None:
        """Handle new or ended memberships: waiting publishers must also wait under their future groups.

        Args:
            covers: Finds the groups of the memberships that cover a prefix.
        """
        for (_, peer), queues in list(self._blocked.items()):
            for queue in list(queues):
                for group in covers(queue.prefix, now):
                    self._block(queue, group, peer, now)

    # -- in

    def receive(
        self,
        group: Group,
        peer: Peer,
        flags: int,
        sequence: int,
        ordinal: int,
        head: bytes,
        payloads: list[bytes],
        now: float,
    ) -> None:
        """Handle consecutive publications to one topic. The hot path.

        Args:
            group: The group they were sent to.
            peer: The publishing node.
            flags: The flags of the message.
            sequence: The number of the first publication.
            ordinal: The first publication's number since the publisher began to use the group.
            head: The topic, after the fields that the flags announce.
            payloads: The published payloads; at least one.
        """
        last, begin = group.last_sequence(peer.id), sequence
        if sequence <= abs(last):
            late = abs(last) + 1 - sequence
            self._count_drop("late_publication", min(late, len(payloads)))
            payloads = payloads[late:]
            if not payloads:
                return
            sequence += late
        elif sequence != last + 1:
            if last > 0:
                self._note_gap(group, peer.id, min(sequence - last - 1, max(0, ordinal - 1)))
            else:
                self._ways.pop((group, peer.id), None)  # the messages between were lost, or took another path
        group.note_sequence(peer.id, sequence + len(payloads) - 1)
        if flags & NUMBERED:
            number, head = head[: packets.NUMBER.size], head[packets.NUMBER.size :]
            if self._is_repeated(peer.id, number):
                return
        if flags & CROSSED:
            self._receive_imported(group, peer, flags, sequence - begin, head, payloads, now)
            return
        headers = NO_HEADERS
        if flags & HEADED:
            split = _take_headers(head)
            if split is None:
                self._count_drop("malformed_headers", len(payloads))
                return
            headers, head = split
        match = self._matches.get(head) or self._match(head)
        if match is None:
            self._count_drop("malformed", len(payloads))
            return
        topic, queues = match
        if not queues:
            self._count_drop("publication_unwanted", len(payloads))
            return
        self.received += len(payloads)
        group.counts.received += len(payloads)
        source = peer.name
        if headers is NO_HEADERS:
            run = list(map(Message, payloads, repeat(source), count(sequence), repeat(""), repeat(topic)))
        else:
            run = [Message(payload, source, number, "", topic, 0, headers) for number, payload in enumerate(payloads, sequence)]
        self.hand_out(run, sum(map(len, payloads)), queues, group, peer, now)

    def hand_out(
        self,
        run: list[Message],
        size: int,
        queues: Sequence[SubscriptionQueue],
        group: Group,
        peer: Peer,
        now: float,
        *,
        is_imported: bool = False,
    ) -> None:
        """Give messages of one publisher to subscriptions.

        Args:
            run: The messages, with equal headers and consecutive numbers; at least one.
            size: Total bytes of their payloads.
            group: The group they were sent to.
            peer: The publishing node, possibly this node.
            is_imported: Whether they come from another cloud and have their gap already.
        """
        missed = self._missed.get((group, peer.id), 0) if self._missed and not is_imported else 0
        for queue in queues:
            if queue.is_cut:
                continue
            own = run
            if missed and queue.missed.get((group, peer.id), 0) != missed:
                first = run[0]
                gap = max(0, missed - queue.missed.get((group, peer.id), 0))
                queue.missed[group, peer.id] = missed
                first = Message(first.payload, first.source, first.sequence, "", first.topic, gap, first.headers)
                own = [first, *run[1:]]
            dropped = queue.put_all(own, size, group)
            queue.mark(now)
            if dropped:
                self._count_drop(f"subscription_{queue.policy}", dropped)
            if not queue.is_ready:
                queue.is_ready = True
                self._events.append(SubscriptionReady(queue))
            if queue.is_blocking and queue.is_full:
                self._block(queue, group, peer, now)

    def hand_out_imported(
        self,
        imported: ImportedHead,
        topic: str,
        payloads: list[bytes],
        headers: Headers,
        queues: list[SubscriptionQueue],
        group: Group,
        peer: Peer,
        now: float,
    ) -> None:
        """Give messages from another cloud to subscriptions, without repetitions.

        Args:
            imported: Their origin.
            payloads: The payloads, in order; at least one.
            headers: The headers of each.
            group: The group they were sent to.
            peer: The publishing gateway, possibly the local node.
        """
        key = group, peer.id
        way, missed = self._way(key), imported.missed + self._missed.get(key, 0)
        source = imported.origin.hex()
        sequence = imported.sequence + imported.cloud.encode()  # one cloud must not affect the numbers of another
        numbers = count(imported.number)
        run = [Message(each, source, next(numbers), "", topic, 0, headers, imported.cloud) for each in payloads]
        for queue in queues:
            if not queue.takes_imported:
                self._count_drop("imported_not_exported", len(run))
                continue
            late, gap = queue.fence.take(imported.origin, sequence, way, imported.number, len(run), missed)
            if late:
                self._count_drop("federation_late", late)
            own = run[late:]
            if own:
                if gap:
                    own[0] = msgspec.structs.replace(own[0], gap=gap)
                size = sum([len(message.payload) for message in own])
                self.hand_out(own, size, (queue,), group, peer, now, is_imported=True)

    def forget(self, group: Group) -> None:
        """Forget a group."""
        for key in [key for key in self._ways if key[0] is group]:
            del self._ways[key]
        for key in [key for key in self._missed if key[0] is group]:
            self._forget_missed(key)

    def peer_lost(self, peer: Peer) -> None:
        """Handle the loss of a peer: after a return, a publisher is asked to wait anew."""
        for key in [key for key in self._blocked if key[1] is peer]:
            for queue in self._blocked.pop(key):
                del queue.blocked[key]

    def handle_timeout(self, now: float) -> None:
        """Ask waiting publishers again to wait; harmless if early."""
        if self._pause_again_at is not None and now >= self._pause_again_at:
            self._pause_again_at = None
            for group, peer in self._blocked:
                self._send_pause(group, peer, now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._pause_again_at

    # --

    def _receive_imported(
        self, group: Group, peer: Peer, flags: int, late: int, head: bytes, payloads: list[bytes], now: float
    ) -> None:
        """Handle publications from another cloud, after ``late`` earlier ones of the same message were removed."""
        decoded = decode_imported(head, late + len(payloads))
        if decoded is None:
            self._count_drop("malformed", len(payloads))
            return
        imported, head = decoded
        headers = NO_HEADERS
        if flags & HEADED:
            split = _take_headers(head)
            if split is None:
                self._count_drop("malformed_headers", len(payloads))
                return
            headers, head = split
        match = self._matches.get(head) or self._match(head)
        if match is None:
            self._count_drop("malformed", len(payloads))
            return
        topic, queues = match
        if not queues:
            self._count_drop("publication_unwanted", len(payloads))
            return
        self.received += len(payloads)
        group.counts.received += len(payloads)
        self.hand_out_imported(imported.after(late), topic, payloads, headers, queues, group, peer, now)

    def _way(self, key: tuple[Group, NodeId]) -> int:
        """Return the number of a path of other clouds' publications; a new number after an interruption."""
        ways = self._ways
        way = ways.get(key)
        if way is None:
            if len(ways) >= WAYS_MAX:
                del ways[next(iter(ways))]
            self._last_way += 1
            way = ways[key] = self._last_way
        return way

    def _match(self, head: bytes) -> tuple[str, list[SubscriptionQueue]] | None:
        try:
            topic = head.decode()
            tokens = parse_topic(topic)
        except ValueError:
            return None
        if len(self._matches) >= TOPICS_MAX:
            self._matches.clear()
        match = self._matches[head] = (topic, self._trie.match(tokens))
        return match

    def _block(self, queue: SubscriptionQueue, group: Group, peer: Peer, now: float) -> None:
        """Ask a publisher to wait for a subscription, unless it already waits."""
        is_known = peer is self._local or (group, peer) in self._blocked
        if not is_known and len(self._blocked) >= BLOCKED_MAX:
            self._count_drop("too_many_publishers")
        elif (group, peer) not in queue.blocked:
            queue.blocked[group, peer] = None
            self._blocked.setdefault((group, peer), {})[queue] = None
            group.counts.pauses_asked += 1
            self._send_pause(group, peer, now)

    def _send_pause(self, group: Group, peer: Peer, now: float) -> None:
        if peer is not self._local:
            self._outbound.gather(PeerMessage(group, peer, packets.PAUSE, 0), now)
        self._pause_again_at = now + PAUSE_AGAIN_S
        self._outbound.has_events = True  # the deadline has changed

    def _note_gap(self, group: Group, sender: NodeId, gap: int) -> None:
        missed = self._missed
        key = (group, sender)
        if key not in missed and len(missed) >= MISSED_MAX:
            self._forget_missed(next(iter(missed)))
        missed[key] = missed.get(key, 0) + gap
        group.counts.gaps += gap

    def _forget_missed(self, key: tuple[Group, NodeId]) -> None:
        """Forget a publisher's missed messages, here and in the subscriptions."""
        del self._missed[key]
        self._ways.pop(key, None)  # because a path is identified by them
        for queue in self.queues:
            queue.missed.pop(key, None)

    def _is_repeated(self, sender: NodeId, number: bytes) -> bool:
        numbers = self._numbers
        if (sender, number) in numbers:
            return True
        if len(numbers) >= NUMBERS_MAX:
            del numbers[next(iter(numbers))]
        numbers[sender, number] = None
        return False


def _take_headers(head: bytes) -> tuple[Headers, bytes] | None:
    """Split a head that begins with application headers into headers and rest; return None if malformed."""
    start = packets.HEAD_SIZE.size
    if len(head) < start:
        return None
    stop = start + packets.HEAD_SIZE.unpack_from(head)[0]
    headers = decode_headers(head[start:stop]) if stop <= len(head) else None
    return None if headers is None else (headers, head[stop:])
