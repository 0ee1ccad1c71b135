"""The losses of a streaming query, by publisher, counted on from one start of the query to the next.

A topic is not stored, so what is lost stays lost; but it can be told. Publishers number what they publish. Within one life of
the planner ``message.gap`` says what is missing before a message. What was published while the query did not run, or had
arrived and was in no micro-batch, shows when the query hears the publisher again: the last number that counts is in the offset
that Spark keeps. For one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spark_connector.topics.buffer import Arrival

__all__ = ["PUBLISHERS_MAX", "Losses"]

#: Publishers whose last numbers are known, the ones that were heard last: of others it is not seen what they publish while the
#: query does not run. And publishers whose losses are counted apart. Each is 100 bytes of the offset of every micro-batch.
PUBLISHERS_MAX: Final = 256
#: What stands for all the others.
OTHERS: Final = "others"


class Losses:
    """Counts what was lost.

    Args:
        topic: The topic or pattern: numbers of another one say nothing.

    Attributes:
        dropped: Messages that had arrived and were dropped, as the query was behind.
        lost: Messages of micro-batches that were planned and not done.
        missed: Messages that never arrived, by the id of their publisher; ``others`` for those of too many.
        accepted: How many losses the query knew when it was started: it does not fail for these again.
    """

    def __init__(self, topic: str) -> None:
        self.dropped = 0
        self.lost = 0
        self.missed: dict[str, int] = {}
        self.accepted = 0
        self._topic = topic
        self._last: dict[str, int] = {}  # the last number of each publisher that counts; who was heard last is last
        self._unheard: dict[str, int] = {}  # those of an earlier life, until the publisher is heard again

    @property
    def total(self) -> int:
        """How many messages were lost, in all lives of the query."""
        return self.dropped + self.lost + sum(self.missed.values())

    def note(self, arrivals: Iterable[Arrival], *, dropped: bool) -> None:
        """Count messages that leave the buffer, in their order.

        Args:
            arrivals: The messages.
            dropped: Whether they are dropped; else they go into a micro-batch.
        """
        for arrival in arrivals:
            message = arrival.message
            gap, source = message.gap, message.source
            before = self._unheard.pop(source, None)
            if before is not None:  # the first one that this node hears of a publisher shows no gap
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
        """Return what an offset keeps of this; empty if nothing was heard and nothing lost."""
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
        """Go on from what an offset of an earlier life has kept, of which everything counts as accepted."""
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
