"""The followers of a directory (nodes told of its changes): watchers, copies, and the inner nodes of the tree.

All followers are told of changes in the same way. A follower **wants** the last version that concerns it, was **sent** a
version, and was **told** the version it acknowledged. At most one message to a follower is in transit. Later changes wait for
the acknowledgement and are sent together, so a storm of changes cannot overload a follower. A joining member waits until all
followers were told its version.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo


#: The number of unanswered messages, over 3 s, after which joins no longer wait for a follower. It is probably dead, and would
#: delay each join by a second.
ATTEMPTS_WAITED_MAX: Final = 2

#: The largest number of registrations and unregistrations, one per node, that wait for the followers of one directory. Beyond
#: it the longest wait ends, as if its time limit had passed. Too small: when thousands join one group at once, some are
#: acknowledged before all users know them. Too large: memory, because each has a list of followers.
PENDINGS_MAX: Final = 1024

#: The number of unanswered messages, over 24 s, after which a watcher is forgotten. A live watcher renews its watch.
ATTEMPTS_MAX: Final = 5


class FollowerKind(IntEnum):
    """The role of a follower: a watcher, the keeper of a copy, or an inner node (parent) of the multicast tree."""

    WATCHER = 0
    COPY = 1
    PARENT = 2


class RootTimer(IntEnum):
    """The timers of a group, or of a node in it; a `FollowerKind` as a timer stands for repeated messages to a follower.

    The numbers differ from those of `FollowerKind`, because both are keys of one table.
    """

    PENDING = 3
    """A registration has waited long enough for its followers."""
    HANDOVER = 4
    """The new root did not acknowledge the directory."""
    HELD = 5
    """A multicast has waited long enough for the tree."""
    CHECK = 6
    """A doubted member may be checked again."""
    ORPHANS = 7
    """Copies of a former root may be left."""
    REVIEW = 8
    """A directory that was large at its takeover may be small enough for a check of all members."""
    ACCUSED = 9
    """Members declared dead by another root had their time to answer."""
    UNSURE = 10
    """The copies had their time to send their entries."""
    RECHECK = 11
    """A doubted member is checked once more."""
    RIVAL = 12
    """Another root may be answered again."""


FollowerKey: TypeAlias = tuple[FollowerKind, "NodeId"]


class Follower:
    """A follower (a node told of the changes of a directory), and the versions it wants, was sent and acknowledged."""

    __slots__ = ("attempts", "expires", "has_view", "info", "is_stale", "path", "sample", "sent", "stamp", "told", "wants")

    def __init__(self, info: NodeInfo, expires: float) -> None:
        self.info = info
        self.expires = expires
        # A watcher's own stamp from its last question; 0 if it was only taken over from another root.
        self.stamp = 0
        # Invariant: told <= sent; a message is in transit while told < sent.
        self.wants = 0
        self.sent = -1
        self.told = -1
        self.attempts = 0
        # Whether it needs the whole directory rather than changes.
        self.is_stale = True
        # Whether a watcher of a table may have the present one from an earlier root.
        self.has_view = False
        # The sample of members for a watcher of a large group.
        self.sample: dict[NodeId, None] | None = None
        # The path of an unanswered question.
        self.path: tuple[NodeId, ...] | None = None

    @property
    def is_in_transit(self) -> bool:
        """Whether a message to the follower is in transit."""
        return self.told < self.sent


class PendingChange:
    """A registration or unregistration that the root acknowledges once all followers (nodes told of changes) know it."""

    __slots__ = ("deadline", "info", "stamp", "waiting")

    def __init__(self, info: NodeInfo, stamp: int, waiting: dict[FollowerKey, int], deadline: float) -> None:
        self.info = info
        self.stamp = stamp
        self.waiting = waiting
        self.deadline = deadline


class Followers:
    """The followers of a directory, and the registrations to acknowledge once the followers know them."""

    __slots__ = ("due", "members", "pendings", "removed", "unsettled", "unsettled_parents")

    def __init__(self) -> None:
        self.members: tuple[dict[NodeId, Follower], dict[NodeId, Follower], dict[NodeId, Follower]] = ({}, {}, {})
        # Invariant: exactly the followers with told < wants.
        self.unsettled: dict[FollowerKey, Follower] = {}
        self.unsettled_parents = 0
        # The followers to send a message to.
        self.due: dict[FollowerKey, Follower] = {}
        # By node, because only a node's last statement counts. The longest wait comes first.
        self.pendings: dict[NodeId, PendingChange] = {}
        # Former followers, for the owner to cancel their timers.
        self.removed: list[FollowerKey] = []

    @property
    def is_awaited(self) -> bool:
        """Return whether a probably live follower has unacknowledged changes."""
        return any(follower.attempts < ATTEMPTS_WAITED_MAX for follower in self.unsettled.values())

    def touch(self, kind: FollowerKind, follower: Follower, version: int) -> None:
        """Note that a follower has to be told a version, and make a message to it due."""
        key = (kind, follower.info.id)
        follower.wants = version
        self.due[key] = follower
        if follower.told < version and key not in self.unsettled:
            self.unsettled[key] = follower
            self.unsettled_parents += kind is FollowerKind.PARENT

    def forget_told(self, kind: FollowerKind, follower: Follower, version: int) -> None:
        """Assume the loss of a follower's state, and make a message with the whole state due."""
        follower.sent = follower.told = -1
        follower.is_stale = True
        self.touch(kind, follower, version)

    def acknowledge(self, kind: FollowerKind, node: NodeId, version: int) -> Follower | None:
        """Note the version acknowledged by a follower, and make later changes due; return the follower, or None if unknown."""
        follower = self.members[kind].get(node)
        if follower is None:
            return None
        follower.attempts = 0
        if not 0 < version <= follower.sent:
            follower.told = follower.sent = -1
            follower.is_stale = True
        else:
            # An earlier message says nothing about the later one, which is in transit. A message for each would never end: the
            # acknowledgements of all of them come back, and each is an earlier one as long as the directory changes.
            follower.told = max(version, follower.told)
        key = (kind, node)
        if follower.told >= follower.wants:
            self._settle(key)
        elif not follower.is_in_transit:
            self.due[key] = follower
        for pending in self.pendings.values():
            if pending.waiting.get(key, follower.told + 1) <= follower.told:
                del pending.waiting[key]
        return follower

    def remove(self, kind: FollowerKind, node: NodeId) -> Follower | None:
        """Remove a follower, for which no acknowledgement waits any more; return the follower, or None if unknown."""
        follower = self.members[kind].pop(node, None)
        if follower is not None:
            key = (kind, node)
            self.removed.append(key)
            self.due.pop(key, None)
            self._settle(key)
            for pending in self.pendings.values():
                pending.waiting.pop(key, None)
        return follower

    def wait(self, info: NodeInfo, stamp: int, version: int, deadline: float) -> PendingChange | None:
        """Delay an acknowledgement until all followers know a version. Return the oldest delayed one if it has to make room.

        Earlier statements of the same node need no acknowledgement any more; a repeated statement is already waiting.
        """
        known = self.pendings.get(info.id)
        if known is not None and known.stamp >= stamp:
            return None
        self.pendings.pop(info.id, None)
        oldest = self.pendings.pop(next(iter(self.pendings))) if len(self.pendings) >= PENDINGS_MAX else None
        self.pendings[info.id] = PendingChange(info, stamp, self._waited_for(version), deadline)
        return oldest

    def wait_anew(self, version: int) -> None:
        """Make the delayed acknowledgements also wait for followers taken over from another root."""
        for pending in self.pendings.values():
            pending.waiting = self._waited_for(version)

    def completed(self, now: float) -> tuple[list[PendingChange], int]:
        """Remove and return the registrations to acknowledge now, and the number of those at their time limit."""
        done = [pending for pending in self.pendings.values() if not pending.waiting or pending.deadline <= now]
        for pending in done:
            del self.pendings[pending.info.id]
        return done, sum(1 for pending in done if pending.waiting)

    def _waited_for(self, version: int) -> dict[FollowerKey, int]:
        return {
            key: min(follower.wants, version)
            for key, follower in self.unsettled.items()
            if follower.told < min(follower.wants, version) and follower.attempts < ATTEMPTS_WAITED_MAX
        }

    def _settle(self, key: FollowerKey) -> None:
        if self.unsettled.pop(key, None) is not None:
            self.unsettled_parents -= key[0] is FollowerKind.PARENT
