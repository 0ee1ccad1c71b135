"""Publish and subscribe, on both sides (docs/design.md section 8).

Every prefix of a topic has a group, including the empty prefix. A subscription is covered by a membership in the group of the
literal prefix or of a shorter prefix (:mod:`iris_py.patterns.topic.coverage`). A publisher watches the groups of all prefixes
of its topic. The publisher sends a message to the members of the widest group, and to members of narrower groups outside all
wider groups. So a node receives all messages under a prefix once and in a single group, numbered without gaps.

In a group reached by multicast, not all members are known. A node that changes from one group to another may receive a message
twice there. Such messages carry a number for deduplication.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.errors import OverlayError
from iris_py.patterns.topic.coverage import Coverage
from iris_py.patterns.topic.deliveries import Deliveries
from iris_py.patterns.topic.names import Tokens, group_name, prefixes
from iris_py.patterns.topic.publisher import Publisher
from iris_py.patterns.topic.queue import SubscriptionReady, SubscriptionTold

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import GroupId
    from iris_overlay.overlay import Overlay
    from iris_py.patterns.topic.queue import SubscriptionQueue, TopicEvent
    from iris_py.peers.group import Group, Groups
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer


class PubSub:
    """The topics of one node: its memberships, its publisher and its deliveries.

    Args:
        make_room: Called before a group is added.

    Attributes:
        publisher: The node's publications.
        deliveries: The node's subscriptions.
        events: The output of :meth:`events_received`.
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
        self._groups = groups
        self._overlay = overlay
        self._local = local
        self._make_room = make_room
        self._coverage = Coverage()
        self._prefixes: dict[bytes, Tokens] = {}  # prefixes of groups joined or being left
        self._pending: dict[bytes, int] = {}  # number of joins that the overlay has not confirmed
        self._told: dict[Tokens, dict[SubscriptionQueue, None]] = {}  # subscriptions that wait for a membership
        self.events: list[TopicEvent] = []
        self.deliveries = Deliveries(outbound, local, count_drop, self.events)
        self.publisher = Publisher(overlay, outbound, local, self.deliveries, self._group, self._is_member, self.events)

    def view_changed(self, group: Group) -> None:
        """Handle a change of a group's membership view."""
        self.publisher.view_changed(group)

    def groups_joined(self) -> set[Group]:
        """Return the groups of this node's memberships, which must not be forgotten."""
        return {self._groups.by_id[each] for each in self._prefixes}

    def rekey(self, left: list[Group], now: float) -> None:
        """Use a new keyring: join the groups of all accepted generations, and leave all other groups.

        Args:
            left: The groups of generations that are no longer accepted.
        """
        for prefix in self._coverage.members:
            missing = [group for group in self._generations(prefix, now) if group.id not in self._prefixes]
            self._join(prefix, missing, now)
            for group in missing:
                self._pending[group.id] = 1
        for group in left:
            if group.id in self._prefixes:
                self._overlay.leave_group(group.id, now)
                if group.id in self._pending:
                    self._pending[group.id] = 1  # the overlay will not confirm it any more
                    self.joined(group.id, now)
                del self._prefixes[group.id]
        self.publisher.groups_changed()
        self.deliveries.memberships_changed(self._covers, now)

    def forget(self, group: Group) -> None:
        """Forget a group."""
        if group.is_topic:
            self.publisher.forget(group)
            self.deliveries.forget(group)

    def peer_lost(self, peer: Peer) -> None:
        """Handle the loss of a peer."""
        self.deliveries.peer_lost(peer)

    # -- subscribing

    def subscribe(self, queue: SubscriptionQueue, now: float) -> bool:
        """Start a subscription; return whether ``SubscriptionTold`` will follow once every publisher knows it.

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
        self.deliveries.add(queue)
        self.publisher.routes_changed()
        if self._coverage.is_known(queue.prefix):
            return False
        self._told.setdefault(cover, {})[queue] = None
        return True

    def unsubscribe(self, queue: SubscriptionQueue, now: float) -> list[GroupId]:
        """End a subscription; return the groups that the node leaves. ``GroupLeft`` follows for each."""
        if not self.deliveries.remove(queue, now):
            return []
        self.publisher.routes_changed()
        for waiting in self._told.values():
            waiting.pop(queue, None)
        self._coverage.remove(queue.prefix)
        return self._change_memberships(now)

    def joined(self, group_id: GroupId, now: float) -> None:
        """Handle the overlay's confirmation that every publisher knows a membership."""
        self._pending[group_id] -= 1
        if self._pending[group_id]:
            return
        del self._pending[group_id]
        if not self._is_told(self._prefixes[group_id], now):
            return
        self._coverage.joined(self._prefixes[group_id])
        self._change_memberships(now)

    def left(self, group_id: GroupId) -> None:
        """Handle the overlay's confirmation that every publisher knows the end of a membership."""
        prefix = self._prefixes.get(group_id)
        if prefix is not None and prefix not in self._coverage.members and group_id not in self._pending:
            del self._prefixes[group_id]

    def is_topic(self, group_id: GroupId) -> bool:
        """Tell whether this class manages a group."""
        return group_id in self._prefixes

    # -- time and events

    def handle_timeout(self, now: float) -> None:
        """Handle expired deadlines; harmless if early."""
        self.publisher.handle_timeout(now)
        self.deliveries.handle_timeout(now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        expiry, again = self.publisher.deadline(), self.deliveries.deadline()
        return expiry if again is None or (expiry is not None and expiry < again) else again

    def events_received(self) -> list[TopicEvent]:
        """Take the events, in order."""
        events = self.events.copy()
        self.events.clear()
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

    def _is_member(self, group: Group) -> bool:
        return group.id in self._prefixes

    def _generations(self, prefix: Tokens, now: float) -> list[Group]:
        """Return the groups of a prefix in every generation of the secret, the primary one first."""
        group = self._group(prefix, now)
        return [group, *self._groups.accepted(group)]

    def _is_told(self, prefix: Tokens, now: float) -> bool:
        """Tell whether publishers of every generation know the membership in a prefix."""
        return not any(group.id in self._pending for group in self._generations(prefix, now))

    def _join(self, prefix: Tokens, groups: list[Group], now: float) -> None:
        """Join all groups of one prefix; on an overlay error, none."""
        joined = []
        try:
            for group in groups:
                group.forget_baselines()
                self._overlay.join_group(group.id, group.keys.proof(self._local.id), now)
                joined.append(group)
        except OverlayError:
            for group in joined:
                self._overlay.leave_group(group.id, now)
            raise
        for group in groups:
            self._prefixes[group.id] = prefix

    def _covers(self, prefix: Tokens, now: float) -> list[Group]:
        """Return the groups of the memberships that cover a prefix."""
        return [group for each in prefixes(prefix) if each in self._coverage.members for group in self._generations(each, now)]

    def _change_memberships(self, now: float) -> list[GroupId]:
        coverage = self._coverage
        joins, coverage.joins = coverage.joins, []
        leaves, coverage.leaves = coverage.leaves, []
        settled, coverage.settled = coverage.settled, []
        if not (joins or leaves or settled):
            return []
        self.publisher.routes_changed()
        for index, prefix in enumerate(joins):
            groups = self._generations(prefix, now)
            try:
                self._join(prefix, groups, now)
            except OverlayError:
                coverage.leaves += leaves
                coverage.settled += settled
                coverage.failed(joins[index:])
                raise
            for group in groups:
                self._pending[group.id] = self._pending.get(group.id, 0) + 1
        left = []
        for prefix in leaves:
            for member in coverage.members:  # narrower memberships take over the messages of the wide one
                if member[: len(prefix)] == prefix:
                    for group in self._generations(member, now):
                        group.forget_baselines()
            for group in self._generations(prefix, now):
                self._overlay.leave_group(group.id, now)
                left.append(group.id)
        if joins or leaves:
            self.deliveries.memberships_changed(self._covers, now)
        for prefix in (*settled, *leaves):
            for queue in self._told.pop(prefix, ()):
                if coverage.is_known(queue.prefix):
                    self.events.append(SubscriptionTold(queue))
                else:
                    cover = coverage.cover(queue.prefix)
                    assert cover is not None
                    self._told.setdefault(cover, {})[queue] = None
        return left
