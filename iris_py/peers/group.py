"""One name, as a node keeps it: its keys, its view of the members, and the messages on their way to each of them.

Three ways lead to a peer: the link to it; the ring, if there can be no link; and for broadcasts to large groups the tree of the
group. Bodies for the tree are sealed by a second sealer and opened by a second opener, for they take long: under one counter,
what goes over links meanwhile would push them out of the replay window of the receivers.

The names that the application uses, and what must outlive a name that is forgotten and used again.

A name has a group in each generation of its secret (docs/design.md 2.9). What this node asks, broadcasts and publishes goes
through the group of the primary generation. The others are made when the node takes part in a name, so that nodes with another
primary generation reach it too.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from iris_overlay.ids import GroupId
from iris_py.observe.counts import CountTable, GroupCounts, Totals
from iris_py.peers.balancer import by_distance, by_rank, is_in_zone, zone_distance
from iris_py.peers.hedging import Hedging
from iris_py.peers.keyed import KeyedMembers
from iris_py.peers.member import Member, weigh
from iris_py.wire import packets
from iris_security import GroupOpener, GroupSealer, multicast_associated, unicast_associated
from iris_security.keyring import PROOF_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iris_overlay.events import GroupMember
    from iris_overlay.ids import NodeId
    from iris_overlay.messages import NodeInfo
    from iris_py.peers.member import Placement
    from iris_py.peers.peer import Peer
    from iris_security import GroupKeys, Keyring

#: No two names of a node are the same in so many bytes: half as many would do, but for a name that somebody chose to collide.
SUBJECT_BYTES = 16
#: A body is sealed when it has grown to this, so that packet and frame headers still fit one record of 64 KiB.
BODY_BYTES = 62 * 1024
#: A run of more messages is not lengthened: it may be of empty ones, and then gets so many more as ``BODY_BYTES`` hold.
LENGTHENED_MESSAGES_MAX = packets.RUN_MESSAGES_MAX - BODY_BYTES // packets.RUN_MESSAGE_COST
#: What a run of publications has besides their topic, sizes and payloads.
RUN_BYTES = packets.MESSAGE_BYTES + packets.RUN_COUNT.size
#: Members of a group that a broadcast is sent to one by one; a larger group is cast to, down its tree. As many as a view shows,
#: so all of them are known, and as many copies as a node of the tree sends.
DIRECT_MEMBERS_MAX = 32
#: How long after the last cast broadcasts still go down the tree, though the group has become small (seconds): a direct one
#: would overtake those that are under way. Longer than a cast takes down a tree of which a part has just died.
CAST_LINGER_S = 5.0
#: Added to the epoch of the sealer for the tree: no nonce is used twice.
CAST_EPOCHS = 1 << 31
#: Appended to what is associated with bodies for the tree: a body of one kind does not open as the other, or it could be
#: repeated there.
CAST_LABEL = b"cast"
#: Senders whose last broadcast is remembered, for one group. Forgetting one lets a late broadcast of it pass.
SENDERS_MAX = 4096
#: Placements of requests whose levels are kept until the view changes. Beyond it all are forgotten: it costs making them again.
PLACEMENTS_MAX = 16


class Channel:
    """Messages to one peer under one group's key, gathered until the next flush and then sealed together."""

    __slots__ = ("associated", "group", "parts", "parts_bytes", "peer")

    def __init__(self, group: Group, peer: Peer, associated: bytes) -> None:
        self.group = group
        self.peer = peer
        self.associated = associated
        self.parts: list[bytes] = []
        self.parts_bytes = 0

    def take(self) -> tuple[list[bytes], int]:
        """Take what was gathered: a body, in parts, and its size."""
        taken = self.parts, self.parts_bytes
        self.parts, self.parts_bytes = [], 0
        return taken


class Run:
    """Publications to one topic that follow one another: they go to the same nodes, with one header for all.

    A run ends when its body is sealed, or when something else is put into that body; until then whoever holds it may append.

    Attributes:
        head: The topic, and what is before it.
        kind: One of ``packets.PUBLICATIONS``.
        payloads: What was published.
        room: How many bytes it takes still; none when it has ended, and less than none if it began with something large.
        limit: How many bytes the body with it may have.
        count: How many nodes it goes to.
        counted: Groups that they are not sent under, and have a number in.
    """

    __slots__ = ("count", "counted", "head", "kind", "limit", "payloads", "room")

    def __init__(self, head: bytes, payload: bytes, room: int, count: int, kind: int) -> None:
        self.head = head
        self.kind = kind
        self.payloads = [payload]
        self.room = room
        self.limit = BODY_BYTES
        self.count = count
        self.counted: list[Group] = []


class Group:
    """One name.

    Attributes:
        name: The name that the application uses.
        id: The group id that the overlay knows.
        is_topic: Whether it is a group of topics.
        is_own: Whether its keys come from a secret of its own, which not every node of the network has.
        is_left: Whether its generation of the secret is not accepted any more: nothing is begun in it, here or by others.
        subject: What the name is, in a few bytes: the same in every generation of its secret.
        members: The view; None until the overlay has given the first one. Of a large group a sample.
        targets: Who is sent what is for everybody: the ordinary members, and of a group of topics those whom no wider group
            reaches.
        lowest: The members of the lowest rank, which requests go to: all of them unless some stand in for others (6.13).
        higher: Those of each higher rank, in order; empty in nearly every cluster.
        spills: Whether some of these take what those before them have no place for.
        levels: ``lowest`` by distance, as the balancer wants them.
        keyed: Which of them has which keys.
        hedging: When its idempotent requests are given to a second member.
        size: How many members there are.
        is_watched: Whether the overlay tells changes of the view by itself.
        is_doubted: Whether the root says that nobody is there, which is not certain: the overlay looks again at each use.
        sequence: The number of the last broadcast or publication of this node, apart from those in ``run``.
        first_sequence: The number before its first one.
        channels: The channel to each peer that has a link.
        broadcast_parts: Broadcasts gathered until the next flush, and sealed once for all members.
        broadcast_bytes: Their size.
        run: The publications that come behind those and to which more may be appended, if there is such a run.
        lost_at: When a member was last seen to be gone (seconds), whatever the reason; minus infinity if none ever was.
        last_used: When the application last used it (seconds); idle groups are forgotten.
        counts: What was done under its name, in all generations of its secret.
    """

    def __init__(
        self, name: str, keys: GroupKeys, local: NodeId, epoch: int, sequence: int = 0, *, is_topic: bool = False
    ) -> None:
        self.name = name
        self.keys = keys
        self.id = GroupId(keys.group_id)
        self.is_topic = is_topic
        self.is_own = False
        self.is_left = False
        self.subject = hashlib.sha256(name.encode()).digest()[:SUBJECT_BYTES]
        self.levels: list[list[Member]] = []
        self.keyed = KeyedMembers()
        self.hedging = Hedging()
        self.targets: list[Member] = []
        self.lowest: list[Member] = []
        self.higher: list[list[Member]] = []
        self.spills = False
        self.size = 0
        self.is_watched = True
        self.is_doubted = False
        self.sequence = self.first_sequence = sequence
        self.channels: dict[NodeId, Channel] = {}
        self.broadcast_parts: list[bytes] = []
        self.broadcast_bytes = 0
        self.run: Run | None = None
        self.lost_at = -math.inf
        self.last_used = 0.0
        self.counts = GroupCounts(Totals())  # until the group is in use
        self._is_long = False  # the run that is gathered
        self._members: list[Member] | None = None
        self._placed: dict[Placement, list[list[Member]]] = {}
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
    def members(self) -> list[Member] | None:
        return self._members

    @members.setter
    def members(self, members: list[Member]) -> None:
        self._members = members
        self._placed.clear()
        self.keyed.clear()
        if not self.is_topic:  # of topics, who publishes works out the targets, and nobody asks for a member
            self.lowest = self.targets = members
            self.higher, self.spills = [], False
            if any(member.rank for member in members):
                self.lowest, *self.higher = by_rank(members)
                self.targets = [] if self.lowest[0].rank else self.lowest
                self.spills = any(member.takes_overflow for rank in self.higher for member in rank)
            self.levels = by_distance(self.lowest)

    def forget_view(self) -> None:
        """Know nothing of the members any more, until the next view: what is for them waits."""
        nobody: list[Member] = []
        self.members = nobody
        self._members = None

    def candidates(self, placement: Placement | None) -> list[Member]:
        """Return the members that a request may go to, as long as one of them is there and takes it."""
        if placement is None:
            return self.lowest
        if placement.require:
            return [member for member in self.targets if is_in_zone(member.peer.info.zone, placement.require)]
        return self.targets if placement.is_own else self.lowest

    def candidates_after(self, placement: Placement | None) -> list[list[Member]]:
        """Return the members of each higher rank that a request may go to when those are gone, or have no place."""
        return self.higher if placement is None or not (placement.require or placement.is_own) else []

    def has_others(self, rank: int) -> bool:
        """Tell whether another node is a member and comes no later than one of so high a rank."""
        return any(member.rank <= rank and not member.peer.is_local for member in self._members or ())

    def placed_levels(self, placement: Placement) -> list[list[Member]]:
        """Return the levels for a request that says where it wants to go; like ``levels``, which are for all others."""
        levels = self._placed.get(placement)
        if levels is None:
            if len(self._placed) >= PLACEMENTS_MAX:
                self._placed.clear()
            levels = self._placed[placement] = self.order(self.candidates(placement), placement)
        return levels

    def order(self, members: list[Member], placement: Placement | None) -> list[list[Member]]:
        """Order some members for a request: by distance to the zone that it prefers, or else to the own one."""
        if placement is None or not placement.prefer:
            return by_distance(members)
        preferred = placement.prefer
        return by_distance(members, lambda member: zone_distance(preferred, member.peer.info.zone))

    def keyed_member(self, key: bytes, placement: Placement | None) -> Member:
        """Return the member that a key chooses. There has to be one.

        Args:
            key: The identity that the key of the application gives the request.
            placement: Where the request wants to go.
        """
        levels = self.levels if placement is None else self.placed_levels(placement)
        return self.keyed.find(key, placement, levels[0])

    @property
    def epoch(self) -> int:
        """The last epoch that was sealed under; it grows by itself."""
        return max(self._sealer.epoch, self._cast_sealer.epoch - CAST_EPOCHS)

    def is_cast(self, now: float) -> bool:
        """Tell whether a broadcast goes down the tree now, for not every member is known, or for it would overtake others."""
        if self.size > DIRECT_MEMBERS_MAX or not self.is_watched:
            self._cast_until = now + CAST_LINGER_S
        return now < self._cast_until

    def take_view(
        self, view: dict[NodeId, GroupMember], peer_of: Callable[[NodeInfo], Peer], zone: str
    ) -> tuple[list[Member], int]:
        """Take a new view.

        Args:
            view: What the overlay reports.
            peer_of: Finds the peer of a description.
            zone: Where this node is.

        Returns:
            The members that are gone, and how many were left out because they proved nothing.
        """
        gone = {member.peer.id: member for member in self._members or ()}
        members: list[Member] = []
        for id_, reported in view.items():
            member = gone.get(id_)
            attributes = reported.attributes
            if member is None or member.attributes != attributes:
                if not self.keys.verify_proof(id_, attributes[:PROOF_BYTES], attributes[PROOF_BYTES:]):
                    continue
                if member is None:
                    peer = peer_of(reported.info)
                    member = Member(peer, zone_distance(zone, peer.info.zone))
                member.register(attributes)
            gone.pop(id_, None)
            members.append(member)
        for rank in by_rank(members):
            weigh(rank)
        self.members = members
        return list(gone.values()), len(view) - len(members)

    def channel(self, peer: Peer) -> Channel:
        """Return the channel to a peer, made when it is first used."""
        channel = self.channels.get(peer.id)
        if channel is None or channel.peer is not peer:
            channel = self.channels[peer.id] = self.new_channel(peer)
        return channel

    def new_channel(self, peer: Peer) -> Channel:
        """Return a channel that is not kept, for a peer without a link."""
        return Channel(self, peer, unicast_associated(self.id, self._local, peer.id))

    def seal(self, channel: Channel) -> tuple[bytes, bytes]:
        """Take what a channel gathered and seal it for its peer: (nonce, sealed body)."""
        parts, _size = channel.take()
        return self._sealer.seal(b"".join(parts), channel.associated)

    def seal_multicast(self, body: bytes, *, is_cast: bool = False) -> tuple[bytes, bytes]:
        """Seal a body for every member, over links or for the tree: (nonce, sealed body)."""
        if is_cast:
            return self._cast_sealer.seal(body, self._multicast + CAST_LABEL)
        return self._sealer.seal(body, self._multicast)

    def begin_run(self, head: bytes, payload: bytes, count: int, kind: int = packets.PUBLICATION) -> Run:
        """Gather a publication to which more to the same topic may be appended. The run before has to be ended.

        Args:
            head: The topic, and what is before it.
            payload: What is published.
            count: How many nodes it goes to.
            kind: One of ``packets.PUBLICATIONS``.
        """
        self.broadcast_bytes += RUN_BYTES + len(head) + packets.RUN_MESSAGE_COST + len(payload)
        run = self.run = Run(head, payload, BODY_BYTES - self.broadcast_bytes, count, kind)
        return run

    def append_to_run(self, payload: bytes) -> bool:
        """Append a publication to the run, if there is one, and lengthen that if it is full; returns whether it was appended.

        A full run in the turn in which it began is a backlog: the fewer bodies it goes in the better. So it is lengthened while
        nothing else is gathered, and nothing in it is large, for what is large waits behind what is small.
        """
        run = self.run
        if run is None or run.room < 0 or len(payload) > BODY_BYTES:
            return False
        room = run.room - packets.RUN_MESSAGE_COST - len(payload)
        if room < 0 and not self.broadcast_parts and len(run.payloads) <= LENGTHENED_MESSAGES_MAX:
            more = min(BODY_BYTES, packets.RUN_BODY_BYTES_MAX - run.limit)
            if room + more >= 0:
                room += more
                run.limit += more
        if room < 0:
            return False
        run.room = room
        run.payloads.append(payload)
        return True

    def end_run(self) -> None:
        """Put the run, if there is one, behind what is gathered: nothing is appended to it any more."""
        run = self.run
        if run is None:
            return
        self.run = None
        first = self.sequence + 1
        self.sequence += len(run.payloads)
        self.counts.runs += 1
        self.counts.published += len(run.payloads)
        for group in run.counted:
            group.sequence += len(run.payloads)
        ordinal = min(packets.ORDINAL_MAX, first - self.first_sequence)
        self.broadcast_parts += packets.encode_run(run.head, run.payloads, first, ordinal, run.kind)
        # What was reckoned, without what is not on the wire.
        count = len(run.payloads)
        self.broadcast_bytes = run.limit - run.room - count * (packets.RUN_MESSAGE_COST - packets.RUN_MESSAGE_BYTES)
        if count == 1:
            self.broadcast_bytes -= packets.RUN_COUNT.size + packets.RUN_MESSAGE_BYTES
        self._is_long = run.limit > BODY_BYTES
        run.room = 0

    def take_broadcasts(self) -> tuple[list[bytes], int, bool]:
        """Take the gathered broadcasts, with no run among them that may grow.

        Returns:
            A body, in parts; its size; and whether it is a run that was lengthened.
        """
        taken = self.broadcast_parts, self.broadcast_bytes, self._is_long
        self.broadcast_parts, self.broadcast_bytes, self._is_long = [], 0, False
        return taken

    def open_unicast(self, sender: NodeId, nonce: bytes, sealed: bytes | memoryview) -> bytes:
        """Open a body that was sealed for this node.

        Raises:
            AuthenticationError: It was not, or not by that sender.
            ReplayError: It was opened before.
        """
        associated = self._unicast_from.get(sender)
        if associated is None:
            associated = self._unicast_from[sender] = unicast_associated(self.id, sender, self._local)
        return self._opener.open(sender, nonce, sealed, associated)

    def open_multicast(self, sender: NodeId, nonce: bytes, sealed: bytes | memoryview) -> bytes:
        """Open a body that was sealed for every member. Raises as :meth:`open_unicast` does."""
        return self._opener.open(sender, nonce, sealed, multicast_associated(self.id, sender))

    def open_routed(self, sender: NodeId, nonce: bytes, sealed: bytes | memoryview) -> bytes:
        """Open a body that was sealed for this node and came without a link. Raises as :meth:`open_unicast` does."""
        return self._opener.open(sender, nonce, sealed, unicast_associated(self.id, sender, self._local))

    def open_cast(self, sender: NodeId, nonce: bytes, sealed: bytes | memoryview) -> bytes:
        """Open a body that came down the tree. Raises as :meth:`open_unicast` does."""
        return self._cast_opener.open(sender, nonce, sealed, multicast_associated(self.id, sender) + CAST_LABEL)

    def is_late(self, sender: NodeId, sequence: int) -> bool:
        """Tell whether a later broadcast of a sender was here before; otherwise this one is the last from now on."""
        if sequence <= self._sequences.get(sender, -1):
            return True
        self.note_sequence(sender, sequence)
        return False

    def last_sequence(self, sender: NodeId) -> int:
        """Return the number of the last message of a sender: 0 if there was none, negative after :meth:`forget_baselines`."""
        return self._sequences.get(sender, 0)

    def note_sequence(self, sender: NodeId, sequence: int) -> None:
        """Take this for the last message of a sender from now on."""
        sequences = self._sequences
        if sender not in sequences and len(sequences) >= SENDERS_MAX:
            del sequences[next(iter(sequences))]
        sequences[sender] = sequence

    def forget_baselines(self) -> None:
        """Take the next message of each sender for the first: those before it went another way, or nowhere."""
        for sender, last in self._sequences.items():
            self._sequences[sender] = -abs(last)

    def forget_peer(self, peer: NodeId) -> None:
        """Drop what was cached for a peer that is gone; its replay window stays."""
        self.channels.pop(peer, None)
        self._unicast_from.pop(peer, None)


#: Names that the application used and that nothing is registered under are forgotten beyond this number, the longest unused
#: first. Each costs a few KiB; forgetting one in use costs deriving its keys again.
GROUPS_MAX = 2048
#: Forgotten names of which it is remembered how many messages they had, the last forgotten ones. Beyond it, what a receiver
#: missed before the name was forgotten is in no gap. Each costs a few hundred bytes, a tenth of a group.
NUMBERS_MAX = 16_384


class Groups:
    """The groups of one node.

    Args:
        local: The node.
        keyring: The secrets of the network.

    Attributes:
        by_id: Those in use, by group id.
        cluster_counts: What was done in each cluster.
        topic_counts: What was done under each prefix of topics.
    """

    def __init__(self, local: NodeId, keyring: Keyring) -> None:
        self.by_id: dict[bytes, Group] = {}
        self.cluster_counts = CountTable()
        self.topic_counts = CountTable()
        self._by_name: dict[str, Group] = {}
        self._topics: dict[str, Group] = {}
        self._local = local
        self._keyring = keyring
        self._last_epoch = 0
        self._last_sequence = 0
        self._numbers: dict[tuple[bool, str], tuple[int, int]] = {}  # of those forgotten: the first and the last one

    @property
    def is_full(self) -> bool:
        """Whether one should be forgotten before another one is added."""
        return len(self.by_id) >= GROUPS_MAX

    def find(self, name: str) -> Group | None:
        """Return the primary group of a cluster, if it is in use."""
        return self._by_name.get(name)

    def find_topic(self, name: str) -> Group | None:
        """Return the primary group of topics of that name, if it is in use."""
        return self._topics.get(name)

    def clusters(self) -> list[Group]:
        """Return the primary group of each cluster in use."""
        return list(self._by_name.values())

    def topics(self) -> list[Group]:
        """Return the primary group of each prefix of topics in use."""
        return list(self._topics.values())

    def accepted(self, group: Group) -> list[Group]:
        """Return the groups of the same name in the other generations of its secret; those that are missing are added."""
        return [self._use(group, keys) for keys in self._keyring.accepted(group.name, is_topic=group.is_topic)]

    def rekey(self, keyring: Keyring) -> list[Group]:
        """Use other secrets from now on; returns the groups of generations that are not among them, which are left.

        Raises:
            ValueError: A cluster in use has to have a secret of its own, and has none; nothing has changed then.
        """
        used = [*self._by_name.values(), *self._topics.values()]
        primaries = [keyring.topic(group.name) if group.is_topic else keyring.cluster(group.name) for group in used]
        accepted = [keyring.accepted(group.name, is_topic=group.is_topic) for group in used]
        self._keyring = keyring  # from here on nothing is refused
        kept: set[bytes] = set()
        for group, primary, others in zip(used, primaries, accepted, strict=True):
            kept |= {keys.group_id for keys in (primary, *others)}
            names = self._topics if group.is_topic else self._by_name
            names[group.name] = self._use(group, primary)
        left = [group for group in self.by_id.values() if group.id not in kept]
        for group in left:
            group.is_left = True
        return left

    def _use(self, group: Group, keys: GroupKeys) -> Group:
        """Return the group of the same name with other keys, and add it if it is missing."""
        found = self.by_id.get(keys.group_id)
        if found is None:
            self._last_epoch += 1
            found = Group(group.name, keys, self._local, self._last_epoch, self._last_sequence, is_topic=group.is_topic)
            found.last_used = group.last_used
            found.is_own = not group.is_topic and self._keyring.is_own(group.name, keys)
            self.by_id[found.id] = found
            found.counts = self._counts_of(found).use(found.name)
        found.is_left = False
        return found

    def make(self, name: str, *, is_topic: bool = False) -> Group:
        """Return a new group.

        Raises:
            ValueError: The name is empty or too long.
        """
        # No epoch is used twice, so a group that is forgotten and made again never repeats a nonce. Its numbers go on where
        # they were, so that what was missed shows; if that is not known, beyond all others, or they would be taken for late.
        self._last_epoch += 1
        keys = self._keyring.topic(name) if is_topic else self._keyring.cluster(name)
        first, last = self._numbers.get((is_topic, name), (self._last_sequence, self._last_sequence))
        group = Group(name, keys, self._local, self._last_epoch, first, is_topic=is_topic)
        group.sequence = last
        group.is_own = not is_topic and self._keyring.is_own(name, keys)
        return group

    def add(self, group: Group) -> None:
        """Use a group from now on."""
        names = self._topics if group.is_topic else self._by_name
        names[group.name] = self.by_id[group.id] = group
        group.counts = self._counts_of(group).use(group.name)
        self._numbers.pop((group.is_topic, group.name), None)

    @contextmanager
    def adding(self, group: Group) -> Iterator[Group]:
        """Use a group from now on, unless what follows raises."""
        self.add(group)
        try:
            yield group
        except BaseException:
            self.forget(group)
            raise

    def oldest(self, is_idle: Callable[[Group], bool]) -> Group | None:
        """Return the idle group that was not used for the longest time, if one is idle."""
        return min(filter(is_idle, self.by_id.values()), key=lambda group: group.last_used, default=None)

    def forget(self, group: Group) -> None:
        """Do not use a group any more."""
        self._last_epoch = max(self._last_epoch, group.epoch)
        group.end_run()
        self._counts_of(group).release(group.name)
        self._last_sequence = max(self._last_sequence, group.sequence)
        names = self._topics if group.is_topic else self._by_name
        if names.get(group.name) is not group:  # of another generation
            del self.by_id[group.id]
            return
        if group.sequence > group.first_sequence:
            if len(self._numbers) >= NUMBERS_MAX:
                del self._numbers[next(iter(self._numbers))]
            self._numbers[group.is_topic, group.name] = group.first_sequence, group.sequence
        del self.by_id[group.id], names[group.name]

    def _counts_of(self, group: Group) -> CountTable:
        return self.topic_counts if group.is_topic else self.cluster_counts
