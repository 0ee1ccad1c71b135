"""Sent publications: the nodes each topic goes to, and back-pressure (docs/design.md 8.3, 8.5, 8.6).

The publisher watches the table of the network's interest from its first publication on, and the child tables of a table that is
split when it needs them (:mod:`iris_py.patterns.topic.watched_tables`). The index of the entries
(:mod:`iris_py.patterns.topic.interest`) finds the *route* of a topic, without a look-up in the network.

:meth:`Publisher.publish` checks for room everywhere and starts a *batch*, to which :meth:`Publisher.add` only appends. A batch
ends when another message is published, and at the flush: then its messages get their numbers. So all that a node receives from
a publisher is in the order of one sequence.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from iris_overlay.groups import entries as packed
from iris_overlay.timers import DeadlineTable
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.bodies import HEADED_BYTES_MAX, RUN_BYTES, Bodies, HeadedBatch, ImportedBatch, PublicationBatch
from iris_py.patterns.topic.counted_patterns import CountedPatterns, skip_counts
from iris_py.patterns.topic.held_publications import HeldPublications
from iris_py.patterns.topic.imported_sequences import MissedTotals
from iris_py.patterns.topic.interest import InterestIndex
from iris_py.patterns.topic.names import parse_topic
from iris_py.patterns.topic.outgoing_flows import ABSENT_S, OutgoingFlows
from iris_py.patterns.topic.pauses import Pauses
from iris_py.patterns.topic.shapes import EntryHasher, literal_bits
from iris_py.patterns.topic.share_entries import without_shares
from iris_py.patterns.topic.shared_slices import SharedSlice, SliceBatch
from iris_py.patterns.topic.targets import AnyTarget, CastTarget, PublicationRoute, PublicationTarget
from iris_py.patterns.topic.topic_plans import ImportedRun, PlanCache, TopicPlan, following
from iris_py.patterns.topic.unheard_batches import UnheardBatch, UnheardBatches
from iris_py.patterns.topic.watched_tables import WatchedTables
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.group import BODY_BYTES
from iris_py.peers.outbound import RoomMade
from iris_py.wire import packets
from iris_py.wire.flows import FLUSH, MISSED_ENTRIES, NO_ANSWER, decode_range, encode_moved
from iris_py.wire.headers import NO_HEADERS, put_headers
from iris_py.wire.imported import Imported, ImportedHead
from iris_py.wire.packets import RUN_MESSAGE_COST
from iris_security.keyring import PROOF_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_overlay.events import MemberChange, TableChanged, ViewChanged
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.overlay import Overlay
    from iris_py.observe.counts import BoundedCounts
    from iris_py.patterns.topic.bodies import HeadedMessage
    from iris_py.patterns.topic.deliveries import Deliveries
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.outgoing_shares import Choice, OutgoingShares, ShareRoute
    from iris_py.patterns.topic.queue import TopicEvent
    from iris_py.peers.group import Group, Groups
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers

#: Shortest time between two choices of widened targets, for each entry that a choice reads (seconds). Too small: choices take
#: more than some percent of the processor time. Too large: for that time nodes receive unwanted messages because of others.
SETTLE_S_PER_ENTRY: Final = 1e-5


class Publisher:
    """The publications of one node.

    Args:
        deliveries: Receives messages for the node's own subscriptions.
        groups: The groups of the realm and of promoted entries.
        counts: The counters by first token.
        count_drop: Counts drops, by reason.

    Attributes:
        max_message_bytes: The largest payload that may be published; set by the owner.
        runs: The open batches by their topics: one with receivers, and those without; see :meth:`add`.
        is_known: Whether the table is known, so that messages can be sent.
        ended_bytes: The size of the batches that ended since the owner set it to 0.
        shares: The members of groups; set by the owner.
    """

    shares: OutgoingShares

    def __init__(
        self,
        overlay: Overlay,
        outbound: Outbound,
        local: Peer,
        deliveries: Deliveries,
        groups: Groups,
        counts: BoundedCounts,
        count_drop: Callable[..., int],
        events: list[TopicEvent],
    ) -> None:
        self.max_message_bytes = MAX_MESSAGE_BYTES
        self.runs: dict[str, PublicationBatch] = {}
        self.is_known = False
        self.ended_bytes = 0
        self._overlay = overlay
        self._outbound = outbound
        self._local = local
        self._deliveries = deliveries
        self._groups = groups
        self._counts = counts
        self._count_drop = count_drop
        self._events = events
        self._version = 0
        self._group: Group | None = None  # the group of the realm whose tables are watched
        self._tables = WatchedTables(groups, overlay)
        # The tables that have lost a node, until they are forgotten if the node lives.
        self._lost: DeadlineTable[tuple[NodeId, GroupId]] = DeadlineTable()
        self._index: InterestIndex[AnyTarget, PublicationRoute]
        self._settle_at: float | None = None
        self._settled_at = -inf
        self._targets: dict[NodeId, PublicationTarget] = {}
        self._casts: dict[bytes, CastTarget] = {}  # by promoted entry
        self._cast_groups: dict[GroupId, CastTarget] = {}  # the watched ones, by group
        self._flows = OutgoingFlows()
        self._counted = CountedPatterns()
        self._bodies = Bodies(outbound, overlay.casts_in_flight)
        self._plans = PlanCache()
        self._batch: PublicationBatch | None = None  # the open batch with receivers
        self._headed: HeadedBatch | None = None  # the same one, if messages with headers may be appended
        self._unheard = UnheardBatches(self._flows)
        self._batch_plan: TopicPlan  # of the open batch
        self._batch_choice: tuple[str, Choice] | None = None  # its topic, and the members of groups that get it
        self._imported_runs: dict[str, ImportedRun] = {}  # the same as `runs` for messages from other clouds
        self._missed = MissedTotals()
        self._held = HeldPublications()
        self._pauses = Pauses()

    # -- publications

    def add(self, topic: str, payload: bytes) -> int | None:
        """Append a message to the topic's current batch; return the number of receiving nodes.

        The hot path, for messages without headers. Returns None without sending if no open batch has room, or if the payload is
        too large: then call :meth:`publish`.
        """
        run = self.runs.get(topic)
        if run is None:
            return None
        room = run.room - RUN_MESSAGE_COST - len(payload)
        if room < 0 or len(payload) > self.max_message_bytes:
            return None
        run.room = room
        run.payloads.append(payload)
        return run.count

    def add_headed(self, messages: Iterable[HeadedMessage]) -> tuple[int, int]:
        """Append messages to the open batch with headers, as far as room goes; return the numbers of messages and of nodes."""
        batch = self._headed
        return (0, 0) if batch is None else (batch.append_all(messages, self._plans.find_alike, self._batch_plan), batch.count)

    def publish(
        self, topic: str, payload: bytes, now: float, headers: Headers = NO_HEADERS, imported: Imported | None = None
    ) -> int | None:
        """Send a message to every subscriber's node; return the number of nodes.

        Returns None without sending while the table of interest is unknown, or a receiver is congested or asks to wait; retry
        after ``RoomMade``.

        Args:
            headers: The named values beside the payload.
            imported: The origin of a message from another cloud.

        Raises:
            ValueError: The topic is invalid.
            MessageTooLarge: The payload is over ``max_message_bytes``.
            overlay.OverlayError: More groups are in use than the overlay watches.
        """
        if len(payload) > self.max_message_bytes:
            packets.check_size(payload, self.max_message_bytes)
        if not self.is_known:
            parse_topic(topic)
            self._watch(now)
            return None
        if self._held.waiting and not self._send_held(now):
            return None
        return self._publish_known(topic, payload, now, headers, imported)

    def hold(self, topic: str, payload: bytes, now: float, headers: Headers) -> bool:
        """Hold a message, which :meth:`publish` did not send, until the tables and the groups of promoted entries are known.

        Returns:
            False if it cannot be held.
        """
        is_way_known = self.is_known and self._tables.way(parse_topic(topic), now) is not None
        awaits = not is_way_known or any(cast.is_watched and cast.size is None for cast in self._casts.values())
        if not awaits and not self._held.waiting:
            return False  # a receiver is congested
        if not self._held.add(topic, payload, now, headers):
            return False
        self._headed = None  # no later message overtakes it
        self._outbound.has_events = True  # the deadline has changed
        return True

    def add_imported(self, topic: str, payload: bytes, imported: Imported) -> int | None:
        """Append a message from another cloud to the topic's current batch; return the number of receiving nodes.

        Returns None without sending if the message does not continue the batch or does not fit: then call
        :meth:`publish_imported`.
        """
        begun = self._imported_runs.get(topic)
        if begun is None or begun.next != imported:
            return None
        run = begun.run
        room = run.room - RUN_MESSAGE_COST - len(payload)
        if room < 0 or len(payload) > self.max_message_bytes:
            return None
        run.room = room
        run.payloads.append(payload)
        begun.next = following(imported)
        return begun.count

    def publish_imported(
        self, topic: str, payload: bytes, imported: Imported, now: float, headers: Headers = NO_HEADERS
    ) -> int | None:
        """Send a message from another cloud to every subscriber's node, as :meth:`publish` does; return the number of nodes.

        Returns None without sending, like :meth:`publish`; the gap is not recorded then.
        """
        count = self.publish(topic, payload, now, headers, imported)
        if count is None:
            self._outbound.has_events = True  # the table may have to be requested
        return count

    def miss_imported(self, origin: bytes, sequence: bytes, count: int) -> None:
        """Record messages from another cloud that are not published here; the sequence's next message reports them."""
        self._missed.add(origin, sequence, count)

    def send_all(self, now: float) -> None:
        """Send the gathered messages."""
        self._end_batch(now)
        self._bodies.send_all(now)
        self.shares.send_all(now)

    # -- the table of interest

    def subscriptions_changed(self, now: float) -> None:
        """Handle changed subscriptions of this node."""
        self._change_version(now)
        self.shares.local_changed(now)

    def table_changed(self, event: TableChanged, peer_of: Callable[[NodeInfo], Peer], now: float) -> None:
        """Handle changes of a table of interest.

        Args:
            peer_of: Returns the peer of a node.
        """
        if (table := self._tables.find(event.group)) is None:
            return
        self.send_all(now)  # earlier messages go to the earlier targets
        is_first = not table.is_known
        is_news = self._tables.change(event) or event.removed or event.promoted
        if is_news or any(change.member is not None for change in event.changes.values()):
            self._change_version(now)
        else:
            self._plans.forget_changed(event.changes.values())
        self._promote(packed.split(event.promoted))
        for node, change in event.changes.items():
            if node != self._local.id:
                self._change_target(node, change, table.group, peer_of, now)
        for node in event.removed:
            self._lose_target(node, event.group, now)
        if self._index.is_crowded and self._settle_at is None:
            self._settle_at = max(now, self._settled_at + SETTLE_S_PER_ENTRY * len(self._index))
        if is_first:
            self.is_known = True
            self._send_held(now)
            self._events.append(RoomMade())
        elif self._pauses:
            self._events.append(RoomMade())  # a subscriber to wait for may be gone
        self._outbound.has_events = True  # the deadline may have changed

    def view_changed(self, event: ViewChanged, now: float) -> None:
        """Handle the members of the group of a promoted entry."""
        target = self._cast_groups.get(event.group)
        if target is None or not event.is_known or target.size == event.size:
            return
        self._change_version(now)  # plans have the number of receivers
        if target.size is None:
            self._events.append(RoomMade())
        target.size = event.size
        if self._held.waiting:
            self._send_held(now)

    def casts_taken(self, group: GroupId, now: float) -> None:
        """Handle casts that arrived at the root of a group: send what was gathered meanwhile."""
        target = self._cast_groups.get(group)
        if target is not None:
            if target.segments:
                self.send_all(now)
            self._events.append(RoomMade())  # a publication may wait although the flush has sent all since

    def rekey(self, now: float) -> None:
        """Use a new keyring: watch the table of its primary generation, if topics were published before."""
        group = self._groups.realms()[0]
        if self._group is None or group is self._group:
            return
        self.send_all(now)
        self._tables.stop(now)
        for node, target in self._targets.items():
            target.entries = b""
            self._flows.withdraw(node)
        self._targets.clear()
        self.shares.stop()
        for cast in self._casts.values():
            if cast.is_watched:
                self._bodies.end(cast, self._flows.number)
                self._overlay.unwatch_group(cast.group.id, now)
        self._casts.clear()
        self._cast_groups.clear()
        self._group, self.is_known = None, False
        if self._pauses.clear():
            self._events.append(RoomMade())
        self._change_version(now)
        self._watch(now)

    # -- messages of subscribers

    def receive_pause(self, peer: Peer, tag: int, now: float) -> bool:
        """Handle a subscriber's PAUSE; return False if there are too many.

        Publications that match an entry with this tag wait if they are for this subscriber.
        """
        if (tag, peer.id) not in self._pauses:
            if self._pauses.is_full:
                return False
            found = self._plans.find_tag(tag)
            counts = self._counts.total() if found is None else found[1].counts
            counts.pauses_obeyed += 1
        self.runs.clear()
        self._headed = None
        self._imported_runs.clear()
        self._pauses.add(tag, peer.id, now)
        self._outbound.has_events = True
        return True

    def topic_of(self, tag: int) -> str:
        """Return a topic, published lately, that matches an entry with a tag; empty if none is known."""
        found = self._plans.find_tag(tag)
        return "" if found is None else found[0]

    def receive_resume(self, peer: Peer, tag: int) -> None:
        """Handle a subscriber's RESUME."""
        if self._pauses.remove(tag, peer.id):
            self._events.append(RoomMade())

    def receive_fetch(self, message: PeerMessage, now: float) -> bool:
        """Answer a subscriber that missed messages, or asks for all so far; return False if the question is malformed."""
        if message.argument == FLUSH:
            target = self._targets.get(message.peer.id)
            if target is not None and not target.flow.is_absent and target.flow.may_answer(now):
                self._end_batch(now)
                self._bodies.tell(target, [packets.MESSAGE.pack(packets.FETCHED, 0, 0, 0, message.id, 0)], now)
            return True
        asked = decode_range(message.payload)
        if asked is None or message.argument != MISSED_ENTRIES:
            return False
        answer = self._flows.answer(message.peer.id, asked, now)
        argument, payload = (NO_ANSWER, b"") if answer is None else (answer.messages, answer.encode())
        fetched = PeerMessage(message.group, message.peer, packets.FETCHED, message.id, argument, payload)
        self._outbound.gather(fetched, now)
        return True

    def table_sizes(self) -> dict[str, int]:
        """Return the sizes of its tables, by name: for statistics."""
        entries = [packed.count(target.entries) for target in self._targets.values()]
        return {
            "watched_tables": int(self.is_known),
            "watched_nodes": sum(1 for each in entries if each),
            "watched_entries": sum(entries),
            "watched_promoted": len(self._casts),
            "flows": len(self._flows),
            "absent_nodes": self._flows.absent_count,
            "held_messages": len(self._held.waiting),
            "held_bytes": self._held.bytes,
        }

    # -- time

    def handle_timeout(self, now: float) -> None:
        """End the pauses that were not renewed, and forget nodes that are absent for long; harmless if early."""
        if self._pauses.handle_timeout(now):
            self._events.append(RoomMade())
        if dropped := self._held.expire(now):
            self._count_drop("publication_held", dropped)
        if self._tables.handle_timeout(now):
            self._send_held(now)
            self._events.append(RoomMade())
        for node, table in self._lost.expired(now):
            self._forget_lost(node, table, now)
        forgotten = self._flows.handle_timeout(now)
        if forgotten:
            self.send_all(now)
            self._change_version(now)
            for node in forgotten:
                self._forget_target(node, now)
        self._counted.handle_timeout(now)
        self.shares.handle_timeout(now)
        if self._settle_at is not None and now >= self._settle_at:
            self._settle_at, self._settled_at = None, now
            self.send_all(now)
            self._change_version(now)
            self._index.settle(lambda target: target.entries)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        tables = (self._tables.deadline(), self._lost.deadline())
        flows = (self._flows.deadline(), self._counted.deadline())
        times = (self._pauses.deadline(), self._held.deadline(), self.shares.deadline(), self._settle_at, *flows, *tables)
        return min((time for time in times if time is not None), default=None)

    # -- for Publisher: messages

    def _publish_known(self, topic: str, payload: bytes, now: float, headers: Headers, imported: Imported | None) -> int | None:
        plan = self._plans.by_topic.get(topic) or self._find_plan(topic, now)
        if plan is None:
            return None
        for table in plan.tables:
            table.used = now
            if not table.is_watched:
                self._overlay.use_group(table.group.id, now)
                self._outbound.has_events = True
        if plan.route.casts and not self._can_cast(plan, now):
            return None
        if not plan.has_room() or (self._pauses.by_tag and self._pauses.is_paused(plan)):
            return None
        if plan.shares is not None and not (imported is not None and imported.is_repeated):
            return self._publish_shared(topic, plan, plan.shares, payload, now, headers, imported)
        if imported is not None:
            return self._send_imported(topic, plan, payload, now, headers, imported)
        is_heard = plan.route.flows or plan.counted
        if plan.local or (headers.encoded and is_heard and len(payload) > HEADED_BYTES_MAX):
            self._publish_alone(topic, plan, payload, now, headers)
        elif headers.encoded and is_heard:
            content = put_headers(headers.encoded, payload)
            if (batch := self._headed) is None or plan is not self._batch_plan or not batch.append_to(topic, content):
                begun = self._begin_batch(plan, topic.encode(), content, plan.count, now, HeadedBatch)
                self._headed = begun if isinstance(begun, HeadedBatch) else None
        elif (run := self.runs.get(topic)) is None or not run.append(payload):
            if is_heard:
                self.runs[topic] = self._begin_batch(plan, topic.encode(), payload, plan.count, now)
            else:
                self.runs[topic] = self._begin_unheard(plan, now)
        return plan.count

    def _begin_unheard(self, plan: TopicPlan, now: float) -> UnheardBatch:
        if self._unheard.is_full:
            self._end_batch(now)
        self._outbound.before_flush[self.send_all] = None
        return self._unheard.begin(plan)

    def _publish_shared(
        self,
        topic: str,
        plan: TopicPlan,
        shares: ShareRoute,
        payload: bytes,
        now: float,
        headers: Headers,
        imported: Imported | None,
    ) -> int | None:
        """Send a message to groups, and to the other subscribers; return the number of nodes, None if it must wait."""
        run = self.runs.get(topic) if imported is None and not headers.encoded else None
        if run is not None and run.append(payload):
            return run.count
        self._end_batch(now)  # its members have that load
        choice = self.shares.choose(shares, now)
        if choice is None:
            return None
        count = choice.count_nodes(plan.route.nodes, has_local=bool(plan.local if imported is None else plan.takers))
        if imported is not None:
            return count + self._send_imported(topic, plan, payload, now, headers, imported, choice)
        count += plan.count
        if plan.local or headers.encoded:
            self._publish_alone(topic, plan, payload, now, headers, choice=choice)
            return count
        head = topic.encode()
        used = self._bodies.used_bytes(plan.route, RUN_BYTES + len(head) + len(payload), now)
        self.runs[topic] = self._batch = SliceBatch(head, payload, used, count, choice.room)
        self._batch_plan, self._batch_choice = plan, (topic, choice)
        self._outbound.before_flush[self.send_all] = None
        return count

    def _begin_batch(
        self,
        plan: TopicPlan,
        head: bytes,
        payload: bytes,
        count: int,
        now: float,
        make: Callable[[bytes, bytes, int, int], PublicationBatch] = PublicationBatch,
    ) -> PublicationBatch:
        if self._batch is None:
            self._outbound.before_flush[self.send_all] = None  # which ends the batch; so behind another one it is there
        else:
            self._end_batch(now)
        used = self._bodies.used_bytes(plan.route, RUN_BYTES + len(head) + len(payload), now) if plan.route.receivers else 0
        batch = self._batch = make(head, payload, used, count)
        self._batch_plan, self._batch_choice = plan, None
        return batch

    def _end_batch(self, now: float) -> None:
        """End the open batches: number their messages, and add them to the bodies."""
        batch, self._batch, self._headed = self._batch, None, None
        if self._unheard.plans:
            self._unheard.end_all()
            self.runs.clear()
        if batch is None:
            return
        self.runs.clear()
        self._imported_runs.clear()
        plan, count = self._batch_plan, len(batch.payloads)
        route = plan.route
        first = self._flows.publish(plan.match, route.flows, count)
        if plan.counted or route.casts:
            self._count_matches(plan, count, is_imported=batch.kind == packets.IMPORTED)
        plan.counts.runs += 1
        plan.counts.published += count
        if self._batch_choice is not None and plan.shares is not None:
            topic, choice = self._batch_choice
            self.shares.give_batch(plan.shares, choice, SharedSlice(topic, plan.stem, first, batch.payloads), now)
        if not route.receivers:  # the messages are numbered for absent nodes, and counted
            self.ended_bytes += sum(map(len, batch.payloads))
            return
        parts, size = batch.encode(first)
        self.ended_bytes += size
        self._bodies.add(route, parts, size, count, is_long=batch.limit > BODY_BYTES)

    def _publish_alone(
        self,
        topic: str,
        plan: TopicPlan,
        payload: bytes,
        now: float,
        headers: Headers,
        imported: ImportedHead | None = None,
        choice: Choice | None = None,
    ) -> None:
        """Send a message without a batch, because of headers or local subscribers, or to absent nodes alone."""
        head, flags, kind, local = topic.encode(), 0, packets.PUBLICATION, plan.local
        if headers.encoded:
            head = put_headers(headers.encoded, head)
            flags |= packets.HEADED
        if imported is not None:
            head, kind, local = imported.encode() + head, packets.IMPORTED, plan.takers
        self._end_batch(now)
        size = packets.MESSAGE_BYTES + len(head) + len(payload)
        route = plan.route
        if route.receivers:
            self._bodies.used_bytes(route, size, now)  # sends full bodies before this message counts
        number = self._flows.publish(plan.match, route.flows)
        if plan.counted or route.casts:
            self._count_matches(plan, 1, is_imported=imported is not None)
        plan.counts.runs += 1
        plan.counts.published += 1
        if route.receivers:
            start = packets.MESSAGE.pack(kind, flags, len(head), len(payload), number, 0)
            self._bodies.add(route, [start, head, payload], size)
            self._outbound.before_flush[self.send_all] = None
        if choice is not None:
            self.shares.give(choice, SharedSlice(topic, plan.stem, number, [payload], headers, imported), now)
        if local:
            message = Message(payload, self._local.name, number, "", topic, 0, headers)
            if imported is None:
                self._deliveries.hand_out_local(message, local, self._watched(), now)
            else:
                self._deliveries.hand_out_imported(imported, message, local, self._watched(), now)

    def _send_imported(
        self,
        topic: str,
        plan: TopicPlan,
        payload: bytes,
        now: float,
        headers: Headers,
        imported: Imported,
        choice: Choice | None = None,
    ) -> int:
        """Send a message from another cloud; there is room."""
        origin, sequence = imported.origin, imported.sequence
        missed = self._missed.add(origin, sequence, imported.gap)
        head = ImportedHead(origin, sequence, imported.number, missed, imported.cloud)
        count = plan.route.count_receivers(self._deliveries.casts.by_group) + bool(plan.takers)
        if plan.takers or headers.encoded or not plan.route.receivers or choice is not None:
            self._publish_alone(topic, plan, payload, now, headers, head, choice)
            return count
        begun = self._imported_runs.get(topic)
        if begun is not None and begun.run is self._batch and begun.next == imported and begun.run.append(payload):
            begun.next = following(imported)
            return count
        run = self._begin_batch(plan, head.encode() + topic.encode(), payload, count, now, ImportedBatch)
        self._imported_runs[topic] = ImportedRun(run, imported, count)
        return count

    def _send_held(self, now: float) -> bool:
        """Send the messages held until the table was known, in order; return whether none is left."""
        held = self._held
        while held.waiting:
            topic, payload, headers = held.waiting[0]
            if self._publish_known(topic, payload, now, headers, None) is None:
                return False
            held.remove_first()
        return True

    def _find_plan(self, topic: str, now: float) -> TopicPlan | None:
        """Return the receivers of a topic not published lately; None if a table on the way is not known yet."""
        tokens = parse_topic(topic)
        return self._plans.find(topic, tokens) or self._make_plan(topic, tokens, now)

    def _make_plan(self, topic: str, tokens: Tokens, now: float) -> TopicPlan | None:
        tables = self._tables.way(tokens, now)
        if self._tables.given_up:
            self._forget_tables(now)
        if tables is None:
            self._outbound.has_events = True  # a table may have to be requested
            return None
        route, tags, stem = self._index.match(topic)
        route.refresh(self._version)
        local = self._deliveries.match_own(tokens)
        count = route.count_receivers(self._deliveries.casts.by_group) + bool(local)
        plan = TopicPlan(self._counts.of(tokens[0]), route, tags, stem, local, count, tables)
        bits = self._index.literal_bits(stem, len(tokens)) | self._deliveries.literal_bits_own(tokens)
        bits |= literal_bits([shape for table in tables for shape in table.split.shapes], len(tokens))
        if self.shares.is_used:
            plan.shares = self.shares.route(topic, stem, tokens)
            bits |= self.shares.literal_bits(stem, tokens)
        if self._counted:
            bits |= self._counted.literal_bits(len(tokens))
            plan.counted = self._counted.match(topic, stem)
        self._plans.add(topic, tokens, plan, bits)
        return plan

    # -- for Publisher: the table

    def _watched(self) -> Group:
        """Return the group of the realm whose table is watched."""
        assert self._group is not None
        return self._group

    def _watch(self, now: float) -> None:
        """Watch the table of the primary generation, unless it is watched."""
        if self._group is not None:
            return
        group = self._groups.realms()[0]
        hasher = EntryHasher(group.keys.interest_key())
        self._tables.start(group, hasher, now)
        self._group = self._bodies.group = group
        self._index = InterestIndex(hasher, PublicationRoute)
        self._counted.rekey(hasher, now)
        self.shares.start(group)

    def _promote(self, entries: list[bytes]) -> None:
        """Send the messages for some entries to their groups, too, from now on."""
        holders = {entry: 0 for entry in entries if entry not in self._casts}
        for target in self._targets.values() if holders else ():
            for entry in packed.split(target.entries):
                if entry in holders:
                    holders[entry] += 1
        for entry, count in holders.items():
            _stem, _shape, tag = packed.unpack(entry)[0]
            cast = CastTarget(entry, tag, self._flows.number if count else 0)
            cast.holders = count
            if self._index.change(cast, entry):
                self._count_drop("invalid_entry")
            else:
                self._casts[entry] = cast

    def _move(self, target: PublicationTarget, added: bytes, removed: bytes, now: float) -> None:
        """Note the promoted entries that a node claims or withdraws, and tell the node which messages come by cast."""
        if not self._casts:
            return
        for entry in packed.split(added):
            if (cast := self._casts.get(entry)) is not None:
                cast.holders += 1
        for entry in packed.split(removed):
            if (cast := self._casts.get(entry)) is not None:
                cast.holders -= 1
                if target.flow.count and not target.flow.is_absent:
                    self._bodies.tell(target, [encode_moved(cast.tag, cast.flow.count)], now)

    def _count_matches(self, plan: TopicPlan, count: int, *, is_imported: bool) -> None:
        """Count the last numbered publications, for counted patterns and promoted entries."""
        if plan.counted and not is_imported:
            for counted in plan.counted:
                counted.count += count
        for cast in plan.route.casts:
            if cast.holders:
                cast.direct = self._flows.number

    def _can_cast(self, plan: TopicPlan, now: float) -> bool:
        """Tell whether the groups of a plan are known and have room; watch them first."""
        can = True
        for cast in plan.route.casts:
            if not cast.is_watched:
                group = self._groups.of_entry(self._watched(), cast.entries)
                self._overlay.watch_group(group.id, now)
                cast.group = group
                self._cast_groups[group.id] = cast
                self._outbound.has_events = True
            can &= cast.size is not None and self._bodies.has_room(cast)
        return can and not self._outbound.is_control_full()

    def _change_target(
        self, node: NodeId, change: MemberChange, table: Group, peer_of: Callable[[NodeInfo], Peer], now: float
    ) -> None:
        target, member = self._targets.get(node), change.member
        if member is not None:
            proof, statement = member.attributes[:PROOF_BYTES], member.attributes[PROOF_BYTES:]
            if not table.keys.verify_proof(node, proof, statement):
                self._count_drop("unproven_member")
                if target is not None:
                    if table is self._group:
                        self.shares.lose(target, now)
                    self._drop_entries(node, target, target.drop(table.id), now)
                return
            if target is None:
                target = self._targets[node] = PublicationTarget(peer_of(member.info), self._flows.begin(node))
            else:
                target.peer = peer_of(member.info)
        if target is None or (member is None and not target.is_in(table.id)):
            return  # its proof was wrong before
        if table is self._group:
            self.shares.change(target, change.added, change.removed, now)
        added, removed = target.change(table.id, change.added, change.removed)
        if target.flow.is_absent:
            skip_counts(target.counted)
        if target.entries or target.flow.is_absent:
            target.flow = self._flows.begin(node)
        self._move(target, added, removed, now)
        self._counted.withdraw(target.counted, removed, now)
        if counts := self._counted.claim(node, target.counted, added, self._flows.number):
            self._bodies.tell(target, counts, now)
        if not target.entries:
            self._flows.withdraw(node)
        added, removed = without_shares(added), without_shares(removed)
        if (added or removed) and (invalid := self._index.change(target, added, removed)):
            self._count_drop("invalid_entry", invalid)

    def _lose_target(self, node: NodeId, table: GroupId, now: float) -> None:
        """Handle a node that a table has lost. Without another table that has the node and entries of it, it is absent."""
        if (target := self._targets.get(node)) is None:
            return
        if table == self._watched().id:
            self.shares.lose(target, now)
        if target.lose(table):
            self._lost.set((node, table), now + ABSENT_S)
        if target.entries and target.is_lost:
            for forgotten in self._flows.lose(node, now):
                self._forget_target(forgotten, now)
        elif target.is_gone:
            del self._targets[node]

    def _forget_lost(self, node: NodeId, table: GroupId, now: float) -> None:
        """Forget the entries of a node in a table that has lost it long ago, although other tables have the node."""
        target = self._targets.get(node)
        if target is not None and not target.flow.is_absent:
            self.send_all(now)
            self._change_version(now)
            self._drop_entries(node, target, target.drop(table, is_lost=True), now)

    def _forget_tables(self, now: float) -> None:
        """Forget the entries in tables that are watched no more."""
        given_up, self._tables.given_up = self._tables.given_up, []
        self.send_all(now)
        self._change_version(now)
        for table in given_up:
            for node, target in list(self._targets.items()):
                if target.is_in(table.group.id):
                    self._drop_entries(node, target, target.drop(table.group.id), now)

    def _drop_entries(self, node: NodeId, target: PublicationTarget, entries: bytes, now: float) -> None:
        """Remove entries that a node no longer has, and the node with its last table."""
        self._index.change(target, b"", entries)
        self._counted.withdraw(target.counted, entries, now)
        for entry in packed.split(entries) if self._casts else ():
            if (cast := self._casts.get(entry)) is not None:
                cast.holders -= 1
        if not target.entries:
            self._flows.withdraw(node)
        if target.is_gone:
            del self._targets[node]

    def _forget_target(self, node: NodeId, now: float) -> None:
        """Remove the entries of an absent node, whose flow is forgotten."""
        target = self._targets[node]
        self._drop_entries(node, target, target.drop_lost(), now)

    def _change_version(self, now: float) -> None:
        """End all batches, and forget receivers: entries or subscriptions may have changed."""
        self._end_batch(now)
        self._version += 1
        self._plans.clear()
