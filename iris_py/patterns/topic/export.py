"""The subscription of a gateway to messages for other clouds (docs/design.md 15.35)."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar

from iris_py.patterns.topic.names import literal_prefix
from iris_py.patterns.topic.queue import SubscriptionQueue
from iris_py.wire.imported import SEQUENCE_BYTES

if TYPE_CHECKING:
    from iris_py.patterns.messages import Message
    from iris_py.patterns.topic.names import Tokens
    from iris_py.peers.group import Group


class ExportQueue(SubscriptionQueue):
    """Publications received for a gateway within a turn of the event loop, in batches with their sequence.

    The owner takes all messages in the same turn, so the queue needs no bound and drops none. Messages from other clouds are
    ignored: they would go on to a third cloud, or back.

    Args:
        pattern: The tokens of the pattern.
        name: The pattern as written.
        prefix: The beginning of the topics that share a sequence; None for the pattern's literal prefix.
        blocks: Whether publishers wait while the queue is held.

    Attributes:
        runs: Received batches: messages of one publisher, and the id of their sequence.
        is_held: Whether publishers must wait.
    """

    takes_imported: ClassVar[bool] = False

    __slots__ = ("_prefix", "is_held", "runs")

    def __init__(self, pattern: Tokens, name: str, prefix: Tokens | None = None, *, blocks: bool = False) -> None:
        policy = "block" if blocks else "drop_oldest"
        super().__init__(pattern, name, policy, 1, 1)
        self._prefix = ".".join(literal_prefix(pattern) if prefix is None else prefix).encode()
        self.runs: list[tuple[list[Message], bytes]] = []
        self.is_held = False

    @property
    def is_full(self) -> bool:
        """Whether publishers must wait."""
        return self.is_held

    def put_all(self, messages: list[Message], size: int, group: Group | None = None) -> int:
        """Add messages of this cloud; none is dropped."""
        assert group is not None
        self.runs.append((messages, blake2b(self._prefix, key=group.id, digest_size=SEQUENCE_BYTES).digest()))
        return 0

    def mark(self, now: float) -> None:
        """Do nothing: the owner takes all messages in the same turn."""

    def take_runs(self) -> list[tuple[list[Message], bytes]]:
        """Take all batches."""
        runs, self.runs = self.runs, []
        return runs
