"""A subscription by which a gateway hears what it may send to other clouds (docs/design.md 15.35)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from iris_py.patterns.topic.names import literal_prefix
from iris_py.patterns.topic.queue import SubscriptionQueue
from iris_py.wire.imported import STREAM_BYTES

if TYPE_CHECKING:
    from iris_py.patterns.messages import Message
    from iris_py.patterns.topic.names import Tokens
    from iris_py.peers.group import Group


class ExportQueue(SubscriptionQueue):
    """The publications that one turn of the event loop has brought for a gateway: runs, each with the stream that it is of.

    The owner takes all of it in the same turn, so nothing is bounded here and nothing dropped. What came from another cloud is
    not taken: it would go on to a third one, or back.

    Args:
        pattern: The tokens of the pattern.
        name: The pattern as it was written.
        prefix: The prefix whose group they are to come under; None for the literal one of the pattern.
        blocks: Whether publishers wait while it is held.

    Attributes:
        runs: What has arrived: messages of one publisher, and the first bytes of the id of the group that they came under.
        is_held: Whether publishers are to wait.
    """

    takes_imported: ClassVar[bool] = False

    __slots__ = ("is_held", "runs")

    def __init__(self, pattern: Tokens, name: str, prefix: Tokens | None = None, *, blocks: bool = False) -> None:
        policy = "block" if blocks else "drop_oldest"
        super().__init__(pattern, literal_prefix(pattern) if prefix is None else prefix, name, policy, 1, 1)
        self.runs: list[tuple[list[Message], bytes]] = []
        self.is_held = False

    @property
    def is_full(self) -> bool:
        """Whether publishers are to wait."""
        return self.is_held

    def put_all(self, messages: list[Message], size: int, group: Group | None = None) -> int:
        """Take messages of this cloud; none is dropped."""
        assert group is not None
        self.runs.append((messages, group.id[:STREAM_BYTES]))
        return 0

    def mark(self, now: float) -> None:
        """Note nothing: the owner takes all of it in the same turn."""

    def take_runs(self) -> list[tuple[list[Message], bytes]]:
        """Take everything."""
        runs, self.runs = self.runs, []
        return runs
