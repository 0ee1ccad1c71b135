"""The side of a store that `Stream` and `Streams` use: partitions that gather batches and read records."""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, Protocol, TypeAlias

from iris_py.errors import IrisError
from iris_py.streams.batches import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py.api.streams.info import StreamInfo
    from iris_py.streams.batches import NewRecord, ReadBatch
    from iris_py.streams.description import StreamDescription

__all__ = ["PartitionPort", "PendingBatch", "Placed", "StreamHost", "StreamPort"]


class PendingBatch:
    """A batch on the way to the disk, shared by many appends.

    Attributes:
        records: The records.
        outcome: The offset of the first record, or the error; None before the end.
    """

    def __init__(self) -> None:
        self.records = RecordBatch()
        self.outcome: int | IrisError | None = None
        self._waiters: list[asyncio.Future[int | IrisError]] = []

    async def wait(self) -> int:
        """Wait until the disk has the batch; return the offset of its first record.

        Raises:
            IrisError: The batch was not appended, or that is uncertain.
        """
        outcome = self.outcome
        if outcome is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            outcome = await waiter
        if isinstance(outcome, IrisError):
            raise copy(outcome)  # each append has its own traceback
        return outcome

    def finish(self, outcome: int | IrisError) -> None:
        """Tell all appends the outcome."""
        self.outcome = outcome
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(outcome)


#: A record in a batch: the partition, the batch, and the number of the record in the batch.
Placed: TypeAlias = tuple[int, PendingBatch, int]


class PartitionPort(Protocol):
    """One partition of a stream."""

    @property
    def first_offset(self) -> int:
        """The offset of the oldest kept record."""

    @property
    def end_offset(self) -> int:
        """The offset behind the newest record."""

    async def read(self, offset: int) -> list[ReadBatch]:
        """Return batches from an offset on; nothing at the end."""

    async def find_time(self, time_ms: int) -> int:
        """Return the offset of the first record that is not older than a time."""


class StreamPort(Protocol):
    """One stream."""

    @property
    def partitions(self) -> Sequence[PartitionPort]:
        """The partitions."""

    async def wait_for_room(self, key: bytes | None) -> None:
        """Wait until the partition for a record takes one more."""

    def add(self, record: NewRecord) -> Placed | None:
        """Add a record to a batch of its partition; None without room."""

    async def wait_for_more(self, position: Mapping[int, int]) -> None:
        """Wait until a partition has a record behind its offset."""

    def info(self) -> StreamInfo:
        """Return what is known of the stream."""


class StreamHost(Protocol):
    """All streams of a directory."""

    def find(self, name: str) -> StreamPort:
        """Return a stream.

        Raises:
            NoStream: There is none.
        """

    def infos(self) -> list[StreamInfo]:
        """Return all streams by name."""

    async def create(self, description: StreamDescription, *, exist_ok: bool) -> None:
        """Create a stream."""

    async def change(self, name: str, **changes: object) -> None:
        """Change settings of a stream."""

    async def remove(self, name: str) -> None:
        """Remove a stream."""

    async def close(self) -> None:
        """Wait until everything appended is on the disk, and release the directory."""
