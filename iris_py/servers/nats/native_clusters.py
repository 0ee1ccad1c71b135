"""The clusters with native members: programs that are nodes themselves (docs/design.md 18.11).

A door is a member of the clusters that its clients serve, and of a cluster of all doors. So the members of a cluster that are
no doors are native, and no registration has to say so.

A door looks at the members of a cluster when a client asks there, beside the way of the request. It does not look at all names:
clients ask thousands of subjects that no cluster has.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from iris_py.api.runtime import runtime_of
from iris_py.doors.limits import RateLimits
from iris_py.doors.nats.inbox_messages import INBOXES
from iris_py.errors import IrisError, NodeClosed
from iris_py.logs import EventLogger

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from iris_overlay.ids import NodeId
    from iris_py.api.node import Node
    from iris_py.peers.member import KnownMember

__all__ = ["NativeClusters", "has_native_member"]

logger = EventLogger("iris_py.servers")

#: Names that a door begins to look at, a second and at once after a pause. Too small: native members wait for the requests of
#: clients after a start; too large: a client that asks ever new subjects busies the roots of their names.
NAMES_PER_S: Final = 20.0
NAMES_BURST: Final = 100
_ALL: Final = "all"
#: Names that a door looks at; the longest unused is forgotten. Too small: names in use are forgotten; too large: the node, with
#: its 2,048 groups, forgets names of other uses.
NAMES_MAX: Final = 1024
#: The longest wait for the first view of a cluster (seconds). Too small: a busy root loses the first request; too large: a
#: request begins of which its client has given up.
VIEW_S: Final = 2.0
#: Time for which an answer holds (seconds). Too small: a door looks for each of many requests; too large: requests go past a
#: native member that has just come.
ANSWER_S: Final = 5e-3


class _KnownCluster:
    """A cluster that a door looks at.

    Attributes:
        members: The members, as the answer has counted them; another list stands for a new view.
        doors: The doors, likewise.
        has_native: The answer.
        until: The time until which the answer holds.
    """

    __slots__ = ("doors", "has_native", "members", "until")

    def __init__(self) -> None:
        self.members: Sequence[KnownMember] | None = None
        self.doors: Sequence[KnownMember] | None = None
        self.has_native = False
        self.until = 0.0


class NativeClusters:
    """The clusters with native members, as far as a door knows.

    Args:
        node: The node of the door.
    """

    def __init__(self, node: Node) -> None:
        self._runtime = runtime_of(node)
        self._clusters: OrderedDict[str, _KnownCluster] = OrderedDict()
        self._rates = RateLimits(NAMES_PER_S, NAMES_BURST)
        self._full_until = 0.0  # the time until which no look begins
        self._are_doors_alone = False
        self._doors_until = 0.0  # the time until which that holds

    def find(self, cluster: str) -> bool | None:
        """Return whether a cluster has native members; None if a look has begun and the members are not known yet.

        Args:
            cluster: The name, of this cloud.
        """
        now = self._runtime.loop.time()
        if now >= self._doors_until:
            self._are_doors_alone, self._doors_until = self._find_doors_alone(now), now + ANSWER_S
        if self._are_doors_alone:
            return False
        known = self._clusters.get(cluster)
        if known is None:
            if now < self._full_until:  # most requests to new names: without the call
                return False
            if wait_s := self._rates.take(_ALL, now):
                self._full_until = now + wait_s
                return False
            known = self._clusters[cluster] = _KnownCluster()
            if len(self._clusters) > NAMES_MAX:
                self._clusters.popitem(last=False)
        elif now < known.until:
            return known.has_native
        else:
            self._clusters.move_to_end(cluster)
        try:
            members, doors = self._view(cluster, now), self._view(INBOXES, now)
        except IrisError as exc:  # the node has too many groups, or is closed
            logger.debug("door_cluster_unseen", "the members of %r are not known: %s", cluster, exc)
            return False
        if members is None or doors is None:
            self._runtime.wake()
            return None
        if members is not known.members or doors is not known.doors:
            known.members, known.doors = members, doors
            known.has_native = has_native_member(members, {door.peer.id for door in doors})
        known.until = now + ANSWER_S
        return known.has_native

    async def wait(self, cluster: str) -> bool:
        """Return whether a cluster has native members, once the members are known; False after `VIEW_S`.

        Raises:
            NodeClosed: The node was closed.
        """
        try:
            async with asyncio.timeout(VIEW_S):
                while (found := self.find(cluster)) is None:
                    await self._runtime.wait_for_room()
                    if self._runtime.closing is not None:
                        raise NodeClosed
        except TimeoutError:
            return False
        return found

    def _find_doors_alone(self, now: float) -> bool:
        """Return whether all nodes of the network are known, and doors: then no cluster has a native member."""
        others = self._runtime.core.overlay.others()
        if others is None:
            return False
        try:
            doors = self._view(INBOXES, now) if others else ()
        except IrisError:
            return False
        return doors is not None and {other.id for other in others} <= {door.peer.id for door in doors}

    def _view(self, cluster: str, now: float) -> Sequence[KnownMember] | None:
        return self._runtime.core.group_to_ask(cluster, b"", now).members


def has_native_member(members: Sequence[KnownMember], doors: Collection[NodeId]) -> bool:
    """Return whether requests to a cluster reach members that are no doors.

    Requests go to the members of the lowest rank. So stand-ins for members of other clouds count only without other members.

    Args:
        members: The members in the view.
        doors: The ids of the doors.
    """
    lowest = min((member.rank for member in members), default=0)
    return any(member.rank == lowest and member.peer.id not in doors for member in members)
