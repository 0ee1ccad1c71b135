"""Death reports: the neighbours of a node on the ring know its groups, and report its death to the groups' roots.

Neighbours watch each other anyway, so roots need not watch members. A live node that was declared dead is told when it returns
to the leaf set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups.directory import accusation_of
from iris_overlay.groups.messages import Accuse, Accused, Entrust
from iris_overlay.node_info import GROUPS_PER_NODE_MAX
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_overlay.groups.io import Outbox
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo

#: The number of neighbours that know a node's groups. If 20 % of all nodes die at once, two reporters miss 4 % of the dead,
#: four miss 0.2 %; nodes that send to the missed ones notice. Too large: more messages for each join and leave.
REPORTERS: Final = 4

#: The largest number of nodes with groups known to this node: the 16 leaves, and former leaves that have not replaced their
#: reporters yet. Too small: deaths go unreported; too large: memory.
ENTRUSTED_MAX: Final = 64

#: The time for which a node that was declared dead is told of the accusation on its return to the leaf set. By the end of that
#: time the node has renewed its registrations, and learned of the accusation from the roots.
ACCUSED_S: Final = 180.0


#: The delay before an accusation is repeated once, because the root may have died together with the accused node.
REPEAT_S: Final = 4.0


class _Trust:
    __slots__ = ("groups", "stamp")

    def __init__(self) -> None:
        self.stamp = 0
        self.groups: dict[GroupId, None] = {}


class DeathReports:
    """Tell the local node's reporters (neighbours on the ring) its groups, and report the deaths of neighbours to roots."""

    __slots__ = ("_accused", "_deadlines", "_outbox", "_repeated", "_reporters", "_trusts")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        # The reporters of the local node; empty while the node has no groups.
        self._reporters: dict[NodeId, NodeInfo] = {}
        self._trusts: dict[NodeId, _Trust] = {}
        # The stamps of accusations, and the end of the wait for the nodes' return.
        self._accused: dict[NodeId, tuple[int, float]] = {}
        # Accusations to repeat. Invariant: the same nodes have a deadline.
        self._repeated: dict[NodeId, list[Accuse]] = {}
        self._deadlines: DeadlineTable[NodeId] = DeadlineTable()

    def place(self, neighbours: Sequence[NodeInfo], groups: Iterable[GroupId], stamp: int, *, is_again: bool = False) -> bool:
        """Make the nearest neighbours the reporters. New reporters learn all groups; with `is_again` the old ones do too.

        Returns:
            Whether new reporters replaced all earlier ones. Then perhaps no reporter can tell the local node that it was
            declared dead.
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
        """Note the groups of a neighbour, for a report of its death; or forget the neighbour, which has other reporters now."""
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
        for group in message.groups[: GROUPS_PER_NODE_MAX - len(trust.groups)]:  # no node has more groups
            trust.groups[group] = None

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Report the death of a neighbour to the roots of its groups."""
        self._reporters.pop(peer, None)
        trust = self._trusts.pop(peer, None)
        if trust is None:
            return
        accusations = [Accuse(peer, accusation_of(trust.stamp), group) for group in trust.groups]
        for accusation in accusations:
            self._outbox.route(accusation.group, accusation)
        if accusations:
            if len(self._repeated) >= ENTRUSTED_MAX:  # more deaths than trusted nodes: users find out
                oldest = next(iter(self._repeated))
                del self._repeated[oldest]
                self._deadlines.cancel(oldest)
            self._repeated[peer] = accusations
            self._deadlines.set(peer, now + REPEAT_S)
        self.keep_accusation(Accused(peer, accusation_of(trust.stamp)), now)

    def keep_accusation(self, message: Accused, now: float) -> None:
        """Remember an accusation (a report of death), to tell the accused node if it enters the leaf set alive."""
        node = message.node
        self._accused = {other: accused for other, accused in self._accused.items() if accused[1] > now}
        stamp, _ = self._accused.pop(node, (0, 0.0))
        if len(self._accused) >= ENTRUSTED_MAX:
            del self._accused[next(iter(self._accused))]
        self._accused[node] = (max(stamp, message.stamp), now + ACCUSED_S)

    def returned(self, info: NodeInfo) -> None:
        """Tell a node that enters the leaf set of an accusation against the node, which can then refute."""
        accusation = self._accused.pop(info.id, None)
        if accusation is not None:
            self._outbox.send(info, Accused(info.id, accusation[0]))

    def handle_timeout(self, now: float) -> None:
        """Repeat the accusations that are due."""
        for peer in self._deadlines.expired(now):
            for accusation in self._repeated.pop(peer):
                self._outbox.route(accusation.group, accusation)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        return self._deadlines.deadline()

    def __len__(self) -> int:
        return len(self._trusts) + len(self._accused) + len(self._repeated)
