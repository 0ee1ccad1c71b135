"""Copies of directories whose root is a neighbour: kept up to date by it, and taken over when it dies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from overlay.directory import Directory

if TYPE_CHECKING:
    from overlay.group_messages import Copy
    from overlay.ids import GroupId, NodeId
    from overlay.messages import NodeInfo

GROUPS_MAX: Final = 65_536
"""Directories of a node, and copies as many. With ids at random, a node of a network with that many groups per node has them."""


class HeldCopy:
    """Hold a directory of another root."""

    __slots__ = ("directory", "expires", "owner", "watchers")

    def __init__(self, directory: Directory, watchers: dict[NodeId, NodeInfo], owner: NodeId, expires: float) -> None:
        self.directory = directory
        self.watchers = watchers
        self.owner = owner
        self.expires = expires

    def apply(self, message: Copy, expires: float) -> None:
        """Apply a part of a copy, or a change."""
        directory = self.directory
        for node, stamp in message.removed:
            if stamp:
                directory.remove(node, stamp, expires)
            else:  # It expired at the owner. Nothing forbids it to come back.
                directory.members.pop(node, None)
        for record in message.members:
            directory.register(record, expires)
        for info in message.watchers:
            self.watchers[info.id] = info
        for node in message.unwatched:
            self.watchers.pop(node, None)
        self.expires = expires

    def merge(self, other: HeldCopy) -> None:
        """Take over what another copy knows."""
        for node, (stamp, expires) in other.directory.tombstones.items():
            self.directory.remove(node, stamp, expires)
        for member in other.directory.members.values():
            self.directory.register(member.record, member.expires)
        self.watchers.update(other.watchers)


class Copies:
    """Hold the copies of a node."""

    __slots__ = ("_expiry_s", "_parts", "held")

    def __init__(self, expiry_s: float) -> None:
        self._expiry_s = expiry_s
        self.held: dict[GroupId, HeldCopy] = {}
        # Copies of which some parts have arrived, by group and sender: parts of two senders may alternate.
        self._parts: dict[tuple[GroupId, NodeId], HeldCopy] = {}

    def __len__(self) -> int:
        return len(self.held) + len(self._parts)

    def receive(self, source: NodeId, message: Copy, now: float) -> tuple[int | None, HeldCopy | None]:
        """Apply a message.

        Returns:
            The version to acknowledge, None if more parts follow; and the copy, if it is now whole.
        """
        group, expires = message.group, now + self._expiry_s
        held = self.held.get(group)
        if message.base:
            if held is None or held.owner != source or held.directory.version != message.base:
                return 0, None
            held.apply(message, expires)
            held.directory.version = message.version
            return message.version, held
        if message.is_first and (held is not None or len(self) < GROUPS_MAX):
            self._parts[group, source] = HeldCopy(Directory(group, 0), {}, source, expires)
        part = self._parts.get((group, source))
        if part is None:
            return (0 if message.is_last else None), None
        part.apply(message, expires)
        if not message.is_last:
            return None, None
        del self._parts[group, source]
        if held is not None and held.owner != source:
            # Two nodes took themselves for the root. What each was told is true until somebody knows better.
            part.merge(held)
        part.directory.version = message.version
        self.held[group] = part
        return message.version, part

    def expire(self, now: float) -> None:
        """Forget copies that their owners do not keep up to date."""
        for group in [group for group, held in self.held.items() if held.expires <= now]:
            del self.held[group]
        for key in [key for key, part in self._parts.items() if part.expires <= now]:
            del self._parts[key]

    def drop(self, group: GroupId, owner: NodeId) -> None:
        """Handle that the owner keeps its copies elsewhere."""
        held = self.held.get(group)
        if held is not None and held.owner == owner:
            del self.held[group]
