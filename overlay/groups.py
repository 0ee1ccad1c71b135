"""The directory: who is a member of which group, and who here wants to know.

Membership is soft state of a link: it arrives with the peer and goes with the peer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from overlay.errors import TooManyGroupsError
from overlay.events import GroupMember, ViewChanged
from overlay.messages import GROUPS_PER_NODE_MAX, Membership

if TYPE_CHECKING:
    from collections.abc import Iterable

    from overlay.ids import GroupId, NodeId
    from overlay.messages import NodeInfo


class Directory:
    """Hold the memberships of the local node and of every peer, and the views of watched groups.

    Bounded by the number of peers times GROUPS_PER_NODE_MAX, and by `groups_watched_max`.
    """

    def __init__(self, groups_watched_max: int) -> None:
        # Invariant: node in _members[group] exactly when group in _groups[node]; neither holds empty dictionaries.
        self._members: dict[GroupId, dict[NodeId, GroupMember]] = {}
        self._groups: dict[NodeId, dict[GroupId, None]] = {}
        self._watched: dict[GroupId, None] = {}
        self._watched_max = groups_watched_max
        # Watched groups whose view the owner has not seen yet. Many changes between two turns make one event.
        self._changed: dict[GroupId, None] = {}

    def is_member(self, node: NodeId, group: GroupId) -> bool:
        """Return whether a node is a member of a group."""
        return group in self._groups.get(node, ())

    def has_room(self, node: NodeId, group: GroupId) -> bool:
        """Return whether a node may be a member of this group too."""
        groups = self._groups.get(node, {})
        return group in groups or len(groups) < GROUPS_PER_NODE_MAX

    def memberships(self, node: NodeId) -> list[Membership]:
        """Return the memberships of a node."""
        return [Membership(group, self._members[group][node].attributes) for group in self._groups.get(node, ())]

    def add_member(self, info: NodeInfo, group: GroupId, attributes: bytes) -> None:
        """Make a node a member of a group, or change how it is described there."""
        member = GroupMember(info, attributes)
        members = self._members.setdefault(group, {})
        if members.get(info.id) == member:
            return
        members[info.id] = member
        self._groups.setdefault(info.id, {})[group] = None
        self._mark_changed(group)

    def remove_member(self, node: NodeId, group: GroupId) -> None:
        """Take a node out of a group; harmless if it is no member."""
        groups = self._groups.get(node)
        if groups is None or group not in groups:
            return
        del groups[group]
        if not groups:
            del self._groups[node]
        members = self._members[group]
        del members[node]
        if not members:
            del self._members[group]
        self._mark_changed(group)

    def replace_memberships(self, info: NodeInfo, memberships: Iterable[Membership]) -> None:
        """Make these the memberships of a node. Views that stay as they were are not reported again."""
        wanted = {membership.group: membership.attributes for membership in memberships}
        for group in [group for group in self._groups.get(info.id, ()) if group not in wanted]:
            self.remove_member(info.id, group)
        for group, attributes in wanted.items():
            self.add_member(info, group, attributes)

    def remove_node(self, node: NodeId) -> None:
        """Take a node out of all groups."""
        for group in list(self._groups.get(node, ())):
            self.remove_member(node, group)

    def watch(self, group: GroupId) -> None:
        """Report the view of a group, now and after every change.

        Raises:
            TooManyGroupsError: Too many are watched.
        """
        if group in self._watched:
            return
        if len(self._watched) >= self._watched_max:
            raise TooManyGroupsError(self._watched_max, "watches")
        self._watched[group] = None
        self._changed[group] = None

    def unwatch(self, group: GroupId) -> None:
        """Stop reporting the view of a group."""
        self._watched.pop(group, None)
        self._changed.pop(group, None)

    def views_changed(self) -> list[ViewChanged]:
        """Take the views that changed since the last call."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, {}
        return [ViewChanged(group, dict(self._members.get(group, {}))) for group in changed]

    def _mark_changed(self, group: GroupId) -> None:
        if group in self._watched:
            self._changed[group] = None
