"""Sent publications: the groups each topic goes to, and back-pressure (docs/design.md 8.2, 8.5, 8.6).

The groups of a topic form its *route*, which is computed at first use and again after a change of membership views or
memberships. :meth:`Publisher.publish` checks for room everywhere and starts a *batch*. A batch is not sent before it ends
(:class:`~iris_py.peers.group.PublicationBatch`); until then :meth:`Publisher.add` only appends.

A message has a number in the groups of all prefixes of the topic, even if wider groups reach all members of a group. So a node
that returns to the view sees from the next number how many messages were missed. Within a version of the views a group is
either sent to or only counted, whatever the topic, and all batches end before a view changes or a group is forgotten. This
keeps the numbers of a group in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.timers import DeadlineTable
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.imported_sequences import MissedTotals
from iris_py.patterns.topic.names import Tokens, parse_topic, prefixes
from iris_py.patterns.topic.queue import RoomMade
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS
from iris_py.wire.imported import Imported, ImportedHead
from iris_py.wire.packets import RUN_MESSAGE_COST

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import NodeId
    from iris_overlay.overlay import Overlay
    from iris_py.patterns.topic.deliveries import Deliveries
    from iris_py.patterns.topic.queue import SubscriptionQueue, TopicEvent
    from iris_py.peers.group import Group, PublicationBatch
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers

#: Topics with cached routes. Forgetting one costs computing it again.
TOPICS_MAX = 4096
#: Time after which a publisher continues unless it is asked again to wait (seconds): the subscriber may be gone. Too small: a
#: stall of the subscriber looks like its end, and it drops messages; too large: publishers wait for dead subscribers.
PAUSE_S = 4.0
#: Remembered pauses, of all groups. Further subscribers are not waited for, and drop messages beyond their queue. Too small:
#: subscribers with policy ``block`` lose messages; too large: memory that a node inside the network can take.
PAUSES_MAX = 16_384


class _TopicGroups:
    """The groups for the publications to a topic.

    Attributes:
        groups: The groups of all prefixes of the topic, the widest first.
        version: The version of views and memberships behind the following attributes.
        sends: The groups it is sent to.
        counted: The other groups, in which it only gets a number.
        casts: The groups of ``sends`` reached by multicast.
        peers: The direct receivers.
        local: The subscriptions of this node.
        own: The group under which ``local`` receives the messages, as on other nodes of that group.
        takers: The subscriptions of ``local`` that accept messages from other clouds.
        count: Number of receiving nodes.
    """

    __slots__ = (
        "casts",
        "count",
        "counted",
        "groups",
        "head",
        "local",
        "own",
        "peers",
        "sends",
        "takers",
        "tokens",
        "topic",
        "version",
    )

    def __init__(self, topic: str, tokens: Tokens) -> None:
        self.topic = topic
        self.tokens = tokens
        self.head = topic.encode()
        self.groups: list[Group] = []
        self.version = -1
        self.sends: list[Group] = []
        self.counted: list[Group] = []
        self.casts: set[Group] = set()
        self.peers: list[Peer] = []
        self.local: list[SubscriptionQueue] = []
        self.own: Group  # set if ``local`` is not empty
        self.takers: list[SubscriptionQueue] = []
        self.count = 0


class _ImportedRun:
    """A batch of publications from another cloud, and the condition for its next message.

    Attributes:
        run: The batch, which may have ended.
        next: The origin of the next message.
        count: Number of receiving nodes.
    """

    __slots__ = ("count", "next", "run")

    def __init__(self, run: PublicationBatch, imported: Imported, count: int) -> None:
        self.run = run
        self.next = _after(imported)
        self.count = count


def _after(imported: Imported) -> Imported:
    """Return the origin of the message that follows without a gap."""
    return Imported(imported.origin, imported.sequence, imported.number + 1, 0, imported.cloud)


class Publisher:
    """The publications of one node.

    Args:
        deliveries: Receives messages for the node's own subscriptions.
        group_of: Finds or creates the group of a prefix: (prefix, now).
        is_member: Tells whether the node is in a group.

    Attributes:
        max_message_bytes: The largest payload that may be published; set by the owner.
        runs: The last batch of some topics, which may have ended; see :meth:`add`.
    """

    def __init__(
        self,
        overlay: Overlay,
        outbound: Outbound,
        local: Peer,
        deliveries: Deliveries,
        group_of: Callable[[Tokens, float], Group],
        is_member: Callable[[Group], bool],
        events: list[TopicEvent],
    ) -> None:
        self.max_message_bytes = MAX_MESSAGE_BYTES
        self._overlay = overlay
        self._outbound = outbound
        self._local = local
        self._deliveries = deliveries
        self._group_of = group_of
        self._is_member = is_member
        self._events = events
        self._version = 0
        self._last_number = 0  # of publications that may arrive twice
        self._routes: dict[str, _TopicGroups] = {}
        self.runs: dict[str, PublicationBatch] = {}  # by topic, its last batch, which may have ended
        self._imported_runs: dict[str, _ImportedRun] = {}  # the same for messages from other clouds
        self._missed = MissedTotals()
        self._watched: set[Group] = set()
        # Subscribers to wait for, and subscribers whose PAUSE arrived before the view that contains them.
        self._paused: dict[Group, dict[NodeId, None]] = {}
        self._asked_early: dict[Group, dict[NodeId, None]] = {}
        # Expiry of pauses. Invariant: the same groups and nodes as in the two tables above, at most PAUSES_MAX.
        self._pauses: DeadlineTable[tuple[Group, NodeId]] = DeadlineTable()

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

    def publish(
        self, topic: str, payload: bytes, now: float, headers: Headers = NO_HEADERS, imported: Imported | None = None
    ) -> int | None:
        """Send a message to every subscriber's node; return the number of nodes. Messages with headers are not batched.

        Returns None without sending while a receiver is congested or asks to wait, or a membership view is unknown; retry after
        ``RoomMade`` or ``ViewKnown``.

        Args:
            headers: The named values beside the payload.
            imported: The origin of a message from another cloud (:meth:`publish_imported`).

        Raises:
            ValueError: The topic is invalid.
            MessageTooLarge: The payload is over ``max_message_bytes``.
            overlay.OverlayError: More groups are in use than the overlay watches.
        """
        if len(payload) > self.max_message_bytes:
            packets.check_size(payload, self.max_message_bytes)
        route = self._routes.get(topic)
        if route is None:
            route = self._make_route(topic, now)
        if (route.version != self._version or route.casts) and not self._refresh(route, now):
            return None
        if not self._has_room(route):
            return None
        for group in route.groups:
            group.last_used = now
        if imported is not None:
            return self._send_imported(route, payload, now, headers, imported)
        if len(route.sends) == 1 and not (route.local or route.casts or headers.encoded):
            run = self.runs.get(topic)
            if run is not None and run is route.sends[0].run and route.sends[0].append_to_run(payload):
                return route.count
            run = self._outbound.begin_run(route.sends[0], route.head, payload, route.count, now)
            run.counted = route.counted
            self.runs[topic] = run
        else:
            self._publish_alone(route, payload, now, headers)
        return route.count

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
        begun.next = _after(imported)
        return begun.count

    def publish_imported(
        self, topic: str, payload: bytes, imported: Imported, now: float, headers: Headers = NO_HEADERS
    ) -> int | None:
        """Send a message from another cloud to every subscriber's node; return the number of nodes.

        Returns None without sending, like :meth:`publish`; the gap is not recorded then.

        Args:
            topic: The topic in this cloud.
            imported: Its origin.
            headers: The named values beside the payload.

        Raises:
            ValueError: The topic is invalid.
            MessageTooLarge: The payload is over ``max_message_bytes``.
            overlay.OverlayError: More groups are in use than the overlay watches.
        """
        count = self.publish(topic, payload, now, headers, imported)
        if count is None:
            self._outbound.has_events = True  # the views may have to be requested
        return count

    def miss_imported(self, origin: bytes, sequence: bytes, count: int) -> None:
        """Record messages from another cloud that are not published here; the sequence's next message reports them."""
        self._missed.add(origin, sequence, count)

    def routes_changed(self) -> None:
        """Handle changed views, memberships or subscriptions."""
        self._version += 1
        self._forget_runs()

    def groups_changed(self) -> None:
        """Handle a change of the prefixes' groups."""
        self.routes_changed()
        self._routes.clear()

    def view_changed(self, group: Group) -> None:
        """Handle a change of a group's membership view."""
        self.routes_changed()
        for peer_id in list(self._asked_early.get(group, ())):
            if self._may_pause(group, peer_id):
                self._drop_early(group, peer_id)
                self._paused.setdefault(group, {})[peer_id] = None
        for peer_id in list(self._paused.get(group, ())):
            if not self._may_pause(group, peer_id):
                self._go_on(group, peer_id)

    def forget(self, group: Group) -> None:
        """Forget a group."""
        self.groups_changed()
        self._watched.discard(group)
        for peer_id in (*self._paused.get(group, ()), *self._asked_early.get(group, ())):
            self._go_on(group, peer_id)

    def receive_pause(self, group: Group, peer: Peer, now: float) -> bool:
        """Handle a subscriber's PAUSE; return False if there are too many. Only subscribers in the view are waited for."""
        key = (group, peer.id)
        if key not in self._pauses:
            if len(self._pauses) >= PAUSES_MAX:
                return False
            group.counts.pauses_obeyed += 1
        if self._may_pause(group, peer.id):
            self._forget_runs()
            self._paused.setdefault(group, {})[peer.id] = None
        else:
            self._asked_early.setdefault(group, {})[peer.id] = None
        self._pauses.set(key, now + PAUSE_S)
        self._outbound.has_events = True
        return True

    def receive_resume(self, group: Group, peer: Peer) -> None:
        """Handle a subscriber's RESUME."""
        if (group, peer.id) in self._pauses:
            self._go_on(group, peer.id)

    def handle_timeout(self, now: float) -> None:
        """End the pauses that were not renewed."""
        for group, peer_id in self._pauses.expired(now):
            self._go_on(group, peer_id)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._pauses.deadline()

    # --

    def _forget_runs(self) -> None:
        """End all batches: routes or room may have changed."""
        self.runs.clear()
        self._imported_runs.clear()

    def _send_imported(self, route: _TopicGroups, payload: bytes, now: float, headers: Headers, imported: Imported) -> int:
        """Send a message from another cloud; there is room."""
        origin, sequence = imported.origin, imported.sequence
        missed = self._missed.add(origin, sequence, imported.gap)
        head = ImportedHead(origin, sequence, imported.number, missed, imported.cloud)
        count = route.count - bool(route.local) + bool(route.takers)
        if len(route.sends) != 1 or route.takers or route.casts or headers.encoded:
            self._publish_alone(route, payload, now, headers, head)
            return count
        group, begun = route.sends[0], self._imported_runs.get(route.topic)
        is_next = begun is not None and begun.run is group.run and begun.next == imported
        if begun is not None and is_next and group.append_to_run(payload):
            begun.next = _after(imported)
            return count
        run = self._outbound.begin_run(group, head.encode() + route.head, payload, count, now, packets.IMPORTED)
        run.counted = route.counted
        self._imported_runs[route.topic] = _ImportedRun(run, imported, count)
        return count

    def _publish_alone(
        self, route: _TopicGroups, payload: bytes, now: float, headers: Headers, imported: ImportedHead | None = None
    ) -> None:
        """Send a message without a batch, because of headers, a publication number or local subscribers."""
        head, flags, kind, local = route.head, 0, packets.PUBLICATION, route.local
        if headers.encoded:
            head = packets.HEAD_SIZE.pack(len(headers.encoded)) + headers.encoded + head
            flags |= packets.HEADED
        if imported is not None:
            head, kind, local = imported.encode() + head, packets.IMPORTED, route.takers
        if route.casts:
            self._last_number += 1
            head = packets.NUMBER.pack(self._last_number) + head
            flags |= packets.NUMBERED
        for group in route.counted:
            group.sequence += 1
        for group in route.sends:
            group.end_run()
            group.sequence = sequence = group.sequence + 1
            group.counts.runs += 1
            group.counts.published += 1
            if group.targets or group in route.casts:
                ordinal = min(packets.ORDINAL_MAX, sequence - group.first_sequence)
                header = packets.MESSAGE.pack(kind, flags, len(head), len(payload), sequence, ordinal)
                self._outbound.add_broadcast(group, header + head, payload, now)
        if local and imported is not None:
            self._deliveries.hand_out_imported(imported, route.topic, [payload], headers, local, route.own, self._local, now)
        elif local:
            message = Message(payload, self._local.name, route.own.sequence, "", route.topic, 0, headers)
            self._deliveries.hand_out([message], len(payload), local, route.own, self._local, now)

    def _make_route(self, topic: str, now: float) -> _TopicGroups:
        if len(self._routes) >= TOPICS_MAX:
            self._routes.clear()
            self._forget_runs()
        route = _TopicGroups(topic, parse_topic(topic))
        for prefix in prefixes(route.tokens):
            group = self._group_of(prefix, now)
            if group not in self._watched:
                self._overlay.watch_group(group.id, now)
                self._watched.add(group)
            route.groups.append(group)
        self._routes[topic] = route
        return route

    def _refresh(self, route: _TopicGroups, now: float) -> bool:
        """Compute a route; return False while a membership view is unknown."""
        for group in route.groups:
            if group.members is None:
                return False
            if not group.is_watched:
                self._overlay.use_group(group.id, now)
        route.local = self._deliveries.match(route.tokens)
        route.takers = [queue for queue in route.local if queue.takes_imported]
        covered = {self._local.id}
        route.sends, route.counted, route.casts, route.peers, route.count = [], [], set(), [], int(bool(route.local))
        for group in route.groups:
            members = group.members or []
            group.targets = [member for member in members if member.peer.id not in covered]
            covered.update(member.peer.id for member in members)
            if group.is_cast(now):
                route.casts.add(group)
                route.sends.append(group)
                route.count += group.size - self._is_member(group)
                continue
            route.peers += [member.peer for member in group.targets]
            route.count += len(group.targets)
            (route.sends if group.targets else route.counted).append(group)
        if route.local:
            if not route.sends:
                route.sends.append(route.counted.pop())
            route.own = next(filter(self._is_member, route.groups), route.sends[0])
        route.version = self._version
        return True

    def _has_room(self, route: _TopicGroups) -> bool:
        for peer in route.peers:
            link = peer.link
            if peer.is_full or (link is not None and link.congested):  # as `Peer.is_congested`, without the call
                return False
        if route.casts and self._outbound.is_control_full():
            return False
        if self._paused and any(group in self._paused for group in route.groups):
            return False
        return not route.local or not any(queue.is_blocking and queue.is_full for queue in route.local)

    def _may_pause(self, group: Group, peer_id: NodeId) -> bool:
        """Tell whether a node is a subscriber; in a large group, known by a sample, any node may be."""
        members = group.members or ()
        return group.size > len(members) or any(member.peer.id == peer_id for member in members)

    def _drop_early(self, group: Group, peer_id: NodeId) -> None:
        early = self._asked_early[group]
        del early[peer_id]
        if not early:
            del self._asked_early[group]

    def _go_on(self, group: Group, peer_id: NodeId) -> None:
        self._pauses.cancel((group, peer_id))
        if peer_id in self._asked_early.get(group, ()):
            self._drop_early(group, peer_id)
            return
        paused = self._paused[group]
        del paused[peer_id]
        if not paused:
            del self._paused[group]
            self._events.append(RoomMade())
