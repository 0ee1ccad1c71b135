"""The receiver's side of casts: publications to promoted entries of this node (docs/design.md 8.10).

For each promoted entry and publisher there is a *way* of the messages: at first direct, in the flow of the publisher, and then
by cast. The publisher says where the direct messages end (MOVED). Until then casts wait: those that came directly are dropped,
and the others follow the last direct one. Behind the change, the count at the start of each cast tells how many are missing.

All methods take the time; nothing here sends or receives.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from iris_overlay.timers import DeadlineTable
from iris_py.wire.flows import COUNT_MASK, messages_between

if TYPE_CHECKING:
    from iris_overlay.ids import GroupId, NodeId
    from iris_py.patterns.topic.own_interest import OwnEntry
    from iris_py.patterns.topic.queue import SubscriptionQueue
    from iris_py.peers.group import Group

#: Time for which a cast waits for MOVED (seconds). Too small: a slow way of MOVED costs messages that were sent directly. Too
#: large: if MOVED is lost, messages come late.
MOVED_S: Final = 1.0
#: Publishers of one promoted entry with a known way; beyond it the longest silent one is forgotten. Too small: the next cast of
#: a forgotten publisher shows no gap. Too large: memory, some 300 bytes for each.
WAYS_MAX: Final = 4096
#: Bytes of casts that wait, of all publishers. Beyond it a way changes without MOVED. Too small: a busy publisher loses exact
#: gaps at the change. Too large: memory.
WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
#: Bytes counted for each waiting cast besides its size.
WAITING_ITEM_BYTES: Final = 256
#: Differences of counts modulo 2^32 from this one on are negative.
_BEHIND: Final = (COUNT_MASK + 1) // 2


class WaitingCast(msgspec.Struct, frozen=True, gc=False):
    """Consecutive publications that wait for the change of the way."""

    number: int
    """The number of the first."""
    count: int
    """Their number, at least 1."""
    position: int
    """The number of messages to the group before them, modulo 2^32."""
    size: int
    """Bytes of their payloads."""
    hand_out: Callable[[int, float], None]
    """Gives them to the subscriptions: (late ones to leave out, now)."""


class CastWay:
    """The messages of one publisher for one promoted entry.

    Attributes:
        publisher: The publishing node.
        is_direct: Whether they come in the flow of the publisher; then casts wait.
        is_heard: Whether messages of the publisher were due to the entry before the change, so that a hole is a gap.
        last: The number of the last message that was handed out; 0 before the first.
        direct: The last number sent directly for the entry, as the publisher said in the last cast.
        missed: Number of missed casts.
        reported: For each subscription, the part of ``missed`` that it has reported.
        waiting: The waiting casts.
    """

    __slots__ = (
        "_count",
        "_position",
        "direct",
        "is_direct",
        "is_heard",
        "last",
        "missed",
        "publisher",
        "reported",
        "waiting",
    )

    def __init__(self, publisher: NodeId, last: int, *, is_heard: bool) -> None:
        self.publisher = publisher
        self.is_direct = True
        self.is_heard = is_heard
        self.last = last
        self.direct = 0
        self.missed = 0
        self.reported: dict[SubscriptionQueue, int] = {}
        self.waiting: deque[WaitingCast] = deque()
        self._count = 0  # messages to the group up to `last`, modulo 2^32
        self._position = 0  # the same up to the next message of the body

    def start_body(self, direct: int, count: int) -> None:
        """Read a CAST: the last number sent directly, and the messages to the group before the body (modulo 2^32)."""
        self.direct = direct
        self._position = count

    def read(self, count: int) -> int:
        """Read consecutive publications of the body; return the position of the first."""
        position = self._position
        self._position = (position + count) & COUNT_MASK
        return position

    def accept(self, number: int, count: int, position: int) -> int:
        """Accept publications behind the change of the way; return how many to drop from the start, as late or repeated.

        Args:
            number: The number of the first.
            count: The number of publications, at least 1.
            position: Messages to the group before the first, modulo 2^32.
        """
        late = min(count, self.last + 1 - number) if number <= self.last else 0
        if late == count:
            return late
        ahead = messages_between(self._count, position + late)
        if ahead < _BEHIND:
            self.missed += min(ahead, number + late - self.last - 1)
            self._count = (position + count) & COUNT_MASK
        # Otherwise the cast is from before the change, and its direct copy was lost: the flow of the publisher reports that.
        self.last = number + count - 1
        return late

    def change(self, last: int, count: int) -> None:
        """Expect messages by cast from now on.

        Args:
            last: The number of the last message that came directly.
            count: The number of messages to the group up to then, modulo 2^32.
        """
        self.is_direct = False
        self.last = max(self.last, last)
        self._count = count

    def take_gap(self, queue: SubscriptionQueue) -> int:
        """Return the missed casts that a subscription has not reported yet, and note them as reported."""
        gap = self.missed - self.reported.get(queue, 0)
        self.reported[queue] = self.missed
        return gap


class PromotedEntry:
    """A promoted entry of this node, in the table of one generation.

    Args:
        lasts: The number of the last publication of each publisher when this node was told of the promotion.
        is_confirmed: Whether all publishers knew the entry then.

    Attributes:
        entry: The entry.
        realm: The group of the realm.
        group: The group of the entry.
        tag: The tag of the entry.
        is_joined: Whether all publishers reach this node by the group.
        ways: The way of each known publisher, the longest silent first.
    """

    def __init__(
        self, entry: OwnEntry, realm: Group, group: Group, tag: int, lasts: dict[NodeId, int], *, is_confirmed: bool
    ) -> None:
        self.entry = entry
        self.realm = realm
        self.group = group
        self.tag = tag
        self.is_joined = False
        self.ways: OrderedDict[NodeId, CastWay] = OrderedDict()
        self._lasts = lasts
        self._is_confirmed = is_confirmed

    def way(self, publisher: NodeId) -> CastWay:
        """Return the way of a publisher, at first direct."""
        way = self.ways.get(publisher)
        if way is None:
            is_heard = self._is_confirmed and publisher in self._lasts
            way = self.ways[publisher] = CastWay(publisher, self._lasts.pop(publisher, 0), is_heard=is_heard)
        else:
            self.ways.move_to_end(publisher)
        return way


class IncomingCasts:
    """The promoted entries of one node, and their casts.

    Args:
        count_drop: Counts drops, by reason.

    Attributes:
        by_group: The promoted entries, by their group. At most as many as the node may join groups.
    """

    def __init__(self, count_drop: Callable[..., int]) -> None:
        self.by_group: dict[GroupId, PromotedEntry] = {}
        self._by_entry: dict[OwnEntry, dict[bytes, PromotedEntry]] = {}  # by the id of the table
        self._count_drop = count_drop
        self._deadlines: DeadlineTable[tuple[GroupId, NodeId]] = DeadlineTable()
        self._waiting_bytes = 0

    # -- promoted entries

    def add(self, promoted: PromotedEntry) -> None:
        """Add a promoted entry."""
        self.by_group[promoted.group.id] = promoted
        self._by_entry.setdefault(promoted.entry, {})[promoted.realm.id] = promoted

    def remove(self, promoted: PromotedEntry) -> None:
        """Forget a promoted entry, with its waiting casts."""
        del self.by_group[promoted.group.id]
        tables = self._by_entry[promoted.entry]
        del tables[promoted.realm.id]
        if not tables:
            del self._by_entry[promoted.entry]
        for way in promoted.ways.values():
            self._drop_waiting(promoted, way)

    def of(self, entry: OwnEntry) -> list[PromotedEntry]:
        """Return an entry as it is promoted in the tables of some generations."""
        return list(self._by_entry.get(entry, {}).values())

    def add_queue(self, queue: SubscriptionQueue) -> None:
        """Begin a subscription: earlier gaps are not reported to it."""
        for promoted in self.of(queue.entry):
            for way in promoted.ways.values():
                way.reported[queue] = way.missed

    def remove_queue(self, queue: SubscriptionQueue) -> None:
        """End a subscription."""
        for promoted in self.by_group.values():
            for way in promoted.ways.values():
                way.reported.pop(queue, None)

    # -- messages

    def direct_queues(
        self, queues: list[SubscriptionQueue], table: bytes, publisher: NodeId, last: int
    ) -> list[SubscriptionQueue]:
        """Return the subscriptions that get publications which came directly.

        Args:
            queues: The subscriptions that match.
            table: The id of the table of the publisher.
            publisher: The publisher.
            last: The number of the last of the publications.
        """
        taken = []
        for queue in queues:
            promoted = self._by_entry.get(queue.entry, {}).get(table)
            if promoted is not None:
                way = self._way(promoted, publisher)
                if not way.is_direct:
                    continue
                way.last = max(way.last, last)
                way.is_heard = True
                if way.waiting:
                    self._drop_covered(promoted, way)
            taken.append(queue)
        return taken

    def start_body(self, promoted: PromotedEntry, publisher: NodeId, direct: int, count: int, *, has_flow: bool) -> CastWay:
        """Handle the CAST at the start of a body; return the way, for the publications of the body.

        Args:
            direct: The last number sent directly for the entry; 0 for none.
            count: Number of messages to the group before the body, modulo 2^32.
            has_flow: Whether messages of the publisher have come directly. If not, the way changes at once.
        """
        way = self._way(promoted, publisher)
        way.start_body(direct, count)
        if way.is_direct and not way.waiting and not (direct and has_flow):
            way.change(way.last, count)
        return way

    def wait(self, promoted: PromotedEntry, way: CastWay, cast: WaitingCast, now: float) -> None:
        """Let publications wait for the change of the way, unless they came directly."""
        if cast.number + cast.count - 1 <= way.last:
            return
        key = promoted.group.id, way.publisher
        way.waiting.append(cast)
        self._waiting_bytes += cast.size + WAITING_ITEM_BYTES
        if key not in self._deadlines:
            self._deadlines.set(key, now + MOVED_S)
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self._change_anyway(promoted, way, now)

    def receive_moved(self, promoted: PromotedEntry, publisher: NodeId, last: int, count: int, now: float) -> None:
        """Handle a MOVED: all messages up to a number came directly, or are missing from the flow.

        Args:
            last: The number of the last publication in the flow.
            count: The number of messages to the group so far, modulo 2^32.
        """
        if self.by_group.get(promoted.group.id) is not promoted:
            return  # the node has left the group meanwhile
        way = self._way(promoted, publisher)
        if way.is_direct:
            way.change(last, count)
            self._release(promoted, way, now)

    def handle_timeout(self, now: float) -> None:
        """Change the ways whose casts waited too long for MOVED; harmless if early."""
        for group, publisher in self._deadlines.expired(now):
            promoted = self.by_group[group]
            self._change_anyway(promoted, promoted.ways[publisher], now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._deadlines.deadline()

    # --

    def _way(self, promoted: PromotedEntry, publisher: NodeId) -> CastWay:
        """Return the way of a publisher; beyond WAYS_MAX forget the longest silent one."""
        way = promoted.way(publisher)
        if len(promoted.ways) > WAYS_MAX:
            _, oldest = promoted.ways.popitem(last=False)
            self._drop_waiting(promoted, oldest)
        return way

    def _change_anyway(self, promoted: PromotedEntry, way: CastWay, now: float) -> None:
        """Change a way without MOVED. Messages that were sent directly and did not come are an upper bound of the gap."""
        self._count_drop("moved_missing")
        first = way.waiting[0]
        last = way.last
        way.change(last, first.position)
        if way.is_heard and first.number > last + 1:
            way.missed += min(first.number - last - 1, first.position + max(0, way.direct - last))
        self._release(promoted, way, now)

    def _release(self, promoted: PromotedEntry, way: CastWay, now: float) -> None:
        """Hand out the casts that waited."""
        self._deadlines.cancel((promoted.group.id, way.publisher))
        waiting, way.waiting = way.waiting, deque()
        for cast in waiting:
            self._waiting_bytes -= cast.size + WAITING_ITEM_BYTES
            late = way.accept(cast.number, cast.count, cast.position)
            if late < cast.count:
                cast.hand_out(late, now)

    def _drop_covered(self, promoted: PromotedEntry, way: CastWay) -> None:
        """Drop the waiting casts that came directly, too."""
        while way.waiting and way.waiting[0].number + way.waiting[0].count - 1 <= way.last:
            cast = way.waiting.popleft()
            self._waiting_bytes -= cast.size + WAITING_ITEM_BYTES
        if not way.waiting:
            self._deadlines.cancel((promoted.group.id, way.publisher))

    def _drop_waiting(self, promoted: PromotedEntry, way: CastWay) -> None:
        """Drop all waiting casts."""
        for cast in way.waiting:
            self._waiting_bytes -= cast.size + WAITING_ITEM_BYTES
        way.waiting.clear()
        self._deadlines.cancel((promoted.group.id, way.publisher))
