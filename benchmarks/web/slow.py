"""Clients that do not read: what they cost the door, and whether the others notice."""

from __future__ import annotations

import asyncio
import socket
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.looking import resident_mib
from benchmarks.web.clients import Caller, StreamClient, Tally, now_ms, open_streams, percentile, stream_head
from benchmarks.web.servers import serve_door
from benchmarks.worker import Parameters, hear, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGE_BYTES: Final = 4096
#: Readers whose deliveries are timed: to time all of them would take the processor of the door.
SAMPLED: Final = 50
#: What a stalled client's system takes (bytes); the rest waits at the door.
_RECEIVE_BYTES: Final = 4096
_ALL, _SOME = "all read", "some do not read"
_TIME: Final = b'"text":"'


def section(*, quick: bool) -> Section:
    """Return the comparison."""
    streams, stalled, seconds, rate = (40, 4, 1.0, 50) if quick else (1000, 50, 20.0, 50)
    return Section(
        "web streams, slow clients",
        f"{streams:,} streams, {rate} messages a second of {MESSAGE_BYTES} bytes for {seconds:g} s; in the second row "
        f"{stalled} of the streams do not read. Delivery: from the POST until one of {SAMPLED} readers has it. Memory: what "
        "the door has grown by, and its part for each client that does not read.",
        [
            Trial(_ALL, partial(_measure, streams, 0, seconds, rate)),
            Trial(_SOME, partial(_measure, streams, stalled, seconds, rate)),
        ],
        (_ALL,),
    )


def _measure(streams: int, stalled: int, seconds: float, rate: int) -> Sequence[Sample]:
    with Stage() as stage:
        server, clients = stage.start(serve_door), stage.start(read, "clients")
        server.begin({"secret": stage.home.secret})
        place = server.listen(START_TIMEOUT_S)
        clients.begin({**place, "streams": streams, "stalled": stalled, "seconds": seconds, "rate": rate})
        clients.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
        before_mib = resident_mib(server.pid)
        clients.begin({})
        found = clients.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
        grown_mib = resident_mib(server.pid) - before_mib
    samples = [
        Sample("delivery, p50", median(found["taken_ms"]), "ms"),
        Sample("delivery, p99", percentile(found["taken_ms"], 0.99), "ms"),
        Sample("door has grown", grown_mib, "MiB"),
    ]
    if stalled:
        samples.append(Sample("for each that does not read", grown_mib / stalled, "MiB"))
    return samples


def read(parameters: Parameters) -> None:
    """Read streams but some, and say how long messages took to the readers."""
    import uvloop

    from iris_py.net.process import raise_limit

    raise_limit()
    uvloop.run(_read(parameters))


async def _read(parameters: Parameters) -> None:
    tally, taken_ms = Tally(), []
    is_measured = False

    def note(data: bytes) -> None:
        at = data.find(_TIME)
        if at >= 0 and is_measured:
            taken_ms.append(now_ms() - float(data[at + len(_TIME) :].split(b" ", 1)[0]))

    sampled = min(SAMPLED, parameters["streams"] // 2)
    await open_streams(parameters, tally, sampled, note)
    await open_streams(parameters, tally, parameters["streams"] - sampled - parameters["stalled"])
    stalled = [await _open_stalled(parameters, tally) for _ in range(parameters["stalled"])]
    caller = await Caller(parameters, parameters["publish"]).connect(parameters["address"])
    readers = tally.opened
    padding = b"x" * MESSAGE_BYTES

    async def send(count: int) -> None:
        began = time.monotonic()
        for number in range(count):
            await caller.ask(b"%.3f " % now_ms() + padding)
            await asyncio.sleep(max(0.0, began + number / parameters["rate"] - time.monotonic()))

    await send(parameters["rate"])  # all buffers have their size
    tell()
    await asyncio.to_thread(hear)
    is_measured = True
    await send(int(parameters["rate"] * parameters["seconds"]))
    await tally.until(lambda: tally.received >= readers)
    tell(taken_ms=taken_ms, gaps=tally.gaps, stalled=len(stalled))
    await asyncio.Event().wait()


async def _open_stalled(parameters: Parameters, tally: Tally) -> StreamClient:
    """Open a stream that nothing is read of, with a small buffer of its system."""
    host, _, port = parameters["address"].rpartition(":")
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    connection.setblocking(False)
    await loop.sock_connect(connection, (host, int(port)))
    client = StreamClient(tally, stream_head(parameters), parameters["mark"].encode())
    transport, _protocol = await loop.create_connection(lambda: client, sock=connection)
    transport.pause_reading()
    return client
