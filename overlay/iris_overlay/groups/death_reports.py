"""The last will of a node: its neighbours in the ring know its groups, and report its death to their roots.

They watch each other anyway, and a root need not watch its members. A node that was taken for dead by mistake is told as soon
as it is back among the neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups.directory import accusation_of
from iris_overlay.groups.messages import Accuse, Accused, Entrust
from iris_overlay.messages import GROUPS_PER_NODE_MAX
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_overlay.groups.io import Outbox
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.messages import NodeInfo

#: Neighbours that know the groups of a node. With two, the death of 20 % of all nodes at once leaves 4 % of the dead without an
#: executor; with four it is 0.2 %, and those are found out by who uses them.
REPORTERS: Final = 4

#: Nodes whose groups are known here: the leaves, 16, and those who have not heard yet that they are leaves no more.
ENTRUSTED_MAX: Final = 64

#: How long an accused node is told so when it comes back. After that it has renewed its registrations, and was told then.
ACCUSED_S: Final = 180.0


#: After this time an accusation is repeated, once: the root may have died with it, but hardly the next one, too.
REPEAT_S: Final = 4.0


class _Trust:
    __slots__ = ("groups", "stamp")

    def __init__(self) -> None:
        self.stamp = 0
        self.groups: dict[GroupId, None] = {}


class DeathReports:
    """Entrust neighbours with the groups of the local node, and keep theirs."""

    __slots__ = ("_accused", "_deadlines", "_outbox", "_repeated", "_reporters", "_trusts")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        # Who knows the groups of the local node. Empty while there are none: an idle node entrusts nobody.
        self._reporters: dict[NodeId, NodeInfo] = {}
        self._trusts: dict[NodeId, _Trust] = {}
        # What they were accused of, and until when they may come back.
        self._accused: dict[NodeId, tuple[int, float]] = {}
        # What will be repeated. Invariant: the same nodes have a deadline.
        self._repeated: dict[NodeId, list[Accuse]] = {}
        self._deadlines: DeadlineTable[NodeId] = DeadlineTable()

    def place(self, neighbours: Sequence[NodeInfo], groups: Iterable[GroupId], stamp: int, *, is_again: bool = False) -> bool:
        """Make the nearest neighbours the reporters; those who are new learn all groups, with `is_again` the others too.

        Returns:
            Whether all of them are new: then none of the old ones may be able to say that the local node was taken for dead.
        """
        wanted = {info.id: info for info in neighbours}
        for node, info in self._reporters.items():
            if node not in wanted:
                self._outbox.send(info, Entrust(stamp, False, True, [], []))
        new = [info for node, info in wanted.items() if is_again or node not in self._reporters]
        if new:
            message = Entrust(stamp, True, True, list(groups), [])
            for info in new:
                self._outbox.send(info, message)
        is_uprooted = bool(wanted) and bool(self._reporters) and self._reporters.keys().isdisjoint(wanted)
        self._reporters = wanted
        return is_uprooted

    def change(self, stamp: int, added: list[GroupId], dropped: list[GroupId]) -> None:
        """Tell the reporters that the local node joined or left groups."""
        message = Entrust(stamp, True, False, added, dropped)
        for info in self._reporters.values():
            self._outbox.send(info, message)

    def entrust(self, source: NodeId, message: Entrust) -> None:
        """Handle the groups of a neighbour."""
        if message.is_whole:
            self._trusts.pop(source, None)
        if not message.is_needed:
            return
        trust = self._trusts.get(source)
        if trust is None:
            if len(self._trusts) >= ENTRUSTED_MAX:
                del self._trusts[next(iter(self._trusts))]
            trust = self._trusts[source] = _Trust()
        trust.stamp = max(trust.stamp, message.stamp)
        for group in message.dropped:
            trust.groups.pop(group, None)
        for group in message.groups[: GROUPS_PER_NODE_MAX - len(trust.groups)]:  # nobody is in more
            trust.groups[group] = None

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Accuse a dead neighbour at the roots of its groups."""
        self._reporters.pop(peer, None)
        trust = self._trusts.pop(peer, None)
        if trust is None:
            return
        accusations = [Accuse(peer, accusation_of(trust.stamp), group) for group in trust.groups]
        for accusation in accusations:
            self._outbox.route(accusation.group, accusation)
        if accusations:
            if len(self._repeated) >= ENTRUSTED_MAX:  # More die in that time than are trusted: its users find out.
                oldest = next(iter(self._repeated))
                del self._repeated[oldest]
                self._deadlines.cancel(oldest)
            self._repeated[peer] = accusations
            self._deadlines.set(peer, now + REPEAT_S)
        self.keep_accusation(Accused(peer, accusation_of(trust.stamp)), now)

    def keep_accusation(self, message: Accused, now: float) -> None:
        """Tell an accused node so when it enters the leaf set: it may live, and be in another ring or in none until then."""
        node = message.node
        self._accused = {other: accused for other, accused in self._accused.items() if accused[1] > now}
        stamp, _ = self._accused.pop(node, (0, 0.0))
        if len(self._accused) >= ENTRUSTED_MAX:
            del self._accused[next(iter(self._accused))]
        self._accused[node] = (max(stamp, message.stamp), now + ACCUSED_S)

    def returned(self, info: NodeInfo) -> None:
        """Handle a sign of life of a node: if it was taken for dead here, it has to say that it is not."""
        accusation = self._accused.pop(info.id, None)
        if accusation is not None:
            self._outbox.send(info, Accused(info.id, accusation[0]))

    def handle_timeout(self, now: float) -> None:
        """Repeat accusations."""
        for peer in self._deadlines.expired(now):
            for accusation in self._repeated.pop(peer):
                self._outbox.route(accusation.group, accusation)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`."""
        return self._deadlines.deadline()

    def __len__(self) -> int:
        return len(self._trusts) + len(self._accused) + len(self._repeated)
