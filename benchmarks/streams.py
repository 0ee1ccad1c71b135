"""Streams of one process beside a bare loop of ``pwrite`` and ``fdatasync``, and beside a stream of Redis that syncs always.

All write records of 1 KiB to the same disk, in turns. *N under way*: N tasks append, and each waits for its record; the bare
loop writes N records for each sync; a client of Redis sends N commands, then reads N replies. Further rows add 2 ms to each
sync, as disks of data centres take. Redis has no place for such a delay.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import iris_py as iris
from benchmarks.harness import BenchmarkFailed, Sample, Section, Trial
from benchmarks.peers.servers import Broker
from iris_py.store.disk import DiskFile, StoreDisk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RECORD: Final = b"r" * 1024
UNDER_WAY: Final = (1, 32, 256)
DELAY_S: Final = 0.002
SECONDS: Final = 1.5
QUICK_S: Final = 0.1
#: The bare loop begins again at the beginning of its file, whose bytes have all been written before.
BARE_BYTES: Final = 32 << 20
#: Records of a writer between two looks at the clock.
LOOK: Final = 500
FULL: Final = "writer, or 256"


def section(*, quick: bool) -> Section:
    """Return the contenders."""
    seconds = QUICK_S if quick else SECONDS
    trials = []
    for delay_s, suffix in ((0.0, ""), (DELAY_S, f" + {DELAY_S * 1000:g} ms")):
        trials += [
            Trial(f"pwrite + fdatasync{suffix}", partial(_measure_bare, seconds, delay_s)),
            Trial(f"iris{suffix}", partial(_measure_iris, seconds, delay_s)),
        ]
    trials.append(Trial("redis, appendfsync always", partial(_measure_redis, seconds)))
    return Section(
        "streams",
        f"Acknowledged records of {len(RECORD)} bytes per second, on the disk of the working directory.",
        trials,
        references=("pwrite + fdatasync", f"pwrite + fdatasync + {DELAY_S * 1000:g} ms", "redis, appendfsync always"),
    )


@contextmanager
def _directory() -> Iterator[Path]:
    """Make a directory on the disk of the working directory: that for temporary files is memory on many systems."""
    path = Path(tempfile.mkdtemp(prefix="streams-", dir="."))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _sample(under_way: int | str, records: int, seconds: float) -> Sample:
    return Sample(f"{under_way} under way" if isinstance(under_way, int) else under_way, records / seconds, "/s")


def _measure_bare(seconds: float, delay_s: float) -> Sequence[Sample]:
    samples = []
    with _directory() as directory:
        descriptor = os.open(directory / "bare", os.O_RDWR | os.O_CREAT)
        try:
            os.write(descriptor, bytes(BARE_BYTES))
            os.fsync(descriptor)
            for under_way in UNDER_WAY:
                data, place, records = RECORD * under_way, 0, 0
                begin = now = time.perf_counter()
                while now < begin + seconds:
                    os.pwrite(descriptor, data, place)
                    os.fdatasync(descriptor)
                    if delay_s:
                        time.sleep(delay_s)
                    records += under_way
                    place = place + len(data) if place + 2 * len(data) <= BARE_BYTES else 0
                    now = time.perf_counter()
                samples.append(_sample(under_way, records, now - begin))
        finally:
            os.close(descriptor)
    return [*samples, Sample(FULL, samples[-1].value, "/s")]


class SlowFile(DiskFile):
    """A file whose syncs take longer."""

    def sync(self) -> None:
        super().sync()
        time.sleep(DELAY_S)


class SlowDisk(StoreDisk):
    """A disk of such files."""

    def create(self, path: Path) -> DiskFile:
        return SlowFile(path, is_new=True)

    def open(self, path: Path) -> DiskFile:
        return SlowFile(path, is_new=False)


def _measure_iris(seconds: float, delay_s: float) -> Sequence[Sample]:
    samples: list[Sample] = []

    async def main() -> None:
        with _directory() as directory:
            async with iris.open_streams(directory / "data", disk=SlowDisk() if delay_s else None) as streams:
                stream = await streams.create_stream("records")
                samples.extend([_sample(each, *await _append(stream, each, seconds)) for each in UNDER_WAY])
                samples.append(_sample(FULL, *await _write(stream, seconds)))

    iris.run(main())
    return samples


async def _append(stream: iris.Stream, under_way: int, seconds: float) -> tuple[int, float]:
    """Append by tasks that wait for each record; return the records and the time."""
    begin = time.perf_counter()

    async def append() -> int:
        records = 0
        while time.perf_counter() < begin + seconds:
            await stream.append(RECORD)
            records += 1
        return records

    counts = await asyncio.gather(*(append() for _ in range(under_way)))
    return sum(counts), time.perf_counter() - begin


async def _write(stream: iris.Stream, seconds: float) -> tuple[int, float]:
    """Append by a writer, until the disk has everything."""
    begin = time.perf_counter()
    async with stream.writer() as writer:
        while time.perf_counter() < begin + seconds:
            for _number in range(LOOK):
                await writer.append(RECORD)
    return writer.appended, time.perf_counter() - begin


def _measure_redis(seconds: float) -> Sequence[Sample]:
    command = b"*5\r\n$4\r\nXADD\r\n$7\r\nrecords\r\n$1\r\n*\r\n$1\r\nv\r\n$%d\r\n%s\r\n" % (len(RECORD), RECORD)
    samples = []
    with _directory() as directory:
        durable = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
        try:
            broker = Broker("redis-server", directory, durable)
        except BenchmarkFailed as exc:
            return [Sample("not measured", 0.0, "", str(exc))]
        with broker, socket.create_connection(("127.0.0.1", broker.port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for under_way in UNDER_WAY:
                commands, records, begin = command * under_way, 0, time.perf_counter()
                now = begin
                while now < begin + seconds:
                    connection.sendall(commands)
                    lines = 0
                    while lines < 2 * under_way:  # the length of the id, and the id
                        received = connection.recv(1 << 16)
                        if not received or received.startswith(b"-"):
                            raise BenchmarkFailed(f"redis-server answered {received[:100]!r}")
                        lines += received.count(b"\r\n")
                    records += under_way
                    now = time.perf_counter()
                samples.append(_sample(under_way, records, now - begin))
    return [*samples, Sample(FULL, samples[-1].value, "/s")]
