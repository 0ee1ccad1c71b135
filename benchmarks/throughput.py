"""One-way messages of 1 KiB, and of 64 bytes: one process sends as fast as it can, another counts what it gets.

Measured: messages per second at the receiver, from the first to the last; whether all arrived is checked, and said if not. The
sender sends one message after another and waits only when it is told to (back-pressure). All sockets are TCP on loopback, all
event loops are uvloop.

"iris publish" is the same for a topic of two tokens, whose publisher looks after three groups; its subscriber takes messages
with ``async for``, in batches, or by a callback, and makes the publisher wait when its queue is full.

Not measured: a real network, several senders, several members. And it is not all the same work: "iris broadcast" is the public
interface, with a handler that is awaited for every message, each message sealed for the cluster and again for the link; "iris
link" does the same sealing without a node around it (see :mod:`benchmarks.link_stream`), so the difference is what the node
costs. Nothing but Iris encrypts. pyzmq moves its bytes in a thread of its own, so it has two processors in each process; the
TCP rows only put a length before each message, and the second gathers 32 KiB of them before it writes.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

import iris_py
from benchmarks.harness import MEASURE_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.link_stream import LinkStream
from benchmarks.peers.measure import measure_stream
from benchmarks.tally import Tally
from benchmarks.worker import Parameters, Role, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLUSTER = "sink"
_TOPIC = "measured.messages"


def section(*, quick: bool) -> Section:
    """Return the contenders with messages of 1 KiB."""
    count = 3_000 if quick else 300_000
    many = {"count": count, "size": 1024}
    trials = [
        _trial("iris broadcast", receive_iris, send_iris, many),
        *_publishers(many),
        _trial("iris link", receive_link, send_link, many),
        *_zmq(many, quick),
        _peer("tcp, a write per message", "tcp-each", many),
        _peer("tcp, writes of 32 KiB", "tcp", many),
    ]
    return _section("throughput", "1 KiB", count, trials)


def small_section(*, quick: bool) -> Section:
    """Return the contenders with messages of 64 bytes: what a message costs whatever its size."""
    count = 3_000 if quick else 600_000
    many = {"count": count, "size": 64}
    return _section("small", "64 bytes", count, [*_publishers(many), *_zmq(many, quick)])


def _publishers(parameters: Parameters) -> list[Trial]:
    return [
        _peer("iris publish", "iris", parameters),
        _peer("iris publish, batches", "iris-batches", parameters),
        _trial("iris publish, callback", receive_called, publish, parameters),
    ]


def _zmq(many: Parameters, quick: bool) -> list[Trial]:
    # The slowest of all; at a tenth of the speed of the others a quarter of the messages is enough.
    few = many if quick else many | {"count": many["count"] // 4}
    return [_peer("pyzmq", "pyzmq", many), _peer("pyzmq asyncio", "pyzmq-asyncio", few)]


def _section(name: str, size: str, count: int, trials: list[Trial]) -> Section:
    return Section(
        name,
        f"One-way messages of {size} from one process to another, {count:,} a run; pyzmq with PUSH/PULL. Only Iris encrypts.",
        trials,
        ("pyzmq", "pyzmq asyncio"),
    )


def _peer(contender: str, system: str, parameters: Parameters) -> Trial:
    """Return what is measured in the same way for all systems."""
    return Trial(contender, partial(measure_stream, system, size=parameters["size"], count=parameters["count"]))


def _trial(contender: str, receive: Role, send: Role, parameters: Parameters) -> Trial:
    return Trial(contender, partial(_measure, receive, send, parameters))


def _measure(receive: Role, send: Role, parameters: Parameters) -> Sequence[Sample]:
    with Stage() as stage:
        _sent, receiver = stage.pair(receive, send, parameters)
        found = receiver.listen(MEASURE_TIMEOUT_S)
    notes = [found["note"]] if found["note"] else []
    lost = parameters["count"] - found["seen"]
    if lost:
        notes.insert(0, f"lost {lost:,} of {parameters['count']:,}")
    return [Sample("received", found["rate"], "/s", "; ".join(notes))]


def _payload(parameters: Parameters) -> bytes:
    size: int = parameters["size"]
    return (bytes(range(256)) * (size // 256 + 1))[:size]


# -- Iris


class _Counter(iris_py.Handler):
    def __init__(self, tally: Tally) -> None:
        self._add = tally.add

    async def on_broadcast(self, message: iris_py.Message) -> None:
        self._add()


def receive_iris(parameters: Parameters) -> None:
    """Be the only member."""

    async def main() -> None:
        tally = Tally(parameters["count"])
        async with (
            iris_py.connect(secret=parameters["secret"], discovery=False) as node,
            node.join(_CLUSTER, _Counter(tally)),
        ):
            tell(address=node.address)
            await tally.wait()
            tally.tell(", ".join(f"{reason}: {count:,}" for reason, count in node.statistics().drops.items()))

    iris_py.run(main())


def send_iris(parameters: Parameters) -> None:
    """Broadcast to one member."""
    payload = _payload(parameters)

    async def main() -> None:
        async with iris_py.connect(secret=parameters["secret"], seeds=[parameters["address"]], discovery=False) as node:
            assert len(await node.members(_CLUSTER)) == 1
            for _ in range(parameters["count"]):
                await node.broadcast(_CLUSTER, payload)
        tell()

    iris_py.run(main())


def receive_called(parameters: Parameters) -> None:
    """Be the only subscriber, and have every message given to a plain function."""

    async def main() -> None:
        tally = Tally(parameters["count"])
        add = tally.add
        async with (
            iris_py.connect(secret=parameters["secret"], discovery=False) as node,
            node.subscribe(_TOPIC, lambda _message: add(), policy="block"),
        ):
            tell(address=node.address)
            await tally.wait()
            tally.tell(", ".join(f"{reason}: {count:,}" for reason, count in node.statistics().drops.items()))

    iris_py.run(main())


def publish(parameters: Parameters) -> None:
    """Publish to one subscriber."""
    payload = _payload(parameters)

    async def main() -> None:
        async with iris_py.connect(secret=parameters["secret"], seeds=[parameters["address"]], discovery=False) as node:
            for _ in range(parameters["count"]):
                await node.publish(_TOPIC, payload)
        tell()

    iris_py.run(main())


def receive_link(parameters: Parameters) -> None:
    """Be the end of a link that receives."""

    async def main() -> None:
        tally = Tally(parameters["count"])
        add = tally.add

        def handle(_payload: bytes) -> None:
            add()

        server = await asyncio.get_running_loop().create_server(
            lambda: LinkStream(parameters["secret"], False, handle, os.urandom), "127.0.0.1", 0
        )
        tell(address=server.sockets[0].getsockname()[1])
        await tally.wait()
        tally.tell()
        server.close()

    iris_py.run(main())


def send_link(parameters: Parameters) -> None:
    """Be the end of a link that sends."""
    payload = _payload(parameters)

    def ignore(_payload: bytes) -> None: ...

    async def main() -> None:
        _, stream = await asyncio.get_running_loop().create_connection(
            lambda: LinkStream(parameters["secret"], True, ignore, os.urandom), "127.0.0.1", parameters["address"]
        )
        await stream.opened
        for _ in range(parameters["count"]):
            stream.send(payload)
            if stream.link.congested:
                await stream.room()
        await stream.finish()
        tell()

    iris_py.run(main())
