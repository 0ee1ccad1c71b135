"""Members lost with keyed requests, as every node remembers them (docs/design.md 6.14).

A request with a handler that kills the process may reach only a few members (``members_lost_max``). The caller may end before
the request is repeated: Spark restarts a failed task on another executor, and a request to another cloud may arrive by another
gateway. So the caller announces the loss of a member, with the request's identity, to the living members. If a node unaware of
the loss sends such a request, the member rejects the request once and names the lost members. The node counts the losses, and
asks again if the policy still allows.

Both roles use the table: it holds the node's own losses as a caller, and losses announced to the node as a member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.patterns.request.deduplication import WINDOW_S
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.packets import IDENTITY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_py.patterns.request.pending import Pending
    from iris_py.peers.group import Group
    from iris_py.peers.member import KnownMember
    from iris_py.peers.peer import Peer

#: Time for which a loss is remembered (seconds), equal to that of replies. Too small: a task that is repeated late kills
#: further members; too large: a key that lost members by accident is rejected that long.
LOSSES_S: Final = WINDOW_S
#: Requests whose losses are remembered; the oldest are forgotten first. A killed member has some hundred keyed requests. Too
#: small: harmful requests are forgotten among innocent ones; too large: memory, at 300 bytes each.
LOSSES_MAX: Final = 4096
#: Lost members remembered for one request. Policies that risk more are rare, and keep their own count.
MEMBERS_MAX: Final = 16
#: Nodes remembered as aware of one request's losses. Forgetting one costs it another rejection.
KNOWING_MAX: Final = 64
#: Losses in one message, and the number of latest losses that each node announces to a new member. Too small: a new member may
#: get a request that kills it; too large: 32 members announce that many, each.
TOLD_MAX: Final = 512

ID_BYTES: Final = 16


class _RequestLosses:
    """The losses of one request.

    Attributes:
        members: Ids of the lost members.
        until: Time at which they are forgotten (seconds).
        knowing: Ids of the nodes aware of all of them.
    """

    __slots__ = ("knowing", "members", "until")

    def __init__(self) -> None:
        self.members: tuple[bytes, ...] = ()
        self.until = 0.0
        self.knowing: dict[bytes, None] = {}


class Losses:
    """The members lost with keyed requests, as one node knows them; indexed by cluster and identity of the request.

    Args:
        local: The id of the node.

    Attributes:
        entries: The losses, the oldest first. Empty in a network without lost members.
    """

    def __init__(self, local: bytes) -> None:
        self.entries: dict[bytes, _RequestLosses] = {}
        self._local = local
        self._untold: dict[Group, dict[bytes, tuple[bytes, ...]]] = {}  # by cluster and identity

    # -- the caller

    def count(self, pending: Pending, member: KnownMember, now: float, *, is_counted: bool = True) -> None:
        """Count a member lost with a request, and announce the loss if other callers may repeat the request.

        Args:
            is_counted: Whether the request may have killed the member.
        """
        pending.note_loss(member, is_counted=is_counted)
        if is_counted and (key := pending.loss_key):
            self.note(key, pending.losses, self._local, now)
            untold = self._untold.setdefault(pending.group, {})
            untold[pending.anchor] = pending.losses[-MEMBERS_MAX:]
            if len(untold) > TOLD_MAX:
                del untold[next(iter(untold))]

    def learn(self, pending: Pending, payload: bytes, peer: Peer, now: float) -> bool:
        """Add the lost members named in a rejection to a request; return whether any was new."""
        key = pending.loss_key
        news = [member for member in decode_members(payload) if key and pending.add_loss(member)]
        if news:
            self.note(key, news, peer.id, now)
        return bool(news)

    def recall(self, pending: Pending, now: float) -> bool:
        """Add the known earlier losses to a new request; return True if it may not risk another member."""
        if key := pending.loss_key:
            pending.losses = self.of(key, now)
        return bool(pending.losses) and not pending.may_lose(1)

    def messages_to_send(self) -> list[PeerMessage]:
        """Take the messages that announce new losses to members."""
        untold, self._untold = self._untold, {}
        return [
            message
            for group, losses in untold.items()
            for message in _messages(group, losses.items(), [member.peer for member in group.members or ()])
        ]

    def messages_for(self, group: Group, newcomers: Iterable[Peer]) -> list[PeerMessage]:
        """Return messages with the last ``TOLD_MAX`` losses of a cluster, for new members."""
        size, subject = len(group.subject), group.subject
        found = [(key[size:], entry.members) for key, entry in self.entries.items() if key[:size] == subject]
        return _messages(group, found[-TOLD_MAX:], newcomers) if found else []

    # -- the member

    def receive(self, message: PeerMessage, now: float) -> bool:
        """Record announced losses; return False, and record none, if the message is malformed."""
        losses = decode_losses(message.payload)
        for identity, members in losses or ():
            self.note(message.group.subject + identity, members, message.peer.id, now)
        return losses is not None

    def refuse(self, key: bytes, caller: bytes, now: float) -> tuple[bytes, ...]:
        """Return a request's lost members, or () if the caller knows them; the caller counts as informed from now on."""
        self.expire(now)
        entry = self.entries.get(key)
        if entry is None or caller in entry.knowing:
            return ()
        _add_knowing(entry, caller)
        return entry.members

    # -- both

    def note(self, key: bytes, members: Iterable[bytes], teller: bytes, now: float) -> None:
        """Record members lost with a request.

        Args:
            key: The cluster, then the identity of the request.
            members: The members' ids.
            teller: The id of the announcing node.
        """
        self.expire(now)
        entry = self.entries.pop(key, None) or _RequestLosses()
        new = [member for member in dict.fromkeys(members) if member not in entry.members]
        if new:
            entry.members = (entry.members + tuple(new))[:MEMBERS_MAX]
            entry.knowing.clear()
        _add_knowing(entry, teller)
        entry.until = now + LOSSES_S
        self.entries[key] = entry
        if len(self.entries) > LOSSES_MAX:
            del self.entries[next(iter(self.entries))]

    def of(self, key: bytes, now: float) -> tuple[bytes, ...]:
        """Return the ids of a request's lost members, as far as this node knows."""
        self.expire(now)
        entry = self.entries.get(key)
        return () if entry is None else entry.members

    def expire(self, now: float) -> None:
        """Forget expired losses."""
        entries = self.entries
        while entries:
            key = next(iter(entries))
            if entries[key].until > now:
                return
            del entries[key]


def _add_knowing(entry: _RequestLosses, node: bytes) -> None:
    entry.knowing[node] = None
    if len(entry.knowing) > KNOWING_MAX:
        del entry.knowing[next(iter(entry.knowing))]


def _messages(group: Group, losses: Iterable[tuple[bytes, tuple[bytes, ...]]], peers: Iterable[Peer]) -> list[PeerMessage]:
    payload = encode_losses(losses)
    return [PeerMessage(group, peer, packets.LOSSES, 0, 0, payload) for peer in peers]


def encode_losses(losses: Iterable[tuple[bytes, tuple[bytes, ...]]]) -> bytes:
    """Encode losses for a member: per request the identity, the number of members, and the members' ids."""
    return b"".join(identity + bytes((len(members),)) + b"".join(members) for identity, members in losses)


def decode_losses(payload: bytes) -> list[tuple[bytes, tuple[bytes, ...]]] | None:
    """Decode announced losses; return None if malformed. Never raises."""
    found: list[tuple[bytes, tuple[bytes, ...]]] = []
    at = 0
    while at < len(payload):
        start = at + IDENTITY_BYTES + 1
        if start > len(payload) or not 1 <= (count := payload[start - 1]) <= MEMBERS_MAX or len(found) >= TOLD_MAX:
            return None
        stop = start + count * ID_BYTES
        if stop > len(payload):
            return None
        ids = tuple(payload[place : place + ID_BYTES] for place in range(start, stop, ID_BYTES))
        found.append((payload[at : at + IDENTITY_BYTES], ids))
        at = stop
    return found


def decode_members(payload: bytes) -> list[bytes]:
    """Decode the member ids of a rejection; excess and truncated ids are ignored."""
    whole = min(len(payload), MEMBERS_MAX * ID_BYTES) // ID_BYTES * ID_BYTES
    return [payload[at : at + ID_BYTES] for at in range(0, whole, ID_BYTES)]
