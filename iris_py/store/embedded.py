"""Streams of one process: a directory, without a node and without a network."""

from __future__ import annotations

import asyncio
import difflib
import os
import secrets
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

import msgspec

from iris_py.api.awaitable_context import Opening
from iris_py.api.streams.directory import Streams
from iris_py.api.streams.info import StreamInfo
from iris_py.errors import ConfigurationError
from iris_py.store.disk import StoreDisk, is_lack_of_space
from iris_py.store.log import LogIdentity, PartitionLog, create_log
from iris_py.store.partition import DiskThreads, PartitionAppends
from iris_py.streams.batches import partition_of_key
from iris_py.streams.blocks import ID_BYTES
from iris_py.streams.description import (
    COPIES,
    COPY_BYTES,
    DamagedDescription,
    StreamDescription,
    decode_copies,
    encode_copy,
)
from iris_py.streams.errors import NoStream, StreamDamaged, StreamFull
from iris_py.streams.limits import RETENTION_INTERVAL_S, STORE_PARTITIONS_MAX, TRASH_AGE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.api.streams.port import Placed
    from iris_py.streams.batches import NewRecord

__all__ = ["open_streams"]

#: The folders of a directory, and the file with the name and the settings of a stream.
STREAMS = "streams"
TRASH = "trash"
DESCRIPTION = "stream"
#: The beginning of the name of a stream's folder before everything in it is synced.
UNFINISHED = "new-"


def open_streams(directory: str | os.PathLike[str], *, disk: StoreDisk | None = None) -> Opening[Streams]:
    """Open the streams in a directory, which is made if it is missing: a log in this process, without a node or a network.

    Use with ``await`` or ``async with``. One process at a time has a directory open.

    Args:
        directory: The directory.
        disk: The files, for tests: see :class:`iris_py.testing.ShadowDisk`.

    Returns:
        The streams.

    Raises:
        ConfigurationError: Another process has the directory open, or it cannot be used.
    """
    return Opening(_open(Path(directory), disk or StoreDisk()))


async def _open(directory: Path, disk: StoreDisk) -> Streams:
    threads = DiskThreads()
    try:
        host = await threads.run(EmbeddedHost, directory, disk, threads)
    except OSError as exc:
        threads.close()
        raise ConfigurationError(f"{directory} cannot be used for streams: {exc}.") from exc
    except BaseException:
        threads.close()
        raise
    host.begin()
    return Streams(host)


class EmbeddedStream:
    """One stream of a directory.

    Args:
        folder: The folder.
        stream: The id of the stream.
        number: The number of the description, higher for each change.
        description: The name and the settings.

    Attributes:
        folder: The folder.
        stream: The id.
        number: The number of the description.
        description: The name and the settings.
        partitions: The partitions.
        add: Adds a record to a batch of its partition, or to a new one; None without room.
        add_to_open: Adds a record to the batch that takes more records; None if there is none, or if the record does not fit.
    """

    def __init__(self, folder: Path, stream: bytes, number: int, description: StreamDescription) -> None:
        self.folder, self.stream = folder, stream
        self.number, self.description = number, description
        self.partitions: tuple[PartitionAppends, ...] = ()
        self.add, self.add_to_open = self._add, self._add_to_open
        self._turn = 0
        self._readers: set[asyncio.Future[None]] = set()

    def load(self, disk: StoreDisk, threads: DiskThreads, producer: bytes) -> None:
        """Open the logs of all partitions. Blocks."""
        description = self.description
        logs = [
            PartitionLog(disk, self.folder / str(number), LogIdentity(self.stream, number, producer), description)
            for number in range(description.partitions)
        ]
        self.partitions = tuple(PartitionAppends(log, number, threads, self._wake) for number, log in enumerate(logs))
        if len(logs) == 1:  # no choice, so no call for it
            self.add, self.add_to_open = self.partitions[0].add, self.partitions[0].add_to_open

    async def wait_for_room(self, key: bytes | None) -> None:
        """Wait until the partition for a record takes one more."""
        number = self._turn if key is None else partition_of_key(key, len(self.partitions))
        await self.partitions[number].wait_for_room()

    def _add_to_open(self, record: NewRecord) -> Placed | None:
        partitions = self.partitions
        key = record[1]
        return partitions[self._turn if key is None else partition_of_key(key, len(partitions))].add_to_open(record)

    def _add(self, record: NewRecord) -> Placed | None:
        """Records without a key go into the open batch, and a new batch to the next partition in turn."""
        partitions = self.partitions
        key = record[1]
        if key is not None:
            return partitions[partition_of_key(key, len(partitions))].add(record)
        return partitions[self._turn].add_to_open(record) or partitions[self._next_turn()].add(record)

    def _next_turn(self) -> int:
        """Return the next partition in turn that has room."""
        count = len(self.partitions)
        free = [number for number in range(self._turn + 1, self._turn + count + 1) if self.partitions[number % count].has_room]
        self._turn = (free[0] if free else self._turn + 1) % count
        return self._turn

    async def wait_for_more(self, position: Mapping[int, int]) -> None:
        """Wait until a partition has a record behind its offset."""
        if all(self.partitions[number].end_offset <= offset for number, offset in position.items()):
            reader = asyncio.get_running_loop().create_future()
            self._readers.add(reader)
            try:
                await reader
            finally:
                self._readers.discard(reader)

    def _wake(self) -> None:
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)

    def info(self) -> StreamInfo:
        """Return the settings and the state of the partitions."""
        description = self.description
        states = tuple(partition.info() for partition in self.partitions)
        return StreamInfo(description.name, description.max_age_s, description.max_bytes, description.full, states)

    async def close(self) -> None:
        """Wait until the disk has everything, and close the files."""
        await asyncio.gather(*(partition.close() for partition in self.partitions))
        self._wake()


class EmbeddedHost:
    """All streams of a directory. The constructor blocks: it reads the ends of all logs.

    Raises:
        ConfigurationError: Another process has the directory open.
        OSError: The directory cannot be read or written.
    """

    def __init__(self, directory: Path, disk: StoreDisk, threads: DiskThreads) -> None:
        self._directory, self._disk, self._threads = directory, disk, threads
        self._process = os.getpid()
        self._is_own_thread, self._loop = threads.is_own_thread, threads.loop
        self._producer = secrets.token_bytes(ID_BYTES)
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._is_fork = False
        self._changes = asyncio.Lock()
        self._streams: dict[str, EmbeddedStream] = {}
        self._unreadable: dict[Path, str] = {}
        for folder in (directory / STREAMS, directory / TRASH):
            disk.make_folder(folder)
        self._lock = disk.lock(directory)
        try:
            self._load()
        except BaseException:
            disk.unlock(self._lock)
            raise

        _hosts.add(self)

    def __str__(self) -> str:
        return str(self._directory)

    def disown(self) -> None:
        """Refuse all calls: this process is a fork of the one with the directory."""
        self._is_closed = self._is_fork = True

    def _load(self) -> None:
        folder = self._directory / STREAMS
        for name in self._disk.names(folder):
            if name.startswith(UNFINISHED):
                self._disk.remove(folder / name)  # the process stopped before create_stream() returned
                continue
            try:
                stream = bytes.fromhex(name)
                with closing(self._disk.open(folder / name / DESCRIPTION)) as file:
                    number, description = decode_copies(stream, file.read(COPIES * COPY_BYTES))
            except (DamagedDescription, OSError, ValueError) as exc:
                self._unreadable[folder / name] = str(exc)
                continue
            embedded = EmbeddedStream(folder / name, stream, number, description)
            embedded.load(self._disk, self._threads, self._producer)
            self._streams[description.name] = embedded
        self._purge()

    def _purge(self) -> None:
        trash = self._directory / TRASH
        for name in self._disk.names(trash):
            if self._disk.age_s(trash / name) > TRASH_AGE_S:
                self._disk.remove(trash / name)

    def begin(self) -> None:
        """Begin to delete old records from time to time."""
        for stream in self._streams.values():
            for partition in stream.partitions:
                partition.trim()
        self._timer = self._threads.loop.call_later(RETENTION_INTERVAL_S, self.begin)

    def check(self) -> None:
        """Refuse a call after the end, from another event loop, or from a fork of the process.

        Raises:
            ConfigurationError: The call is one of these.
        """
        if not self._is_closed and self._is_own_thread() and self._loop.is_running():
            return
        if self._is_fork:
            raise ConfigurationError(
                f"the streams in {self} belong to process {self._process}, and this process is a fork of it. Append in that "
                "process."
            )
        if self._is_closed:
            raise ConfigurationError(f"the streams in {self} are closed. Open them again with open_streams().")
        self._threads.check_loop()

    def find(self, name: str) -> EmbeddedStream:
        """Return a stream.

        Raises:
            NoStream: There is none.
            StreamDamaged: A stream with an unreadable name may be the requested stream.
        """
        if self._is_closed or not self._is_own_thread() or not self._loop.is_running():
            self.check()
        if (found := self._streams.get(name)) is not None:
            return found
        self._refuse_unreadable(name)
        near = difflib.get_close_matches(name, self._streams) or sorted(self._streams)[:1]
        raise NoStream(name, near)

    def _refuse_unreadable(self, name: str) -> None:
        """Refuse a name that an unreadable stream may have."""
        for folder, reason in self._unreadable.items():
            raise StreamDamaged(name, 0, 0, str(folder), f"a stream may have this name, and {reason}")

    def infos(self) -> list[StreamInfo]:
        """Return all streams by name."""
        self.check()
        return [self._streams[name].info() for name in sorted(self._streams)]

    async def create(self, description: StreamDescription, *, exist_ok: bool) -> None:
        """Create a stream, and wait until its files are synced.

        Raises:
            ConfigurationError: The stream exists, or there are too many.
            StreamDamaged: The name of another stream cannot be read.
            StreamFull: The disk is full.
        """
        self.check()
        async with self._changes:
            if (found := self._streams.get(description.name)) is not None:
                self._accept(found.description, description, exist_ok=exist_ok)
                return
            self._refuse_unreadable(description.name)
            count = sum(len(stream.partitions) for stream in self._streams.values())
            if count + description.partitions > STORE_PARTITIONS_MAX:
                raise ConfigurationError(
                    f"{self} has {count} partitions, and at most {STORE_PARTITIONS_MAX} are allowed. Use another directory."
                )
            try:
                stream = await self._threads.run(self._create, description)
            except OSError as exc:
                if is_lack_of_space(exc):
                    free = self._disk.free_bytes(self._directory)
                    raise StreamFull(description.name, 0, free, is_disk=True) from exc
                raise ConfigurationError(f"{description.name!r} cannot be created in {self}: {exc}.") from exc
            self._streams[description.name] = stream

    @staticmethod
    def _accept(found: StreamDescription, wanted: StreamDescription, *, exist_ok: bool) -> None:
        if not exist_ok:
            raise ConfigurationError(f"the stream {found.name!r} exists. exist_ok=True takes it as it is.")
        if found.partitions != wanted.partitions and wanted.partitions != 1:
            raise ConfigurationError(
                f"the stream {found.name!r} exists with partitions={found.partitions}, not {wanted.partitions}. Keys would "
                "move to other partitions."
            )

    def _create(self, description: StreamDescription) -> EmbeddedStream:
        stream, folder, disk = secrets.token_bytes(ID_BYTES), self._directory / STREAMS, self._disk
        unfinished = folder / f"{UNFINISHED}{stream.hex()}"
        try:
            disk.make_folder(unfinished)
            for number in range(description.partitions):
                create_log(disk, unfinished / str(number), stream, number, description)
            with closing(disk.create(unfinished / DESCRIPTION)) as file:
                file.write([encode_copy(stream, 1, description) * COPIES], 0)
                file.sync()
            disk.sync_folder(unfinished)
            disk.move(unfinished, folder / stream.hex())
        except OSError:
            disk.remove(unfinished)
            raise
        embedded = EmbeddedStream(folder / stream.hex(), stream, 1, description)
        embedded.load(disk, self._threads, self._producer)
        return embedded

    async def change(self, name: str, **changes: object) -> None:
        """Change settings of a stream.

        Raises:
            NoStream: There is no such stream.
            ConfigurationError: The disk failed; the settings may have changed or not.
        """
        async with self._changes:
            stream = self.find(name)
            changed = msgspec.structs.replace(stream.description, **changes)
            try:
                await self._threads.run(self._save, stream, changed)
            except OSError as exc:
                raise ConfigurationError(f"the settings of {name!r} cannot be written: {exc}.") from exc
            stream.number, stream.description = stream.number + 1, changed
            for partition in stream.partitions:
                partition.log.description = changed
                partition.trim()

    def _save(self, stream: EmbeddedStream, description: StreamDescription) -> None:
        copy = encode_copy(stream.stream, stream.number + 1, description)
        with closing(self._disk.open(stream.folder / DESCRIPTION)) as file:
            for number in range(COPIES):
                file.write([copy], number * len(copy))
                file.sync()

    async def remove(self, name: str) -> None:
        """Remove a stream: its files go to the trash.

        Raises:
            NoStream: There is no such stream.
        """
        async with self._changes:
            stream = self.find(name)
            del self._streams[name]
            await stream.close()
            await self._threads.run(self._discard, stream.folder)

    def _discard(self, folder: Path) -> None:
        self._disk.touch(folder)
        self._disk.move(folder, self._directory / TRASH / folder.name)
        self._purge()

    async def close(self) -> None:
        """Wait until the disk has everything appended, and release the directory; harmless if it is closed."""
        if self._is_closed:
            return
        self._threads.check_loop()
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(stream.close() for stream in self._streams.values()))
        self._disk.unlock(self._lock)
        self._threads.close()


#: All hosts of this process.
_hosts: WeakSet[EmbeddedHost] = WeakSet()


def _handle_fork() -> None:
    """Disown the hosts in the child of a fork."""
    for host in list(_hosts):
        host.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_handle_fork)
