"""The receiver's side of casts: publications to promoted entries of this node (docs/design.md 8.10).

For each promoted entry and publisher there is a *way* of the messages: at first direct, in the flow of the publisher, and then
by cast. The publisher says where the direct messages end (MOVED). Until then casts wait: those that came directly are dropped,
and the others follow the last direct one. Behind the change, the count at the start of each cast tells how many are missing.

After a rotation of the secret, the messages for an entry come by another way, in the table of the new generation, and might
overtake casts. So the publisher says by cast where the former way ends (MOVED, too). Until then messages of the other way wait.

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


class WaitingDelivery(msgspec.Struct, frozen=True, gc=False):
    """Messages of another way that wait for the end of a way."""

    number: int
    """The number of the first."""
    size: int
    """Bytes of their payloads."""
    hand_out: Callable[[float], None]
    """Gives them to the subscriptions."""


class CastWay:
    """The messages of one publisher for one promoted entry.

    Attributes:
        publisher: The publishing node.
        is_direct: Whether they come in the flow of the publisher; then casts wait.
        is_used: Whether messages came by cast, or will do so.
        is_heard: Whether messages of the publisher were due to the entry before the change, so that a hole is a gap.
        last: The number of the last message that was handed out; 0 before the first.
        direct: The last number sent directly for the entry, as the publisher said in the last cast.
        ended_at: The last number before the publisher used the table of another generation; None while it uses this one.
        missed: Number of missed casts.
        reported: For each subscription, the part of ``missed`` that it has reported.
        waiting: The waiting casts.
        behind: The messages of another way that wait for the end of this one.
    """

    __slots__ = (
        "_count",
        "_position",
        "behind",
        "direct",
        "ended_at",
        "is_direct",
        "is_heard",
        "is_used",
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
        self.is_used = False
        self.last = last
        self.direct = 0
        self.missed = 0
        self.reported: dict[SubscriptionQueue, int] = {}
        self.waiting: deque[WaitingCast] = deque()
        self.ended_at: int | None = None
        self.behind: deque[WaitingDelivery] = deque()
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
        if self.ended_at is not None:
            if number <= self.ended_at:
                return count  # later ones were handed out, and these were reported as missing
            self.ended_at, self._count = None, 0  # the publisher has returned to this generation, and counts anew
        self.is_used = True
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

    def end(self, number: int, count: int) -> None:
        """Expect no further casts: the publisher uses the table of another generation.

        Args:
            number: The last number before that.
            count: The number of messages to the group up to then, modulo 2^32.
        """
        ahead = messages_between(self._count, count)
        if ahead < _BEHIND:
            self.missed += min(ahead, max(0, number - self.last))
        self._count = count
        self.ended_at = number

    def end_before(self, number: int) -> None:
        """Expect no further casts, although the publisher did not say so. All messages before a number may have been casts."""
        self.missed += max(0, number - 1 - self.last)
        self.ended_at = number - 1

    def goes_on_before(self, number: int) -> bool:
        """Tell whether casts from before a publication may still come."""
        return self.is_used and self.ended_at is None and self.last < number

    def has_last_gap(self, queue: SubscriptionQueue) -> bool:
        """Tell whether a subscription has to report missed casts of this way, which has ended."""
        return self.ended_at is not None and self.missed != self.reported.get(queue, 0)

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

    def remove(self, promoted: PromotedEntry, now: float) -> None:
        """Forget a promoted entry, with its waiting casts. What waits for the end of its ways is handed out."""
        del self.by_group[promoted.group.id]
        tables = self._by_entry[promoted.entry]
        del tables[promoted.realm.id]
        if not tables:
            del self._by_entry[promoted.entry]
        for way in promoted.ways.values():
            self._drop_waiting(promoted, way)
            self._release_behind(promoted, way, now)

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
    ) -> tuple[list[SubscriptionQueue], list[SubscriptionQueue]]:
        """Return the subscriptions that get publications which came directly.

        Args:
            queues: The subscriptions that match.
            table: The id of the table of the publisher.
            publisher: The publisher.
            last: The number of the last of the publications.

        Returns:
            Those that get them at once, and those that wait for the end of another way, or have a gap of it to report.
        """
        taken, behind = [], []
        for queue in queues:
            tables = self._by_entry.get(queue.entry, {})
            promoted = tables.get(table)
            if promoted is not None:
                way = self._way(promoted, publisher)
                if not way.is_direct:
                    continue
                way.last = max(way.last, last)
                way.is_heard = True
                if way.waiting:
                    self._drop_covered(promoted, way)
            is_elsewhere = len(tables) > (promoted is not None)
            if is_elsewhere and (
                self._earlier_way(queue.entry, table, publisher, last) or self._has_gap(queue, table, publisher)
            ):
                behind.append(queue)
            else:
                taken.append(queue)
        return taken, behind

    def wait_for_end(self, entry: OwnEntry, table: bytes, publisher: NodeId, item: WaitingDelivery, now: float) -> bool:
        """Let messages for an entry wait for the end of a way in another table; return False if none goes on there.

        Args:
            entry: The entry.
            table: The id of the table by which the messages came.
            publisher: The publisher.
            item: The messages.
            now: Monotonic seconds.
        """
        earlier = self._earlier_way(entry, table, publisher, item.number)
        if earlier is None:
            return False
        promoted, way = earlier
        key = promoted.group.id, publisher
        way.behind.append(item)
        self._waiting_bytes += item.size + WAITING_ITEM_BYTES
        if key not in self._deadlines:
            self._deadlines.set(key, now + MOVED_S)
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self._end_anyway(promoted, way, now)
        return True

    def take_gaps(self, queue: SubscriptionQueue, table: bytes, publisher: NodeId) -> int:
        """Return the missed casts of ended ways that a subscription has not reported yet, and note them as reported."""
        ways = self._other_ways(queue.entry, table, publisher)
        return sum([way.take_gap(queue) for way in ways if way.ended_at is not None])

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
            # A publisher that sent earlier messages for the entry under another generation counts from 0 under this one.
            is_known = way.is_heard or self._other_ways(promoted.entry, promoted.realm.id, publisher)
            way.change(way.last, 0 if is_known else count)
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
            way.is_used = True
            self._release(promoted, way, now)

    def receive_end(self, promoted: PromotedEntry, publisher: NodeId, number: int, count: int, now: float) -> None:
        """Handle a MOVED by cast: the way of a publisher ends.

        Args:
            number: The last number of the publisher before that.
            count: The number of messages to the group up to then, modulo 2^32.
        """
        way = promoted.ways.get(publisher)
        if way is None or (way.ended_at is not None and number <= way.ended_at):
            return  # nothing came by it, or its end is known
        if way.waiting:
            self._change_anyway(promoted, way, now)
        way.end(number, count)
        self._release_behind(promoted, way, now)

    def handle_timeout(self, now: float) -> None:
        """Change or end the ways for which messages waited too long for MOVED; harmless if early."""
        for group, publisher in self._deadlines.expired(now):
            promoted = self.by_group[group]
            way = promoted.ways[publisher]
            if way.behind:
                self._end_anyway(promoted, way, now)
            else:
                self._change_anyway(promoted, way, now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._deadlines.deadline()

    # --

    def _way(self, promoted: PromotedEntry, publisher: NodeId) -> CastWay:
        """Return the way of a publisher; beyond WAYS_MAX forget the longest silent one."""
        way = promoted.way(publisher)
        if len(promoted.ways) > WAYS_MAX:
            oldest = next((each for each in promoted.ways.values() if not each.behind), way)
            del promoted.ways[oldest.publisher]
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

    def _end_anyway(self, promoted: PromotedEntry, way: CastWay, now: float) -> None:
        """End a way without MOVED. The messages up to the first that waits are an upper bound of the gap."""
        self._count_drop("moved_missing")
        way.end_before(way.behind[0].number)
        self._release_behind(promoted, way, now)

    def _release_behind(self, promoted: PromotedEntry, way: CastWay, now: float) -> None:
        """Hand out the messages that waited for the end of a way."""
        if not way.behind:
            return
        self._deadlines.cancel((promoted.group.id, way.publisher))
        behind, way.behind = way.behind, deque()
        for item in behind:
            self._waiting_bytes -= item.size + WAITING_ITEM_BYTES
            item.hand_out(now)

    def _earlier_way(
        self, entry: OwnEntry, table: bytes, publisher: NodeId, number: int
    ) -> tuple[PromotedEntry, CastWay] | None:
        """Return the way in another table by which earlier messages for an entry may still come; end those not in use."""
        for promoted in self.of(entry):
            if promoted.realm.id == table:
                continue
            way = self._way(promoted, publisher)
            if way.goes_on_before(number):
                return promoted, way
            if not way.is_used and way.ended_at is None:
                way.ended_at = number - 1  # casts from before are late
        return None

    def _other_ways(self, entry: OwnEntry, table: bytes, publisher: NodeId) -> list[CastWay]:
        """Return the ways of a publisher for an entry in other tables by which messages came."""
        ways = [promoted.ways.get(publisher) for promoted in self.of(entry) if promoted.realm.id != table]
        return [way for way in ways if way is not None and way.is_used]

    def _has_gap(self, queue: SubscriptionQueue, table: bytes, publisher: NodeId) -> bool:
        """Tell whether a subscription has to report missed casts of an ended way."""
        return any(way.has_last_gap(queue) for way in self._other_ways(queue.entry, table, publisher))

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
