"""Clients that do not read: what they cost the door, and whether the others notice."""

from __future__ import annotations

import asyncio
import socket
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.harness import MEASURE_TIMEOUT_S, START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.looking import cpu_s, resident_mib
from benchmarks.web.clients import Caller, StreamClient, Tally, now_ms, open_streams, percentile, stream_head
from benchmarks.web.servers import NDJSON, serve_door
from benchmarks.worker import Parameters, hear, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGE_BYTES: Final = 4096
#: Messages to each client that does not read, before the others are timed: twice the bytes of its window and of all buffers.
FILLED: Final = 1024
#: Messages of one request.
_BURST: Final = 64
#: Readers whose deliveries are timed: to time all of them would take the processor of the door.
SAMPLED: Final = 50
#: What a stalled client's system takes (bytes); the rest waits at the door.
_RECEIVE_BYTES: Final = 4096
_ALL, _SOME = "all read", "some do not read"
_TIME: Final = b'"text":"'


def section(*, quick: bool) -> Section:
    """Return the comparison."""
    streams, stalled, seconds, rate = (40, 4, 1.0, 50) if quick else (1000, 50, 20.0, 20)
    return Section(
        "web streams, slow clients",
        f"{streams:,} streams, {rate} messages a second of {MESSAGE_BYTES} bytes to all for {seconds:g} s; in the second row "
        f"{stalled} of the streams do not read, and get {FILLED} messages each of a topic of their own before. Delivery: from "
        f"the POST until one of {SAMPLED} readers has it. Memory for each client that does not read: the part by which the "
        "door grows, and the bytes that the system holds for it.",
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
        clients.listen(MEASURE_TIMEOUT_S)
        grown_mib = resident_mib(server.pid) - before_mib
        unsent_mib = _unsent_bytes(place["address"]) / 2**20
        spent_s = cpu_s(server.pid)
        clients.begin({})
        found = clients.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S)
        cost_us = (cpu_s(server.pid) - spent_s) / found["deliveries"] * 1e6
    samples = [
        Sample("delivery, p50", median(found["taken_ms"]), "ms"),
        Sample("delivery, p99", percentile(found["taken_ms"], 0.99), "ms"),
        Sample("processor", cost_us, "us/delivery"),
    ]
    if stalled:
        samples.append(Sample("door grows, each", grown_mib / stalled, "MiB"))
        samples.append(Sample("system holds, each", unsent_mib / stalled, "MiB"))
        samples.append(Sample("ended as stalled", found["ended"], "streams"))
    return samples


def _unsent_bytes(address: str) -> int:
    """Return the bytes for the clients of a server that the system holds: unanswered or not sent yet. Linux only."""
    port = int(address.rpartition(":")[2])
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum([int(row[4].partition(":")[0], 16) for row in rows if int(row[1].partition(":")[2], 16) == port])


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
    place = {**parameters, "path": parameters["own_path"].format("all")}
    await open_streams(place, tally, sampled, note)
    await open_streams(place, tally, place["streams"] - sampled - place["stalled"])
    gone = Tally()
    stalled = [await _open_stalled(place, gone, number) for number in range(place["stalled"])]
    caller = await Caller(place, place["publish"]).connect(place["address"])
    readers = tally.opened
    padding = b"x" * MESSAGE_BYTES

    async def send(count: int) -> None:
        began = time.monotonic()
        for number in range(count):
            await caller.ask(b"%.3f " % now_ms() + padding)
            await asyncio.sleep(max(0.0, began + number / place["rate"] - time.monotonic()))

    await send(place["rate"])  # all buffers have their size
    tell()
    await asyncio.to_thread(hear)
    await _fill(place)
    tell()
    await asyncio.to_thread(hear)
    is_measured = True
    messages = int(place["rate"] * place["seconds"])
    await send(messages)
    await tally.until(lambda: tally.received + tally.gaps >= readers * (place["rate"] + messages))
    tell(taken_ms=taken_ms, deliveries=readers * messages, ended=gone.closed, stalled=len(stalled))
    await asyncio.Event().wait()


async def _fill(place: Parameters) -> None:
    """Publish to the topics of the clients that do not read."""
    body = b"\n".join([b'"%b"' % (b"x" * MESSAGE_BYTES)] * _BURST)
    for number in range(place["stalled"]):
        topic = f"/v1/topics/{_topic_of(number)}"
        caller = await Caller(place, topic, **{"Content-Type": NDJSON}).connect(place["address"])
        for _ in range(FILLED // _BURST):
            await caller.ask(body)
        caller.close()


def _topic_of(number: int) -> str:
    """Return the topic of a client that does not read."""
    return f"notes.stalled{number}"


async def _open_stalled(place: Parameters, tally: Tally, number: int) -> StreamClient:
    """Open a stream that nothing is read of, with a small buffer of its system."""
    host, _, port = place["address"].rpartition(":")
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    connection.setblocking(False)
    await loop.sock_connect(connection, (host, int(port)))
    path = f"{place['path']}&pattern={_topic_of(number)}"
    client = StreamClient(tally, stream_head({**place, "path": path}), place["mark"].encode())
    transport, _protocol = await loop.create_connection(lambda: client, sock=connection)
    transport.pause_reading()
    return client
