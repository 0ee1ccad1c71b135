"""Publish and subscribe, on both sides (docs/design.md section 8).

Theory of operation. Every prefix of a topic has a group, the empty one too. A subscription is covered by a membership in the
group of its literal prefix or of a shorter one (:mod:`iris_py.patterns.coverage`). A publisher watches the groups of all
prefixes of its topic. It sends a message to the members of the widest group, and to those of each narrower one who are in no
wider one: so everything under a prefix reaches a node under one and the same group, numbered without gaps, and once.

Of a group that is cast to the members are not all known. Only then may a node that is in two groups get a message twice, while
it changes from one to the other; such messages carry a number by which the second is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py import packets
from iris_py.messages import Message
from iris_py.node_events import RoomMade, SubscriptionReady, SubscriptionTold
from iris_py.packets import NUMBERED, ORDINAL_MAX, PUBLICATION
from iris_py.patterns.coverage import Coverage
from iris_py.topics import Tokens, TopicTrie, group_name, parse_topic, prefixes
from overlay.errors import OverlayError
from overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.group import Group, Peer
    from iris_py.groups import Groups
    from iris_py.node_events import NodeEvent
    from iris_py.outbound import Outbound
    from iris_py.patterns.subscribing import SubscriptionQueue
    from overlay.ids import GroupId, NodeId
    from overlay.overlay import Overlay

#: Topics whose matches, or whose groups, are remembered. Forgetting one costs looking them up again.
TOPICS_MAX = 4096
#: Numbered publications that are remembered, of all publishers together: as many as arrive while a node changes its groups.
NUMBERS_MAX = 8192
#: A publisher that was asked to wait goes on after this time (seconds) unless it is asked again: who asked may be gone. Too
#: small: a stall of the subscriber looks like its end, and messages are dropped there; too large: publishers wait for the dead.
PAUSE_S = 4.0
#: How often it is asked again.
PAUSE_AGAIN_S = 1.0

_pack = packets.MESSAGE.pack


class _Route:
    """Where publications to one topic go; worked out anew when views or memberships have changed."""

    __slots__ = ("casts", "count", "groups", "has_local", "header", "local", "peers", "sends", "tokens", "topic", "version")

    def __init__(self, topic: str, tokens: Tokens) -> None:
        self.topic = topic
        self.tokens = tokens
        self.header = topic.encode()
        self.groups: list[Group] = []  # the widest first
        self.version = -1
        self.sends: list[Group] = []
        self.casts: set[Group] = set()
        self.peers: list[Peer] = []
        self.local: list[SubscriptionQueue] = []
        self.has_local = False
        self.count = 0


class PubSub:
    """The topics of one node.

    Args:
        groups: The groups in use.
        overlay: Told of memberships and watches.
        outbound: Sends.
        local: The node.
        count_drop: Counts what is dropped, by reason.
        make_room: Called before a group is added.

    Attributes:
        published: Publications of this node.
        received: Publications of others that this node took.
        max_message_bytes: The largest payload that is published; the owner sets it.
    """

    def __init__(
        self,
        groups: Groups,
        overlay: Overlay,
        outbound: Outbound,
        local: Peer,
        count_drop: Callable[..., int],
        make_room: Callable[[float], None],
    ) -> None:
        self.published = 0
        self.received = 0
        self.max_message_bytes = packets.MAX_MESSAGE_BYTES
        self._groups = groups
        self._overlay = overlay
        self._outbound = outbound
        self._local = local
        self._count_drop = count_drop
        self._make_room = make_room
        self._version = 0
        self._routes: dict[str, _Route] = {}
        self._watched: set[Group] = set()
        self._trie: TopicTrie[SubscriptionQueue] = TopicTrie()
        self._matches: dict[bytes, tuple[str, list[SubscriptionQueue]]] = {}
        self._coverage = Coverage()
        self._prefixes: dict[bytes, Tokens] = {}  # of the groups that a join or leave is under way for
        self._pending: dict[bytes, int] = {}  # joins that the overlay has not reported
        self._told: dict[Tokens, dict[SubscriptionQueue, None]] = {}  # who waits for which membership
        self._paused: dict[Group, dict[NodeId, float]] = {}  # publications to it wait, for whom and until when
        self._pauses: DeadlineTable[tuple[Group, NodeId]] = DeadlineTable()
        self._blocked: dict[tuple[Group, Peer], dict[SubscriptionQueue, None]] = {}  # publishers that wait for them
        self._pause_again_at: float | None = None
        self._numbers: dict[tuple[NodeId, bytes], None] = {}
        self._missed: dict[tuple[Group, NodeId], int] = {}
        self._events: list[NodeEvent] = []

    # -- publishing

    def publish(self, topic: str, payload: bytes, now: float) -> int | None:
        """Send to every subscriber's node; returns to how many. The hot path.

        Returns None, and sends nothing, while there is no room on the way to one of them, one asks to wait, or a view is not
        yet known: after ``RoomMade`` or ``ViewKnown`` it may go.

        Raises:
            ValueError: The topic is not valid.
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
        for peer in route.peers:
            link = peer.link
            if peer.is_full or (link is not None and link.congested):
                return None
        if (self._paused or route.casts or route.has_local) and not self._has_room(route):
            return None
        self.published += 1
        header, flags = route.header, 0
        if route.casts:
            header, flags = packets.NUMBER.pack(self.published) + header, NUMBERED
        local = route.has_local
        for group in route.sends:
            group.last_used = now
            group.sequence = sequence = group.sequence + 1
            if local:
                local = False
                self._hand_out(Message(payload, self._local.name, sequence, "", topic), route.local, group, self._local, now)
            if group.targets or group in route.casts:
                ordinal = sequence - group.first_sequence
                if ordinal > ORDINAL_MAX:
                    ordinal = ORDINAL_MAX
                start = _pack(PUBLICATION, flags, len(header), len(payload), sequence, ordinal)
                self._outbound.add_broadcast(group, start + header, payload, now)
        return route.count

    def view_changed(self, group: Group) -> None:
        """The view of a group is another one."""
        self._version += 1
        paused = self._paused.get(group)
        if paused is not None and group.size == len(group.members or ()):
            members = {member.peer.id for member in group.members or ()}
            for peer_id in [each for each in paused if each not in members]:
                self._go_on(group, peer_id)

    def groups_joined(self) -> set[Group]:
        """Return the groups that must not be forgotten, for the node is part of them."""
        return {self._groups.by_id[each] for each in self._prefixes}

    def forget(self, group: Group) -> None:
        """A group was forgotten."""
        if not group.is_topic:
            return
        self._version += 1
        self._routes.clear()
        self._watched.discard(group)
        for peer_id in list(self._paused.get(group, ())):
            self._go_on(group, peer_id)
        for key in [key for key in self._missed if key[0] is group]:
            del self._missed[key]

    # -- subscribing

    def subscribe(self, queue: SubscriptionQueue, now: float) -> bool:
        """Begin a subscription; returns whether ``SubscriptionTold`` will follow, for not every publisher knows yet.

        Raises:
            overlay.OverlayError: Too many groups, or the node is leaving.
        """
        cover = self._coverage.add(queue.prefix)
        try:
            self._change_memberships(now)
        except OverlayError:
            self._coverage.remove(queue.prefix)
            self._change_memberships(now)
            raise
        self._trie.add(queue.pattern, queue)
        if self._missed:
            names = {group_name(each) for each in prefixes(queue.prefix)}
            queue.missed = {key: missed for key, missed in self._missed.items() if key[0].name in names}
        self._subscriptions_changed()
        if self._coverage.is_known(queue.prefix):
            return False
        self._told.setdefault(cover, {})[queue] = None
        return True

    def unsubscribe(self, queue: SubscriptionQueue, now: float) -> list[GroupId]:
        """End a subscription; returns the groups that the node leaves, for each of which ``GroupLeft`` will follow."""
        if not self._trie.remove(queue.pattern, queue):
            return []
        self._subscriptions_changed()
        for waiting in self._told.values():
            waiting.pop(queue, None)
        self.drained(queue, now)
        self._coverage.remove(queue.prefix)
        return self._change_memberships(now)

    def drained(self, queue: SubscriptionQueue, now: float) -> None:
        """A subscription has room again: its publishers go on."""
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
                self._outbound.gather(group, peer, packets.RESUME, 0, 0, b"", now)

    def peer_lost(self, peer: Peer) -> None:
        """The link to a peer is gone, or it is dead: if it comes back and publishes on, it is asked to wait anew."""
        for key in [key for key in self._blocked if key[1] is peer]:
            for queue in self._blocked.pop(key):
                del queue.blocked[key]

    def joined(self, group_id: GroupId, now: float) -> None:
        """Every publisher knows of a membership."""
        self._pending[group_id] -= 1
        if self._pending[group_id]:
            return
        del self._pending[group_id]
        self._coverage.joined(self._prefixes[group_id])
        self._change_memberships(now)

    def left(self, group_id: GroupId) -> None:
        """Every publisher knows of the end of a membership."""
        prefix = self._prefixes.get(group_id)
        if prefix is not None and prefix not in self._coverage.members and group_id not in self._pending:
            del self._prefixes[group_id]

    def is_topic(self, group_id: GroupId) -> bool:
        """Tell whether the overlay reports a membership of this class."""
        return group_id in self._prefixes

    # -- in

    def receive(
        self, group: Group, peer: Peer, flags: int, sequence: int, ordinal: int, headers: bytes, payload: bytes, now: float
    ) -> None:
        """Take a publication. The hot path."""
        if flags & NUMBERED:
            number, headers = headers[: packets.NUMBER.size], headers[packets.NUMBER.size :]
        else:
            number = b""
        last = group.last_sequence(peer.id, sequence)
        if sequence <= abs(last):
            self._count_drop("late_publication")
            return
        if last > 0 and sequence != last + 1:
            self._note_gap(group, peer.id, min(sequence - last - 1, max(0, ordinal - 1)))
        if number and self._is_repeated(peer.id, number):
            return
        match = self._matches.get(headers)
        if match is None:
            match = self._match(headers)
            if match is None:
                return
        topic, queues = match
        if not queues:
            self._count_drop("publication_unwanted")
            return
        self.received += 1
        self._hand_out(Message(payload, peer.name, sequence, "", topic), queues, group, peer, now)

    def receive_pause(self, group: Group, peer: Peer, now: float) -> None:
        """A subscriber asks to wait."""
        if not group.is_topic:
            self._count_drop("unknown_kind")
            return
        self._paused.setdefault(group, {})[peer.id] = now + PAUSE_S
        self._pauses.set((group, peer.id), now + PAUSE_S)
        self._outbound.has_news = True

    def receive_resume(self, group: Group, peer: Peer) -> None:
        """A subscriber has room again."""
        if peer.id in self._paused.get(group, ()):
            self._go_on(group, peer.id)

    def handle_timeout(self, now: float) -> None:
        """Ask publishers to wait still; go on where nobody asked again."""
        for group, peer_id in self._pauses.expired(now):
            self._go_on(group, peer_id)
        if self._pause_again_at is not None and now >= self._pause_again_at:
            self._pause_again_at = None
            for group, peer in self._blocked:
                self._send_pause(group, peer, now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        expiry, again = self._pauses.deadline(), self._pause_again_at
        return expiry if again is None or (expiry is not None and expiry < again) else again

    def events_received(self) -> list[NodeEvent]:
        """Take what happened, in order."""
        if not self._events:
            return []
        events, self._events = self._events, []
        for event in events:
            if isinstance(event, SubscriptionReady):
                event.queue.is_ready = False
        return events

    # -- groups

    def _group(self, prefix: Tokens, now: float) -> Group:
        name = group_name(prefix)
        group = self._groups.find_topic(name)
        if group is None:
            if self._groups.is_full:
                self._make_room(now)
            group = self._groups.make(name, is_topic=True)
            self._groups.add(group)
        group.last_used = now
        return group

    def _change_memberships(self, now: float) -> list[GroupId]:
        coverage = self._coverage
        joins, coverage.joins = coverage.joins, []
        leaves, coverage.leaves = coverage.leaves, []
        settled, coverage.settled = coverage.settled, []
        if not (joins or leaves or settled):
            return []
        self._version += 1
        for index, prefix in enumerate(joins):
            group = self._group(prefix, now)
            group.forget_baselines()
            try:
                self._overlay.join_group(group.id, group.keys.proof(self._local.id), now)
            except OverlayError:
                coverage.leaves += leaves
                coverage.settled += settled
                coverage.failed(joins[index:])
                raise
            self._prefixes[group.id] = prefix
            self._pending[group.id] = self._pending.get(group.id, 0) + 1
        left = []
        for prefix in leaves:
            for member in coverage.members:  # what came with the wide one comes with them from now on
                if member[: len(prefix)] == prefix:
                    self._group(member, now).forget_baselines()
            group = self._group(prefix, now)
            self._overlay.leave_group(group.id, now)
            left.append(group.id)
        for prefix in (*settled, *leaves):
            for queue in self._told.pop(prefix, ()):
                if coverage.is_known(queue.prefix):
                    self._events.append(SubscriptionTold(queue))
                else:
                    cover = coverage.cover(queue.prefix)
                    assert cover is not None
                    self._told.setdefault(cover, {})[queue] = None
        return left

    def _subscriptions_changed(self) -> None:
        self._version += 1
        self._matches.clear()

    # -- routes

    def _make_route(self, topic: str, now: float) -> _Route:
        if len(self._routes) >= TOPICS_MAX:
            self._routes.clear()
        route = _Route(topic, parse_topic(topic))
        for prefix in prefixes(route.tokens):
            group = self._group(prefix, now)
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
        route.local = self._trie.match(route.tokens)
        route.has_local = bool(route.local)
        covered = {self._local.id}
        route.sends, route.casts, route.peers, route.count = [], set(), [], int(route.has_local)
        for group in route.groups:
            members = group.members or []
            group.targets = [member for member in members if member.peer.id not in covered]
            covered.update(member.peer.id for member in members)
            if group.is_cast(now):
                route.casts.add(group)
                route.sends.append(group)
                route.count += group.size
                continue
            route.peers += [member.peer for member in group.targets]
            route.count += len(group.targets)
            if group.targets:
                route.sends.append(group)
        if route.has_local and not route.sends:
            route.sends.append(route.groups[-1])
        route.version = self._version
        return True

    def _has_room(self, route: _Route) -> bool:
        if route.casts and self._outbound.is_control_full():
            return False
        if self._paused and any(group in self._paused for group in route.groups):
            return False
        return not any(queue.is_blocking and queue.is_full for queue in route.local)

    def _go_on(self, group: Group, peer_id: NodeId) -> None:
        paused = self._paused[group]
        del paused[peer_id]
        self._pauses.cancel((group, peer_id))
        if not paused:
            del self._paused[group]
            self._events.append(RoomMade())

    # -- receiving

    def _match(self, headers: bytes) -> tuple[str, list[SubscriptionQueue]] | None:
        try:
            topic = headers.decode()
            tokens = parse_topic(topic)
        except ValueError:
            self._count_drop("malformed")
            return None
        if len(self._matches) >= TOPICS_MAX:
            self._matches.clear()
        match = self._matches[headers] = (topic, self._trie.match(tokens))
        return match

    def _hand_out(self, message: Message, queues: list[SubscriptionQueue], group: Group, peer: Peer, now: float) -> None:
        missed = self._missed.get((group, peer.id), 0) if self._missed else 0
        for queue in queues:
            if queue.is_cut:
                continue
            own = message
            if missed and queue.missed.get((group, peer.id), 0) != missed:
                gap = max(0, missed - queue.missed.get((group, peer.id), 0))
                queue.missed[group, peer.id] = missed
                own = Message(message.payload, message.source, message.sequence, "", message.topic, gap)
            dropped = queue.put(own)
            if dropped:
                self._count_drop(f"subscription_{queue.policy}", dropped)
            if not queue.is_ready:
                queue.is_ready = True
                self._events.append(SubscriptionReady(queue))
            if queue.is_blocking and queue.is_full and (group, peer) not in queue.blocked:
                queue.blocked[group, peer] = None
                self._blocked.setdefault((group, peer), {})[queue] = None
                self._send_pause(group, peer, now)

    def _send_pause(self, group: Group, peer: Peer, now: float) -> None:
        if peer is not self._local:
            self._outbound.gather(group, peer, packets.PAUSE, 0, 0, b"", now)
        self._pause_again_at = now + PAUSE_AGAIN_S
        self._outbound.has_news = True  # the deadline has changed

    def _note_gap(self, group: Group, sender: NodeId, gap: int) -> None:
        if gap:
            missed = self._missed
            key = (group, sender)
            if key not in missed and len(missed) >= TOPICS_MAX:
                missed.clear()
            missed[key] = missed.get(key, 0) + gap

    def _is_repeated(self, sender: NodeId, number: bytes) -> bool:
        numbers = self._numbers
        if (sender, number) in numbers:
            return True
        if len(numbers) >= NUMBERS_MAX:
            del numbers[next(iter(numbers))]
        numbers[sender, number] = None
        return False
