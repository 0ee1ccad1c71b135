"""Multicasts to all members of a group: sent by this node, or passed on down the tree.

The source keeps a multicast until the root has sent it down the tree, and repeats it after a time-out or the root's death. The
root and every member drop duplicates and order the multicasts of each source. The source signs its multicasts, so neither the
root nor an inner node of the tree can make, change or renumber them.

A member rejects multicasts made before its join. Otherwise an attacker could keep a multicast and have new members execute it.
The two times come from different clocks. So a source states a time after the join of all members known to it: a source with a
slow clock is told about the latest member by the root (`Later`), and sends again. A new member with a slow clock is told
likewise.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.events import Cast, CastsTaken
from iris_overlay.groups.messages import STAMP_SHIFT, Adopted, CastUp, Doubt, cast_part, member_part, user_part
from iris_overlay.groups.sequences import SOURCES_MAX, Sequences
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.environment import Signer, WallClock
    from iris_overlay.events import Counters
    from iris_overlay.groups.config import GroupConfig
    from iris_overlay.groups.io import Outbox
    from iris_overlay.groups.messages import CastDown, CastTaken, Children, Later
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo

#: The largest number of this node's multicasts to one group that no root has taken yet; beyond it the oldest is no longer
#: repeated. Too small: losses in a burst; too large: memory. Receivers hold the same number while they order.
OUTGOING_MAX: Final = 64

#: The largest number of groups to which the local node numbers its multicasts; beyond it the least recently used group is
#: forgotten, and its numbers later begin in a new epoch. Too small: unacknowledged multicasts are lost; too large: memory.
TARGETS_MAX: Final = 4096

#: The largest number of transmissions of a multicast: with the doubling intervals it is given up after 24 s. Too small: a slow
#: repair of the ring loses it; too large: it arrives late.
ATTEMPTS_MAX: Final = 5


class _Target:
    __slots__ = ("attempts", "not_before", "outgoing", "permit", "root", "sequence")

    def __init__(self, sequence: int, permit: bytes) -> None:
        self.sequence = sequence
        self.permit = permit
        # The latest join of a member of which this node was told because its clock is behind.
        self.not_before = 0
        # The multicasts that no root has taken yet, in order.
        self.outgoing: deque[CastUp] = deque()
        # Their way: directly to the root, or None for through the ring. Mixed ways could reorder them.
        self.root: NodeInfo | None = None
        self.attempts = 0


class _Inner:
    __slots__ = ("children", "root", "version")

    def __init__(self, root: NodeInfo, version: int, children: list[NodeInfo]) -> None:
        self.root = root
        self.version = version
        self.children = children


class Casts:
    """The multicasts of a node: send own multicasts to the root, pass multicasts on down the tree, and deliver them."""

    __slots__ = (
        "_clock",
        "_config",
        "_counters",
        "_epoch",
        "_inner",
        "_is_active",
        "_local",
        "_outbox",
        "_parents",
        "_resend",
        "_sequences",
        "_signer",
        "_since",
        "_targets",
        "events",
    )

    def __init__(
        self, local: NodeInfo, config: GroupConfig, outbox: Outbox, counters: Counters, signer: Signer, clock: WallClock
    ) -> None:
        self.events: list[Cast | CastsTaken] = []
        self._local = local
        self._config = config
        self._outbox = outbox
        self._counters = counters
        self._signer = signer
        self._clock = clock
        self._is_active = False
        self._epoch = 0
        self._targets: dict[GroupId, _Target] = {}
        self._resend: DeadlineTable[GroupId] = DeadlineTable()
        # The groups with this node as an inner node of the tree, and its parents there. Invariant: the local node is a member,
        # or has left without an acknowledgement from all; so at most 2 * GROUPS_PER_NODE_MAX.
        self._inner: dict[GroupId, _Inner] = {}
        self._parents: dict[GroupId, NodeId] = {}
        # The joining time of each group of the local node.
        self._since: dict[GroupId, int] = {}
        self._sequences: Sequences[CastDown] = Sequences(config.reorder_s, SOURCES_MAX)

    def activate(self, now: float) -> None:
        """Send the multicasts that waited until the ring was active."""
        self._is_active = True
        for group, target in self._targets.items():
            self._send_again(group, target, now)

    def cast(self, group: GroupId, payload: bytes, root: NodeInfo | None, now: float) -> None:
        """Send a multicast to a group, directly to a known root or else through the ring."""
        target = self._targets.pop(group, None)
        if target is None:
            target = _Target(self._epoch << STAMP_SHIFT, self._signer.permit(group, user_part(self._local.id)))
            self._epoch += 1
            if len(self._targets) >= TARGETS_MAX:
                oldest = next(iter(self._targets))
                self._counters.casts_lost += len(self._targets.pop(oldest).outgoing)
                self._resend.cancel(oldest)
        self._targets[group] = target  # keep the order of use
        if not target.outgoing:
            target.root = root
            target.attempts = 0
            self._expect(group, target, now)
        elif len(target.outgoing) >= OUTGOING_MAX:
            target.outgoing.popleft()
            self._counters.casts_lost += 1
        base = target.outgoing[0].sequence if target.outgoing else target.sequence
        at = max(self._clock.unix_ms(now), target.not_before)
        signature = self._signer.sign(cast_part(group, target.sequence, at, payload))
        message = CastUp(self._local, group, target.sequence, base, payload, signature, target.permit, at)
        target.sequence += 1
        target.outgoing.append(message)
        self._send_up(target, message)

    def taken(self, message: CastTaken) -> None:
        """Stop repeating the multicasts that a root reports as sent down the tree."""
        target = self._targets.get(message.group)
        if target is None:
            return
        outgoing = target.outgoing
        if outgoing and outgoing[0].sequence <= message.sequence:
            self.events.append(CastsTaken(message.group))
        while outgoing and outgoing[0].sequence <= message.sequence:
            outgoing.popleft()
            target.attempts = 0
        if not outgoing:
            self._resend.cancel(message.group)

    def moved(self, group: GroupId, source: NodeId, now: float) -> None:
        """Repeat through the ring the multicasts that were sent directly to a former root and not taken by it."""
        target = self._targets.get(group)
        if target is not None and target.root is not None and target.root.id == source:
            target.root = None
            if target.outgoing:
                self._resend.set(group, now)

    def later(self, message: Later, now: float) -> None:
        """Repeat the multicasts that no root has taken with a sending time that is not before another member's join."""
        target, record, group = self._targets.get(message.group), message.member, message.group
        if target is None or record.since <= target.not_before:
            return
        if not self._signer.is_permitted(group, member_part(record, record.info.id), record.permit):
            self._counters.permits_invalid += 1
            return
        target.not_before = record.since
        for index, cast in enumerate(target.outgoing):
            if cast.at < record.since:
                signature = self._signer.sign(cast_part(group, cast.sequence, record.since, cast.payload))
                target.outgoing[index] = msgspec.structs.replace(cast, at=record.since, signature=signature)
        for cast in target.outgoing:
            self._send_up(target, cast)
        if target.outgoing:
            self._expect(group, target, now)

    def joined(self, group: GroupId, since: int) -> None:
        """Note the joining time of the local node in a group: multicasts made before this time are rejected."""
        self._since[group] = since

    def left(self, group: GroupId) -> None:
        """Deliver no more multicasts to a group that the local node left; pass them on until the root knows of the leave."""
        self._since.pop(group, None)

    def adopt(self, message: Children) -> None:
        """Note and acknowledge the children to which this node passes multicasts on; ignore groups without the local node."""
        inner = self._inner.get(message.group)
        if message.children and inner is None and message.group not in self._since:
            return
        if inner is None or inner.root.id != message.root.id or message.version >= inner.version:
            if message.children:
                self._inner[message.group] = _Inner(message.root, message.version, message.children)
            else:
                self._inner.pop(message.group, None)
        self._outbox.send(message.root, Adopted(message.group, message.version))

    def receive(self, source: NodeInfo, message: CastDown, now: float) -> None:
        """Pass a multicast from the parent on to the children, once, and deliver it in the order of its source."""
        key = (message.group, message.source)
        inner = self._inner.get(message.group)
        if message.group not in self._since and inner is None:
            return
        if not self._is_genuine(message):
            self._counters.casts_invalid += 1
            return
        if inner is not None and (message.is_replay or self._sequences.is_new(key, message.sequence)):
            down = msgspec.structs.replace(message, is_replay=False)
            for info in inner.children:
                self._outbox.send(info, down)
        if source.id != self._local.id:
            self._parents[message.group] = source.id
        # The sequence of an unknown source starts here, without its earlier multicasts.
        base = message.base if key in self._sequences else None
        self._deliver(self._sequences.accept(key, message.sequence, message, now, base))

    def forget(self, group: GroupId) -> None:
        """Forget the parent, the children and the order of the sources of a group, after the end of the membership."""
        self._inner.pop(group, None)
        self._parents.pop(group, None)
        self._sequences.forget_group(group)

    def peer_lost(self, peer: NodeId, now: float) -> None:
        """Repeat multicasts to a dead or unreachable root through the ring; report a dead or unreachable child to the root."""
        for group, target in self._targets.items():
            if target.root is not None and target.root.id == peer:
                target.root = None
                if target.outgoing:
                    self._resend.set(group, now)
        for group, inner in self._inner.items():
            if any(child.id == peer for child in inner.children) and inner.root.id != peer:
                self._outbox.send(inner.root, Doubt(group, peer))

    def handle_timeout(self, now: float) -> None:
        """Repeat multicasts that no root has taken, and skip the missing multicasts of other sources."""
        for group in self._resend.expired(now):
            target = self._targets[group]
            if target.attempts >= ATTEMPTS_MAX:
                self._counters.casts_lost += len(target.outgoing)
                target.outgoing.clear()
                self.events.append(CastsTaken(group))
            else:
                self._send_again(group, target, now)
        for _, ready in self._sequences.expired(now):
            self._deliver(ready)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        resend, gap = self._resend.deadline(), self._sequences.deadline()
        if resend is None or gap is None:
            return gap if resend is None else resend
        return min(resend, gap)

    def in_flight(self, group: GroupId) -> int:
        """Return the number of multicasts of the local node to a group that no root has taken yet."""
        target = self._targets.get(group)
        return 0 if target is None else len(target.outgoing)

    def needs(self, peer: NodeId) -> bool:
        """Return whether a node is the parent or a child of the local one in a multicast tree."""
        return any(parent == peer for parent in self._parents.values()) or any(
            child.id == peer for inner in self._inner.values() for child in inner.children
        )

    def copies(self, group: GroupId) -> int:
        """Return the number of children to which the local node passes the multicasts of a group on."""
        inner = self._inner.get(group)
        return 0 if inner is None else len(inner.children)

    def __len__(self) -> int:
        return len(self._targets) + len(self._sequences) + len(self._inner)

    def _is_genuine(self, message: CastDown) -> bool:
        """Return whether the source has signed a multicast, and the first number to wait for is not above its own."""
        said = cast_part(message.group, message.sequence, message.at, message.payload)
        return message.base <= message.sequence and self._signer.verify(message.source, said, message.signature)

    def _send_up(self, target: _Target, message: CastUp) -> None:
        if not self._is_active:
            return
        if target.root is None:
            self._outbox.route(message.group, message)
        else:
            self._outbox.send(target.root, message)

    def _send_again(self, group: GroupId, target: _Target, now: float) -> None:
        target.root = None
        for message in target.outgoing:
            self._send_up(target, message)
        if target.outgoing:
            self._expect(group, target, now)

    def _expect(self, group: GroupId, target: _Target, now: float) -> None:
        self._resend.set(group, now + self._config.resend_after_s(target.attempts))
        if self._is_active:
            target.attempts = min(target.attempts + 1, ATTEMPTS_MAX)  # a root may request repetitions without end

    def _deliver(self, casts: list[CastDown]) -> None:
        self._counters.casts_skipped += self._sequences.skipped
        self._sequences.skipped = 0
        for cast in casts:
            since = self._since.get(cast.group)
            if since is None:
                continue
            if cast.at < since:
                self._counters.casts_early += 1
            else:
                self.events.append(Cast(cast.group, cast.source, cast.payload))
