"""Batches of publications that no node and no subscription gets (docs/design.md 8.4).

Nothing is sent, so batches of many topics are open at a time: a publisher to many topics in turn pays for an append each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.patterns.topic.bodies import PublicationBatch
from iris_py.wire import packets

if TYPE_CHECKING:
    from iris_py.patterns.topic.outgoing_flows import OutgoingFlows
    from iris_py.patterns.topic.topic_plans import TopicPlan

__all__ = ["UnheardBatch", "UnheardBatches"]

#: Batches at a time; beyond it all end. Too small: a publisher to many topics begins a batch for each message; too large:
#: memory within a turn of the event loop, of up to ``BATCH_BYTES`` each.
BATCHES_MAX: Final = 256
#: Bytes of payloads that a batch holds. Too small: the messages of a batch are counted often; too large: as above.
BATCH_BYTES: Final = 16 * 1024


class UnheardBatch(PublicationBatch):
    """A batch without receivers. It always has room, because a full batch drops its messages and only counts them.

    Attributes:
        dropped: The number of dropped messages.
    """

    __slots__ = ("dropped",)

    def __init__(self, payload: bytes) -> None:
        super().__init__(b"", payload, 0, 0, packets.PUBLICATION)
        self.dropped = 1
        self.payloads.clear()  # the first message may be larger than a batch
        self.room = BATCH_BYTES

    def append(self, payload: bytes) -> bool:
        """Drop the messages so far and the new one, and count both; return True."""
        self.dropped += len(self.payloads) + 1
        self.payloads.clear()
        self.room = BATCH_BYTES
        return True


class UnheardBatches:
    """The open batches without receivers, for one publisher.

    Args:
        flows: Gives the messages their numbers.
    """

    def __init__(self, flows: OutgoingFlows) -> None:
        self._flows = flows
        self._open: dict[UnheardBatch, TopicPlan] = {}

    def __len__(self) -> int:
        """Return the number of open batches."""
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Whether all batches have to end before another one begins."""
        return len(self._open) >= BATCHES_MAX

    def begin(self, plan: TopicPlan, payload: bytes) -> UnheardBatch:
        """Begin a batch with its first message."""
        batch = UnheardBatch(payload)
        self._open[batch] = plan
        return batch

    def end_all(self) -> None:
        """Number and count the messages of all batches."""
        for batch, plan in self._open.items():
            count = batch.dropped + len(batch.payloads)
            self._flows.publish(plan.match, (), count)
            plan.counts.runs += 1
            plan.counts.published += count
        self._open.clear()
