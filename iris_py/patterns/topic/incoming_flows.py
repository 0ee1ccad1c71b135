"""The receiver's side of flows: late, repeated and missed publications of each publisher (docs/design.md 8).

The count at the start of each body tells how many messages of the flow are missing. The receiver then asks the publisher once
for the entries that the missing messages matched, and holds the publisher's messages until the answer: so ``gap`` stands right
at the message after the loss, and only at subscriptions that missed something. Without an answer all subscriptions of the node
report the missing messages.

Rules for a body of the flow ``name`` with ``count`` earlier messages:

* Messages up to the publisher's last number are late or repeated, and dropped.
* In the known flow, exactly the difference of the counts is missing.
* In another flow, everything published between may be missing: the publications before the new flow began, and ``count``. All
  subscriptions report this upper bound.
* An unknown publisher has missed nothing, unless the receiver has forgotten it: then the number is unknown, and reported as
  such once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from iris_overlay.timers import DeadlineTable
from iris_py.wire.flows import COUNT_MASK, FETCHED_MESSAGES_MAX, MissedRange, messages_between

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from iris_overlay.ids import NodeId
    from iris_py.wire.flows import MissedEntries

Held = TypeVar("Held")

#: Publishers with a known flow; beyond it the longest silent one is forgotten. Too small: publishers that take turns are
#: forgotten each time, and their losses unknown. Too large: memory, some 400 bytes for each.
PUBLISHERS_MAX: Final = 4096
#: Forgotten publishers whose return is noticed; beyond it every new publisher may be a forgotten one. Too small: new publishers
#: are reported as unknown, and repeated messages of old ones delivered twice. Too large: memory, some 200 bytes for each.
FORGOTTEN_MAX: Final = 65_536
#: Time that a publisher has for an answer (seconds). Too small: a slow path costs exact gaps. Too large: messages after a loss
#: arrive late.
ANSWER_S: Final = 1.0
#: Gaps of one publisher that wait for answers. At a further one all subscriptions report the open gaps. Too small: repeated
#: losses within a round trip cost exact gaps. Too large: a publisher with many losses is asked more than it answers
#: (``outgoing_flows.ANSWERS_MAX``).
GAPS_MAX: Final = 16
#: Bytes of messages that wait for answers of all publishers. When they are reached, nobody waits for the publisher's answers:
#: all subscriptions report its loss. Too small: losses in a fast flow cost exact gaps. Too large: memory.
HELD_BYTES_MAX: Final = 16 * 1024 * 1024
#: Bytes counted for each held item besides its size.
HELD_ITEM_BYTES: Final = 256
#: Entries of one publisher with a total of their own. Beyond it the totals are joined, and all subscriptions report the largest
#: one. Too small: subscriptions report losses of others. Too large: memory, some 100 bytes for each entry and publisher.
TOTALS_MAX: Final = 4096


class _Gap(Generic[Held]):
    """Missed messages without an answer yet, and the messages received after them.

    Attributes:
        id: The id of the FETCH.
        missed: Number of missed messages.
        is_settled: Whether nobody waits for the answer any more.
        counts: The answer, by tag; None if all subscriptions report ``missed``.
        items: The messages held back until the answer.
        size: Bytes of the items.
    """

    __slots__ = ("counts", "id", "is_settled", "items", "missed", "size")

    def __init__(self, id_: int, missed: int) -> None:
        self.id = id_
        self.missed = missed
        self.is_settled = False
        self.counts: dict[int, int] | None = None
        self.items: list[Held] = []
        self.size = 0


class IncomingFlow(Generic[Held]):
    """The flow from one publisher.

    Attributes:
        publisher: The publishing node.
        unknown: 0, or the number of this return of a publisher that was forgotten.
        name: The publisher's number when the flow began.
        last: The number of the last accepted publication; 0 before the first.
        missed: Number of missed publications, without those that are unknown.
        gaps: The gaps that wait for answers, the earliest first.
        body_name: The name of the flow in the body being read.
    """

    __slots__ = (
        "_by_entry",
        "_common",
        "_count",
        "_is_heard",
        "_position",
        "body_name",
        "gaps",
        "last",
        "missed",
        "name",
        "publisher",
        "unknown",
    )

    def __init__(self, publisher: NodeId, last: int, unknown: int) -> None:
        self.publisher = publisher
        self.unknown = unknown
        self.name = 0
        self.last = last
        self.missed = 0
        self.gaps: list[_Gap[Held]] = []  # a deque takes 600 bytes for each publisher, and most have no gap
        self.body_name = 0
        self._is_heard = False
        self._count = 0  # messages in the flow up to `last`, modulo 2^32
        self._position = 0  # the same up to the next message of the body
        self._common = 0  # messages that all subscriptions report
        self._by_entry: dict[int, int] = {}  # by tag, messages that only its subscriptions report

    @property
    def is_held(self) -> bool:
        """Whether accepted publications wait for an answer: pass them to :meth:`IncomingFlows.hold`."""
        return bool(self.gaps)

    @property
    def has_gaps(self) -> bool:
        """Whether some subscription may have to report a gap of the publisher."""
        return bool(self._common or self._by_entry or self.unknown)

    def total(self, tag: int) -> int:
        """Return how many publications the subscriptions of an entry have to report; never decreases."""
        return self._common + self._by_entry.get(tag, 0)

    def start_body(self, name: int, count: int) -> None:
        """Read a FLOW: the name of the flow, and the messages in it before the body (modulo 2^32)."""
        self.body_name = name
        self._position = count

    def read(self, number: int, count: int) -> tuple[int, int]:
        """Read consecutive publications of the body.

        Args:
            number: The number of the first.
            count: The number of publications, at least 1.

        Returns:
            The number of publications to drop from the start, as late or repeated; and the number of publications missing
            before the rest.
        """
        late = min(count, self.last + 1 - number) if number <= self.last else 0
        position = self._position
        self._position = end = position + count
        if late == count:
            return late, 0
        missed = 0
        if self._is_heard and (position != self._count or self.body_name != self.name):
            missed = self._missed_before(number + late, position)
        self._is_heard = True
        self.name = self.body_name
        self._count = end & COUNT_MASK
        self.last = number + count - 1
        return late, missed

    def report(self, missed: int, counts: dict[int, int] | None) -> None:
        """Add missed publications to the totals.

        Args:
            missed: Their number.
            counts: The number for each matched entry, by tag; None adds all to the total of every entry.
        """
        if counts is None:
            self._common += missed
            return
        totals = self._by_entry
        for tag, count in counts.items():
            totals[tag] = totals.get(tag, 0) + count
        if len(totals) > TOTALS_MAX:
            self._common += max(totals.values())
            totals.clear()

    def _missed_before(self, number: int, position: int) -> int:
        """Return the number of messages missed before a publication at a position of the body's flow.

        A batch repeated in part has an earlier position, but no number between.
        """
        between = number - self.last - 1
        if self.body_name == self.name:
            return min(messages_between(self._count, position), between)
        if number - self.body_name > COUNT_MASK:
            return between  # the count may have passed 2^32, and so says nothing
        return min(max(0, self.body_name - self.last) + position, between)


class ReportedGaps:
    """The gaps that one subscription has reported, by publisher.

    Args:
        tag: The tag of the subscription's entry.
        flows: The flows of the node. The subscription does not report earlier gaps.
    """

    __slots__ = ("_reported", "_tag")

    def __init__(self, tag: int, flows: IncomingFlows[Held]) -> None:
        self._tag = tag
        # publisher -> `unknown` and `total` at the last report; publishers without an entry have (0, 0)
        self._reported = {flow.publisher: (flow.unknown, flow.total(tag)) for flow in flows.with_gaps()}

    def take(self, flow: IncomingFlow[Held]) -> int | None:
        """Return the gap before the next message of a publisher, and note it as reported.

        Returns:
            The number of missed publications that matched the subscription's entry, or an upper bound; None if the number is
            unknown.
        """
        if not flow.has_gaps:
            return 0
        unknown, total = self._reported.get(flow.publisher, (0, 0))
        current = flow.unknown, flow.total(self._tag)
        if current == (unknown, total):
            return 0
        self._reported[flow.publisher] = current
        return current[1] - total if current[0] == unknown else None

    def move(self, tag: int, flows: IncomingFlows[Held]) -> None:
        """Report the gaps of another entry from now on. Gaps that were not reported yet stay due."""
        for flow in flows.with_gaps():
            unknown, total = self._reported.get(flow.publisher, (0, 0))
            due = flow.total(self._tag) - total
            self._reported[flow.publisher] = (unknown, flow.total(tag) - due)
        self._tag = tag

    def forget(self, publisher: NodeId) -> None:
        """Discard the reported gaps of a publisher that the node has forgotten."""
        self._reported.pop(publisher, None)


class IncomingFlows(Generic[Held]):
    """The flows from all publishers to one node.

    Args:
        entries: The tags of the node's entries, kept current by the owner.
        hand_out: Gives a held item to the subscriptions: (flow, item, now). They take their gaps of the flow then.
        forget: Tells the subscriptions that a publisher is forgotten (:meth:`ReportedGaps.forget`).

    Attributes:
        fetches: Questions to send: publisher, id, and range. The owner empties the list.
    """

    def __init__(
        self,
        entries: Collection[int],
        hand_out: Callable[[IncomingFlow[Held], Held, float], None],
        forget: Callable[[NodeId], None],
    ) -> None:
        self.fetches: list[tuple[NodeId, int, MissedRange]] = []
        self._entries = entries
        self._hand_out = hand_out
        self._forget = forget
        self._flows: OrderedDict[NodeId, IncomingFlow[Held]] = OrderedDict()  # the longest silent first
        self._forgotten: OrderedDict[NodeId, int] = OrderedDict()  # with the number of the last publication
        self._has_full_forgotten = False  # some forgotten publishers are in no table any more
        self._returns = 0
        self._last_id = 0
        self._asked: dict[int, tuple[IncomingFlow[Held], _Gap[Held]]] = {}
        # Invariant: the same ids as in `_asked`.
        self._deadlines: DeadlineTable[int] = DeadlineTable()
        self._held_bytes = 0

    def __len__(self) -> int:
        """Return the number of known publishers."""
        return len(self._flows)

    def find(self, publisher: NodeId) -> IncomingFlow[Held] | None:
        """Return the flow from a publisher, if known."""
        return self._flows.get(publisher)

    def publishers(self) -> list[NodeId]:
        """Return the known publishers."""
        return list(self._flows)

    def lasts(self) -> dict[NodeId, int]:
        """Return the number of the last accepted publication of each known publisher."""
        return {publisher: flow.last for publisher, flow in self._flows.items()}

    def with_gaps(self) -> list[IncomingFlow[Held]]:
        """Return the flows of which subscriptions may have to report gaps."""
        return [flow for flow in self._flows.values() if flow.has_gaps]

    def start_body(self, publisher: NodeId, name: int, count: int, now: float) -> IncomingFlow[Held]:
        """Handle the FLOW at the start of a body; return the flow, for the publications of the body.

        Args:
            name: The name of the flow.
            count: Number of messages in the flow before the body, modulo 2^32.
        """
        flow = self._flows.get(publisher)
        if flow is None:
            flow = self._add(publisher, is_first=name == count == 0, now=now)
        else:
            self._flows.move_to_end(publisher)
        flow.start_body(name, count)
        return flow

    def accept(self, flow: IncomingFlow[Held], number: int, count: int, now: float) -> int:
        """Handle consecutive publications of the body being read. The hot path.

        Afterwards the owner hands out the accepted ones, or passes them to :meth:`hold` if ``flow.is_held``.

        Args:
            number: The number of the first.
            count: The number of publications, at least 1.

        Returns:
            The number of publications to drop from the start, as late or repeated.
        """
        last, is_same = flow.last, flow.name == flow.body_name
        late, missed = flow.read(number, count)
        if missed:
            self._miss(flow, missed, MissedRange(flow.name, last, number + late) if is_same else None, now)
        return late

    def hold(self, flow: IncomingFlow[Held], item: Held, size: int, now: float) -> None:
        """Hold accepted publications back until the answer; ``hand_out`` gets them then.

        Args:
            size: Bytes of their payloads.
        """
        gap = flow.gaps[-1]
        gap.items.append(item)
        gap.size += size + HELD_ITEM_BYTES
        self._held_bytes += size + HELD_ITEM_BYTES
        if self._held_bytes > HELD_BYTES_MAX:
            self._settle_all(flow, now)

    def receive_answer(self, publisher: NodeId, id_: int, answer: MissedEntries | None, now: float) -> bool:
        """Handle a FETCHED; return False if it answers no open question.

        Args:
            id_: Its id.
            answer: Its contents; None if the publisher does not know.
        """
        flow, gap = self._asked.get(id_, (None, None))
        if flow is None or gap is None or flow.publisher != publisher:
            return False
        if answer is not None and answer.messages == gap.missed:
            gap.counts = {tag: count for tag, count in answer.counts.items() if tag in self._entries}
        self._settle(gap)
        self._release(flow, now)
        return True

    def handle_timeout(self, now: float) -> None:
        """Let all subscriptions report gaps without an answer; harmless if early."""
        for id_ in self._deadlines.expired(now):
            flow, gap = self._asked[id_]
            self._settle(gap)
            self._release(flow, now)

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._deadlines.deadline()

    # --

    def _add(self, publisher: NodeId, *, is_first: bool, now: float) -> IncomingFlow[Held]:
        """Add a publisher. ``is_first`` tells that its first publication is for this node, so it has missed nothing."""
        last, unknown = self._forgotten.pop(publisher, None), 0
        if len(self._flows) >= PUBLISHERS_MAX:
            self._forget_oldest(now)
        if last is not None or (self._has_full_forgotten and not is_first):
            self._returns += 1
            unknown = self._returns
        flow = self._flows[publisher] = IncomingFlow(publisher, last or 0, unknown)
        return flow

    def _forget_oldest(self, now: float) -> None:
        """Forget the longest silent publisher."""
        publisher, flow = next(iter(self._flows.items()))
        self._settle_all(flow, now)
        del self._flows[publisher]
        self._forgotten[publisher] = flow.last
        if len(self._forgotten) > FORGOTTEN_MAX:
            self._forgotten.popitem(last=False)
            self._has_full_forgotten = True
        self._forget(publisher)

    def _miss(self, flow: IncomingFlow[Held], missed: int, asked: MissedRange | None, now: float) -> None:
        """Handle missed publications: ask for their entries, if the publisher can know them."""
        flow.missed += missed
        if asked is None or missed > FETCHED_MESSAGES_MAX or len(flow.gaps) >= GAPS_MAX or not self._entries:
            self._settle_all(flow, now)
            flow.report(missed, None)
            return
        self._last_id = id_ = self._last_id + 1
        gap = _Gap[Held](id_, missed)
        flow.gaps.append(gap)
        self._asked[id_] = flow, gap
        self._deadlines.set(id_, now + ANSWER_S)
        self.fetches.append((flow.publisher, id_, asked))

    def _settle(self, gap: _Gap[Held]) -> None:
        """Wait no longer for the answer of a gap."""
        gap.is_settled = True
        del self._asked[gap.id]
        self._deadlines.cancel(gap.id)

    def _settle_all(self, flow: IncomingFlow[Held], now: float) -> None:
        """Let all subscriptions report the open gaps of a publisher."""
        for gap in flow.gaps:
            if not gap.is_settled:
                self._settle(gap)
        self._release(flow, now)

    def _release(self, flow: IncomingFlow[Held], now: float) -> None:
        """Hand out the items behind settled gaps, up to the first open one."""
        while flow.gaps and flow.gaps[0].is_settled:
            gap = flow.gaps.pop(0)
            self._held_bytes -= gap.size
            flow.report(gap.missed, gap.counts)
            for item in gap.items:
                self._hand_out(flow, item, now)
