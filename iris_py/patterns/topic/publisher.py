"""Publications on their way out: where each topic goes, and whether there is room (docs/design.md 8.2, 8.5, 8.6).

Theory of operation. Where publications to a topic go is a *route*, worked out when it is first used and again when views or
memberships have changed. :meth:`Publisher.publish` looks whether there is room everywhere, and begins a *run*. Nothing leaves
before the run ends (:class:`~iris_py.peers.group.Run`), so until then :meth:`Publisher.add` only appends.

A message has a number in the group of each prefix of its topic, also in those that it is not sent under because nobody is
there whom no wider group reaches: who was there a moment ago, and comes back, sees from the next number what it has missed.
Within one version of the views a group is either sent under or only counted, whatever the topic, and before a view changes or a
group is forgotten every run is ended: so the numbers of each group are in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from iris_overlay.timers import DeadlineTable
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.names import Tokens, parse_topic, prefixes
from iris_py.patterns.topic.queue import RoomMade
from iris_py.patterns.topic.sequence import MissedTotals
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS
from iris_py.wire.imported import Imported
from iris_py.wire.packets import RUN_MESSAGE_COST

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import NodeId
    from iris_overlay.overlay import Overlay
    from iris_py.patterns.topic.deliveries import Deliveries
    from iris_py.patterns.topic.queue import SubscriptionQueue, TopicEvent
    from iris_py.peers.group import Group, Run
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer
    from iris_py.wire.headers import Headers

#: Topics whose routes are remembered. Forgetting one costs working it out again.
TOPICS_MAX = 4096
#: A publisher that was asked to wait goes on after this time (seconds) unless it is asked again: who asked may be gone. Too
#: small: a stall of the subscriber looks like its end, and messages are dropped there; too large: publishers wait for the dead.
PAUSE_S = 4.0
#: Pauses that are known at once, of all groups. A subscriber beyond them is not waited for: it drops what it has no room for.
#: Too small: subscribers that block lose messages; too large: memory that a node inside the network can take.
PAUSES_MAX = 16_384


class _Route:
    """The groups that the publications to one topic go to.

    Attributes:
        groups: Those of all prefixes of the topic, the widest first.
        version: That of the views and memberships that the rest was worked out from.
        sends: The groups that it is sent under.
        counted: The others, in which it has a number all the same.
        casts: Those of them that are cast to.
        peers: Who gets it directly.
        local: The subscriptions of this node.
        own: The group that these hear it under, as other nodes in that group do.
        takers: Those of them that are for what comes from other clouds, too.
        count: How many nodes get it.
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
        self.own: Group  # if there are local ones
        self.takers: list[SubscriptionQueue] = []
        self.count = 0


class _Arrival(NamedTuple):
    """A message of another cloud, as a gateway gives it."""

    origin: bytes
    stream: bytes
    number: int
    gap: int
    cloud: str


class _ImportedRun:
    """A run of publications of another cloud, and what the next one has to be to belong to it.

    Attributes:
        run: The run, which may have ended.
        cloud: Where it comes from, like the next two.
        origin: The node that published it.
        stream: The group that it was published under.
        number: The number that comes next.
        count: How many nodes it goes to.
    """

    __slots__ = ("cloud", "count", "number", "origin", "run", "stream")

    def __init__(self, run: Run, imported: Imported, count: int) -> None:
        self.run = run
        self.cloud = imported.cloud
        self.origin = imported.origin
        self.stream = imported.stream
        self.number = imported.number + 1
        self.count = count

    def takes(self, origin: bytes, stream: bytes, number: int, gap: int, cloud: str) -> bool:
        """Tell whether something belongs to the run, if that has not ended: it follows what is there, and nothing was lost."""
        is_next = self.number == number and not gap
        return is_next and self.stream == stream and self.origin == origin and self.cloud == cloud


class Publisher:
    """The publications of one node.

    Args:
        overlay: Told which groups to watch.
        outbound: Sends.
        local: The node.
        deliveries: Takes what the node itself subscribed to.
        group_of: Finds the group of a prefix, or makes it: (prefix, now).
        is_member: Tells whether the node itself is in a group.
        events: Where to put what happened.

    Attributes:
        max_message_bytes: The largest payload that is published; the owner sets it.
        runs: By topic, the last run of some topics, which may have ended; see :meth:`add`.
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
        self._last_number = 0  # of those that may arrive twice
        self._routes: dict[str, _Route] = {}
        self.runs: dict[str, Run] = {}  # of some topics the last one, which may have ended
        self._imported_runs: dict[str, _ImportedRun] = {}  # the same of what comes from other clouds
        self._missed = MissedTotals()
        self._watched: set[Group] = set()
        # Who is to be waited for. Those that asked before the view that they are in are not waited for until it is here.
        self._paused: dict[Group, dict[NodeId, None]] = {}
        self._asked_early: dict[Group, dict[NodeId, None]] = {}
        # Until when. Invariant: the same groups and nodes are in one of the two, and at most PAUSES_MAX.
        self._pauses: DeadlineTable[tuple[Group, NodeId]] = DeadlineTable()

    def add(self, topic: str, payload: bytes) -> int | None:
        """Send together with what was just sent to the same topic; returns to how many nodes.

        The hot path, for messages without headers. Returns None, and sends nothing, if there is no such run, or no room in it,
        or the payload is too large: then :meth:`publish`.
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
        self, topic: str, payload: bytes, now: float, headers: Headers = NO_HEADERS, imported: _Arrival | None = None
    ) -> int | None:
        """Send to every subscriber's node; returns to how many. What has headers goes by itself, in no run.

        Returns None, and sends nothing, while there is no room on the way to one of them, one asks to wait, or a view is not
        yet known: after ``RoomMade`` or ``ViewKnown`` it may go.

        Args:
            topic: The topic.
            payload: The message.
            now: The time.
            headers: What stands beside the payload.
            imported: Where it comes from, of a message of another cloud (:meth:`publish_imported`).

        Raises:
            ValueError: The topic is not valid.
            MessageTooLarge: The payload is over ``max_message_bytes``.
            overlay.OverlayError: More groups are in use than the overlay watches.
        """
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

    def add_imported(
        self, topic: str, payload: bytes, origin: bytes, stream: bytes, number: int, gap: int, cloud: str
    ) -> int | None:
        """Send what a gateway brought from another cloud together with what it brought just before; returns to how many nodes.

        Returns None, and sends nothing, if it does not follow that, or there is no room: then :meth:`publish_imported`.
        """
        begun = self._imported_runs.get(topic)
        if begun is None or not begun.takes(origin, stream, number, gap, cloud):
            return None
        run = begun.run
        room = run.room - RUN_MESSAGE_COST - len(payload)
        if room < 0 or len(payload) > self.max_message_bytes:
            return None
        run.room = room
        run.payloads.append(payload)
        begun.number = number + 1
        return begun.count

    def publish_imported(
        self,
        topic: str,
        payload: bytes,
        origin: bytes,
        stream: bytes,
        number: int,
        gap: int,
        cloud: str,
        now: float,
        headers: Headers = NO_HEADERS,
    ) -> int | None:
        """Send what a gateway brought from another cloud to every subscriber's node; returns to how many.

        Returns None, and sends nothing, where :meth:`publish` would; then the gap is not noted either.

        Args:
            topic: The topic in this cloud.
            payload: The message.
            origin: The node that published it, as it is called here.
            stream: The group that it was published under, as that is called here.
            number: Its number among these.
            gap: How many of these were lost right before it, on the way up to here.
            cloud: The name of that cloud.
            now: The time.
            headers: What stands beside the payload.

        Raises:
            ValueError: The topic is not valid.
            MessageTooLarge: The payload is over ``max_message_bytes``.
            overlay.OverlayError: More groups are in use than the overlay watches.
        """
        count = self.publish(topic, payload, now, headers, _Arrival(origin, stream, number, gap, cloud))
        if count is None:
            self._outbound.has_events = True  # the views may have to be asked for
        return count

    def miss_imported(self, origin: bytes, stream: bytes, count: int) -> None:
        """Note that so many of a stream of another cloud are not published here: the next one that is tells of them."""
        self._missed.add(origin, stream, count)

    def routes_changed(self) -> None:
        """Views, memberships or subscriptions are others."""
        self._version += 1
        self._forget_runs()

    def groups_changed(self) -> None:
        """Prefixes have other groups than they had."""
        self.routes_changed()
        self._routes.clear()

    def view_changed(self, group: Group) -> None:
        """The view of a group is another one."""
        self.routes_changed()
        for peer_id in list(self._asked_early.get(group, ())):
            if self._may_pause(group, peer_id):
                self._drop_early(group, peer_id)
                self._paused.setdefault(group, {})[peer_id] = None
        for peer_id in list(self._paused.get(group, ())):
            if not self._may_pause(group, peer_id):
                self._go_on(group, peer_id)

    def forget(self, group: Group) -> None:
        """A group was forgotten."""
        self.groups_changed()
        self._watched.discard(group)
        for peer_id in (*self._paused.get(group, ()), *self._asked_early.get(group, ())):
            self._go_on(group, peer_id)

    def receive_pause(self, group: Group, peer: Peer, now: float) -> bool:
        """A subscriber asks to wait. Returns whether that is remembered; who is none is not waited for."""
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
        """A subscriber has room again."""
        if (group, peer.id) in self._pauses:
            self._go_on(group, peer.id)

    def handle_timeout(self, now: float) -> None:
        """Go on where nobody asked again."""
        for group, peer_id in self._pauses.expired(now):
            self._go_on(group, peer_id)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._pauses.deadline()

    # --

    def _forget_runs(self) -> None:
        """Append nothing any more: where publications go, or whether there is room, may have changed."""
        self.runs.clear()
        self._imported_runs.clear()

    def _send_imported(self, route: _Route, payload: bytes, now: float, headers: Headers, arrival: _Arrival) -> int:
        """Send what came from another cloud, for which there is room."""
        origin, stream, number, gap, cloud = arrival
        imported = Imported(origin, stream, number, self._missed.add(origin, stream, gap), cloud)
        count = route.count - bool(route.local) + bool(route.takers)
        if len(route.sends) != 1 or route.takers or route.casts or headers.encoded:
            self._publish_alone(route, payload, now, headers, imported)
            return count
        group, begun = route.sends[0], self._imported_runs.get(route.topic)
        is_next = begun is not None and begun.run is group.run and begun.takes(*arrival)
        if begun is not None and is_next and group.append_to_run(payload):
            begun.number += 1
            return count
        head = imported.encode() + route.head
        run = self._outbound.begin_run(group, head, payload, count, now, packets.IMPORTED)
        run.counted = route.counted
        self._imported_runs[route.topic] = _ImportedRun(run, imported, count)
        return count

    def _publish_alone(
        self, route: _Route, payload: bytes, now: float, headers: Headers, imported: Imported | None = None
    ) -> None:
        """Send a message by itself: it has a number or headers of its own, or the number is needed at once."""
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

    def _make_route(self, topic: str, now: float) -> _Route:
        if len(self._routes) >= TOPICS_MAX:
            self._routes.clear()
            self._forget_runs()
        route = _Route(topic, parse_topic(topic))
        for prefix in prefixes(route.tokens):
            group = self._group_of(prefix, now)
            if group not in self._watched:
                self._overlay.watch_group(group.id, now)
                self._watched.add(group)
            route.groups.append(group)
        self._routes[topic] = route
        return route

    def _refresh(self, route: _Route, now: float) -> bool:
        """Work out where publications go; returns whether that is known."""
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

    def _has_room(self, route: _Route) -> bool:
        for peer in route.peers:
            if peer.is_congested:
                return False
        if route.casts and self._outbound.is_control_full():
            return False
        if self._paused and any(group in self._paused for group in route.groups):
            return False
        return not any(queue.is_blocking and queue.is_full for queue in route.local)

    def _may_pause(self, group: Group, peer_id: NodeId) -> bool:
        """Tell whether a node is a subscriber; of a large group, of which only a sample is known, all may be."""
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
