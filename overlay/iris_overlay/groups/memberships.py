"""The node as a member: register its memberships at the roots, and renew them.

A registration goes to the root of its group, through the ring at first and directly afterwards, until the root has applied it.
Renewals are sent in batches, one per root. When a root dies, its members register at the new one at once. This does no harm if
the new root took the directory over, and restores the directory if all copies died.

A claim of a table is a registration with entries. Claims of the same turn, and those made while another is in transit, are sent
together: one message with one permit. So are claims beyond the rate that a root takes (claim_rates.py).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.events import ClaimConfirmed, Claimed, EntriesPromoted, GroupJoined, GroupLeft, SplitTold, TableFull
from iris_overlay.groups.claim_rates import OWN_COST_MAX, ClaimRate, cost_of
from iris_overlay.groups.directory import INCARNATIONS_BELIEVED
from iris_overlay.groups.entries import count
from iris_overlay.groups.messages import (
    BATCH_MAX,
    PROBED_MEMBERS_MAX,
    STAMP_SHIFT,
    Claim,
    GroupRegistration,
    Register,
    Unregister,
    member_part,
)
from iris_overlay.groups.own_entries import OwnEntries
from iris_overlay.groups.splits import unpack_split
from iris_overlay.node_info import SEQUENCE_MAX
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.environment import Rng, Signer, WallClock
    from iris_overlay.events import Counters
    from iris_overlay.groups.config import GroupConfig
    from iris_overlay.groups.io import Outbox
    from iris_overlay.groups.messages import Applied, Full, Later, Promoted, Reclaim, Split
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.node_info import NodeInfo

#: The last incarnation that a stamp can encode. A node in this incarnation cannot refute its death.
INCARNATION_LAST: Final = SEQUENCE_MAX >> STAMP_SHIFT

#: The shortest time between registrations through the ring of a member missing from a view. Too small: each view older than the
#: registration costs a message. Too large: a lost registration is missing for that time.
MISSED_S: Final = 0.25

#: The number of groups up to which a node after a standstill registers through the ring, because its roots may have changed.
#: With more groups it asks the known roots in batches, and the ring if they are gone. Too small: a message into a dead link
#: costs a second. Too large: the messages after a standstill cause another one.
ROUTED_MAX: Final = 64

#: The time between registrations through the ring if neither the member nor its root has an address: without link or datagrams
#: nothing shows the root's death. Too small: messages. Too large: a root that is dead or beyond a partition keeps the member
#: out of views for that time.
HIDDEN_ASKED_S: Final = 5.0

#: The largest number of joins and leaves that wait for acknowledgements; beyond it the oldest completes at once, as if its time
#: limit had passed. Too small: a caller that joins and leaves in a loop reaches it; too large: memory.
COMMANDS_MAX: Final = 4096


#: The claims that are sent at once; the next ones follow in the next turn of the owner. Each takes half a millisecond where the
#: local node is the root. Too small: more turns; too large: a node with entries in 16 tables keeps its program waiting.
CLAIMS_AT_ONCE: Final = 1

#: The shortest time between two answers to roots that ask for all entries of a table. Too small: a lying root gets 320 KiB for
#: each question. Too large: after a loss of the root, the entries are missing for that time.
RECLAIM_S: Final = 0.25


class _OwnMembership:
    __slots__ = ("attempts", "attributes", "ends_at", "is_new", "root", "routed_at", "said", "since", "size", "stamp", "table")

    def __init__(self, attributes: bytes, stamp: int, since: int) -> None:
        self.attributes = attributes
        self.stamp = stamp
        # The joining time by the own clock, or a later time above those of all members reported before.
        self.since = since
        self.is_new = True
        # The entries, if the group is a table. Then the stamp is that of the last claim sent.
        self.table: OwnEntries | None = None
        # The registration with the permit for this stamp, made once.
        self.said: GroupRegistration | None = None
        # The root of the last acknowledgement; None if it is gone, or none came.
        self.root: NodeInfo | None = None
        self.size = 0
        self.attempts = 0
        # The time of the last message through the ring.
        self.routed_at = -inf
        # The time for giving up an unregistration: the root has forgotten the member by then.
        self.ends_at: float | None = None


class OwnMemberships:
    """The memberships of the local node: register them at the roots of the groups, and keep them registered."""

    __slots__ = (
        "_claim_rate",
        "_clock",
        "_commands",
        "_config",
        "_counters",
        "_deadlines",
        "_gather",
        "_gather_until",
        "_is_active",
        "_leaving",
        "_local",
        "_outbox",
        "_renew_at",
        "_resend",
        "_rng",
        "_signer",
        "completions",
        "groups",
        "stamp",
    )

    def __init__(
        self,
        local: NodeInfo,
        config: GroupConfig,
        rng: Rng,
        outbox: Outbox,
        counters: Counters,
        signer: Signer,
        clock: WallClock,
    ) -> None:
        self.groups: dict[GroupId, _OwnMembership] = {}
        self.completions: list[
            GroupJoined | GroupLeft | Claimed | ClaimConfirmed | EntriesPromoted | SplitTold | TableFull
        ] = []
        self.stamp = 0
        self._local = local
        self._config = config
        self._rng = rng
        self._outbox = outbox
        self._counters = counters
        self._signer = signer
        self._clock = clock
        self._claim_rate = ClaimRate(OWN_COST_MAX, 0.0)
        self._gather_until = 0.0
        self._is_active = False
        self._leaving: dict[GroupId, _OwnMembership] = {}
        # Waiting completions, by the stamp of the command.
        self._commands: dict[int, GroupJoined | GroupLeft | Claimed] = {}
        self._deadlines: DeadlineTable[int] = DeadlineTable()
        self._resend: DeadlineTable[GroupId] = DeadlineTable()
        # Tables with a claim to send at the end of the turn.
        self._gather: DeadlineTable[GroupId] = DeadlineTable()
        self._renew_at: float | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether a join or leave waits for its acknowledgement."""
        return bool(self._commands)

    def activate(self, now: float) -> None:
        """Send the registrations that waited until the ring was active."""
        self._is_active = True
        for command in self._commands:
            self._deadlines.set(command, now + self._config.told_timeout_s)
        self.register_all(now)

    def join(self, group: GroupId, attributes: bytes, now: float) -> None:
        """Register the local node in a group, or change its attributes there. `GroupJoined` follows."""
        member = self.groups.get(group)
        old = self._leaving.pop(group, None) or member
        self.stamp += 1
        since = self._clock.unix_ms(now) if member is None else member.since
        membership = self.groups[group] = _OwnMembership(attributes, self.stamp, since)
        membership.is_new = member is None or member.is_new
        if old is not None:
            membership.root = old.root
        self._wait_for(GroupJoined(group), now)
        if self._renew_at is None:
            self._renew_at = self._next_renewal(now)
        self._send(group, membership, now)

    def claim(self, group: GroupId, attributes: bytes, added: bytes, removed: bytes, now: float) -> int:
        """Change the packed entries of the local node in a table, and register it there. `Claimed` follows.

        Returns:
            The number of the event, which changes that are sent together share.
        """
        membership = self.groups.get(group)
        self.stamp += 1
        if membership is None:
            old = self._leaving.pop(group, None)
            membership = self.groups[group] = _OwnMembership(attributes, self.stamp, 0)
            membership.root = None if old is None else old.root
        table = membership.table = membership.table or OwnEntries()
        membership.attributes = attributes
        table.want(added, removed, self.stamp)
        if table.unsent in self._commands:  # the change is sent with earlier ones, at their time
            return table.unsent
        table.unsent = self.stamp
        self._wait_for(Claimed(group, self.stamp), now, is_sent=False)
        if self._renew_at is None:
            self._renew_at = self._next_renewal(now)
        if group not in self._gather:  # a repeated claim may have taken earlier changes along, before their time
            self._gather.set(group, max(now, self._gather_until))
        return self.stamp

    def gather_claims(self, until: float) -> None:
        """Send the claims of changes from now on no earlier than at a time."""
        self._gather_until = until

    def is_gathering(self, group: GroupId) -> bool:
        """Return whether the next claim of a table is only noted, and sent with earlier ones."""
        return group in self._gather and len(self._commands) < COMMANDS_MAX

    def is_table(self, group: GroupId) -> bool:
        """Return whether a joined group is a table."""
        membership = self.groups.get(group)
        return membership is not None and membership.table is not None

    def is_claiming(self, group: GroupId) -> bool:
        """Return whether a claim of a table is in transit: until it is acknowledged, the table may lack the local node."""
        membership = self.groups.get(group)
        return membership is not None and membership.table is not None and membership.table.is_in_transit

    def entries_of(self, group: GroupId) -> bytes:
        """Return the packed entries of the local node in a table after the last claim; empty for any other group."""
        membership = self.groups.get(group)
        return b"" if membership is None or membership.table is None else membership.table.wanted

    def entries_bytes_max(self, group: GroupId) -> int:
        """Return a size that `entries_of` does not exceed, without its work."""
        membership = self.groups.get(group)
        return 0 if membership is None or membership.table is None else membership.table.wanted_bytes_max

    def leave(self, group: GroupId, now: float) -> None:
        """Unregister the local node from a group. `GroupLeft` follows."""
        membership = self.groups.pop(group, None)
        if membership is None:
            self.completions.append(GroupLeft(group))
            return
        if not self.groups:
            self._renew_at = None
        self.stamp += 1
        membership.stamp = self.stamp
        membership.attempts = 0
        membership.ends_at = now + self._config.expiry_s
        self._gather.cancel(group)
        self._limit_wait(group, now)
        self._leaving[group] = membership
        self._wait_for(GroupLeft(group), now)
        self._send(group, membership, now)

    def applied(self, message: Applied, now: float) -> None:
        """Complete the joins and leaves that a root acknowledges, and note the root."""
        for group, stamp, size, is_member in message.items:
            membership = self.groups.get(group) or self._leaving.get(group)
            if membership is None and is_member:
                # An old copy became the directory, or a registration came late.
                self._outbox.send(message.root, Unregister(self._local, [(group, max(stamp, self.stamp))]))
            if membership is None or membership.stamp != stamp:
                continue
            if membership.table is not None and 0 < membership.table.unconfirmed <= stamp:
                self.completions.append(ClaimConfirmed(group, membership.table.unconfirmed))
                membership.table.unconfirmed = 0
            self._complete_group(group, stamp)
            if membership.ends_at is None and not is_member:
                # It was applied, but then the member was accused, and may not have been told.
                self.missed(group, now)
                continue
            membership.root, membership.size, membership.is_new = message.root, size, False
            membership.attempts = 0
            self._resend.cancel(group)
            self._leaving.pop(group, None)
            is_hidden = not (message.root.addresses or self._local.addresses) and message.root.id != self._local.id
            if is_hidden and membership.ends_at is None:
                self._resend.set(group, now + HIDDEN_ASKED_S)
            if membership.table is not None and membership.ends_at is None:
                has_later = membership.table.acknowledge(stamp)
                if has_later and group not in self._gather:
                    self._claim(group, membership, now)

    def reclaim(self, source: NodeInfo, message: Reclaim, now: float) -> None:
        """Send all entries of the local node to a root that cannot apply the last claim."""
        membership = self.groups.get(message.group)
        if membership is None or membership.table is None or membership.stamp != message.stamp:
            return
        is_root = membership.root is None or membership.root.id == source.id
        if not is_root or now < membership.table.reclaimed_at + RECLAIM_S:
            return
        membership.table.reclaimed_at = now
        membership.table.forget_root()
        membership.root = source
        self.stamp += 1  # a later stamp of the group completes waiting commands
        membership.table.wanted_stamp = self.stamp
        self._send(message.group, membership, now)

    def promoted(self, source: NodeInfo, message: Promoted) -> None:
        """Report entries of this node that the root of a table calls promoted, with `EntriesPromoted`."""
        membership = self.groups.get(message.group)
        if membership is None or membership.table is None:
            return
        if membership.root is not None and membership.root.id != source.id:
            return
        entries = membership.table.promote(message.entries)
        if entries:
            self.completions.append(EntriesPromoted(message.group, entries))

    def full(self, source: NodeInfo, message: Full) -> None:
        """Report that a table of this node is full, with `TableFull`."""
        membership = self.groups.get(message.group)
        if membership is None or membership.table is None or message.count >= count(membership.table.wanted):
            return
        if membership.root is None or membership.root.id == source.id:
            self.completions.append(TableFull(message.group, message.count))

    def split(self, source: NodeInfo, message: Split) -> None:
        """Report the split of a table of this node, with `SplitTold`."""
        membership = self.groups.get(message.group)
        if membership is None or membership.table is None:
            return
        if membership.root is not None and membership.root.id != source.id:
            return
        if membership.table.learn_split(unpack_split(message.split)):
            self.completions.append(SplitTold(message.group, membership.table.split))

    def accused(self, stamp: int, now: float) -> bool:
        """Begin a new incarnation after a report of this node's death, and register again.

        Returns:

        False for a report about an earlier or incredible incarnation, which changes nothing.
        """
        accused, own = stamp >> STAMP_SHIFT, self.stamp >> STAMP_SHIFT
        # A future incarnation is a lie, but move past it, so that directories that believed the lie accept this node again.
        if accused < own or (accused > own and accused >= INCARNATIONS_BELIEVED) or accused == INCARNATION_LAST:
            return False
        self.stamp = (accused + 1) << STAMP_SHIFT
        for membership in self.groups.values():
            # A later stamp of the group completes waiting commands.
            self.stamp += 1
            membership.stamp = self.stamp
            if membership.table is not None:
                membership.table.wanted_stamp = self.stamp
        self.register_all(now)
        return True

    def later(self, message: Later, now: float) -> None:
        """Move the join of a new local membership to a time after that of another member, and register again."""
        membership, record = self.groups.get(message.group), message.member
        if membership is None or membership.table is not None:
            return
        if not membership.is_new or not membership.since <= record.since < SEQUENCE_MAX:
            return
        if record.info.id == self._local.id:  # a multicast of this node was older than its membership: no reason to join later
            return
        if not self._signer.is_permitted(message.group, member_part(record, record.info.id), record.permit):
            self._counters.permits_invalid += 1
            return
        self.stamp += 1  # a later stamp of the group completes waiting commands
        membership.stamp, membership.since = self.stamp, record.since + 1
        self._send(message.group, membership, now)

    def register_all(self, now: float) -> None:
        """Register the local node in all its groups, or renew the registrations."""
        batches: dict[NodeId, tuple[NodeInfo, list[GroupRegistration]]] = {}
        for group, membership in self.groups.items():
            if membership.root is None or membership.table is not None:
                self._send(group, membership, now)
            else:
                item = self._registration(group, membership)
                batches.setdefault(membership.root.id, (membership.root, []))[1].append(item)
                self._expect(group, membership, now)
        for root, items in batches.values():
            for start in range(0, len(items), BATCH_MAX):
                self._outbox.send(root, Register(self._local, items[start : start + BATCH_MAX]))

    def lose_root(self, peer: NodeId, now: float) -> None:
        """Register at the next root if a root is dead or unreachable.

        Unacknowledged registrations may have been lost there. Members of a small group register at once: they cause no rush,
        and if all copies died no other node can restore the group.
        """
        for memberships in (self.groups, self._leaving):
            for group, membership in memberships.items():
                if membership.root is None or membership.root.id == peer:
                    membership.root = None
                    membership.attempts = 0  # many deaths are no long silence
                    is_small = membership.size <= PROBED_MEMBERS_MAX
                    jitter_s = 0.0 if is_small else self._config.repair_jitter_s * self._rng.random()
                    self._resend.set(group, now + jitter_s)

    def link_lost(self, peer: NodeId, now: float) -> None:
        """Repeat through the ring the unacknowledged messages to the peer of a broken link."""
        for memberships in (self.groups, self._leaving):
            for group, membership in memberships.items():
                if membership.root is not None and membership.root.id == peer and group in self._resend:
                    membership.root = None
                    self._resend.set(group, now)

    def missed(self, group: GroupId, now: float) -> None:
        """Register through the ring after a view without the local node, because the known root may be wrong."""
        membership = self.groups.get(group)
        if membership is not None and now - membership.routed_at >= MISSED_S:
            membership.root = None
            membership.attempts = 0
            self._send(group, membership, now)

    def forget_roots(self) -> None:
        """Forget the known roots after a standstill of this process: the ring knows the present ones."""
        if len(self.groups) <= ROUTED_MAX:
            for membership in (*self.groups.values(), *self._leaving.values()):
                membership.root = None
                membership.attempts = 0

    def root_moved(self, group: GroupId, root: NodeInfo) -> None:
        """Use the new root of a group as the root of the local membership, after this node has handed the directory over.

        As its own root the node would not notice the new root's death before the new root announced itself.
        """
        membership = self.groups.get(group) or self._leaving.get(group)
        if membership is not None and membership.root is not None and membership.root.id == self._local.id:
            membership.root = root

    def moved(self, group: GroupId, source: NodeId, now: float) -> None:
        """Register at the present root of a group after a former root's reply that it is not the root."""
        membership = self.groups.get(group) or self._leaving.get(group)
        if membership is not None and membership.root is not None and membership.root.id == source:
            membership.root = None
            self._send(group, membership, now)

    def handle_timeout(self, now: float) -> None:
        """Repeat unanswered messages, renew registrations, and complete commands at their time limit."""
        for group in self._resend.expired(now):
            membership = self.groups.get(group) or self._leaving.get(group)
            if membership is None:
                continue
            if membership.ends_at is not None and now >= membership.ends_at:
                del self._leaving[group]
                continue
            membership.root = None
            self._send(group, membership, now)
        for group in self._gather.expired(now, CLAIMS_AT_ONCE):
            membership = self.groups.get(group)
            if membership is not None and membership.table is not None and not membership.table.is_in_transit:
                self._claim(group, membership, now)
        if self._renew_at is not None and now >= self._renew_at:
            self._renew_at = self._next_renewal(now)
            self.register_all(now)
        for command in self._deadlines.expired(now):
            self._counters.changes_unconfirmed += 1
            self._complete_late(command)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        if self._renew_at is None and not len(self._resend) and not self._commands:
            return None
        deadlines = (self._resend.deadline(), self._gather.deadline(), self._renew_at, self._deadlines.deadline())
        return min([deadline for deadline in deadlines if deadline is not None], default=None)

    def root_of(self, group: GroupId) -> NodeInfo | None:
        """Return the root of a joined group; None if unknown."""
        membership = self.groups.get(group)
        return None if membership is None else membership.root

    def roots(self) -> list[NodeInfo]:
        """Return the known roots of the joined groups."""
        return [membership.root for membership in self.groups.values() if membership.root is not None]

    def needs(self, peer: NodeId) -> bool:
        """Return whether a node is the root of a small joined group: the members have to notice its death first."""
        return any(
            membership.root is not None and membership.root.id == peer and membership.size <= PROBED_MEMBERS_MAX
            for membership in self.groups.values()
        )

    def _claim(self, group: GroupId, membership: _OwnMembership, now: float) -> None:
        """Send the changes of a table, or wait if the node has claimed too much lately."""
        wait_s = self._claim_rate.wait_s(now)
        if wait_s:
            self._gather.set(group, now + wait_s)
        else:
            self._claim_rate.charge(self._send(group, membership, now))

    def _send(self, group: GroupId, membership: _OwnMembership, now: float) -> int:
        """Send the registration, claim or unregistration of a group; return the cost of a claim, else 0."""
        if not self._is_active:
            return 0
        message: Register | Unregister | Claim
        if membership.ends_at is not None:
            message = Unregister(self._local, [(group, membership.stamp)])
        elif membership.table is None:
            message = Register(self._local, [self._registration(group, membership)])
        else:
            membership.stamp = membership.table.wanted_stamp
            message = membership.table.send(self._local, self._registration(group, membership))
            self._limit_wait(group, now)
        if membership.root is None:
            membership.routed_at = now
            self._outbox.route(group, message)
        else:
            self._outbox.send(membership.root, message)
        self._expect(group, membership, now)
        return cost_of(message) if isinstance(message, Claim) else 0

    def _registration(self, group: GroupId, membership: _OwnMembership) -> GroupRegistration:
        said = membership.said
        if said is None or said.stamp != membership.stamp:
            said = GroupRegistration(group, membership.attributes, membership.stamp, since=membership.since)
            permit = self._signer.permit(group, member_part(said, self._local.id))
            said = membership.said = msgspec.structs.replace(said, permit=permit)
        return said

    def _expect(self, group: GroupId, membership: _OwnMembership, now: float) -> None:
        self._resend.set(group, now + self._config.resend_after_s(membership.attempts))
        membership.attempts = min(membership.attempts + 1, 16)

    def _next_renewal(self, now: float) -> float:
        return now + self._config.renew_s * (0.9 + 0.2 * self._rng.random())

    def _wait_for(self, completion: GroupJoined | GroupLeft | Claimed, now: float, *, is_sent: bool = True) -> None:
        if len(self._commands) >= COMMANDS_MAX:
            oldest = next(iter(self._commands))
            self._deadlines.cancel(oldest)
            self._complete_late(oldest)
            self._counters.changes_unconfirmed += 1
        self._commands[self.stamp] = completion
        if self._is_active and is_sent:
            self._deadlines.set(self.stamp, now + self._config.told_timeout_s)

    def _limit_wait(self, group: GroupId, now: float) -> None:
        """Begin the time limits of the claims of a table, which are sent now."""
        if self._is_active:
            for command, done in self._commands.items():
                if done.group == group and command not in self._deadlines:
                    self._deadlines.set(command, now + self._config.told_timeout_s)

    def _complete_late(self, command: int) -> None:
        """Complete a command that no root has confirmed."""
        done = self._commands.pop(command)
        if isinstance(done, Claimed):
            done = Claimed(done.group, done.number, is_confirmed=False)
            membership = self.groups.get(done.group)
            if membership is not None and membership.table is not None:
                membership.table.unconfirmed = done.number
        self.completions.append(done)

    def _complete_group(self, group: GroupId, stamp: int) -> None:
        for command in [command for command, done in self._commands.items() if done.group == group and command <= stamp]:
            self._deadlines.cancel(command)
            self.completions.append(self._commands.pop(command))
