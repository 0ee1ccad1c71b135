"""The side of a store that `Stream` and `Streams` use: partitions that gather batches and read records."""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from iris_py.errors import IrisError
from iris_py.streams.batches import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py.api.streams.info import StreamInfo
    from iris_py.streams.batches import NewRecord, ReadBatch
    from iris_py.streams.description import StreamDescription

__all__ = ["PartitionPort", "PendingBatch", "Placed", "StreamHost", "StreamPort"]


#: The width of a timer for many appends, in seconds. Too small: a timer for few appends; too large: a time-out comes late.
TIMER_S: Final = 0.1


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
        self._timers: dict[tuple[float, int], _WaitTimer] = {}

    async def wait(self, timeout: float | None = None) -> int:
        """Wait until the disk has the batch; return the offset of its first record.

        Args:
            timeout: Seconds to wait; None to wait forever. Appends within `TIMER_S` share a timer, which ends up to `TIMER_S`
                late.

        Raises:
            IrisError: The batch was not appended, or that is uncertain.
            TimeoutError: The disk did not answer in time.
        """
        outcome = self.outcome
        if outcome is None:
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()
            if timeout is None:
                self._waiters.append(waiter)
            else:
                key = (timeout, int(loop.time() / TIMER_S))
                timer = self._timers.get(key)
                if timer is None:
                    timer = self._timers[key] = _WaitTimer(loop, timeout + TIMER_S)
                timer.waiters.append(waiter)
            outcome = await waiter
        if isinstance(outcome, IrisError):
            raise copy(outcome)  # each append has its own traceback
        return outcome

    def finish(self, outcome: int | IrisError) -> None:
        """Tell all appends the outcome."""
        self.outcome = outcome
        groups = [self._waiters, *(timer.end() for timer in self._timers.values())]
        self._waiters, self._timers = [], {}
        for group in groups:
            for waiter in group:
                if not waiter.done():
                    waiter.set_result(outcome)


class _WaitTimer:
    """Appends whose time ends together.

    Attributes:
        waiters: A future for each append.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.waiters: list[asyncio.Future[int | IrisError]] = []
        self._handle = loop.call_later(seconds, self._expire)

    def end(self) -> list[asyncio.Future[int | IrisError]]:
        """Stop the timer; return the waiting appends."""
        self._handle.cancel()
        return self.waiters

    def _expire(self) -> None:
        for waiter in self.waiters:
            if not waiter.done():
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

    def add(self, record: NewRecord) -> Placed | None:
        """Add a record to a batch of its partition; None without room."""

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
