"""The side of a store that `Stream` and `Streams` use: partitions that gather batches and read records."""

from __future__ import annotations

import asyncio
import math
from copy import copy
from typing import TYPE_CHECKING, Protocol, TypeAlias

from iris_py.errors import IrisError
from iris_py.streams.batches import RecordBatch
from iris_py.streams.limits import BATCH_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py.api.streams.info import StreamInfo
    from iris_py.streams.batches import NewRecord, ReadBatch
    from iris_py.streams.description import StreamDescription

__all__ = ["PartitionPort", "PendingBatch", "Placed", "StreamHost", "StreamPort"]


class PendingBatch:
    """A batch on the way to the disk, shared by many appends.

    Args:
        loop: The event loop.
        bytes_max: Bytes of the records, unless a single one is larger.

    Attributes:
        records: The records.
        outcome: The offset of the first record, or the error; None before the end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, bytes_max: int = BATCH_BYTES_MAX) -> None:
        self.records = RecordBatch(bytes_max)
        self.outcome: int | IrisError | None = None
        self._create_future = loop.create_future
        self._waiters: list[asyncio.Future[int]] = []
        self._timeouts: list[float] = []
        self._deadlines: list[float] = []

    def wait(self, timeout: float = math.inf) -> asyncio.Future[int]:
        """Return a future for the offset of the first record, when the disk has the batch.

        Its errors are an `IrisError` if the batch was not appended, or if that is uncertain, and `TimeoutError` for a disk that
        did not answer in time.

        Args:
            timeout: Seconds to wait, from the next look of the owner of the batch on. So the error comes late.
        """
        waiter: asyncio.Future[int] = self._create_future()
        self._waiters.append(waiter)
        self._timeouts.append(timeout)
        if self.outcome is not None:
            self.finish(self.outcome)
        return waiter

    @property
    def appends(self) -> int:
        """The number of appends that wait."""
        return len(self._waiters)

    def finish(self, outcome: int | IrisError) -> int:
        """Tell all appends the outcome; return their number."""
        self.outcome = outcome
        waiters, self._waiters, self._timeouts, self._deadlines = self._waiters, [], [], []
        if isinstance(outcome, IrisError):
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(copy(outcome))  # each append has its own traceback
        else:
            for waiter in waiters:
                try:  # cheaper than a question
                    waiter.set_result(outcome)
                except asyncio.InvalidStateError:
                    pass  # its append was cancelled, or its time is over
        return len(waiters)

    def expire(self, now: float) -> None:
        """Tell the appends whose time is over. The time of an append begins with the first look at it."""
        self._deadlines += [now + timeout for timeout in self._timeouts[len(self._deadlines) :]]
        if self._deadlines and min(self._deadlines) <= now:
            for waiter, deadline in zip(self._waiters, self._deadlines, strict=True):
                if deadline <= now and not waiter.done():
                    waiter.set_exception(TimeoutError())


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

    def add_to_open(self, record: NewRecord) -> Placed | None:
        """Add a record to the batch that takes more records; None if there is none, or if the record does not fit."""

    def add(self, record: NewRecord) -> Placed | None:
        """Add a record to a batch of its partition, or to a new one; None without room."""

    async def wait_for_more(self, position: Mapping[int, int]) -> None:
        """Wait until a partition has a record behind its offset."""

    def info(self) -> StreamInfo:
        """Return what is known of the stream."""


class StreamHost(Protocol):
    """All streams of a directory."""

    def check(self) -> None:
        """Refuse a call after the end, from another event loop, or from a fork of the process.

        Raises:
            ConfigurationError: The call is one of these.
        """

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
