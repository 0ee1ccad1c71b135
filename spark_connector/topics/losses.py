"""The losses of a streaming query by publisher, counted across restarts of the query.

A topic is not stored, so a lost message stays lost, but the loss can be reported. Publishers number their messages. While the
planner runs, ``message.gap`` gives the number of messages missing before a message. Messages published while the query was
stopped, and messages that had arrived and were in no micro-batch, become visible with the publisher's next message: the offset
that Spark keeps has the last number. For one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spark_connector.topics.buffer import Arrival

__all__ = ["PUBLISHERS_MAX", "MessageLosses"]

#: Maximum number of publishers with a remembered last number, the latest ones: other publishers' messages are not missed while
#: the query is stopped. Also the maximum of publishers whose losses are counted separately. Each takes 100 bytes in the offset
#: of every micro-batch.
PUBLISHERS_MAX: Final = 256
#: The key under which the losses are counted that belong to no publisher with its own count.
OTHERS: Final = "others"


class MessageLosses:
    """Counts the lost messages of one streaming query.

    Args:
        topic: The topic or pattern. The numbers of another topic are ignored.

    Attributes:
        dropped: Number of messages that arrived and were dropped because the query was behind.
        lost: Number of messages in micro-batches that were planned and not executed.
        missed: Number of messages that never arrived, by the id of their publisher; beyond the maximum under ``others``.
        accepted: Number of losses known when the query started: it does not fail for these again.
    """

    def __init__(self, topic: str) -> None:
        self.dropped = 0
        self.lost = 0
        self.missed: dict[str, int] = {}
        self.accepted = 0
        self._topic = topic
        self._last: dict[str, int] = {}  # the last number of each publisher, the latest publisher last
        self._unheard: dict[str, int] = {}  # last numbers of an earlier life, until a message of the publisher arrives

    @property
    def total(self) -> int:
        """Number of messages lost since the first start of the query, including lives before a restart."""
        return self.dropped + self.lost + sum(self.missed.values())

    def note(self, arrivals: Iterable[Arrival], *, dropped: bool) -> None:
        """Count messages that leave the buffer, in their order.

        Args:
            arrivals: The messages.
            dropped: Whether they are dropped; otherwise they go into a micro-batch.
        """
        for arrival in arrivals:
            message = arrival.message
            gap, source = message.gap, message.source
            before = self._unheard.pop(source, None)
            if before is not None:  # the first message received from a publisher shows no gap
                gap = max(gap, message.sequence - before - 1)
            if gap > arrival.overrun:
                self._miss(source, gap - arrival.overrun)
            self.dropped += arrival.overrun
            self._last.pop(source, None)
            self._last[source] = message.sequence
            if len(self._last) > PUBLISHERS_MAX:
                del self._last[next(iter(self._last))]
            self.dropped += dropped

    def state(self) -> dict[str, Any]:
        """Return the state to keep in an offset; empty if no message arrived and none was lost."""
        last = {**self._unheard, **self._last}
        if not last and not self.total:
            return {}
        kept = list(last)[-PUBLISHERS_MAX:]
        return {
            "topic": self._topic,
            "sequences": {source: last[source] for source in kept},
            "missed": dict(self.missed),
            "dropped": self.dropped,
            "lost": self.lost,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue the counts in an offset Spark kept from before a restart; these losses count as accepted."""
        if state.get("topic") != self._topic:
            return
        self.dropped += state["dropped"]
        self.lost += state["lost"]
        for source, count in state["missed"].items():
            self._miss(source, count)
        self.accepted += state["dropped"] + state["lost"] + sum(state["missed"].values())
        self._unheard = {source: number for source, number in state["sequences"].items() if source not in self._last}

    def _miss(self, source: str, count: int) -> None:
        if source not in self.missed and len(self.missed) >= PUBLISHERS_MAX:
            source = OTHERS
        self.missed[source] = self.missed.get(source, 0) + count
