"""Second opinions on groups reported empty by their root.

Any insider can become the root of a group, by a node id near the group's, or answer in place of the root from a node on the
path. Without the keys of the group the insider cannot make up members, which need permits, but can claim an empty group. So for
a *doubted* group, the node checks the claim before its owner relies on it. By another path it asks the node nearest to the
group except the claimed root. That node keeps a copy of the directory, or is the true root. Members in the answer count if they
have permits. Without members, or without an answer, the claim of the root stands.

Members reported by a root are not checked. The result of a check is valid for `LOOKED_S`, then the next use asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.events import GroupMember
from iris_overlay.groups.messages import Look, member_part, user_part
from iris_overlay.node_info import SEQUENCE_MAX
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.environment import Rng, Signer
    from iris_overlay.events import Counters, ViewChanged
    from iris_overlay.groups.io import GroupRing, Outbox
    from iris_overlay.groups.messages import MemberRecord, Seen
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo

#: The time for another keeper (a node with the directory or a copy of it) to answer. Too small: over long distances the claim
#: of the root alone counts. Too large: if that keeper is silent, an empty group is confirmed later by that time.
LOOK_S: Final = 1.0

#: The validity of an answer. Too small: a question for each request to an empty group. Too large: members that join while the
#: root lies are found later.
LOOKED_S: Final = 1.0

#: The time between questions to another keeper while it reports members and the root does not, even without use. Too small:
#: messages, as long as a root lies. Too large: a member of an old copy stays visible for that time.
SEEN_S: Final = 5.0


#: The time after the last member's departure during which a keeper that still reports this member is not believed: a root tells
#: watchers and copies together, and the copy may learn it later. After it the question is repeated. Too small: requests go to
#: departed members. Too large: if a root removes present members, their callers wait for that time.
SETTLED_S: Final = 0.5


class _DoubtedGroup:
    """A doubted group, reported empty by its root."""

    __slots__ = ("emptied_at", "event", "is_waiting", "last", "looked_at", "number", "root", "seen")

    def __init__(self) -> None:
        # The report of the root; None while it reports members, or before any report.
        self.event: ViewChanged | None = None
        self.root: NodeId | None = None
        # The number of the running question.
        self.number: int | None = None
        self.looked_at = float("-inf")
        # The last members reported by the root, and the time of its first report without members.
        self.last: set[NodeId] = set()
        self.emptied_at = float("-inf")
        # Whether another keeper reported one of those too soon, and will be asked again.
        self.is_waiting = False
        # The members reported by another keeper.
        self.seen: dict[NodeId, MemberRecord] = {}


class Looks:
    """Ask other keepers (nodes with copies) of directories whether groups reported empty are really empty."""

    __slots__ = ("_changed", "_counters", "_deadlines", "_doubts", "_local", "_outbox", "_ring", "_rng", "_signer")

    def __init__(self, local: NodeInfo, rng: Rng, ring: GroupRing, outbox: Outbox, counters: Counters, signer: Signer) -> None:
        self._local = local
        self._rng = rng
        self._ring = ring
        self._outbox = outbox
        self._counters = counters
        self._signer = signer
        self._doubts: dict[GroupId, _DoubtedGroup] = {}
        self._changed: dict[GroupId, None] = {}
        self._deadlines: DeadlineTable[GroupId] = DeadlineTable()

    def doubt(self, group: GroupId) -> None:
        """Check from now on whether a group is really empty when its root reports none; harmless if repeated."""
        self._doubts.setdefault(group, _DoubtedGroup())

    def forget(self, group: GroupId) -> None:
        """Stop checking the reports of a group's root."""
        self._doubts.pop(group, None)
        self._changed.pop(group, None)
        self._deadlines.cancel(group)

    def judge(self, event: ViewChanged, root: NodeInfo | None, now: float) -> ViewChanged:
        """Return the membership view to report; a doubted empty view gets the members that another keeper knows.

        Args:
            event: The view reported by the root.
            root: The root; None if it is gone, and the next one is unknown.
            now: Monotonic seconds.
        """
        doubt = self._doubts.get(event.group)
        if doubt is None:
            return event
        self._changed.pop(event.group, None)
        if event.members or (root is not None and root.id == self._local.id):
            doubt.event, doubt.number, doubt.is_waiting = None, None, False
            doubt.seen, doubt.last = {}, set(event.members)
            self._deadlines.cancel(event.group)
            return event
        if root is not None:
            doubt.root = root.id
        is_new, doubt.event = doubt.event is None, event
        if is_new:
            doubt.looked_at, doubt.emptied_at = float("-inf"), now
        self._look(event.group, doubt, now)
        self._changed.pop(event.group, None)
        return _judged(doubt, event)

    def use(self, group: GroupId, now: float) -> None:
        """Check an empty group again, if the last check is old; harmless for any group."""
        doubt = self._doubts.get(group)
        if doubt is not None and doubt.event is not None:
            self._look(group, doubt, now)

    def seen(self, source: NodeId, message: Seen, now: float) -> None:
        """Take the members reported by another keeper of the directory, if their permits are valid."""
        doubt = self._doubts.get(message.group)
        if doubt is None or doubt.number != message.number or source == doubt.root:
            return
        members: dict[NodeId, MemberRecord] = {}
        for record in message.members:
            if not self._signer.is_permitted(message.group, member_part(record, record.info.id), record.permit):
                self._counters.permits_invalid += 1
            else:
                members[record.info.id] = record
        if members.keys() & doubt.last and now < doubt.emptied_at + SETTLED_S:
            doubt.number, doubt.is_waiting = None, True
            self._deadlines.set(message.group, doubt.emptied_at + SETTLED_S)
        else:
            self._finish(message.group, doubt, members, now)

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Remove a dead node from the members that other keepers reported."""
        for group, doubt in self._doubts.items():
            if doubt.seen.pop(peer, None) is not None:
                self._changed[group] = None
                if not doubt.seen:
                    self._look(group, doubt, now)

    def handle_timeout(self, now: float) -> None:
        """Believe the root if no other keeper answered in time; ask again where a keeper reported members."""
        for group in self._deadlines.expired(now):
            doubt = self._doubts[group]
            if doubt.number is not None:
                self._finish(group, doubt, {}, now)
            else:
                doubt.is_waiting, doubt.looked_at = False, float("-inf")
                self._look(group, doubt, now)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        return self._deadlines.deadline()

    def views_changed(self) -> list[ViewChanged]:
        """Remove and return the views changed by other keepers' answers since the last call."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, {}
        doubts = [(self._doubts[group], self._doubts[group].event) for group in changed]
        return [_judged(doubt, event) for doubt, event in doubts if event is not None]

    def _look(self, group: GroupId, doubt: _DoubtedGroup, now: float) -> None:
        """Ask another keeper for the members, unless a question is running or recent."""
        if doubt.number is not None or doubt.is_waiting or now < doubt.looked_at + LOOKED_S:
            return
        doubt.looked_at = now
        root = doubt.root or self._local.id
        if all(info.id == root for info in self._ring.replicas(group, 2)):
            self._finish(group, doubt, {}, now)  # no other node exists
            return
        doubt.number = self._rng.randrange(SEQUENCE_MAX)
        if not doubt.seen:
            self._changed[group] = None
        permit = self._signer.permit(group, user_part(self._local.id))
        self._outbox.route_around(root, group, Look(self._local, group, permit, doubt.number))
        self._deadlines.set(group, now + LOOK_S)

    def _finish(self, group: GroupId, doubt: _DoubtedGroup, members: dict[NodeId, MemberRecord], now: float) -> None:
        if members != doubt.seen or not members:
            self._changed[group] = None
        doubt.seen, doubt.number = members, None
        if members:
            self._deadlines.set(group, now + SEEN_S)
        else:
            self._deadlines.cancel(group)


def _judged(doubt: _DoubtedGroup, event: ViewChanged) -> ViewChanged:
    """Return the judged view of a group reported empty by its root."""
    members = {node: GroupMember(record.info, record.attributes) for node, record in doubt.seen.items()}
    is_known = bool(members) or not (doubt.is_waiting or doubt.number is not None)
    return msgspec.structs.replace(event, members=members, size=len(members), is_known=is_known, is_doubted=True)
