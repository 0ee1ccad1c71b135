"""The publisher's side of flows: one number for each publication, and one count for each receiving node (docs/design.md 8).

A publisher numbers all publications in one sequence. For each node it counts the publications that match the node's entries:
the *flow* to that node. The name and the count of the flow stand at the start of each body, so the node sees how many messages
it missed.

A flow continues while its node is absent (dead or cut off): publications are counted and not sent. A flow without entries is
remembered. A flow that was forgotten begins again under a new name, and its node reports an upper bound of the missed messages.

The log of the last publications answers which entries of a node the missed messages matched.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from iris_py.wire.flows import FETCHED_ENTRIES_MAX, FETCHED_MESSAGES_MAX, MissedEntries, encode_flow

if TYPE_CHECKING:
    from collections.abc import Collection

    from iris_overlay.ids import NodeId
    from iris_py.wire.flows import MissedRange

#: Flows to nodes without entries that are remembered; beyond it the first withdrawn one is forgotten. Too small: a node that
#: subscribes again reports messages that it did not miss. Too large: memory, some 300 bytes for each.
REMEMBERED_MAX: Final = 65_536
#: Absent nodes whose messages are counted; beyond it the longest absent one is forgotten. Too small: a network split in two
#: costs exact gaps. Too large: each publication is matched for nodes that may never return.
ABSENT_MAX: Final = 1024
#: Time for which the messages of an absent node are counted (seconds). Too small: a stopped process reports an upper bound when
#: it continues. Too large: as above.
ABSENT_S: Final = 180.0
#: Logged publications; a batch is one of them. Too small: a rare message to one node leaves the log before the node asks for
#: it, and all subscriptions of the node report it. Too large: memory of 16 bytes for each, and a question about all of them
#: takes 0.1 us for each.
LOGGED_MAX: Final = 16_384
#: Bits of the count beside the last number of logged publications: enough for a batch (``packets.RUN_MESSAGES_MAX``), and the
#: other 48 bits number a million publications a second for nine years.
COUNT_BITS: Final = 16
COUNT_MAX: Final = (1 << COUNT_BITS) - 1
#: Questions of one node that are answered from the log within ``ANSWERS_S``. Too small: all subscriptions of a node with many
#: losses report them. Too large: a hostile member takes the time of the publisher, some 7 ms for each question.
ANSWERS_MAX: Final = 16
#: Time for ``ANSWERS_MAX`` questions (seconds).
ANSWERS_S: Final = 1.0


class Match(Protocol):
    """The entries that a publication matched. Publications to one topic may share a match; it never changes."""

    def tags_of(self, node: NodeId) -> Collection[int]:
        """Return the tags of the matched entries of a node; empty if the publication is not for the node."""
        ...


class Countable(Protocol):
    """A count of publications."""

    count: int


class OutgoingFlow:
    """The count of messages from this node to another one.

    Attributes:
        node: The receiver.
        name: The publisher's number when the flow began.
        count: Number of publications that matched the node's entries since then.
        is_absent: Whether the node is dead or cut off: its messages are counted and not sent.
    """

    __slots__ = ("_answered", "_answers_from", "_before", "count", "is_absent", "name", "node")

    def __init__(self, node: NodeId, name: int) -> None:
        self.node = node
        self.name = name
        self.count = 0
        self.is_absent = False
        self._before = 0  # messages before the next body
        self._answers_from = 0.0
        self._answered = 0

    def take_header(self) -> bytes:
        """Return the FLOW message for a body with all messages counted since the last call."""
        header = encode_flow(self.name, self._before)
        self._before = self.count
        return header

    def drop_body(self) -> None:
        """Leave out the messages counted since the last :meth:`take_header`: they are not sent, so the node misses them."""
        self._before = self.count

    def may_answer(self, now: float) -> bool:
        """Count a question of the node; return False if it has asked too often."""
        if now - self._answers_from >= ANSWERS_S:
            self._answers_from, self._answered = now, 0
        self._answered += 1
        return self._answered <= ANSWERS_MAX


class MatchLog:
    """The last ``LOGGED_MAX`` to twice as many publications of a node, with the matched entries of each."""

    def __init__(self) -> None:
        # By publication, in ascending order: the last number with the count below it (over 1 for a batch), and the match. An
        # array of numbers takes an eighth of the memory of tuples, and costs the garbage collector nothing.
        self._runs = array("Q")
        self._matches: list[Match] = []
        self._floor = 0  # the last number that has left the log

    def add(self, last: int, count: int, match: Match) -> None:
        """Log publications with consecutive numbers and one match. The hot path."""
        self._runs.append(last << COUNT_BITS | count)
        matches = self._matches
        matches.append(match)
        if len(matches) >= 2 * LOGGED_MAX:
            self._floor = self._runs[LOGGED_MAX - 1] >> COUNT_BITS
            del self._runs[:LOGGED_MAX], matches[:LOGGED_MAX]

    def find(self, node: NodeId, after: int, before: int) -> MissedEntries | None:
        """Return the entries of a node that publications matched.

        Args:
            after: Number before the first publication.
            before: Number after the last publication.

        Returns:
            None if the log does not reach back that far, or if an answer has no room for all.
        """
        if after < self._floor:
            return None
        runs, matches = self._runs, self._matches
        messages, counts = 0, dict[int, int]()
        for index in range(bisect_right(runs, after << COUNT_BITS | COUNT_MAX), len(matches)):
            last, count = runs[index] >> COUNT_BITS, runs[index] & COUNT_MAX
            first = last - count + 1
            if first >= before:
                break
            tags = matches[index].tags_of(node)
            if not tags:
                continue
            count = min(last, before - 1) - max(first, after + 1) + 1
            messages += count
            for tag in tags:
                counts[tag] = counts.get(tag, 0) + count
            if messages > FETCHED_MESSAGES_MAX or len(counts) > FETCHED_ENTRIES_MAX:
                return None
        return MissedEntries(messages, counts)


class OutgoingFlows:
    """The flows of one publisher.

    Attributes:
        number: The number of the last publication.
        flows: The flow to each node with entries, including absent nodes.
    """

    def __init__(self) -> None:
        self.number = 0
        self.flows: dict[NodeId, OutgoingFlow] = {}
        self._absent: dict[NodeId, float] = {}  # nodes of `flows` -> time of the absence, in ascending order
        self._remembered: OrderedDict[NodeId, OutgoingFlow] = OrderedDict()
        self._log = MatchLog()

    def __len__(self) -> int:
        """Return the number of flows, including those of absent nodes and of nodes without entries."""
        return len(self.flows) + len(self._remembered)

    @property
    def absent_count(self) -> int:
        """The number of absent nodes."""
        return len(self._absent)

    def publish(self, match: Match, flows: Collection[Countable], count: int = 1) -> int:
        """Number publications with one match, and count them for each node. The hot path.

        Args:
            match: The matched entries; ``tags_of`` is not empty for the nodes of ``flows`` alone.
            flows: The flow of each matched node, also of absent nodes; and the counts of groups.
            count: Number of publications, at least 1: those of a batch.

        Returns:
            The number of the first; the others follow.
        """
        first = self.number + 1
        self.number = last = self.number + count
        if flows:
            for flow in flows:
                flow.count += count
            self._log.add(last, count, match)
        return first

    def begin(self, node: NodeId) -> OutgoingFlow:
        """Return the flow to a node that has entries, and is reachable. A known flow continues."""
        flow = self.flows.get(node)
        if flow is None:
            flow = self._remembered.pop(node, None)
            if flow is None:
                flow = OutgoingFlow(node, self.number)
            self.flows[node] = flow
        if flow.is_absent:
            del self._absent[node]
            flow.is_absent = False
            flow.drop_body()
        return flow

    def lose(self, node: NodeId, now: float) -> list[NodeId]:
        """Handle a node that is dead or cut off: its messages are counted from now on, and not sent.

        Returns:
            The nodes whose flows are forgotten, because too many are absent. Their entries must be removed.
        """
        flow = self.flows.get(node)
        if flow is None or flow.is_absent:
            return []
        flow.is_absent = True
        self._absent[node] = now
        return [self._forget_oldest()] if len(self._absent) > ABSENT_MAX else []

    def withdraw(self, node: NodeId) -> None:
        """Handle the end of a node's last entry: its flow is remembered."""
        flow = self.flows.pop(node, None)
        if flow is None:
            return
        if flow.is_absent:
            del self._absent[node]
            flow.is_absent = False
        flow.drop_body()
        self._remembered[node] = flow
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def answer(self, node: NodeId, asked: MissedRange, now: float) -> MissedEntries | None:
        """Return the entries that a node's missed messages matched; None if they are not known: send ``NO_ANSWER``."""
        flow = self.flows.get(node) or self._remembered.get(node)
        if flow is None or flow.name != asked.flow or not flow.may_answer(now):
            return None
        return self._log.find(node, asked.after, asked.before)

    def handle_timeout(self, now: float) -> list[NodeId]:
        """Forget the flows of nodes that are absent for ``ABSENT_S``; return the nodes. Their entries must be removed."""
        forgotten: list[NodeId] = []
        while self._absent and next(iter(self._absent.values())) + ABSENT_S <= now:
            forgotten.append(self._forget_oldest())
        return forgotten

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return next(iter(self._absent.values())) + ABSENT_S if self._absent else None

    def _forget_oldest(self) -> NodeId:
        """Forget the flow of the longest absent node."""
        node = next(iter(self._absent))
        del self._absent[node]
        del self.flows[node]
        return node
