"""Second opinions on groups whose root says that nobody is there.

Any insider can become the root of a group, by a node id near to the group, or be on the way to it and answer in the place of
the root. It can make up no members where it lacks the keys of the group, for these have permits; but it can say that there are
none. So for a group that is *doubted*, the node looks for itself before its owner believes that: it asks the node nearest to
the group apart from that root, by another way, which keeps a copy of the directory, or is the true root. Members that it names
count, if they have permits; if it names none, or does not answer, the word of the root stands.

As long as a root names members nothing is asked. What a look has shown is believed for `LOOKED_S`, then the next use asks
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.events import GroupMember
from iris_overlay.groups.messages import Look, member_part, user_part
from iris_overlay.messages import SEQUENCE_MAX
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.counters import Counters
    from iris_overlay.environment import Rng, Signer
    from iris_overlay.events import ViewChanged
    from iris_overlay.groups.io import Outbox, Ring
    from iris_overlay.groups.messages import MemberRecord, Seen
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.messages import NodeInfo

#: How long another keeper may take to answer. Too small: over long lines the word of the root alone counts. Too large: where
#: that keeper is silent, it takes as long to know that nobody serves a name.
LOOK_S: Final = 1.0

#: How long an answer counts. Too small: a question for each request to a group that nobody serves. Too large: members that come
#: while the root lies are found later.
LOOKED_S: Final = 1.0

#: How soon another keeper is asked again while it names members and the root does not, whether the group is used or not. Too
#: small: messages, for as long as a root lies. Too large: a member of an old copy is seen for as long.
SEEN_S: Final = 5.0


#: For so long after the last member has gone nobody is believed who names it: a root tells watchers and copies at once, and the
#: copy may hear it later. The question is asked once more then. Too small: who has left is asked. Too large: where a root takes
#: members out that are there, their callers wait as long.
SETTLED_S: Final = 0.5


class _Doubt:
    """One group that is doubted, while its root says that nobody is there."""

    __slots__ = ("emptied_at", "event", "is_waiting", "last", "looked_at", "number", "root", "seen")

    def __init__(self) -> None:
        # What the root said; None while it names members, or nothing is known.
        self.event: ViewChanged | None = None
        self.root: NodeId | None = None
        # Of the question that is under way.
        self.number: int | None = None
        self.looked_at = float("-inf")
        # The members that the root named last, and when it named none any more.
        self.last: set[NodeId] = set()
        self.emptied_at = float("-inf")
        # Whether another keeper named one of those too soon, and will be asked again.
        self.is_waiting = False
        # The members that another keeper named.
        self.seen: dict[NodeId, MemberRecord] = {}


class Looks:
    """Ask other keepers of directories whether nobody is there."""

    __slots__ = ("_changed", "_counters", "_deadlines", "_doubts", "_local", "_outbox", "_ring", "_rng", "_signer")

    def __init__(self, local: NodeInfo, rng: Rng, ring: Ring, outbox: Outbox, counters: Counters, signer: Signer) -> None:
        self._local = local
        self._rng = rng
        self._ring = ring
        self._outbox = outbox
        self._counters = counters
        self._signer = signer
        self._doubts: dict[GroupId, _Doubt] = {}
        self._changed: dict[GroupId, None] = {}
        self._deadlines: DeadlineTable[GroupId] = DeadlineTable()

    def doubt(self, group: GroupId) -> None:
        """Doubt a group from now on. Harmless if it is."""
        self._doubts.setdefault(group, _Doubt())

    def forget(self, group: GroupId) -> None:
        """Doubt a group no more."""
        self._doubts.pop(group, None)
        self._changed.pop(group, None)
        self._deadlines.cancel(group)

    def judge(self, event: ViewChanged, root: NodeInfo | None, now: float) -> ViewChanged:
        """Return what to believe of a view.

        Args:
            event: As its root tells it.
            root: That root; None if it is gone, and the next one not known.
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
        """Look again, if nobody was there and that is no news; harmless for any group."""
        doubt = self._doubts.get(group)
        if doubt is not None and doubt.event is not None:
            self._look(group, doubt, now)

    def seen(self, source: NodeId, message: Seen, now: float) -> None:
        """Handle what another keeper knows."""
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
        """Handle that a node is dead: it is no member that could be asked."""
        for group, doubt in self._doubts.items():
            if doubt.seen.pop(peer, None) is not None:
                self._changed[group] = None
                if not doubt.seen:
                    self._look(group, doubt, now)

    def handle_timeout(self, now: float) -> None:
        """Believe the root where nobody else has answered, and look again where somebody has named members."""
        for group in self._deadlines.expired(now):
            doubt = self._doubts[group]
            if doubt.number is not None:
                self._finish(group, doubt, {}, now)
            else:
                doubt.is_waiting, doubt.looked_at = False, float("-inf")
                self._look(group, doubt, now)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`."""
        return self._deadlines.deadline()

    def views_changed(self) -> list[ViewChanged]:
        """Take the views that changed by a second opinion since the last call."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, {}
        doubts = [(self._doubts[group], self._doubts[group].event) for group in changed]
        return [_judged(doubt, event) for doubt, event in doubts if event is not None]

    def _look(self, group: GroupId, doubt: _Doubt, now: float) -> None:
        """Ask another keeper, unless one is being asked or was asked just now."""
        if doubt.number is not None or doubt.is_waiting or now < doubt.looked_at + LOOKED_S:
            return
        doubt.looked_at = now
        root = doubt.root or self._local.id
        if all(info.id == root for info in self._ring.replicas(group, 2)):
            self._finish(group, doubt, {}, now)  # There is no other node.
            return
        doubt.number = self._rng.randrange(SEQUENCE_MAX)
        if not doubt.seen:
            self._changed[group] = None
        permit = self._signer.permit(group, user_part(self._local.id))
        self._outbox.route_around(root, group, Look(self._local, group, permit, doubt.number))
        self._deadlines.set(group, now + LOOK_S)

    def _finish(self, group: GroupId, doubt: _Doubt, members: dict[NodeId, MemberRecord], now: float) -> None:
        if members != doubt.seen or not members:
            self._changed[group] = None
        doubt.seen, doubt.number = members, None
        if members:
            self._deadlines.set(group, now + SEEN_S)
        else:
            self._deadlines.cancel(group)


def _judged(doubt: _Doubt, event: ViewChanged) -> ViewChanged:
    """Return what to believe while the root says that nobody is there."""
    members = {node: GroupMember(record.info, record.attributes) for node, record in doubt.seen.items()}
    is_known = bool(members) or not (doubt.is_waiting or doubt.number is not None)
    return msgspec.structs.replace(event, members=members, size=len(members), is_known=is_known, is_doubted=True)
