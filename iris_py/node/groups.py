"""The groups of a node: the clusters it serves, changes of membership views, and the removal of idle groups.

``ServedClusters`` joins the groups of all accepted generations of a cluster's secret, because nodes with another primary
generation ask in another group (docs/design.md 2.9). Requests in any of these groups go to the same registrations. ``Views``
passes membership views to the parts of the node. ``IdleGroups`` forgets the longest unused group if there are too many, and the
groups of retired generations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.errors import OverlayError
from iris_py.errors import ConfigurationError
from iris_py.node.events import ViewKnown
from iris_py.peers.member import membership_attributes
from iris_py.wire.facts import named
from iris_py.wire.names import GATEWAYS, refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_overlay.events import ViewChanged
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.overlay import Overlay
    from iris_py.node.patterns import Patterns
    from iris_py.observe.journal import Journal
    from iris_py.patterns.request.registration import Registration
    from iris_py.patterns.request.service import RequestService
    from iris_py.peers.group import Group, Groups
    from iris_py.peers.member import KnownMember
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer


class ServedClusters:
    """The clusters that one node serves.

    Args:
        name: The node's name for itself; empty for none.
    """

    def __init__(self, local: NodeId, groups: Groups, overlay: Overlay, service: RequestService, name: str = "") -> None:
        self._local = local
        self._groups = groups
        self._overlay = overlay
        self._service = service
        self._facts = named(name)
        self._joined: set[GroupId] = set()

    def join(self, registration: Registration, now: float) -> bool:
        """Join a cluster; return whether the event ``GroupJoined`` will follow (not for a second registration).

        A repeated call with the same registration announces its new rank.

        Raises:
            ConfigurationError: Too many groups, the node is leaving, or already a member with another weight or rank.
        """
        group = registration.group
        standing = self._service.membership_of(group)
        groups = [group, *self._groups.accepted(group)]
        if standing is registration:
            self._joined.difference_update(each.id for each in groups)
            self._join(groups, registration, now)
            return True
        if standing is None:
            self._join(groups, registration, now)
        elif standing.weight != registration.weight:
            raise ConfigurationError(
                f"this node already serves {group.name!r} with weight={standing.weight:g}, and it has one weight in a "
                "cluster. Use the same weight for all its handlers."
            )
        elif (standing.rank, standing.takes_overflow) != (registration.rank, registration.takes_overflow):
            raise ConfigurationError(
                f"this node already takes part in {group.name!r} with rank {standing.rank}, and it has one rank in a "
                "cluster: it is either a member or a stand-in. Serve the name on another node."
            )
        return self._service.register(registration)

    def leave(self, registration: Registration, now: float) -> bool:
        """Begin to leave a cluster, still serving requests; return whether the event ``GroupLeft`` will follow."""
        if not self._service.leave(registration):
            return False
        for group in (registration.group, *self._groups.accepted(registration.group)):
            self._leave(group, now)
        return True

    def rekey(self, left: list[Group], now: float) -> None:
        """Use a new keyring: join the groups of all accepted generations, and leave all other groups.

        Args:
            left: The groups of generations that are no longer accepted.

        Raises:
            ConfigurationError: Too many groups, or the node is leaving.
        """
        for group in self._groups.clusters():
            standing = self._service.membership_of(group)
            if standing is not None:
                self._join([group, *self._groups.accepted(group)], standing, now)
        for group in left:
            if group.id in self._joined:
                self._leave(group, now)

    def _join(self, groups: list[Group], registration: Registration, now: float) -> None:
        """Join the groups without a membership: all of them or, on an overlay error, none."""
        joined = []
        with refusals:
            try:
                for group in groups:
                    if group.id not in self._joined:
                        attributes = membership_attributes(
                            group.keys,
                            self._local,
                            registration.weight,
                            registration.rank,
                            takes_overflow=registration.takes_overflow,
                            facts=self._facts,
                        )
                        self._overlay.join_group(group.id, attributes, now)
                        self._joined.add(group.id)
                        joined.append(group)
            except OverlayError:
                for group in joined:
                    self._leave(group, now)
                raise

    def _leave(self, group: Group, now: float) -> None:
        self._joined.discard(group.id)
        self._overlay.leave_group(group.id, now)


#: Time for which a group of a retired generation is kept (seconds): the overlay signs the end of the membership with its keys,
#: and repeats it until confirmed. Too small: the node is shown as a member until its registration expires; too large: the keys
#: of a retired secret stay in memory.
LEFT_LINGER_S: Final = 5.0


class IdleGroups:
    """Finds and forgets the idle groups of a node.

    Args:
        outbound: Sends to peers; may hold broadcasts with sequence numbers of the groups.
    """

    def __init__(self, groups: Groups, overlay: Overlay, outbound: Outbound, patterns: Patterns) -> None:
        self._groups = groups
        self._overlay = overlay
        self._outbound = outbound
        self._patterns = patterns
        self._left: dict[Group, float] = {}  # earliest time to forget each

    def forget_one(self, now: float) -> None:
        """Forget the longest unused group, if any is idle."""
        pending = self._patterns.groups_pending()
        oldest = self._groups.oldest(
            lambda group: not (group.is_of_topics or self._patterns.service.serves(group) or group in pending)
        )
        if oldest is not None:
            self._forget(oldest, now)

    def leave(self, groups: list[Group], now: float) -> None:
        """Forget groups of retired generations once no answer is due in them.

        Unanswered requests continue in the primary group of their cluster.
        """
        self._patterns.requester.rekey(self._groups.find, now)
        for group in groups:
            self._left[group] = now + LEFT_LINGER_S

    def handle_timeout(self, now: float) -> None:
        """Forget the groups whose time has come; harmless if early."""
        if not self._left:
            return
        pending = self._patterns.groups_pending()
        for group, until in list(self._left.items()):
            is_there = self._groups.by_id.get(group.id) is group and group.is_left  # it may have come back
            if not is_there or (now >= until and group not in pending):
                del self._left[group]
                if is_there:
                    self._forget(group, now)

    def _forget(self, group: Group, now: float) -> None:
        self._outbound.seal_all_broadcasts(now)
        self._groups.forget(group)
        self._overlay.unwatch_group(group.id, now)


class Views:
    """Passes the membership views of groups to their users in the node.

    Args:
        zone: The local node's zone, for the distances of members.
        groups: The groups in use, by id; the owner changes the mapping.
        peer_of: Returns the peer of a member; the local peer for the local node.
        outbound: Returns held messages for members that are gone.
        patterns: The patterns, which send to members, and the losses to announce to new members.
        journal: Counts drops, and records joins and departures.
    """

    def __init__(
        self,
        zone: str,
        groups: Mapping[bytes, Group],
        peer_of: Callable[[NodeInfo], Peer],
        outbound: Outbound,
        patterns: Patterns,
        journal: Journal,
    ) -> None:
        self._zone = zone
        self._groups = groups
        self._peer_of = peer_of
        self._outbound = outbound
        self._patterns = patterns
        self._journal = journal

    def take(self, event: ViewChanged, now: float) -> ViewKnown | None:
        """Handle a membership view; return an event if it is the group's first."""
        group = self._groups.get(event.group)
        if group is None:
            return None
        self._outbound.seal_all_broadcasts(now)  # earlier broadcasts go to the earlier members
        known = ViewKnown(group) if group.members is None and event.is_known else None
        before = None if group.members is None else {member.peer.id for member in group.members}
        gone, unproven = group.take_view(event.members, self._peer_of, self._zone)
        patterns, losses = self._patterns, self._patterns.losses
        if before is not None and losses.entries:
            newcomers = [member.peer for member in group.members or () if member.peer.id not in before]
            patterns.requester.out += losses.messages_for(group, newcomers)
        self._journal.now = now
        if gone:
            group.lost_at = now
        if unproven:
            self._journal.count_drop("unproven_member", unproven)
        if event.is_known:
            self._note_changes(group, before or set(), gone)
        group.size, group.is_watched, group.is_doubted = event.size, event.is_watched, event.is_doubted
        if not event.is_known:
            group.forget_view()
        for member in gone:
            self._outbound.member_removed(group, member.peer)
            patterns.surveyor.member_removed(group, member.peer)
        patterns.view_changed(now)
        return known

    def _note_changes(self, group: Group, before: set[NodeId], gone: list[KnownMember]) -> None:
        """Record the members that came and went. In a large cluster only the sample is known."""
        told = f"#{group.id.hex()}" if group.is_own else ""
        for member in group.members or ():
            if member.peer.id not in before:
                if member.rank or group.name.startswith(GATEWAYS):  # only gateways are stand-ins
                    self._journal.departures.note_gateway(member.peer.name)
                self._journal.note("joined", member.peer.name, node=member.peer.described, name=group.name, told_name=told)
        for member in gone:
            self._journal.note("left", member.peer.name, node=member.peer.described, name=group.name, told_name=told)
