"""Batches of publications that no node and no subscription gets (docs/design.md 8.4).

Nothing is sent, so batches of many topics are open at a time: a publisher to many topics in turn pays for an append each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from iris_py.patterns.topic.bodies import PublicationBatch

if TYPE_CHECKING:
    from iris_py.patterns.topic.outgoing_flows import OutgoingFlows
    from iris_py.patterns.topic.topic_plans import TopicPlan

__all__ = ["UnheardBatches"]

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

    is_unheard: ClassVar[bool] = True

    __slots__ = ("dropped",)

    def __init__(self) -> None:
        super().__init__(b"", b"", 0, 0)
        self.dropped = 0
        self.clear()

    def clear(self) -> None:
        """Drop the messages so far, without a count."""
        self.payloads.clear()
        self.room = BATCH_BYTES

    def append(self, payload: bytes) -> bool:
        """Drop the messages so far and the new one, and count both; return True."""
        self.dropped += len(self.payloads) + 1
        self.clear()
        return True

    def ends_full(self, payload: bytes) -> bool:
        """Return False: there always is room."""
        return False


class UnheardBatches:
    """The open batches without receivers, for one publisher.

    Args:
        flows: Gives the messages their numbers.

    Attributes:
        plans: The plan of each open batch.
    """

    def __init__(self, flows: OutgoingFlows) -> None:
        self.plans: dict[UnheardBatch, TopicPlan] = {}
        self._flows = flows
        self._ended: list[UnheardBatch] = []  # to be begun again

    @property
    def is_full(self) -> bool:
        """Whether all batches have to end before another one begins."""
        return len(self.plans) >= BATCHES_MAX

    def begin(self, plan: TopicPlan) -> UnheardBatch:
        """Begin a batch. The first message may be larger than a batch, and only counts."""
        batch = self._ended.pop() if self._ended else UnheardBatch()
        batch.dropped = 1
        self.plans[batch] = plan
        return batch

    def end_all(self) -> None:
        """Number and count the messages of all batches."""
        for batch, plan in self.plans.items():
            count = batch.dropped + len(batch.payloads)
            self._flows.publish(plan.match, (), count)
            plan.counts.runs += 1
            plan.counts.published += count
            batch.clear()
        self._ended += self.plans
        self.plans.clear()
