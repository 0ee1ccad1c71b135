"""Received publications: detect late, repeated and missing ones, and deliver the rest (docs/design.md 8.3-8.5).

A *batch* of consecutive publications to a topic is examined once and delivered to a subscription as a whole.
"""

from __future__ import annotations

from functools import partial
from itertools import count, repeat
from typing import TYPE_CHECKING

import msgspec

from iris_py.observe.histogram import Histogram
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.alike_topics import AlikeTopics
from iris_py.patterns.topic.incoming_casts import CastWay, IncomingCasts, PromotedEntry, WaitingCast, WaitingDelivery
from iris_py.patterns.topic.incoming_flows import IncomingFlow, IncomingFlows, ReportedGaps
from iris_py.patterns.topic.interest import WIDE_TAG
from iris_py.patterns.topic.message_runs import counted_run, headed_run, imported_run
from iris_py.patterns.topic.names import Tokens, TopicTrie, parse_topic
from iris_py.patterns.topic.publication_flush import FLUSH_IDS, PublicationFlush
from iris_py.patterns.topic.queue import STARTS_MAX, SubscriptionReady
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.group import Group
from iris_py.peers.outbound import RoomMade
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.flows import MISSED_ENTRIES, MatchesBefore, MissedEntries, decode_count, decode_entries
from iris_py.wire.headers import NO_HEADERS, Headers, take_headers
from iris_py.wire.imported import decode_imported
from iris_py.wire.packets import CROSSED, EACH_HEADED, HEADED, run_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from iris_overlay.ids import NodeId
    from iris_py.observe.counts import BoundedCounts, GroupCounts
    from iris_py.patterns.topic.own_interest import OwnEntry
    from iris_py.patterns.topic.queue import SubscriptionQueue, TopicEvent
    from iris_py.peers.outbound import Outbound
    from iris_py.wire.imported import ImportedHead

    #: A delivery held back until the answer of a publisher: called with the time.
    HeldDelivery: TypeAlias = Callable[[float], None]

#: Topics with cached subscriptions, and the same number of results for topics alike. Forgetting one costs another look-up.
TOPICS_MAX = 4096
#: Publishers that wait for subscriptions, counted per entry. Further publishers are not asked to wait: messages beyond a full
#: queue's slack are dropped and counted. Too small: with many publishers, some lose messages. Too large: memory, because an
#: attacker can be a new publisher with each new id.
BLOCKED_MAX = 4096
#: Interval at which a publisher is asked again to wait, a few times within its own timeout.
PAUSE_AGAIN_S = 1.0


class BodySender(msgspec.Struct, frozen=True):
    """The sender of a body with publications.

    Attributes:
        peer: The publishing node, possibly this node.
        group: The group of the realm whose key encrypted the body.
        flow: The flow from the publisher; None for messages of this node, or if no message came directly.
        way: For a cast, the way of the publisher; else None.
        promoted: For a cast, the entry to which it was sent.
        counts: For counted entries of this node, by key: the publisher's matches before the next publication of the body. For
            publications that were read, before the first of them.
    """

    peer: Peer
    group: Group
    flow: IncomingFlow[HeldDelivery] | None
    way: CastWay | None = None
    promoted: PromotedEntry | None = None
    counts: dict[int, MatchesBefore] | None = None


class Deliveries:
    """The messages received by a node for subscriptions.

    Args:
        outbound: Sends PAUSE, RESUME and FETCH to publishers.
        counts: The counters by first token.

    Attributes:
        received: Accepted publications of other nodes.
        queues: The subscriptions, in order of their start.
        casts: The promoted entries of the node, and their casts.
        flush: The question to publishers for everything published so far.
        lags: Waiting times of the messages of all subscriptions, including ended ones.
    """

    def __init__(
        self,
        outbound: Outbound,
        local: Peer,
        counts: BoundedCounts,
        count_drop: Callable[..., int],
        events: list[TopicEvent],
    ) -> None:
        self.received = 0
        self.lags = Histogram()
        self._outbound = outbound
        self._local = local
        self._counts = counts
        self._count_drop = count_drop
        self._events = events
        self._trie: TopicTrie[SubscriptionQueue] = TopicTrie()  # subscriptions to the publications of all nodes
        self._others_trie: TopicTrie[SubscriptionQueue] = TopicTrie()  # to those of other nodes alone
        self.queues: dict[SubscriptionQueue, None] = {}
        self._matches: dict[bytes, tuple[str, list[SubscriptionQueue], GroupCounts]] = {}
        self._alike: AlikeTopics[tuple[list[SubscriptionQueue], GroupCounts]] = AlikeTopics(TOPICS_MAX)
        # waiting publishers, with the subscriptions they wait for
        self._blocked: dict[tuple[Group | None, Peer, OwnEntry], dict[SubscriptionQueue, None]] = {}
        self._pause_again_at: float | None = None
        self._keys: dict[int, int] = {}  # keys of the node's entries, by tag
        self._tags: dict[int, int] = {}  # number of tags of each key
        self._counted: dict[int, dict[SubscriptionQueue, None]] = {}  # counted subscriptions, by the key of their entry
        self.casts = IncomingCasts(count_drop)
        self._flows: IncomingFlows[HeldDelivery] = IncomingFlows(self._tags, _deliver, self._forget_publisher)
        self.flush = PublicationFlush(outbound, self._flows, events)

    # -- subscriptions

    def add(self, queue: SubscriptionQueue, entry: OwnEntry) -> None:
        """Start a subscription, for which an entry stands."""
        self._trie_of(queue).add(queue.pattern, queue)
        self.queues[queue] = None
        self._matches.clear()
        self._alike.clear()
        queue.entry = entry
        queue.gaps = ReportedGaps(entry.key, self._flows)
        self.casts.add_queue(queue)
        if queue.is_counted:
            self._counted.setdefault(entry.key, {})[queue] = None

    def assign(self, queue: SubscriptionQueue, entry: OwnEntry) -> None:
        """Change the entry of a subscription."""
        queue.entry = entry
        queue.gaps.move(entry.key, self._flows)
        self.casts.add_queue(queue)

    def remove(self, queue: SubscriptionQueue, now: float) -> bool:
        """End a subscription; return whether it existed."""
        if not self._trie_of(queue).remove(queue.pattern, queue):
            return False
        del self.queues[queue]
        if queue.is_counted:
            del self._counted[queue.entry.key][queue]
            if not self._counted[queue.entry.key]:
                del self._counted[queue.entry.key]
        queue.lag.settle()
        self.casts.remove_queue(queue)
        self._matches.clear()
        self._alike.clear()
        self.drained(queue, now)
        return True

    def add_tag(self, tag: int, entry: OwnEntry) -> None:
        """Note the tag of an entry in the table of one generation."""
        if tag not in self._keys:
            self._keys[tag] = entry.key
            self._tags[entry.key] = self._tags.get(entry.key, 0) + 1

    def forget_tag(self, tag: int) -> None:
        """Forget the tag of a former entry of the node."""
        key = self._keys.pop(tag, None)
        if key is None:
            return
        self._tags[key] -= 1
        if not self._tags[key]:
            del self._tags[key]

    def match_own(self, topic: Tokens) -> list[SubscriptionQueue]:
        """Return the subscriptions that take a publication of this node to a topic."""
        return self._trie.match(topic)

    def literal_bits_own(self, topic: Tokens) -> int:
        """Return the positions of the tokens read by :meth:`match_own`, as bits."""
        return self._trie.literal_bits(topic)

    def publishers(self) -> list[NodeId]:
        """Return the publishers whose messages are counted."""
        return self._flows.publishers()

    def count_publishers(self) -> int:
        """Return the number of publishers whose messages are counted."""
        return len(self._flows)

    def drained(self, queue: SubscriptionQueue, now: float) -> None:
        """Let the publishers of a drained subscription continue."""
        blocked, queue.blocked = queue.blocked, {}
        for key in blocked:
            queues = self._blocked[key]
            del queues[queue]
            if queues:
                continue
            del self._blocked[key]
            if key[1] is self._local:
                self._events.append(RoomMade())
            else:
                self._tell(packets.RESUME, key, now)

    def tables_changed(self, groups: Sequence[Group], now: float) -> None:
        """Handle new generations: waiting publishers must also wait under their future keys.

        Args:
            groups: The group of the realm in each generation.
        """
        for (_, peer, entry), queues in list(self._blocked.items()):
            for queue in list(queues):
                for group in groups if peer is not self._local else ():
                    self._block(queue, group, peer, entry, now)

    # -- in

    def start_body(self, group: Group, peer: Peer, name: int, before: int, now: float) -> BodySender:
        """Handle the FLOW at the start of a body; return the sender of the publications in the body.

        Args:
            group: The group of the realm whose key encrypted the body.
            peer: The publishing node.
            name: The name of the flow.
            before: The number of messages in the flow before the body.
        """
        return BodySender(peer, group, self._flows.start_body(peer.id, name, before, now))

    def start_count(self, sender: BodySender, count: int, payload: bytes) -> BodySender:
        """Handle a COUNT behind the FLOW of a body; return the sender of the publications, with the count.

        Args:
            sender: The sender of the body.
            count: The id of the message.
            payload: The payload of the message.
        """
        said = decode_count(count, payload)
        if said is None or sender.way is not None:
            self._count_drop("malformed")
            return sender
        key = self._keys.get(said.tag)
        queues = None if key is None else self._counted.get(key)
        if key is None or queues is None:
            return sender  # the subscription has ended meanwhile
        for queue in queues:
            if len(queue.starts) < STARTS_MAX:
                queue.starts.setdefault(sender.peer.name, said)
        return msgspec.structs.replace(sender, counts={**(sender.counts or {}), key: said})

    def promote(self, entry: OwnEntry, realm: Group, group: Group, tag: int, *, is_confirmed: bool) -> PromotedEntry:
        """Note that an entry of this node is promoted: casts to its group will come.

        Args:
            realm: The group of the realm with its table.
            group: The group of the entry.
            tag: The tag of the entry.
            is_confirmed: Whether all publishers know the entry.
        """
        promoted = PromotedEntry(entry, realm, group, tag, self._flows.lasts(), is_confirmed=is_confirmed)
        self.casts.add(promoted)
        return promoted

    def start_cast(self, group: Group, peer: Peer, direct: int, before: int) -> BodySender | None:
        """Handle the CAST at the start of a body; return the sender of the publications, None if the group is not in use.

        Args:
            group: The group of a promoted entry.
            peer: The publishing node.
            direct: The last number sent directly for the entry; 0 for none.
            before: The number of messages to the group before the body.
        """
        promoted = self.casts.by_group.get(group.id)
        if promoted is None:
            return None
        flow = self._flows.find(peer.id)
        way = self.casts.start_body(promoted, peer.id, direct, before, has_flow=flow is not None)
        return BodySender(peer, promoted.realm, flow, way, promoted)

    def receive_moved(self, sender: BodySender, id_: int, count: int, now: float) -> None:
        """Handle a MOVED: behind it the messages for an entry come by cast or, if it came by cast, no longer come so.

        Args:
            sender: The sender of its body.
            id_: The tag of the entry; in a cast the publisher's number.
            count: The number of messages to the group so far, modulo 2^32.
            now: Monotonic seconds.
        """
        if sender.promoted is not None:
            self.casts.receive_end(sender.promoted, sender.peer.id, id_, count, now)
            return
        flow = sender.flow
        assert flow is not None
        promoted = next((each for each in self.casts.by_group.values() if each.tag == id_ and each.realm is sender.group), None)
        if promoted is None:
            return  # the subscription has ended meanwhile
        move = partial(self.casts.receive_moved, promoted, sender.peer.id, flow.last, count)
        if flow.is_held:
            self._flows.hold(flow, move, 0, now)
        else:
            move(now)

    def receive(
        self, sender: BodySender, flags: int, number: int, head: bytes, payloads: list[bytes], now: float, length: int = 0
    ) -> None:
        """Handle consecutive publications to one topic. The hot path.

        Args:
            sender: The sender of their body.
            flags: The flags of the message.
            number: The publisher's number of the first publication.
            head: The topic, after the fields that the flags announce.
            payloads: The published payloads; at least one.
            length: Bytes of the payloads on the wire; 0 if they must be counted.
        """
        flow, position, late = sender.flow, 0, 0
        if sender.way is not None:
            position = sender.way.read(len(payloads))
        else:
            assert flow is not None
            late = self._flows.accept(flow, number, len(payloads), now)
        if self._flows.fetches:
            self._fetch(sender, now)
        if late:
            self._count_drop("late_publication", late)
            payloads = payloads[late:]
            if not payloads and sender.counts is None:
                return
            number += late
        imported: ImportedHead | None = None
        if flags & CROSSED:
            decoded = decode_imported(head, late + len(payloads))
            if decoded is None:
                self._count_drop("malformed", len(payloads))
                return
            imported, head = decoded[0].after(late), decoded[1]
        headers = NO_HEADERS
        if flags & HEADED:
            split = take_headers(head)
            if split is None:
                self._count_drop("malformed_headers", len(payloads))
                return
            headers, head = split
        match = self._matches.get(head) or self._match(head)
        if match is None:
            self._count_drop("malformed", len(payloads))
            return
        topic, queues, counts = match
        if sender.counts is not None:
            sender = _count(sender, queues if imported is None else (), late, len(payloads))
        if not payloads:
            return
        if sender.promoted is not None:
            queues = [queue for queue in queues if queue.entry is sender.promoted.entry]
        if not queues:
            self._count_drop("publication_unwanted", len(payloads))
            return
        if sender.way is None:
            self.received += len(payloads)
            counts.received += len(payloads)
        source, size = sender.peer.name, sum(map(len, payloads)) if late or not length else length - run_bytes(flags, payloads)
        if flags & EACH_HEADED:
            headed = headed_run(source, number, topic, payloads) if imported is None and headers is NO_HEADERS else None
            if headed is None:
                self._count_drop("malformed_headers", len(payloads))
                return
            run, size = headed, sum([len(message.payload) for message in headed])
        elif imported is not None:
            run = imported_run(imported, topic, payloads, headers)
        elif len(payloads) == 1:
            run = [Message(payloads[0], source, number, "", topic, 0, headers)]
        elif headers is NO_HEADERS:
            run = list(map(Message, payloads, repeat(source), count(number), repeat(""), repeat(topic)))
        else:
            run = [Message(payload, source, each, "", topic, 0, headers) for each, payload in enumerate(payloads, number)]
        last = number + len(payloads) - 1
        if sender.way is not None:
            self._receive_cast(run, imported, sender, number, position, size, now)
        elif flow is not None and flow.is_held:
            self._flows.hold(flow, partial(self._hand_out_later, run, imported, queues, sender, last), size, now)
        else:
            self._hand_out_direct(run, imported, queues, sender, last, size, now)

    def receive_headed(self, sender: BodySender, number: int, heads: list[bytes], payloads: list[bytes], now: float) -> None:
        """Handle publications with headers, to any topics and with consecutive numbers, as :meth:`receive` handles each.

        The requests of NATS clients: those for the same subscriptions are handed out together.

        Args:
            sender: The sender of their body.
            number: The publisher's number of the first publication.
            heads: The headers and the topic of each publication.
            payloads: The payload of each publication.
        """
        flow = sender.flow
        if len(heads) == 1 or flow is None or sender.way is not None or sender.counts is not None or self.casts.by_group:
            for each, (head, payload) in enumerate(zip(heads, payloads, strict=True), number):
                self.receive(sender, HEADED, each, head, [payload], now)
            return
        late = self._flows.accept(flow, number, len(heads), now)
        if self._flows.fetches:
            self._fetch(sender, now)
        if late:
            self._count_drop("late_publication", late)
        source = sender.peer.name
        run: list[Message] = []
        wanting: list[SubscriptionQueue] = []
        for place in range(late, len(heads)):
            split = take_headers(heads[place])
            match = None if split is None else self._matches.get(split[1]) or self._match(split[1])
            if split is None or match is None:
                self._count_drop("malformed_headers" if split is None else "malformed")
                continue
            topic, queues, counts = match
            if not queues:
                self._count_drop("publication_unwanted")
                continue
            if queues is not wanting or split[0] is NO_HEADERS or run[-1].headers is NO_HEADERS:
                self._hand_out_run(run, wanting, sender, now)
                run, wanting = [], queues
            self.received += 1
            counts.received += 1
            run.append(Message(payloads[place], source, number + place, "", topic, 0, split[0]))
        self._hand_out_run(run, wanting, sender, now)

    def receive_fetched(self, message: PeerMessage, now: float) -> bool:
        """Handle a publisher's answer about missed messages, or to a flush; return False if nobody asked."""
        if message.id >= FLUSH_IDS:
            return self.flush.receive(message, now)
        answer = decode_entries(message.argument, message.payload)
        if answer is not None:
            if WIDE_TAG in answer.counts:
                answer = None  # the publisher does not know which entries of this node matched
            else:
                counts: dict[int, int] = {}
                for tag, times in answer.counts.items():
                    if (key := self._keys.get(tag)) is not None:
                        counts[key] = counts.get(key, 0) + times
                answer = MissedEntries(answer.messages, counts)
        return self._flows.receive_answer(message.peer.id, message.id, answer, now)

    def hand_out_local(self, message: Message, queues: Sequence[SubscriptionQueue], group: Group, now: float) -> None:
        """Give a message of this node to subscriptions.

        Args:
            group: The group of the realm.
        """
        self.hand_out([message], len(message.payload), queues, BodySender(self._local, group, None), now)

    def hand_out_imported(
        self, imported: ImportedHead, message: Message, queues: Sequence[SubscriptionQueue], group: Group, now: float
    ) -> None:
        """Give a message from another cloud, which this node publishes, to subscriptions.

        Args:
            imported: Its origin.
            message: Topic, payload and headers; the rest is ignored.
            group: The group of the realm.
        """
        headers = message.headers
        assert isinstance(headers, Headers)
        run = imported_run(imported, message.topic, [message.payload], headers)
        self._hand_out_imported(run, imported, queues, BodySender(self._local, group, None), now)

    def count_shared(self, topic: str, messages: int, gap: int) -> None:
        """Count messages for a group of this node.

        Args:
            messages: Their number.
            gap: The number of missing ones before them.
        """
        counts = self._counts.of(topic.split(".", 1)[0])
        self.received += messages
        counts.received += messages
        counts.gaps += gap

    def hand_out(
        self,
        run: list[Message],
        size: int,
        queues: Sequence[SubscriptionQueue],
        sender: BodySender,
        now: float,
        *,
        has_gap: bool = False,
    ) -> None:
        """Give messages of one publisher to subscriptions.

        Args:
            run: The messages, with equal headers and consecutive numbers; at least one.
            size: Total bytes of their payloads.
            sender: Their sender.
            has_gap: Whether they have their gap already, as those from another cloud and those of casts have.
        """
        flow = None if has_gap else sender.flow
        has_gaps = flow is not None and flow.has_gaps
        most = 0
        for queue in queues:
            if queue.is_cut:
                continue
            own = run
            if has_gaps and flow is not None:
                gap = queue.gaps.take(flow)
                if gap != 0:
                    most = max(most, gap or 0)
                    own = [msgspec.structs.replace(run[0], gap=gap or 0, has_unknown_gap=gap is None), *run[1:]]
            if sender.counts is not None and queue.is_counted:
                own = counted_run(own, sender.counts.get(queue.entry.key))
            dropped = queue.put_all(own, size)
            queue.mark(now)
            if dropped:
                self._count_drop(f"subscription_{queue.policy}", dropped)
            if not queue.is_ready:
                queue.is_ready = True
                self._events.append(SubscriptionReady(queue))
            if queue.is_blocking and queue.is_full:
                self._block(queue, sender.group, sender.peer, queue.entry, now)
        if most:
            self._counts.of(run[0].topic.split(".", 1)[0]).gaps += most

    def _hand_out_imported(
        self, run: list[Message], imported: ImportedHead, queues: Sequence[SubscriptionQueue], sender: BodySender, now: float
    ) -> None:
        """Give messages from another cloud to subscriptions, without repetitions."""
        flow = sender.flow
        cast = 0 if sender.way is None else sender.way.missed
        path = sender.peer.id, 0 if flow is None else flow.unknown
        sequence = imported.sequence + imported.cloud.encode()  # one cloud must not affect the numbers of another
        for queue in queues:
            if not queue.takes_imported:
                self._count_drop("imported_not_exported", len(run))
                continue
            missed = imported.missed + cast + (0 if flow is None else flow.total(queue.entry.key))
            late, gap = queue.fence.take(imported.origin, sequence, path, imported.number, len(run), missed)
            if late:
                self._count_drop("federation_late", late)
            own = run[late:]
            if own:
                if gap != 0:
                    own[0] = msgspec.structs.replace(own[0], gap=gap or 0, has_unknown_gap=gap is None)
                size = sum([len(message.payload) for message in own])
                self.hand_out(own, size, (queue,), sender, now, has_gap=True)

    def peer_lost(self, peer: Peer) -> None:
        """Handle the loss of a peer: after a return, a publisher is asked to wait anew."""
        for key in [key for key in self._blocked if key[1] is peer]:
            for queue in self._blocked.pop(key):
                del queue.blocked[key]

    def handle_timeout(self, now: float) -> None:
        """Ask waiting publishers again to wait, and give up late answers; harmless if early."""
        if self._pause_again_at is not None and now >= self._pause_again_at:
            self._pause_again_at = None
            for key in self._blocked:
                self._send_pause(key, now)
        self._flows.handle_timeout(now)
        self.casts.handle_timeout(now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        times = (self._pause_again_at, self._flows.deadline(), self.casts.deadline())
        return min((time for time in times if time is not None), default=None)

    # --

    def _hand_out_run(self, run: list[Message], queues: list[SubscriptionQueue], sender: BodySender, now: float) -> None:
        """Give direct messages to subscriptions, behind those that wait for an answer of the publisher."""
        if not run:
            return
        size = sum([len(message.payload) for message in run])
        flow, last = sender.flow, run[-1].sequence
        if flow is not None and flow.is_held:
            self._flows.hold(flow, partial(self._hand_out_later, run, None, queues, sender, last), size, now)
        else:
            self._hand_out_direct(run, None, queues, sender, last, size, now)

    def _hand_out_later(
        self,
        run: list[Message],
        imported: ImportedHead | None,
        queues: Sequence[SubscriptionQueue],
        sender: BodySender,
        last: int,
        now: float,
    ) -> None:
        """Give held messages to the subscriptions still in use."""
        left = [queue for queue in queues if queue in self.queues]
        size = sum([len(message.payload) for message in run])
        self._hand_out_direct(run, imported, left, sender, last, size, now)

    def _hand_out_direct(
        self,
        run: list[Message],
        imported: ImportedHead | None,
        queues: list[SubscriptionQueue],
        sender: BodySender,
        last: int,
        size: int,
        now: float,
    ) -> None:
        """Give direct messages to the subscriptions on the direct way.

        Args:
            last: The publisher's number of the last message.
        """
        if self.casts.by_group:
            queues, behind = self.casts.direct_queues(queues, sender.group.id, sender.peer.id, last)
            for queue in behind:
                self._hand_out_behind(run, imported, queue, sender, last, size, now)
        if imported is None:
            self.hand_out(run, size, queues, sender, now)
        else:
            self._hand_out_imported(run, imported, queues, sender, now)

    def _hand_out_behind(
        self,
        run: list[Message],
        imported: ImportedHead | None,
        queue: SubscriptionQueue,
        sender: BodySender,
        last: int,
        size: int,
        now: float,
    ) -> None:
        """Give direct messages to a subscription with earlier casts, in a table of another generation.

        Args:
            last: The publisher's number of the last message.
        """
        table, publisher = sender.group.id, sender.peer.id
        deliver = partial(self._hand_out_behind_later, run, imported, queue, sender, last, size)
        if self.casts.wait_for_end(queue.entry, table, publisher, WaitingDelivery(last + 1 - len(run), size, deliver), now):
            return
        if imported is not None:
            self._hand_out_imported(run, imported, (queue,), sender, now)
            return
        gap, flow = self.casts.take_gaps(queue, table, publisher), sender.flow
        direct = 0 if flow is None else queue.gaps.take(flow)
        own = [msgspec.structs.replace(run[0], gap=gap + (direct or 0), has_unknown_gap=direct is None), *run[1:]]
        self._counts.of(run[0].topic.split(".", 1)[0]).gaps += own[0].gap
        self.hand_out(own, size, (queue,), sender, now, has_gap=True)

    def _hand_out_behind_later(
        self,
        run: list[Message],
        imported: ImportedHead | None,
        queue: SubscriptionQueue,
        sender: BodySender,
        last: int,
        size: int,
        now: float,
    ) -> None:
        """Give waiting messages to their subscription, if still in use."""
        if queue in self.queues:
            self._hand_out_behind(run, imported, queue, sender, last, size, now)

    def _receive_cast(
        self,
        run: list[Message],
        imported: ImportedHead | None,
        sender: BodySender,
        number: int,
        position: int,
        size: int,
        now: float,
    ) -> None:
        """Give messages of a cast to the subscriptions of its entry, or let them wait for earlier ones by another way."""
        way, promoted = sender.way, sender.promoted
        assert way is not None
        assert promoted is not None
        if len(self.casts.of(promoted.entry)) > 1:
            again = partial(self._receive_cast, run, imported, sender, number, position, size)
            item = WaitingDelivery(number, size, again)
            if self.casts.wait_for_end(promoted.entry, promoted.realm.id, sender.peer.id, item, now):
                return
        deliver = partial(self._hand_out_cast, run, imported, sender, size)
        if way.is_direct:
            self.casts.wait(promoted, way, WaitingCast(number, len(run), position, size, deliver), now)
            return
        late = way.accept(number, len(run), position)
        if late:
            self._count_drop("late_publication", late)
        if late < len(run):
            deliver(late, now)

    def _hand_out_cast(
        self, run: list[Message], imported: ImportedHead | None, sender: BodySender, size: int, late: int, now: float
    ) -> None:
        """Give messages of a cast to the subscriptions of its entry.

        Args:
            size: Bytes of the payloads.
            late: The number of messages to leave out from the start.
        """
        way, promoted, flow = sender.way, sender.promoted, sender.flow
        assert way is not None
        assert promoted is not None
        if self.casts.by_group.get(promoted.group.id) is not promoted:
            return  # the node has left the group meanwhile
        head = run[0].topic.encode()
        matching = self._matches.get(head) or self._match(head)  # a subscription may have ended meanwhile
        if matching is None:
            return
        self.received += len(run) - late
        matching[2].received += len(run) - late
        queues = [queue for queue in matching[1] if queue.entry is promoted.entry]
        if imported is not None:
            self._hand_out_imported(run[late:], imported.after(late), queues, sender, now)
            return
        if late:
            run = run[late:]
            size = sum([len(message.payload) for message in run])
        for queue in queues:
            direct: int | None = 0
            if flow is not None and queue not in way.reported:
                direct = queue.gaps.take(flow)  # before the way changed
            gap = way.take_gap(queue) + self.casts.take_gaps(queue, promoted.realm.id, sender.peer.id) + (direct or 0)
            own = run
            if gap or direct is None:
                own = [msgspec.structs.replace(run[0], gap=gap, has_unknown_gap=direct is None), *run[1:]]
                self._counts.of(run[0].topic.split(".", 1)[0]).gaps += gap
            self.hand_out(own, size, (queue,), sender, now, has_gap=True)

    def _fetch(self, sender: BodySender, now: float) -> None:
        """Ask a publisher for the matched entries of missed messages."""
        for _publisher, number, asked in self._flows.fetches:
            question = PeerMessage(sender.group, sender.peer, packets.FETCH, number, MISSED_ENTRIES, asked.encode())
            self._outbound.gather(question, now)
        self._flows.fetches.clear()
        self._outbound.has_events = True  # the deadline has changed

    def _forget_publisher(self, publisher: NodeId) -> None:
        for queue in self.queues:
            queue.gaps.forget(publisher)

    def _trie_of(self, queue: SubscriptionQueue) -> TopicTrie[SubscriptionQueue]:
        return self._trie if queue.takes_own else self._others_trie

    def _match(self, head: bytes) -> tuple[str, list[SubscriptionQueue], GroupCounts] | None:
        try:
            topic = head.decode()
            tokens = parse_topic(topic)
        except ValueError:
            return None
        if len(self._matches) >= TOPICS_MAX:
            self._matches.clear()
        found = self._alike.find(tokens)
        if found is None:
            found = self._trie.match(tokens) + self._others_trie.match(tokens), self._counts.of(tokens[0])
            self._alike.add(tokens, self._trie.literal_bits(tokens) | self._others_trie.literal_bits(tokens), found)
        queues, counts = found
        match = self._matches[head] = (topic, queues, counts)
        return match

    def _block(self, queue: SubscriptionQueue, group: Group, peer: Peer, entry: OwnEntry, now: float) -> None:
        """Ask a publisher to wait for a subscription, unless it already waits."""
        key = (None if peer is self._local else group, peer, entry)
        is_known = peer is self._local or key in self._blocked
        if not is_known and len(self._blocked) >= BLOCKED_MAX:
            self._count_drop("too_many_publishers")
        elif key not in queue.blocked:
            queue.blocked[key] = None
            self._blocked.setdefault(key, {})[queue] = None
            self._counts.of(entry.pattern[0]).pauses_asked += 1
            self._send_pause(key, now)

    def _send_pause(self, key: tuple[Group | None, Peer, OwnEntry], now: float) -> None:
        self._tell(packets.PAUSE, key, now)
        self._pause_again_at = now + PAUSE_AGAIN_S
        self._outbound.has_events = True  # the deadline has changed

    def _tell(self, kind: int, key: tuple[Group | None, Peer, OwnEntry], now: float) -> None:
        """Send PAUSE or RESUME to a publisher on another node, for the entry that it matches."""
        group, peer, entry = key
        hashed = None if group is None else entry.hashed.get(group.id)
        if group is not None and hashed is not None:
            self._outbound.gather(PeerMessage(group, peer, kind, hashed.tag, hashed.shape), now)


def _deliver(_flow: IncomingFlow[HeldDelivery], item: HeldDelivery, now: float) -> None:
    """Hand out a held delivery."""
    item(now)


def _count(sender: BodySender, queues: Sequence[SubscriptionQueue], late: int, taken: int) -> BodySender:
    """Count consecutive publications for the matching counted entries; return the sender, with the counts before them.

    Args:
        sender: The sender of the body.
        queues: The matching subscriptions; empty for publications from another cloud, which are not counted.
        late: The number of late publications from the start.
        taken: The number of further publications; the returned counts are before them.
    """
    counts, found = sender.counts, dict[int, MatchesBefore]()
    assert counts is not None
    for key in {queue.entry.key for queue in queues if queue.is_counted} & counts.keys():
        said = counts[key]
        found[key] = msgspec.structs.replace(said, count=said.count + late)
        counts[key] = msgspec.structs.replace(said, count=said.count + late + taken)
    return msgspec.structs.replace(sender, counts=found or None)
