"""The publisher's side of shared subscriptions: each message to one member of each group (docs/design.md 8.15).

A publisher chooses the member for a *slice*, some messages that follow one another, as callers choose the member for a request
(:mod:`iris_py.peers.balancer`): in the nearest zone, the less loaded of two members. The load is the number of *outstanding*
messages, which the member was given and has not taken, and of messages of others in its queue.

Every message given to a member ends as taken or as lost::

    given = taken + outstanding + lost

A slice is given to a member with an open link. While no member of the group has a link, slices wait here, in order. No message
waits for a certain member, and no message is sent twice.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from iris_overlay.timers import DeadlineTable
from iris_py.patterns.topic.queue import SharedMessagesLost
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.patterns.topic.share_entries import group_tag, split_shares
from iris_py.patterns.topic.share_index import TOPIC_GROUPS_MAX, Share, ShareIndex
from iris_py.patterns.topic.shared_slices import (
    BACKLOG_SLICE_MESSAGES_MAX,
    BACKLOG_SLICE_PART,
    BATCH_MESSAGES_MAX,
    SLICE_MESSAGES_MAX,
    SLICE_S,
)
from iris_py.peers.balancer import MemberLoad, by_distance, choose_near, zone_distance
from iris_py.peers.group import BODY_BYTES
from iris_py.peers.outbound import RoomMade
from iris_py.wire.flows import messages_between
from iris_py.wire.shares import FIRST_WINDOW, SharedNumber, TakenCounts, decode_taken

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.environment import Rng
    from iris_overlay.ids import NodeId
    from iris_py.patterns.topic.incoming_shares import IncomingShares
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.queue import TopicEvent
    from iris_py.patterns.topic.shared_slices import SharedSlice
    from iris_py.patterns.topic.targets import PublicationTarget
    from iris_py.peers.decrypted_message import PeerMessage
    from iris_py.peers.group import Group
    from iris_py.peers.outbound import Outbound
    from iris_py.peers.peer import Peer

#: Members of a group that a publisher chooses from. Too small: it may miss the members with little load. Too large: each costs
#: time when the members change.
MEMBERS_MAX: Final = 64
#: Time in which a member with outstanding messages takes none, after which it gets no more (seconds). Too small: a pause of the
#: member makes others work more; too large: a stopped member gets messages that it will not take soon.
STALLED_S: Final = 2.0
#: Time without news of a member after a broken link, after which the messages that the link may have taken with it count as
#: lost (seconds). Too small: messages count as lost that a member takes after a pause. Too large: losses are reported late.
DOUBTED_S: Final = 60.0
#: Bytes and messages that wait for a link to any member of one group. Too small: a publisher waits while members start; too
#: large: memory, for a group that nobody can reach.
HELD_BYTES_MAX: Final = 1024 * 1024
HELD_MESSAGES_MAX: Final = 1024
#: Members without shares whose counts are remembered; beyond it the longest unused is forgotten. Too small: a member that
#: subscribes again shows no exact gap. Too large: memory, some 400 bytes for each.
REMEMBERED_MAX: Final = 4096


class ShareCounts(msgspec.Struct):
    """The counts of a group at a publisher.

    Attributes:
        name: The name of the group; empty until a member tells the name.
        given: Messages given to members.
        taken: Messages taken by members, or dropped by their own policy.
        lost: Untaken messages of lost members; an upper bound.
        full: Number of slices without room at any member.
    """

    name: str = ""
    given: int = 0
    taken: int = 0
    lost: int = 0
    full: int = 0

    @property
    def outstanding(self) -> int:
        """The messages given and neither taken nor lost."""
        return self.given - self.taken - self.lost


class ShareMember(MemberLoad):
    """A node in a group, as known to a publisher. The load is in ``in_flight``.

    Attributes:
        target: The node; None for the local node.
        peer: The node.
        tag: The tag of the group.
        counts: The counts of the group.
        name: The name of the count of messages to the member.
        sent: Messages in the count.
        outstanding: Messages given and neither taken nor lost, including unsent messages.
        blocks: Whether publishers wait for the member.
        order: A random number, which selects the members to choose from.
        is_listed: Whether the node is a member now.
    """

    __slots__ = (
        "_doubted",
        "_doubted_at",
        "_missed",
        "_others",
        "_progress_at",
        "_received",
        "_slice_messages",
        "_taken",
        "_written_off",
        "blocks",
        "counts",
        "is_listed",
        "name",
        "order",
        "outstanding",
        "peer",
        "sent",
        "tag",
        "target",
        "window",
    )

    def __init__(
        self, target: PublicationTarget | None, peer: Peer, tag: int, counts: ShareCounts, name: int, order: float
    ) -> None:
        super().__init__()
        self.target = target
        self.peer = peer
        self.tag = tag
        self.counts = counts
        self.name = name
        self.sent = 0
        self.outstanding = 0
        self.blocks = False
        self.order = order
        self.is_listed = False
        self.window = FIRST_WINDOW
        self._slice_messages = 1  # some SLICE_S of work
        self._received = self._missed = self._taken = 0  # as the member has told
        self._written_off = 0  # messages counted as lost of which the member has not told
        self._doubted = 0  # outstanding messages that a broken link may have taken with it
        self._doubted_at = 0  # `sent` when the link broke
        self._others = 0
        self._progress_at = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether a slice can be sent at once."""
        link = self.peer.link
        return self.peer.is_local or self.peer.is_routed if link is None else link.is_open

    @property
    def room(self) -> int:
        """The messages that fit in the window; for a full member, which drops messages, those of a slice."""
        return self.window - self.in_flight if self.window > self.in_flight else self.slice_max

    @property
    def slice_max(self) -> int:
        """The largest number of messages in a slice: little work, or little beside the outstanding messages."""
        return max(self._slice_messages, min(self.in_flight // BACKLOG_SLICE_PART, BACKLOG_SLICE_MESSAGES_MAX))

    def has_room(self, now: float) -> bool:
        """Tell whether a slice may be given to the member."""
        if not self.is_ready or self.peer.is_congested:
            return False
        # A member tells a publisher without outstanding messages nothing more. So the messages of others that it told last
        # count only beside outstanding ones: alone, they would block the publisher for ever.
        if self.outstanding > self._doubted and self.in_flight >= self.window:
            return False
        return not self.is_stalled(now)

    def is_stalled(self, now: float) -> bool:
        """Tell whether the member has taken nothing for ``STALLED_S`` although messages are outstanding."""
        return self.outstanding > self._doubted and now >= self._progress_at + STALLED_S

    def give(self, count: int, now: float) -> None:
        """Count given messages."""
        if self.outstanding == self._doubted:
            self._progress_at = now
        self.outstanding += count
        self.counts.given += count
        self._weigh()

    def take_back(self, count: int) -> None:
        """Count unsent messages for another member."""
        self.outstanding -= count
        self.counts.given -= count
        self._weigh()

    def doubt(self) -> None:
        """Handle a broken link, perhaps with lost messages: outstanding messages are no load until the member tells."""
        self._doubted, self._doubted_at = self.outstanding, self.sent
        self._weigh()

    def write_off_doubted(self) -> int:
        """Count the messages that a broken link may have taken with it as lost; return the number."""
        lost, self._doubted = self._doubted, 0
        return self._lose(lost)

    def write_off(self) -> int:
        """Handle the loss of the member: count the outstanding messages as lost; return the number."""
        return self._lose(self.outstanding)

    def receive(self, taken: TakenCounts, now: float) -> bool:
        """Handle a TAKEN; return False for impossible numbers."""
        received = messages_between(self._received, taken.received)
        missed, left = messages_between(self._missed, taken.missed), messages_between(self._taken, taken.taken)
        if taken.name != self.name or received > self.sent - self._received:
            return False
        if missed + left > self._received + received - self._missed - self._taken:
            return False
        self._received += received
        self._missed += missed
        self._taken += left
        known = min(missed, self._written_off)
        self._written_off -= known
        again = min(left, self._written_off)
        self._written_off -= again
        self._lose(missed - known, is_told=True)
        self.outstanding -= left - again
        self.counts.taken += left - again
        self._doubted = 0
        if self._doubted_at > self._received:  # what a broken link took with it
            self._lose(min(self._doubted_at - self._received - self._written_off, self.outstanding))
        self._doubted_at = 0
        self.window, self._others = taken.window, taken.queue
        if missed or left:
            self._progress_at = now
        self.service_time_s = taken.service_us / 1e6
        if taken.service_us:
            self._slice_messages = max(1, min(int(SLICE_S / self.service_time_s), SLICE_MESSAGES_MAX))
        self._weigh()
        return True

    def _lose(self, count: int, *, is_told: bool = False) -> int:
        count = max(0, count)
        self.outstanding -= count
        self._doubted = min(self._doubted, self.outstanding)
        self.counts.lost += count
        if not is_told:
            self._written_off += count
        self._weigh()
        return count

    def _weigh(self) -> None:
        self.in_flight = self.outstanding - self._doubted + self._others


class RouteGroup(NamedTuple):
    """The members of a group for the messages of some topics."""

    tag: int
    members: list[ShareMember]
    levels: list[list[ShareMember]]
    """For the balancer."""

    def room(self, chosen: ShareMember, now: float) -> int:
        """Return the number of messages that the chosen member and others with room take, as far as ``BATCH_MESSAGES_MAX``."""
        room = chosen.room
        for member in self.members:
            if room >= BATCH_MESSAGES_MAX:
                break
            if member is not chosen and member.has_room(now):
                room += member.room
        return room


#: The groups that get the messages of some topics.
ShareRoute = list[RouteGroup]


class Choice(NamedTuple):
    """The members for a slice."""

    members: list[ShareMember]
    """The chosen one of each group."""
    held: list[int]
    """The groups whose members have no link yet, by their tags."""
    messages_max: int
    """The largest number of messages in the slice."""
    room: int
    """The number of messages that all members with room take, as far as ``BATCH_MESSAGES_MAX``."""

    def count_nodes(self, nodes: frozenset[NodeId], *, has_local: bool) -> int:
        """Return the number of receiving nodes, without nodes of plain subscriptions."""
        chosen = {member.peer.id for member in self.members if not (member.peer.is_local and has_local)}
        return len(chosen - nodes) + len(self.held)


class OutgoingShares:
    """The members of groups, as known to a publisher, and the messages given to members.

    Args:
        outbound: Sends to members.
        local: The local node.
        incoming: The local member side.
        rng: Draws members.
        count_drop: Counts drops, by reason.
        events: Gets ``RoomMade``, and the losses.

    Attributes:
        counts: The counts of each group, by its tag.
    """

    def __init__(
        self,
        outbound: Outbound,
        local: Peer,
        incoming: IncomingShares,
        rng: Rng,
        count_drop: Callable[..., int],
        events: list[TopicEvent],
    ) -> None:
        self.counts: dict[int, ShareCounts] = {}
        self._outbound = outbound
        self._local = local
        self._incoming = incoming
        self._rng = rng
        self._count_drop = count_drop
        self._events = events
        self._names = 0
        self._known: Counter[int] = Counter()  # members of each group, with remembered ones
        self._group: Group | None = None  # the watched table
        self._key = b""
        self._index: ShareIndex[PublicationTarget]
        self._members: dict[tuple[NodeId, int], ShareMember] = {}
        # Members that are in no group any more, the longest unused first. Invariant: `is_listed` is false for these alone.
        self._remembered: OrderedDict[tuple[NodeId, int], None] = OrderedDict()
        self._routes: dict[tuple[tuple[int, tuple[NodeId, ...]], ...], ShareRoute] = {}
        # What was given in this turn, by the node; None for this node.
        self._unsent: dict[PublicationTarget | None, list[tuple[SharedSlice, list[ShareMember]]]] = {}
        self._held: dict[int, deque[SharedSlice]] = {}  # by the tag of the group
        self._is_awaited = False
        # The members whose link broke with outstanding messages, until news of them.
        self._doubts: DeadlineTable[tuple[NodeId, int]] = DeadlineTable()
        incoming.tell_local = self._take_locally

    @property
    def is_used(self) -> bool:
        """Whether any node is known to be a member of a group."""
        return bool(self._index) or self._incoming.has_members

    # -- members

    def start(self, group: Group) -> None:
        """Use the shares in a table."""
        self.stop()
        self._group, self._key = group, group.keys.interest_key()
        self._index = ShareIndex(EntryHasher(self._key))

    def stop(self) -> None:
        """Forget the shares of the watched table; messages stay outstanding."""
        if self._group is None:
            return
        for target in self._index.nodes():
            self._index.remove(target)
            self._list(target)
        for key in [key for key, member in self._members.items() if member.is_listed]:
            self._unlist(key)
        self._group = None
        self._routes.clear()

    def change(self, target: PublicationTarget, added: bytes, removed: bytes, now: float) -> None:
        """Handle changed entries of a node; entries of plain subscriptions are ignored."""
        rows_added, rows_removed = split_shares(added)[1], split_shares(removed)[1]
        if not (rows_added or rows_removed):
            return
        if invalid := rows_added.count(None):
            self._count_drop("invalid_entry", invalid)
        ignored = self._index.change(target, [row for row in rows_added if row], [row for row in rows_removed if row])
        if ignored:
            self._count_drop("shares_many", ignored)
        self._list(target)
        self._make_room(now)

    def lose(self, target: PublicationTarget, now: float) -> None:
        """Handle a dead or cut off node: its members have lost the outstanding messages."""
        if self._group is None:
            return
        self._index.remove(target)
        self._list(target)
        self._take_back(target, now)
        for (node, _tag), member in self._members.items():
            if node == target.peer.id:
                self._report(member, member.write_off())
        self._make_room(now)

    def peer_opened(self, now: float) -> None:
        """Handle a newly reachable peer."""
        if self._held:
            self._release(now)

    def peer_lost(self, peer: Peer, now: float) -> None:
        """Handle the end of a peer's link."""
        for target in [target for target in self._unsent if target is not None and target.peer is peer]:
            self._take_back(target, now)
        for key, member in self._members.items():
            if key[0] == peer.id:
                member.doubt()
                if member.outstanding:
                    self._doubts.set(key, now + DOUBTED_S)
                    self._outbound.has_events = True  # the deadline has changed

    def handle_timeout(self, now: float) -> None:
        """Count messages as lost of which a member has not told since its link broke; harmless if early."""
        for key in self._doubts.expired(now):
            if (member := self._members.get(key)) is not None:
                self._report(member, member.write_off_doubted())
                self._make_room(now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._doubts.deadline()

    # -- publications

    def route(self, topic: str, stem: int, tokens: Tokens) -> ShareRoute | None:
        """Return the groups for the messages of a topic; None without a group."""
        found = self._index.match(topic, stem) if self._index else {}
        own = self._incoming.groups_of(tokens)
        if not found and not own:
            return None
        groups: dict[int, list[ShareMember]] = {}
        for tag, targets in found.items():
            groups[tag] = [self._members[target.peer.id, tag] for target in targets]
        for name, share in own.items():
            tag = group_tag(self._key, name)
            groups.setdefault(tag, []).append(self._local_member(tag, name, share))
        if len(groups) > TOPIC_GROUPS_MAX:
            self._count_drop("share_groups_many")
        tags = sorted(groups) if len(groups) <= TOPIC_GROUPS_MAX else _select_groups(groups)
        key = tuple([(tag, tuple([member.peer.id for member in groups[tag]])) for tag in tags])
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= REMEMBERED_MAX:
                self._routes.clear()
            route = self._routes[key] = [_route_group(tag, groups[tag]) for tag, _nodes in key]
        return route

    def has_group(self, pattern: Tokens) -> bool:
        """Tell whether any group has a pattern; True while the table is unknown."""
        return self._group is None or self._index.has_pattern(pattern) or self._incoming.has_pattern(pattern)

    def literal_bits(self, stem: int, tokens: Tokens) -> int:
        """Return the positions of the tokens read by :meth:`route`, as bits."""
        bits = self._index.literal_bits(stem, len(tokens)) if self._index else 0
        return bits | self._incoming.literal_bits(tokens)

    def choose(self, route: ShareRoute, now: float) -> Choice | None:
        """Choose the members for a slice; None if it must wait: retry after ``RoomMade``."""
        chosen: list[ShareMember] = []
        held: list[int] = []
        messages_max, room = SLICE_MESSAGES_MAX, BATCH_MESSAGES_MAX
        for group in route:
            if group.tag in self._held:
                self._release_group(group.tag, now)
            member = self._choose(group, now) if group.tag not in self._held else None
            if member is not None:
                chosen.append(member)
                messages_max = min(messages_max, member.room, member.slice_max)
                room = min(room, group.room(member, now))
            elif any(each.is_ready for each in group.members) or not self._can_hold(group.tag):
                self._is_awaited = True
                return None
            else:
                held.append(group.tag)
                self._connect(group.members, now)
        return Choice(chosen, held, messages_max, messages_max if held else room)

    def give_batch(self, route: ShareRoute, choice: Choice, batch: SharedSlice, now: float) -> None:
        """Give a batch to members in slices, the first one to the chosen members.

        Too many messages for all members together stay with the last ones: the batch has been accepted.
        """
        while (slices := batch.cut(choice.messages_max)) is not None:
            part, batch = slices
            self.give(choice, part, now)
            choice = self.choose(route, now) or choice
        self.give(choice, batch, now)

    def give(self, choice: Choice, part: SharedSlice, now: float) -> None:
        """Give a slice to the chosen members."""
        for tag in choice.held:
            self._held.setdefault(tag, deque()).append(part)
        self._give(choice.members, part, now)

    def send_all(self, now: float) -> None:
        """Send the slices of the turn."""
        for target in [target for target in self._unsent if target is not None]:
            if not all(member.is_ready for _part, its in self._unsent.get(target, ()) for member in its):
                self._take_back(target, now)
        for each in list(self._unsent):
            self._send(each, now)

    def count_members(self) -> Counter[int]:
        """Return the number of members of each group, by its tag."""
        return Counter(member.tag for member in self._members.values() if member.is_listed)

    # -- messages of members

    def receive_taken(self, message: PeerMessage, now: float) -> bool:
        """Handle a TAKEN; return False if it is malformed, or of no member."""
        taken = decode_taken(message.argument, message.payload)
        member = self._members.get((message.peer.id, message.id))
        return taken is not None and member is not None and self._take(member, taken, now)

    # --

    def _take(self, member: ShareMember, taken: TakenCounts, now: float) -> bool:
        if not member.receive(taken, now):
            return False
        self._doubts.cancel((member.peer.id, member.tag))
        if not member.counts.name and self._group is not None and group_tag(self._key, taken.group) == member.tag:
            member.counts.name = taken.group
        self._make_room(now)
        return True

    def _report(self, member: ShareMember, lost: int) -> None:
        """Report messages that a member has lost, if any."""
        if lost:
            self._events.append(SharedMessagesLost(member.counts.name or f"{member.tag:x}", member.peer.described, lost))

    def _take_locally(self, tag: int, taken: TakenCounts, now: float) -> None:
        member = self._members.get((self._local.id, tag))
        if member is not None:
            self._take(member, taken, now)

    def _make_room(self, now: float) -> None:
        if self._held:
            self._release(now)
        if self._is_awaited:
            self._is_awaited = False
            self._events.append(RoomMade())

    def _list(self, target: PublicationTarget) -> None:
        """Update the members of a node after a change of rows."""
        node = target.peer.id
        shares = self._index.groups_of(target)
        for tag, share in shares.items():
            member = self._member(target, target.peer, tag)
            self._update(member, share)
        members = self._members.items()
        for key in [key for key, member in members if key[0] == node and key[1] not in shares and member.is_listed]:
            self._unlist(key)
        self._routes.clear()

    def _member(self, target: PublicationTarget | None, peer: Peer, tag: int) -> ShareMember:
        """Return the member of a group at a node; make a missing member."""
        key = peer.id, tag
        member = self._members.get(key)
        if member is None:
            counts = self.counts.setdefault(tag, ShareCounts())
            self._known[tag] += 1
            self._names += 1
            member = self._members[key] = ShareMember(target, peer, tag, counts, self._names, self._rng.random())
        self._remembered.pop(key, None)
        member.target, member.peer, member.is_listed = target, peer, True
        return member

    def _update(self, member: ShareMember, share: Share) -> None:
        member.cost = 1.0 / share.weight
        member.blocks = share.blocks
        member.distance = zone_distance(self._local.info.zone, member.peer.info.zone)

    def _local_member(self, tag: int, name: str, share: Share) -> ShareMember:
        member = self._member(None, self._local, tag)
        member.counts.name = name
        self._update(member, share)
        return member

    def local_changed(self, now: float) -> None:
        """Handle changed subscriptions of the local node."""
        names = {group_tag(self._key, name) for name in self._incoming.names()} if self._group is not None else set()
        members = self._members.items()
        for key in [key for key, member in members if not member.target and member.is_listed and member.tag not in names]:
            self._unlist(key)
        self._routes.clear()
        self._make_room(now)

    def _unlist(self, key: tuple[NodeId, int]) -> None:
        """Remember a member after the end in a group, and perhaps forget another one; the member still takes messages."""
        self._members[key].is_listed = False
        self._remembered[key] = None
        if len(self._remembered) > REMEMBERED_MAX:
            oldest, _ = self._remembered.popitem(last=False)
            forgotten = self._members.pop(oldest)
            self._report(forgotten, forgotten.write_off())
            self._known[forgotten.tag] -= 1
            if not self._known[forgotten.tag]:
                del self._known[forgotten.tag], self.counts[forgotten.tag]

    # -- for OutgoingShares: giving

    def _choose(self, group: RouteGroup, now: float) -> ShareMember | None:
        """Choose a member of a group; None if no member takes a slice now."""
        if not group.levels:
            return None
        member, unready = choose_near(group.levels, self._rng)
        if unready is not None or not member.is_ready:
            self._connect([unready or member], now)
        if member.has_room(now):
            return member
        roomy = [each for each in group.members if each.has_room(now)]
        if roomy:
            return choose_near(by_distance(roomy), self._rng)[0]
        ready = [each for each in group.members if each.is_ready]
        member.counts.full += bool(ready)
        yielding = [each for each in ready if not each.blocks and not each.peer.is_congested]
        return min(yielding, key=lambda each: (each.is_stalled(now), each.in_flight * each.cost), default=None)

    def _connect(self, members: list[ShareMember], now: float) -> None:
        """Request links to at most two members without one."""
        peers = [member.peer for member in members if member.peer.link is None and not member.peer.is_local]
        self._outbound.connect(peers[:2], now)

    def _give(self, members: list[ShareMember], part: SharedSlice, now: float) -> None:
        targets: dict[PublicationTarget | None, list[ShareMember]] = {}
        for member in members:
            member.give(len(part.payloads), now)
            targets.setdefault(member.target, []).append(member)
        for target, its in targets.items():
            self._unsent.setdefault(target, []).append((part, its))
        self._outbound.before_flush[self.send_all] = None

    def _send(self, target: PublicationTarget | None, now: float) -> None:
        """Send the slices of a node: at most ``BODY_BYTES`` in a body, or one slice."""
        assert self._group is not None
        slices = self._unsent.pop(target)
        if target is None:
            for part, its in slices:
                self._incoming.accept(self._group, self._local, part, _number_all(part, its), now)
            return
        parts: list[bytes] = []
        size = 0
        for part, its in slices:
            message = part.encode(_number_all(part, its))
            length = sum(map(len, message))
            if parts and size + length > BODY_BYTES:
                self._outbound.send_body(self._group, target.peer, parts, size, now)
                parts, size = [], 0
            parts += message
            size += length
        self._outbound.send_body(self._group, target.peer, parts, size, now)

    def _take_back(self, target: PublicationTarget, now: float) -> None:
        """Choose again the members for unsent slices to a node, and for later slices of the same groups: in order."""
        tags = {member.tag for _part, its in self._unsent.get(target, ()) for member in its}
        back: dict[int, list[SharedSlice]] = {}
        for other, slices in list(self._unsent.items()):
            for part, its in slices:
                for member in [member for member in its if member.tag in tags]:
                    its.remove(member)
                    member.take_back(len(part.payloads))
                    back.setdefault(member.tag, []).append(part)
            self._unsent[other] = [(part, its) for part, its in slices if its]
            if not self._unsent[other]:
                del self._unsent[other]
        for tag, parts in back.items():
            parts.sort(key=lambda part: part.first)
            self._held.setdefault(tag, deque()).extendleft(reversed(parts))
        self._release(now)

    def _can_hold(self, tag: int) -> bool:
        held = self._held.get(tag, ())
        return sum(part.size for part in held) < HELD_BYTES_MAX and sum(len(part.payloads) for part in held) < HELD_MESSAGES_MAX

    def _release(self, now: float) -> None:
        """Give the waiting slices, as far as members are reachable."""
        for tag in list(self._held):
            self._release_group(tag, now)

    def _release_group(self, tag: int, now: float) -> None:
        held = self._held[tag]
        while held:
            part = held[0]
            tokens = tuple(part.topic.split("."))
            route = self.route(part.topic, part.stem, tokens) if self._group is not None else None
            group = next((each for each in route or () if each.tag == tag), None)
            if group is None:  # the group has no member left
                if (counts := self.counts.get(tag)) is not None:
                    counts.given += len(part.payloads)
                    counts.lost += len(part.payloads)
                self._count_drop("share_without_member", len(part.payloads))
            else:
                member = self._choose(group, now)
                if member is None:
                    self._connect(group.members, now)
                    return
                self._give([member], part, now)
            held.popleft()
        del self._held[tag]


def _select_groups(groups: dict[int, list[ShareMember]]) -> list[int]:
    """Return the tags of the groups with messages. Groups of nodes with few groups come first: no node crowds out others."""
    groups_of = Counter(member.peer.id for members in groups.values() for member in members)
    fewest = {tag: min(groups_of[member.peer.id] for member in members) for tag, members in groups.items()}
    return sorted(sorted(groups, key=lambda tag: (fewest[tag], tag))[:TOPIC_GROUPS_MAX])


def _route_group(tag: int, members: list[ShareMember]) -> RouteGroup:
    nearest = sorted(members, key=lambda member: (member.distance, member.order))[:MEMBERS_MAX]
    return RouteGroup(tag, nearest, by_distance(nearest))


def _number_all(part: SharedSlice, members: list[ShareMember]) -> list[SharedNumber]:
    """Number the messages of a slice for members at a node."""
    numbers = []
    for member in members:
        numbers.append(SharedNumber(member.tag, member.name, member.sent))
        member.sent += len(part.payloads)
    return numbers
