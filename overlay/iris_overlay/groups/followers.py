"""The followers of a directory, which are told its changes: watchers, copies, and the inner nodes of the tree.

All three are told in the same way. A follower **wants** a version, the last one that concerns it; it was **sent** one, and was
**told** what it acknowledged. At most one message to it is under way: changes meanwhile wait for its acknowledgement and are
sent together, so a storm of changes costs each follower no more messages than it can take. A member that joins waits until
all followers were told the version that it is in.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.messages import NodeInfo


#: Nobody waits for a follower that left so many messages unanswered, over 4 s: it is likely to be dead, and each join would
#: last for a second.
ATTEMPTS_WAITED_MAX: Final = 2

#: Registrations, and ends of some, that wait for the followers of one directory; one for each node. Too small: where thousands
#: join one group at once, some know it before all its users do. Too large: memory, for each of them knows whom it waits for.
#: Beyond, the one that has waited for longest is acknowledged, as if its bound had passed.
PENDINGS_MAX: Final = 1024

#: A watcher that left so many messages unanswered, over 45 s, is forgotten. If it lives it renews its watch.
ATTEMPTS_MAX: Final = 5


class FollowerKind(IntEnum):
    """Say why a node follows a directory."""

    WATCHER = 0
    COPY = 1
    PARENT = 2


FollowerKey: TypeAlias = tuple[FollowerKind, "NodeId"]


class Follower:
    """Hold what a follower knows."""

    __slots__ = ("attempts", "expires", "info", "is_stale", "path", "sample", "sent", "stamp", "told", "wants")

    def __init__(self, info: NodeInfo, expires: float) -> None:
        self.info = info
        self.expires = expires
        # A watcher's own, when it asked last; 0 if only another root knew it.
        self.stamp = 0
        # Invariant: told <= sent; a message is under way while told < sent.
        self.wants = 0
        self.sent = -1
        self.told = -1
        self.attempts = 0
        # Whether it needs everything, not changes.
        self.is_stale = True
        # A watcher of a large group: the members that it was dealt.
        self.sample: dict[NodeId, None] | None = None
        # How to answer a question, once.
        self.path: tuple[NodeId, ...] | None = None


class Pending:
    """Hold a registration, or its end, whose acknowledgement waits for followers."""

    __slots__ = ("deadline", "info", "stamp", "waiting")

    def __init__(self, info: NodeInfo, stamp: int, waiting: dict[FollowerKey, int], deadline: float) -> None:
        self.info = info
        self.stamp = stamp
        self.waiting = waiting
        self.deadline = deadline


class Followers:
    """Hold the followers of a directory, and who waits for them."""

    __slots__ = ("due", "members", "pendings", "removed", "unsettled", "unsettled_parents")

    def __init__(self) -> None:
        self.members: tuple[dict[NodeId, Follower], dict[NodeId, Follower], dict[NodeId, Follower]] = ({}, {}, {})
        # Invariant: holds exactly the followers with told < wants.
        self.unsettled: dict[FollowerKey, Follower] = {}
        self.unsettled_parents = 0
        # Who has to be sent something.
        self.due: dict[FollowerKey, Follower] = {}
        # By node, for of what a node says the last counts. The one that has waited for longest comes first.
        self.pendings: dict[NodeId, Pending] = {}
        # Who follows no more, for the owner to take: its timers are of no use.
        self.removed: list[FollowerKey] = []

    @property
    def is_awaited(self) -> bool:
        """Return whether a follower does not know all that it wants, and is likely to live."""
        return any(follower.attempts < ATTEMPTS_WAITED_MAX for follower in self.unsettled.values())

    def touch(self, kind: FollowerKind, follower: Follower, version: int) -> None:
        """Make a follower want a version."""
        key = (kind, follower.info.id)
        follower.wants = version
        self.due[key] = follower
        if follower.told < version and key not in self.unsettled:
            self.unsettled[key] = follower
            self.unsettled_parents += kind is FollowerKind.PARENT

    def forget_told(self, kind: FollowerKind, follower: Follower, version: int) -> None:
        """Start over with a follower: it may have nothing."""
        follower.sent = follower.told = -1
        follower.is_stale = True
        self.touch(kind, follower, version)

    def acknowledge(self, kind: FollowerKind, node: NodeId, version: int) -> Follower | None:
        """Handle what a follower has now; return it if it is one."""
        follower = self.members[kind].get(node)
        if follower is None:
            return None
        follower.attempts = 0
        if 0 < version <= follower.sent:
            # What changed since then is known. But a watcher may have had a sample then, and what it lacks be on its way.
            follower.is_stale |= version < follower.sent and kind is FollowerKind.WATCHER
            follower.told = follower.sent = version
        else:
            follower.told = follower.sent = -1
            follower.is_stale = True
        key = (kind, node)
        if follower.told >= follower.wants:
            self._settle(key)
        else:
            self.due[key] = follower
        for pending in self.pendings.values():
            if pending.waiting.get(key, follower.told + 1) <= follower.told:
                del pending.waiting[key]
        return follower

    def remove(self, kind: FollowerKind, node: NodeId) -> Follower | None:
        """Remove a follower."""
        follower = self.members[kind].pop(node, None)
        if follower is not None:
            key = (kind, node)
            self.removed.append(key)
            self.due.pop(key, None)
            self._settle(key)
            for pending in self.pendings.values():
                pending.waiting.pop(key, None)
        return follower

    def wait(self, info: NodeInfo, stamp: int, version: int, deadline: float) -> Pending | None:
        """Let an acknowledgement wait until all followers were told a version. Return what makes room for it, if anything.

        What the same node has said before needs no acknowledgement any more; what it repeats waits already.
        """
        known = self.pendings.get(info.id)
        if known is not None and known.stamp >= stamp:
            return None
        self.pendings.pop(info.id, None)
        oldest = self.pendings.pop(next(iter(self.pendings))) if len(self.pendings) >= PENDINGS_MAX else None
        self.pendings[info.id] = Pending(info, stamp, self._waited_for(version), deadline)
        return oldest

    def wait_anew(self, version: int) -> None:
        """Let what waits wait for followers that came from another root, too."""
        for pending in self.pendings.values():
            pending.waiting = self._waited_for(version)

    def completed(self, now: float) -> tuple[list[Pending], int]:
        """Take what waits no more; return also how many of it only because the bound passed."""
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
