"""One partition in the event loop: gathers appends into batches, gives them to the disk in groups, and reads.

A log has one write at a time. Batches gather during the write, and the next write takes all of them. Hence appends at the same
time share one sync, without a delay.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeAlias, TypeVar

from iris_py.api.loops import PartInLoop
from iris_py.api.streams.info import PartitionInfo
from iris_py.api.streams.port import PendingBatch
from iris_py.api.threads import DaemonThreads, call_in_loop
from iris_py.streams.errors import AppendUncertain
from iris_py.streams.limits import MARK_INTERVAL_S, READ_THREADS, UNSYNCED_BATCHES_MAX, UNSYNCED_BYTES_MAX, WRITE_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.api.streams.port import Placed
    from iris_py.errors import IrisError
    from iris_py.store.log import PartitionLog
    from iris_py.streams.batches import NewRecord, ReadBatch

#: The outcome of each batch; None for a function without batches, or after an unexpected error.
Outcomes: TypeAlias = "Sequence[int | IrisError] | None"
#: The time between two looks for appends whose time is over, in seconds. Too small: work while nothing is late; too large: a
#: time-out comes late.
LOOK_S: Final = 0.1

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

__all__ = ["DiskThreads", "PartitionAppends"]


class DiskThreads(PartInLoop):
    """The threads of all partitions.

    Attributes:
        write: Threads for writes.
        read: Threads for reads, which never wait for a sync.
    """

    _what = "directory of streams"
    _opening = "iris_py.open_streams()"

    def __init__(self) -> None:
        super().__init__()
        self.write = DaemonThreads(WRITE_THREADS, "iris-disk")
        self.read = DaemonThreads(READ_THREADS, "iris-read")

    async def run(self, function: Callable[Arguments, Result], *args: Arguments.args, **values: Arguments.kwargs) -> Result:
        """Run a function among the writes; return its result."""
        return await asyncio.wrap_future(self.write.submit(function, *args, **values))

    def close(self) -> None:
        """Let the threads end."""
        self.write.shutdown()
        self.read.shutdown()


class PartitionAppends:
    """A partition.

    Args:
        log: The log on the disk.
        number: The number of the partition.
        threads: The threads.
        on_more: Called when the disk has more records.

    Attributes:
        log: The log.
    """

    def __init__(self, log: PartitionLog, number: int, threads: DiskThreads, on_more: Callable[[], object]) -> None:
        self.log = log
        self._number = number
        self._threads = threads
        self._on_more = on_more
        self._waiting: list[PendingBatch] = []
        self._group: list[PendingBatch] = []
        self._open: PendingBatch | None = None
        self._closed_bytes = 0
        self._is_busy = False
        self._has_flush = False
        self._room: list[asyncio.Future[None]] = []
        self._idle: list[asyncio.Future[None]] = []
        self._trims = False
        self._marks = False
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None

    @property
    def first_offset(self) -> int:
        """The offset of the oldest kept record."""
        return self.log.first_offset

    @property
    def end_offset(self) -> int:
        """The offset behind the newest synced record."""
        return self.log.end_offset

    @property
    def has_room(self) -> bool:
        """Whether one more record may wait for the disk."""
        open_bytes = 0 if self._open is None else self._open.records.bytes
        batches = len(self._waiting) + len(self._group)
        return self._closed_bytes + open_bytes < UNSYNCED_BYTES_MAX and batches < UNSYNCED_BATCHES_MAX

    def info(self) -> PartitionInfo:
        """Return the state of the partition."""
        return PartitionInfo(self.first_offset, self.end_offset, self.log.bytes, self.log.problem)

    # -- appending

    def add(self, record: NewRecord) -> Placed | None:
        """Add a record; return the number of the partition, the batch, and the number in the batch. None without room."""
        batch = self._open
        if batch is None or (number := batch.records.add(record)) is None:
            return self._add_to_new(record)
        return self._number, batch, number

    def add_to_open(self, record: NewRecord) -> Placed | None:
        """Add a record to the batch that takes more records; None if there is none, or if the record does not fit."""
        batch = self._open
        if batch is None or (number := batch.records.add(record)) is None:
            return None
        return self._number, batch, number

    def _add_to_new(self, record: NewRecord) -> Placed | None:
        self._close_batch()  # also without room: no later record overtakes this one
        if not self.has_room:
            return None
        loop = self._threads.loop
        batch = self._open = PendingBatch(loop)
        batch.records.add(record)
        self._waiting.append(batch)
        if not (self._is_busy or self._has_flush):
            self._has_flush = True
            loop.call_soon(self._flush)
        if self._look is None:
            self._look = loop.call_later(LOOK_S, self._expire)
        return self._number, batch, 0

    def _close_batch(self) -> None:
        if self._open is not None:
            self._closed_bytes += self._open.records.bytes
            self._open = None

    def _expire(self) -> None:
        """Look for appends whose time is over, as long as batches wait for the disk."""
        loop = self._threads.loop
        batches = (*self._group, *self._waiting)
        for batch in batches:
            batch.expire(loop.time())
        self._look = loop.call_later(LOOK_S, self._expire) if batches else None

    async def wait_for_room(self) -> None:
        """Wait until one more record may wait for the disk."""
        while not self.has_room:
            await self._wait_in(self._room)

    async def _wait_in(self, waiters: list[asyncio.Future[None]]) -> None:
        waiter = self._threads.loop.create_future()
        waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in waiters:
                waiters.remove(waiter)

    def _flush(self) -> None:
        self._has_flush = False
        if not self._is_busy:
            self._begin_job()

    def _begin_job(self) -> None:
        """Begin the next write, if there is any: batches first."""
        if self._waiting:
            self._close_batch()
            self._group, self._waiting = self._waiting, []
            self._submit(partial(self.log.append, [batch.records for batch in self._group]), self._end_append)
        elif self._trims:
            self._trims = False
            self._submit(self.log.trim, _ignore)
        elif self._marks:
            self._marks = False
            self._submit(self.log.sync_mark, _ignore)
        else:
            _wake(self._idle)

    def _submit(self, function: Callable[[], Outcomes], end: Callable[[Outcomes], None]) -> None:
        self._is_busy = True
        self._threads.write.start(partial(self._run, function), partial(call_in_loop, self._threads.loop, self._end_job, end))

    def _run(self, function: Callable[[], Outcomes]) -> Outcomes:
        """Run a function in a thread. An unexpected error stops the log: nobody knows what the disk holds."""
        try:
            return function()
        except BaseException as exc:
            self.log.stop(f"{type(exc).__name__}: {exc}")
            return None

    def _end_job(self, end: Callable[[Outcomes], None], outcomes: Outcomes) -> None:
        self._is_busy = False
        end(outcomes)
        self._begin_job()

    def _end_append(self, outcomes: Outcomes) -> None:
        group, self._group = self._group, []
        if outcomes is None:
            outcomes = [AppendUncertain(self.log.description.name, self._number, self.log.problem)] * len(group)
        for batch, outcome in zip(group, outcomes, strict=True):
            self._closed_bytes -= batch.records.bytes
            batch.finish(outcome)
        _wake(self._room)
        self._on_more()
        if self.log.has_unsynced_mark and self._timer is None:
            self._timer = self._threads.loop.call_later(MARK_INTERVAL_S, self._mark)

    # -- maintenance

    def _mark(self) -> None:
        self._timer = None
        self._marks = True
        self._flush()

    def trim(self) -> None:
        """Delete old records soon."""
        self._trims = True
        self._flush()

    async def close(self) -> None:
        """Wait until the disk has everything, and close the files."""
        while self._is_busy or self._waiting:
            await self._wait_in(self._idle)
        for timer in (self._timer, self._look):
            if timer is not None:
                timer.cancel()
        await self._threads.run(self.log.close)

    # -- reading

    async def read(self, offset: int) -> list[ReadBatch]:
        """Return batches from an offset on; nothing at the end.

        Raises:
            StreamTruncated: Retention has deleted the record.
            StreamDamaged: The record cannot be read.
        """
        if offset == self.log.end_offset and not self.log.is_damaged:
            return []
        return await asyncio.wrap_future(self._threads.read.submit(self.log.read, offset))

    async def find_time(self, time_ms: int) -> int:
        """Return the offset of the first record that is not older than a time."""
        return await asyncio.wrap_future(self._threads.read.submit(self.log.find_time, time_ms))


def _ignore(_outcomes: Outcomes) -> None:
    """Do nothing after a function without outcomes."""


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
