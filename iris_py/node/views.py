"""Views of groups, brought to everybody whom they concern: who is a member now, who is none any more, what waits for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.node.events import ViewKnown
from iris_py.wire.names import GATEWAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_overlay.events import ViewChanged
    from iris_overlay.ids import NodeId
    from iris_overlay.messages import NodeInfo
    from iris_py.observe.journal import Journal
    from iris_py.patterns.request.losses import Losses
    from iris_py.patterns.request.requester import Requester
    from iris_py.patterns.survey import Surveyor
    from iris_py.patterns.topic.pubsub import PubSub
    from iris_py.peers.group import Group
    from iris_py.peers.member import Member
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer


class Views:
    """Bring the views of groups to everybody whom they concern.

    Args:
        zone: That of the local node: members are ordered by their distance.
        groups: Those in use, by id; the owner changes it.
        peer_of: Returns the peer that a member is; the local one for the local node.
        outbound: Takes what waits for a member that is gone.
        requester: Who asks members.
        surveyor: Who asks all members.
        pubsub: Who publishes to members.
        journal: Counts what is dropped, and notes who came and went.
        losses: What new members are told.
    """

    def __init__(
        self,
        zone: str,
        groups: Mapping[bytes, Group],
        peer_of: Callable[[NodeInfo], Peer],
        outbound: Outbound,
        requester: Requester,
        surveyor: Surveyor,
        pubsub: PubSub,
        journal: Journal,
        losses: Losses,
    ) -> None:
        self._zone = zone
        self._groups = groups
        self._peer_of = peer_of
        self._outbound = outbound
        self._requester = requester
        self._surveyor = surveyor
        self._pubsub = pubsub
        self._journal = journal
        self._losses = losses

    def take(self, event: ViewChanged, now: float) -> ViewKnown | None:
        """Handle a view; returns an event if it is the first one of its group."""
        group = self._groups.get(event.group)
        if group is None:
            return None
        self._outbound.seal_all_broadcasts(now)  # what was broadcast before the change goes to those who were there
        known = ViewKnown(group) if group.members is None and event.is_known else None
        before = None if group.members is None else {member.peer.id for member in group.members}
        gone, unproven = group.take_view(event.members, self._peer_of, self._zone)
        if before is not None and self._losses.entries:
            newcomers = [member.peer for member in group.members or () if member.peer.id not in before]
            self._requester.out += self._losses.messages_for(group, newcomers)
        self._journal.now = now
        if gone:
            group.lost_at = now
        if unproven:
            self._journal.count_drop("unproven_member", unproven)
        if not group.is_topic and event.is_known:
            self._note_changes(group, before or set(), gone)
        group.size, group.is_watched, group.is_doubted = event.size, event.is_watched, event.is_doubted
        if not event.is_known:
            group.forget_view()
        for member in gone:
            self._outbound.member_removed(group, member.peer)
            self._surveyor.member_removed(group, member.peer)
        if group.is_topic:
            self._pubsub.view_changed(group)
        self._requester.view_changed(now)
        self._surveyor.view_changed(now)
        return known

    def _note_changes(self, group: Group, before: set[NodeId], gone: list[Member]) -> None:
        """Note who is a member now and was none, and who is none any more. Of a large cluster that is of the sample."""
        told = f"#{group.id.hex()}" if group.is_own else ""
        for member in group.members or ():
            if member.peer.id not in before:
                if member.rank or group.name.startswith(GATEWAYS):  # only gateways stand in for others
                    self._journal.departures.note_gateway(member.peer.name)
                self._journal.note("joined", member.peer.name, node=member.peer.described, name=group.name, told_name=told)
        for member in gone:
            self._journal.note("left", member.peer.name, node=member.peer.described, name=group.name, told_name=told)
