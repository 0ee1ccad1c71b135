"""The losses of a streaming query by publisher, counted across restarts of the query.

A topic is not stored, so a lost message stays lost, but the loss can be reported. Publishers count the messages for the
query's topic, also while the query does not run (docs/design.md 8.17). Each message has a number in this count, and a publisher
with earlier messages tells their number. The offset in Spark's checkpoint has the number of the last message of each publisher.
So the query has missed the difference, on any driver.

After a count began anew, the number of messages before is unknown. For one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from iris_py.connector import CountedMessage, holder_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_py.connector import MatchesBefore
    from spark_connector.topics.buffer import Arrival

__all__ = ["PUBLISHERS_MAX", "MessageLosses"]

#: Maximum number of publishers with a remembered count, the latest ones: other publishers' messages are not missed while the
#: query is stopped. Also the maximum of publishers whose losses are counted separately. Each takes 120 bytes in the offset of
#: every micro-batch.
PUBLISHERS_MAX: Final = 256
#: Nodes of earlier lives of the query that the offset remembers, the latest ones. Too small: of a publisher that began to count
#: for a forgotten life, and was never heard, messages are not missed. Too large: each takes 20 bytes of every offset.
LIVES_MAX: Final = 16
#: The key under which the losses are counted that belong to no publisher with its own count.
OTHERS: Final = "others"
#: In place of the publisher's number when its count began: the publisher does not count.
UNCOUNTED: Final = -1


class _LastMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last message of a publisher, received or missed by the query."""

    since: int
    """The publisher's number when its count began, or ``UNCOUNTED``."""
    count: int
    """The number of the message in this count."""
    sequence: int
    """The publisher's number of the last message received; 0 before the first."""


class MessageLosses:
    """Counts the lost messages of one streaming query.

    Args:
        topic: The topic or pattern. The counts of another topic are ignored.
        node: The id (hex) of the subscribing node.
        is_counted: Whether publishers count the messages. Otherwise gaps alone count, as for a query in a group, which gets a
            part of the messages.

    Attributes:
        dropped: Number of messages that arrived and were dropped because the query was behind.
        lost: Number of messages in micro-batches that were planned and not executed.
        missed: Number of messages that never arrived, by the id of their publisher; beyond the maximum under ``others``.
        unknown: How often a publisher could not tell the number of missed messages, by the id of the publisher; likewise.
        accepted: Number of losses known when the query started: it does not fail for these again.
    """

    def __init__(self, topic: str, node: str, *, is_counted: bool = True) -> None:
        self.dropped = 0
        self.lost = 0
        self.missed: dict[str, int] = {}
        self.unknown: dict[str, int] = {}
        self.accepted = 0
        self._topic = topic
        self._is_counted = is_counted
        self._lives = [holder_of(bytes.fromhex(node))]  # the nodes of this query, as publishers name them
        self._is_partial = False  # an earlier life has forgotten publishers, or did not count
        self._places: dict[str, _LastMessage] = {}  # of each publisher, the latest publisher last
        self._unheard: dict[str, _LastMessage] = {}  # of an earlier life, until the publisher is heard

    @property
    def total(self) -> int:
        """Number of losses since the first start of the query, including lives before a restart; an unknown number counts 1."""
        return self.dropped + self.lost + sum(self.missed.values()) + sum(self.unknown.values())

    @property
    def unheard(self) -> list[str]:
        """The publishers of earlier lives, not heard in this life: the query may have missed messages of them."""
        return list(self._unheard)

    def start(self, source: str, before: MatchesBefore) -> None:
        """Take the first count of a publisher in this life, before the first message.

        Args:
            source: The id of the publisher.
            before: The number of messages before.
        """
        if source in self._places:
            return  # a message without a number came first
        place = self._unheard.pop(source, None)
        self._start(source, place, before)
        self._put(source, _LastMessage(before.since, before.count, 0 if place is None else place.sequence))

    def note(self, arrivals: Iterable[Arrival], *, dropped: bool) -> None:
        """Count messages that leave the buffer, in their order.

        Args:
            arrivals: The messages.
            dropped: Whether they are dropped; otherwise they go into a micro-batch.
        """
        for arrival in arrivals:
            if self._is_counted and not arrival.message.cloud:
                self._note(arrival)
            else:  # or its publisher counts for another cloud
                self._note_gap(arrival)
            self.dropped += arrival.overrun + dropped

    def state(self) -> dict[str, Any]:
        """Return the state to keep in an offset."""
        places = {**self._unheard, **self._places}
        return {
            "topic": self._topic,
            "lives": [f"{life:016x}" for life in self._lives[-LIVES_MAX:]],
            "counts": {source: list(msgspec.structs.astuple(places[source])) for source in list(places)[-PUBLISHERS_MAX:]},
            "missed": dict(self.missed),
            "unknown": dict(self.unknown),
            "dropped": self.dropped,
            "lost": self.lost,
        }

    def restore(self, state: Mapping[str, Any], starts: Mapping[str, MatchesBefore]) -> None:
        """Continue the counts in an offset Spark kept from before a restart; these losses count as accepted.

        The publishers in an offset of a version without counts are new to the query.

        Args:
            state: The state in the offset; may be empty.
            starts: The first count of each publisher in this life.
        """
        if state.get("topic") != self._topic:
            return
        self.dropped += state["dropped"]
        self.lost += state["lost"]
        missed, unknown = state["missed"], state.get("unknown", {})
        for source, count in missed.items():
            self._miss(source, count)
        for source, count in unknown.items():
            self._miss_unknown(source, count)
        self.accepted += state["dropped"] + state["lost"] + sum(missed.values()) + sum(unknown.values())
        if not self._is_counted:
            return
        places = {source: _LastMessage(*place) for source, place in state.get("counts", {}).items()}
        self._lives = [int(life, 16) for life in state.get("lives", ())] + self._lives
        self._is_partial = self._is_partial or len(places) >= PUBLISHERS_MAX
        for source in [source for source in self._places if source in starts]:  # messages were dropped before this call
            self._start(source, places.get(source), starts[source])
        self._unheard = {source: place for source, place in places.items() if source not in self._places}

    # --

    def _start(self, source: str, place: _LastMessage | None, before: MatchesBefore) -> None:
        """Count the messages that the query missed of a publisher before this life."""
        if place is not None:
            self._go_on(source, place, before.since, before.count)
        elif before.holder in self._lives and not self._is_partial:
            self._miss(source, before.count)  # it began to count for this query, and no message has arrived

    def _note(self, arrival: Arrival) -> None:
        """Count the messages missed before a message of this cloud."""
        message, overrun = arrival.message, arrival.overrun
        source = message.source
        unheard = self._unheard.pop(source, None)
        place = unheard or self._places.pop(source, None)
        if isinstance(message, CountedMessage):
            if place is None:
                self._miss(source, message.gap - overrun)
            else:
                self._go_on(source, place, message.count_since, message.count - 1, overrun)
            self._put(source, _LastMessage(message.count_since, message.count, message.sequence))
            return
        self._note_gap(arrival)
        if unheard is not None and message.sequence != unheard.sequence + 1:
            self._miss_unknown(source)
        self._put(source, _LastMessage(UNCOUNTED, 0, message.sequence))

    def _note_gap(self, arrival: Arrival) -> None:
        message = arrival.message
        self._miss(message.source, message.gap - arrival.overrun)
        if message.has_unknown_gap:
            self._miss_unknown(message.source)

    def _go_on(self, source: str, place: _LastMessage, since: int, before: int, overrun: int = 0) -> None:
        """Count the messages missed between a place and another one.

        Args:
            source: The publisher.
            place: The earlier place.
            since: The count of the later one.
            before: The number of messages before the later one in this count.
            overrun: How many of them had arrived.
        """
        if since == place.since:
            self._miss(source, before - place.count - overrun)
        elif since == place.sequence:  # the count began right behind the last message
            self._miss(source, before - overrun)
        else:
            self._miss_unknown(source)

    def _put(self, source: str, place: _LastMessage) -> None:
        self._places[source] = place
        if len(self._places) > PUBLISHERS_MAX:
            del self._places[next(iter(self._places))]
            self._is_partial = True

    def _miss(self, source: str, count: int) -> None:
        if count > 0:
            _add(self.missed, source, count)

    def _miss_unknown(self, source: str, times: int = 1) -> None:
        _add(self.unknown, source, times)


def _add(counts: dict[str, int], source: str, count: int) -> None:
    if source not in counts and len(counts) >= PUBLISHERS_MAX:
        source = OTHERS
    counts[source] = counts.get(source, 0) + count
