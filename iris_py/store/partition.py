"""One partition in the event loop: gathers appends into batches, gives them to the disk in groups, and reads.

A log has one write at a time. Batches gather during the write, and the next write takes all of them. Hence appends at the same
time share one sync. Beside a fast disk, appends go out in two halves by turns (`store/halves`). A thread takes the next half
without a way through the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, ParamSpec, TypeAlias, TypeVar

from iris_py.api.loops import PartInLoop
from iris_py.api.streams.info import PartitionInfo
from iris_py.api.streams.port import PendingBatch
from iris_py.api.threads import DaemonThreads, call_in_loop
from iris_py.store.halves import HALVED_BYTES_MAX, TIMED_APPENDS_MIN, Halves
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
        self._groups: deque[list[PendingBatch]] = deque()  # taken from those that wait, and not yet ended
        self._ready: deque[list[PendingBatch]] = deque()  # those of them for the thread that is at work
        self._batches = 0
        self._halves = Halves()
        self._woken = 0  # appends whose tasks go on now
        self._woken_at = 0.0
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
        return self._closed_bytes + open_bytes < UNSYNCED_BYTES_MAX and self._batches < UNSYNCED_BATCHES_MAX

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
        batch = self._open = PendingBatch(loop, self._halves.batch_bytes)
        batch.records.add(record)
        self._waiting.append(batch)
        self._batches += 1
        if not self._is_busy or self._halves.bytes:
            self._flush_soon()
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
        batches = self._unacknowledged()
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

    def _unacknowledged(self) -> list[PendingBatch]:
        return [*chain.from_iterable(self._groups), *self._waiting]

    def _flush_soon(self) -> None:
        """Begin the next group behind the ready tasks."""
        if not self._has_flush:
            self._has_flush = True
            self._threads.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._has_flush = False
        woken, self._woken = self._woken, 0
        if woken:
            self._halves.note_turn(woken, time.monotonic() - self._woken_at)
        if not self._is_busy:
            self._begin_job()
        elif not self._ready and self._has_half():
            self._ready.append(self._take_group())
        if woken or self._halves.bytes:
            self._choose_halves()

    def _choose_halves(self) -> None:
        """Choose between halves and one group for the next batches."""
        if self._closed_bytes <= HALVED_BYTES_MAX:
            batches = self._unacknowledged()
            size = sum(batch.records.bytes for batch in batches)
            self._halves.update(sum(batch.appends for batch in batches), size, self.log.sync_s)
        else:
            self._halves.update(0, 0, self.log.sync_s)

    def _has_half(self) -> bool:
        return self._halves.are_enough([batch.records for batch in self._waiting])

    def _take_group(self) -> list[PendingBatch]:
        """Return the batches for the next sync."""
        self._close_batch()
        group, self._waiting = self._waiting, []
        if self._halves.bytes:
            count = self._halves.count([batch.records for batch in group])
            group, self._waiting = group[:count], group[count:]
        self._groups.append(group)
        return group

    def _begin_next(self) -> None:
        """Begin the next group at once, or behind the woken tasks, so that few waiting appends share a sync with the tasks."""
        is_of_writer = not self._waiting[0].appends
        if self._ready or is_of_writer or self._closed_bytes > HALVED_BYTES_MAX or self._has_half():
            self._begin_job()
        else:
            self._flush_soon()

    def _begin_job(self) -> None:
        """Begin the next write, if there is any: batches first."""
        if self._ready or self._waiting:
            group = self._ready.popleft() if self._ready else self._take_group()
            self._submit(partial(self._append, group), self._end_append)
        elif self._trims:
            self._trims = False
            self._submit(partial(self._run, self.log.trim), _ignore)
        elif self._marks:
            self._marks = False
            self._submit(partial(self._run, self.log.sync_mark), _ignore)
        else:
            _wake(self._idle)

    def _submit(self, function: Callable[[], Outcomes], end: Callable[[Outcomes], None]) -> None:
        self._is_busy = True
        self._threads.write.start(function, partial(call_in_loop, self._threads.loop, self._end_job, end))

    def _append(self, group: list[PendingBatch]) -> Outcomes:
        """Append a group and the ready groups behind it, in a thread. Return the outcomes of the last group.

        The event loop learns the outcomes of a group when the next group is written. So the tasks run during a sync. Earlier,
        the tasks would keep the interpreter from the thread.
        """
        outcomes = self._run(partial(self.log.append, [batch.records for batch in group]))
        while self._ready and not self._threads.write.has_waiting:
            group = self._ready.popleft()
            self.log.before_sync = partial(call_in_loop, self._threads.loop, self._end_append, outcomes)
            outcomes = self._run(partial(self.log.append, [batch.records for batch in group]))
            self.log.call_before_sync()
        return outcomes

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
        if self._waiting:
            self._begin_next()
        else:
            self._begin_job()

    def _end_append(self, outcomes: Outcomes) -> None:
        group = self._groups.popleft()
        if outcomes is None:
            outcomes = [AppendUncertain(self.log.description.name, self._number, self.log.problem)] * len(group)
        self._batches -= len(group)
        woken = 0
        for batch, outcome in zip(group, outcomes, strict=True):
            self._closed_bytes -= batch.records.bytes
            woken += batch.finish(outcome)
        if woken >= TIMED_APPENDS_MIN:
            if not self._woken:
                self._woken_at = time.monotonic()
            self._woken += woken
            self._flush_soon()
        _wake(self._room)
        self._on_more()
        if self.log.has_unsynced_mark and self._timer is None:
            self._timer = self._threads.loop.call_later(MARK_INTERVAL_S, self._mark)

    # -- maintenance

    def _mark(self) -> None:
        self._timer = None
        self._marks = True
        self._begin_if_idle()

    def trim(self) -> None:
        """Delete old records soon."""
        self._trims = True
        self._begin_if_idle()

    def _begin_if_idle(self) -> None:
        if not self._is_busy:
            self._begin_job()

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
