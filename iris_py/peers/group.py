"""Groups as a node keeps them: their keys, their membership views, and the queued messages to their members.

A peer is reached over its link; through the ring, if no link is possible; and for broadcasts to large groups, down the group's
multicast tree. Tree bodies have their own sealer and opener, because they travel long: with a shared counter, bodies sent over
links meanwhile would push them out of the receivers' replay window.

A name has a group per generation of the secret (docs/design.md 2.9). Requests, broadcasts and publications use the group of the
primary generation. When the node joins or watches a name, the other groups make the node reachable under other primary
generations.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from iris_overlay.groups.messages import VIEW_MAX
from iris_overlay.ids import GroupId
from iris_py.observe.counts import CountTable, GroupCounts, Totals
from iris_py.peers.balancer import by_distance, by_rank, is_in_zone, zone_distance
from iris_py.peers.hedging import Hedging
from iris_py.peers.keyed_members import KeyedMembers
from iris_py.peers.member import KnownMember, weigh
from iris_security import GroupOpener, GroupSealer, multicast_associated, unicast_associated
from iris_security.keyring import PROOF_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iris_overlay.events import GroupMember
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_py.peers.member import Placement
    from iris_py.peers.peer import Peer
    from iris_security import GroupKeys, Keyring

#: Length of a name's hash. Half would prevent accidental collisions; this length prevents chosen collisions.
SUBJECT_BYTES = 16
#: A body of this size is encrypted, so that packet and frame headers still fit one record of 64 KiB.
BODY_BYTES = 62 * 1024
#: Largest group to which a broadcast goes directly; a larger group's broadcast goes down its tree. Equals the size of a whole
#: membership view, so that all members are known. Too small: a delivery costs a signature and its check, ten times as much as a
#: direct copy. Too large: a sender has that number of links, and one slow link of them holds it up.
DIRECT_MEMBERS_MAX = VIEW_MAX
#: Time after the last broadcast down the tree for which broadcasts stay on the tree, though the group has shrunk (seconds): a
#: direct broadcast would overtake those in transit. Longer than a broadcast takes down a tree with a failed part.
CAST_LINGER_S = 5.0
#: Added to the epoch of the sealer for the multicast tree, so that it never uses a nonce of the other sealer.
CAST_EPOCHS = 1 << 31
#: Appended to the associated data of tree bodies, so that neither kind of body can be replayed as the other.
CAST_LABEL = b"cast"
#: Senders of one group whose last broadcast is remembered. A late broadcast of a forgotten sender is delivered.
SENDERS_MAX = 4096
#: Number of placements (zones of requests) whose members by distance are kept until the membership view changes. Beyond this
#: bound all are forgotten and computed again.
PLACEMENTS_MAX = 16


class PeerChannel:
    """The messages to one peer under one group's key, collected until they are encrypted together at the next flush."""

    __slots__ = ("associated", "group", "parts", "parts_bytes", "peer")

    def __init__(self, group: Group, peer: Peer, associated: bytes) -> None:
        self.group = group
        self.peer = peer
        self.associated = associated
        self.parts: list[bytes] = []
        self.parts_bytes = 0

    def take(self) -> tuple[list[bytes], int]:
        """Take the collected messages: the parts of a body, and its size."""
        taken = self.parts, self.parts_bytes
        self.parts, self.parts_bytes = [], 0
        return taken


class Group:
    """The group of a cluster, or of the realm of all topics, under one generation of the secret, as one node keeps it.

    Attributes:
        name: The name the application uses.
        id: The group id in the overlay.
        is_realm: Whether it is the group of all topics, in which each body is for one node.
        realm: The group of the realm, if this is the group of a promoted entry, or of a child table of interest; else None.
        entry: That entry, packed.
        path: The path of that child table.
        users: Number of users of the child table: the node's own entries, and its publications.
        is_own: Whether the cluster has its own secret, which only some nodes hold.
        is_left: Whether the generation of the secret is no longer accepted. Then the node does not begin to use the group.
        subject: A hash of the name, equal in every generation.
        members: The membership view, for a large group a sample; None before the overlay's first report.
        targets: Receivers of broadcasts: the ordinary members.
        lowest: The members of the lowest rank, which get the requests: all members unless some are stand-ins (6.13).
        higher: The members of each higher rank, in order; empty in nearly every cluster.
        spills: Whether a stand-in takes requests while members of lower rank are full.
        levels: The members of ``lowest`` by distance, the nearest first, for the balancer.
        keyed: The members by request key.
        hedging: When to give idempotent requests to a second member.
        size: Number of members.
        direct_members_max: Largest size at which messages for all members go directly.
        is_watched: Whether the overlay reports changes of the membership view unasked.
        is_doubted: Whether the root's report of an empty group is uncertain; the overlay checks again at every use.
        sequence: The number of the node's last broadcast.
        channels: The channel to each peer with a link.
        broadcast_parts: Broadcasts collected until the next flush, which encrypts them once for all members.
        broadcast_bytes: Size of ``broadcast_parts``.
        lost_at: Time of the last loss of a member (seconds), for any reason; minus infinity before the first.
        last_used: Time of the application's last use (seconds); idle groups are forgotten.
        counts: The counters of the name, in all generations of its secret.
    """

    def __init__(
        self, name: str, keys: GroupKeys, local: NodeId, epoch: int, sequence: int = 0, *, is_realm: bool = False
    ) -> None:
        self.name = name
        self.keys = keys
        self.id = GroupId(keys.group_id)
        self.is_realm = is_realm
        self.realm: Group | None = None
        self.entry = b""
        self.path = b""
        self.users = 0
        self.is_own = False
        self.is_left = False
        self.subject = hashlib.sha256(name.encode()).digest()[:SUBJECT_BYTES]
        self.levels: list[list[KnownMember]] = []
        self.keyed = KeyedMembers()
        self.hedging = Hedging()
        self.targets: list[KnownMember] = []
        self.lowest: list[KnownMember] = []
        self.higher: list[list[KnownMember]] = []
        self.spills = False
        self.size = 0
        self.direct_members_max = DIRECT_MEMBERS_MAX
        self.is_watched = True
        self.is_doubted = False
        self.sequence = sequence
        self.channels: dict[NodeId, PeerChannel] = {}
        self.broadcast_parts: list[bytes] = []
        self.broadcast_bytes = 0
        self.lost_at = -math.inf
        self.last_used = 0.0
        self.counts = GroupCounts(Totals())  # until the group is in use
        self._members: list[KnownMember] | None = None
        self._placed: dict[Placement, list[list[KnownMember]]] = {}
        self._local = local
        self._sealer = GroupSealer(keys, local, epoch)
        self._opener = GroupOpener(keys)
        self._cast_sealer = GroupSealer(keys, local, CAST_EPOCHS + epoch)
        self._cast_opener = GroupOpener(keys)
        self._cast_until = 0.0
        self._multicast = multicast_associated(self.id, local)
        self._unicast_from: dict[NodeId, bytes] = {}
        self._sequences: dict[NodeId, int] = {}  # the last broadcast of each sender

    @property
    def is_whole(self) -> bool:
        """Whether every member is known and the view is kept up to date, so that messages for all members go directly."""
        return self.size <= self.direct_members_max and self.is_watched

    @property
    def members(self) -> list[KnownMember] | None:
        return self._members

    @members.setter
    def members(self, members: list[KnownMember]) -> None:
        self._members = members
        self._placed.clear()
        self.keyed.clear()
        self.lowest = self.targets = members
        self.higher, self.spills = [], False
        if any(member.rank for member in members):
            self.lowest, *self.higher = by_rank(members)
            self.targets = [] if self.lowest[0].rank else self.lowest
            self.spills = any(member.takes_overflow for rank in self.higher for member in rank)
        self.levels = by_distance(self.lowest)

    @property
    def is_of_topics(self) -> bool:
        """Whether only topics use the group: that of the realm, of a child table, or of a promoted entry."""
        return self.is_realm or self.realm is not None

    def forget_view(self) -> None:
        """Discard the membership view, so that messages wait until the overlay's next report."""
        nobody: list[KnownMember] = []
        self.members = nobody
        self._members = None

    def candidates(self, placement: Placement | None) -> list[KnownMember]:
        """Return the members that may serve a request, except stand-ins of higher rank (:meth:`candidates_after`)."""
        if placement is None:
            return self.lowest
        if placement.require:
            return [member for member in self.targets if is_in_zone(member.peer.info.zone, placement.require)]
        return self.targets if placement.is_own else self.lowest

    def candidates_after(self, placement: Placement | None) -> list[list[KnownMember]]:
        """Return the stand-ins for a request, by rank: the members that serve it when all ``candidates`` are gone or full."""
        return self.higher if placement is None or not (placement.require or placement.is_own) else []

    def has_others(self, rank: int) -> bool:
        """Tell whether the view has a member on another node with this rank or a lower one."""
        return any(member.rank <= rank and not member.peer.is_local for member in self._members or ())

    def placed_levels(self, placement: Placement) -> list[list[KnownMember]]:
        """Return the candidates for a request with a placement (zones), grouped by distance.

        ``levels`` has those of other requests.
        """
        levels = self._placed.get(placement)
        if levels is None:
            if len(self._placed) >= PLACEMENTS_MAX:
                self._placed.clear()
            levels = self._placed[placement] = self.order(self.candidates(placement), placement)
        return levels

    def order(self, members: list[KnownMember], placement: Placement | None) -> list[list[KnownMember]]:
        """Group members by distance to the request's preferred zone, or else to the own zone."""
        if placement is None or not placement.prefer:
            return by_distance(members)
        preferred = placement.prefer
        return by_distance(members, lambda member: zone_distance(preferred, member.peer.info.zone))

    def keyed_member(self, key: bytes, placement: Placement | None) -> KnownMember:
        """Return the member that serves a request key, from the nearest candidates. At least one candidate must exist.

        Args:
            key: The identity derived from the application's request key.
            placement: The zones of the request.
        """
        levels = self.levels if placement is None else self.placed_levels(placement)
        return self.keyed.find(key, placement, levels[0])

    @property
    def epoch(self) -> int:
        """The last epoch used for encryption. It grows when an epoch's nonces are used up."""
        return max(self._sealer.epoch, self._cast_sealer.epoch - CAST_EPOCHS)

    def is_cast(self, now: float) -> bool:
        """Tell whether a broadcast goes down the multicast tree, rather than directly to each member.

        The tree is used if some members are unknown, or if a direct copy would overtake earlier broadcasts on the tree.
        """
        if not self.is_whole:
            self._cast_until = now + CAST_LINGER_S
        return now < self._cast_until

    def take_view(
        self, view: dict[NodeId, GroupMember], peer_of: Callable[[NodeInfo], Peer], zone: str
    ) -> tuple[list[KnownMember], int]:
        """Replace the membership view by a new report of the overlay.

        Args:
            view: The overlay's report.
            peer_of: Finds the peer for a node description.
            zone: The zone of this node.

        Returns:
            The members that are gone, and the number of nodes left out for an invalid proof.
        """
        gone = {member.peer.id: member for member in self._members or ()}
        members: list[KnownMember] = []
        for id_, reported in view.items():
            member = gone.get(id_)
            attributes = reported.attributes
            if member is None or member.attributes != attributes:
                if not self.keys.verify_proof(id_, attributes[:PROOF_BYTES], attributes[PROOF_BYTES:]):
                    continue
                if member is None:
                    peer = peer_of(reported.info)
                    member = KnownMember(peer, zone_distance(zone, peer.info.zone))
                member.register(attributes)
            gone.pop(id_, None)
            members.append(member)
        for rank in by_rank(members):
            weigh(rank)
        self.members = members
        return list(gone.values()), len(view) - len(members)

    def channel(self, peer: Peer) -> PeerChannel:
        """Return the channel to a peer, created at first use."""
        channel = self.channels.get(peer.id)
        if channel is None or channel.peer is not peer:
            channel = self.channels[peer.id] = self.new_channel(peer)
        return channel

    def new_channel(self, peer: Peer) -> PeerChannel:
        """Return an unregistered channel, for a peer without a link."""
        return PeerChannel(self, peer, unicast_associated(self.id, self._local, peer.id))

    def seal(self, channel: PeerChannel) -> tuple[bytes, bytes]:
        """Take the collected messages of a channel and encrypt them for its peer; return the nonce and the encrypted body."""
        parts, _size = channel.take()
        return self._sealer.seal(b"".join(parts), channel.associated)

    def seal_for(self, peer: Peer, body: bytes) -> tuple[bytes, bytes]:
        """Encrypt a body for one peer; return the nonce and the encrypted body."""
        return self._sealer.seal(body, unicast_associated(self.id, self._local, peer.id))

    def seal_multicast(self, body: bytes, *, is_cast: bool = False) -> tuple[bytes, bytes]:
        """Encrypt a body for all members; return the nonce and the encrypted body.

        Bodies for the multicast tree have their own sealer.
        """
        if is_cast:
            return self._cast_sealer.seal(body, self._multicast + CAST_LABEL)
        return self._sealer.seal(body, self._multicast)

    def take_broadcasts(self) -> tuple[list[bytes], int]:
        """Take the collected broadcasts: a body, in parts, and its size."""
        taken = self.broadcast_parts, self.broadcast_bytes
        self.broadcast_parts, self.broadcast_bytes = [], 0
        return taken

    def open_unicast(self, sender: NodeId, nonce: bytes, sealed: bytes | memoryview) -> bytes:
        """Decrypt a body encrypted for this node.

        Raises:
            AuthenticationError: The body is for another node, or from another sender.
            ReplayError: The body was decrypted before.
        """
        associated = self._unicast_from.get(sender)
        if associated is None:
            associated = self._unicast_from[sender] = unicast_associated(self.id, sender, self._local)
        return self._opener.open(sender, nonce, sealed, associated)

    def open_multicast(self, sender: NodeId, nonce: bytes, sealed: bytes | memoryview) -> bytes:
        """Decrypt the body of a MULTICAST packet: encrypted for every member, or in the realm for this node.

        Raises as :meth:`open_unicast` does.
        """
        if self.is_realm:
            return self.open_unicast(sender, nonce, sealed)
        return self._opener.open(sender, nonce, sealed, multicast_associated(self.id, sender))

    def open_routed(self, sender: NodeId, nonce: bytes, sealed: bytes | memoryview) -> bytes:
        """Decrypt a body received through the ring. Raises as :meth:`open_unicast` does."""
        return self._opener.open(sender, nonce, sealed, unicast_associated(self.id, sender, self._local))

    def open_cast(self, sender: NodeId, nonce: bytes, sealed: bytes | memoryview) -> bytes:
        """Decrypt a body that came down the multicast tree. Raises as :meth:`open_unicast` does."""
        return self._cast_opener.open(sender, nonce, sealed, multicast_associated(self.id, sender) + CAST_LABEL)

    def is_late(self, sender: NodeId, sequence: int) -> bool:
        """Tell whether a broadcast is overtaken: a later one of the same sender has arrived. If not, record its number."""
        if sequence <= self._sequences.get(sender, -1):
            return True
        sequences = self._sequences
        if sender not in sequences and len(sequences) >= SENDERS_MAX:
            del sequences[next(iter(sequences))]
        sequences[sender] = sequence
        return False

    def forget_peer(self, peer: NodeId) -> None:
        """Discard the cached data of a peer that is gone, except its replay window."""
        self.channels.pop(peer, None)
        self._unicast_from.pop(peer, None)


#: Largest number of groups; beyond it the longest unused name that the node does not serve is forgotten. Each costs a few KiB;
#: forgetting a name in use costs deriving its keys again.
GROUPS_MAX = 2048
#: Number of forgotten names whose sequence numbers are remembered, the last forgotten ones. The numbers of other forgotten
#: names begin beyond all others. Each costs a few hundred bytes, a tenth of a group.
NUMBERS_MAX = 16_384
#: The name of the realm, which no cluster can have.
REALM_NAME = ">"


class Groups:
    """The table of the groups that one node uses, by name and by id.

    Args:
        local: The node's id.
        direct_members_max: See :class:`Group`.

    Attributes:
        by_id: The groups in use, by group id.
        by_name: The primary group of each cluster in use, for reading.
        cluster_counts: Counters of each cluster.
        topic_counts: Counters of the topics with the same first token.
    """

    def __init__(self, local: NodeId, keyring: Keyring, direct_members_max: int = DIRECT_MEMBERS_MAX) -> None:
        self.by_id: dict[bytes, Group] = {}
        self.cluster_counts = CountTable()
        self.topic_counts = CountTable()
        self.by_name: dict[str, Group] = {}
        self._realms: list[Group] = []  # of all generations, the primary first; empty before the first use of a topic
        self._local = local
        self._keyring = keyring
        self._direct_members_max = direct_members_max
        self._last_epoch = 0
        self._last_sequence = 0
        self._numbers: dict[str, int] = {}  # last sequence numbers of forgotten groups, by name

    @property
    def is_full(self) -> bool:
        """Whether a group should be forgotten before another is added."""
        return len(self.by_id) >= GROUPS_MAX

    def find(self, name: str) -> Group | None:
        """Return the primary group (under the newest secret) of a cluster in use, or None."""
        return self.by_name.get(name)

    def is_of_entry(self, group_id: GroupId) -> bool:
        """Tell whether a group in use is that of a promoted entry."""
        found = self.by_id.get(group_id)
        return found is not None and bool(found.entry)

    def clusters(self) -> list[Group]:
        """Return the primary group of each cluster in use."""
        return list(self.by_name.values())

    def realms(self) -> list[Group]:
        """Return the groups of the realm of all topics in every generation of the secret, the primary one first."""
        if not self._realms:
            self._realms = [self._use_realm(keys) for keys in (self._keyring.realm(), *self._keyring.accepted_realms())]
        return self._realms

    def is_realm(self, group: Group) -> bool:
        """Tell whether a group is that of the realm in an accepted generation."""
        return group in self._realms

    def accepted(self, group: Group) -> list[Group]:
        """Return the groups of the same name in the other accepted generations; create missing groups."""
        return [self._use(group, keys) for keys in self._keyring.accepted(group.name)]

    def rekey(self, keyring: Keyring) -> list[Group]:
        """Use a new keyring; return the groups of generations that are no longer accepted.

        Raises:
            ValueError: A cluster in use lacks its own secret; the groups are unchanged then.
        """
        used = list(self.by_name.values())
        primaries = [keyring.cluster(group.name) for group in used]
        accepted = [keyring.accepted(group.name) for group in used]
        self._keyring = keyring  # no error is possible from here on
        kept: set[bytes] = set()
        for group, primary, others in zip(used, primaries, accepted, strict=True):
            kept |= {keys.group_id for keys in (primary, *others)}
            self.by_name[group.name] = self._use(group, primary)
        if self._realms:
            self._realms = []
            kept |= {group.id for group in self.realms()}
            kept |= {group.id for group in self.by_id.values() if group.realm is not None and group.realm.id in kept}
        left = [group for group in self.by_id.values() if group.id not in kept]
        for group in left:
            group.is_left = True
        return left

    def _use(self, group: Group, keys: GroupKeys) -> Group:
        """Return the group of the same name under other keys; create a missing group."""
        found = self.by_id.get(keys.group_id)
        if found is None:
            self._last_epoch += 1
            found = Group(group.name, keys, self._local, self._last_epoch, self._last_sequence)
            found.direct_members_max = self._direct_members_max
            found.last_used = group.last_used
            found.is_own = self._keyring.is_own(group.name, keys)
            self.by_id[found.id] = found
            found.counts = self.cluster_counts.use(found.name)
        found.is_left = False
        return found

    def _use_realm(self, keys: GroupKeys) -> Group:
        """Return the group of the realm under some keys; create a missing group."""
        found = self.by_id.get(keys.group_id)
        if found is None:
            self._last_epoch += 1
            found = Group(REALM_NAME, keys, self._local, self._last_epoch, is_realm=True)
            self.by_id[found.id] = found
        found.is_left = False
        return found

    def of_entry(self, realm: Group, entry: bytes) -> Group:
        """Return the group of a promoted entry of the realm's table; create a missing group.

        Args:
            realm: The group of the realm.
            entry: The packed entry.
        """
        keys = realm.keys.entry_group(entry)
        found = self.by_id.get(keys.group_id)
        if found is None:
            self._last_epoch += 1
            found = Group(REALM_NAME, keys, self._local, self._last_epoch)
            found.realm, found.entry = realm, entry
            self.by_id[found.id] = found
        found.is_left = False
        return found

    def use_table(self, realm: Group, path: bytes) -> Group:
        """Return the group of a table of interest of the realm, for a user; create a missing group.

        Args:
            realm: The group of the realm.
            path: The path of the table (``patterns/topic/table_paths``).
        """
        if not path:
            return realm
        keys = realm.keys.table_group(path)
        found = self.by_id.get(keys.group_id)
        if found is None:
            self._last_epoch += 1
            found = Group(REALM_NAME, keys, self._local, self._last_epoch)
            found.realm, found.path = realm, path
            self.by_id[found.id] = found
        found.is_left = False
        found.users += 1
        return found

    def release_table(self, group: Group) -> None:
        """End one use of the group of a child table; without another one, it is forgotten."""
        group.users -= 1
        if group.path and group.users <= 0:
            self.by_id.pop(group.id, None)

    def make(self, name: str) -> Group:
        """Return a new group.

        Raises:
            ValueError: The name is empty or too long.
        """
        # Epochs are never reused, so a group that is forgotten and created again never repeats a nonce. Its sequence numbers
        # continue, so that receivers see what they missed. If the numbers are forgotten, it starts beyond all other numbers;
        # otherwise its messages would be taken for late.
        self._last_epoch += 1
        keys = self._keyring.cluster(name)
        group = Group(name, keys, self._local, self._last_epoch, self._numbers.get(name, self._last_sequence))
        group.direct_members_max = self._direct_members_max
        group.is_own = self._keyring.is_own(name, keys)
        return group

    def add(self, group: Group) -> None:
        """Add a new group to the table."""
        self.by_name[group.name] = self.by_id[group.id] = group
        group.counts = self.cluster_counts.use(group.name)
        self._numbers.pop(group.name, None)

    @contextmanager
    def adding(self, group: Group) -> Iterator[Group]:
        """Add a new group to the table; remove it again if the ``with`` block raises an exception."""
        self.add(group)
        try:
            yield group
        except BaseException:
            self.forget(group)
            raise

    def oldest(self, is_idle: Callable[[Group], bool]) -> Group | None:
        """Return the longest unused group accepted by ``is_idle``, or None."""
        return min(filter(is_idle, self.by_id.values()), key=lambda group: group.last_used, default=None)

    def forget(self, group: Group) -> None:
        """Remove a group from the table, and remember its sequence numbers."""
        self._last_epoch = max(self._last_epoch, group.epoch)
        del self.by_id[group.id]
        if group.is_of_topics:
            return
        self.cluster_counts.release(group.name)
        self._last_sequence = max(self._last_sequence, group.sequence)
        if self.by_name.get(group.name) is not group:  # of another generation
            return
        if group.sequence:
            if len(self._numbers) >= NUMBERS_MAX:
                del self._numbers[next(iter(self._numbers))]
            self._numbers[group.name] = group.sequence
        del self.by_name[group.name]
