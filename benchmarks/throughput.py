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
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import iris_py
from benchmarks.harness import MEASURE_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.link_stream import LinkStream
from benchmarks.tally import Tally
from benchmarks.worker import Parameters, Role, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

#: What to call it, who receives, who sends, and what both are told.
Contender: TypeAlias = "tuple[str, Role, Role, Parameters]"

_CLUSTER = "sink"
_TOPIC = "measured.messages"
_LENGTH = struct.Struct(">I")
_BATCH_BYTES = 32 * 1024


def section(*, quick: bool) -> Section:
    """Return the contenders with messages of 1 KiB."""
    count = 3_000 if quick else 300_000
    many = {"count": count, "size": 1024}
    few = _few(many, quick)
    contenders: list[Contender] = [
        ("iris broadcast", receive_iris, send_iris, many),
        *_publishers(many),
        ("iris link", receive_link, send_link, many),
        *_zmq(many, few),
        ("tcp, a write per message", receive_tcp, send_tcp, many | {"batch_bytes": 0}),
        ("tcp, writes of 32 KiB", receive_tcp, send_tcp, many | {"batch_bytes": _BATCH_BYTES}),
    ]
    return _section("throughput", "1 KiB", count, contenders)


def small_section(*, quick: bool) -> Section:
    """Return the contenders with messages of 64 bytes: what a message costs whatever its size."""
    count = 3_000 if quick else 600_000
    many = {"count": count, "size": 64}
    return _section("small", "64 bytes", count, [*_publishers(many), *_zmq(many, _few(many, quick))])


def _few(many: Parameters, quick: bool) -> Parameters:
    # The slowest of all; at a tenth of the speed of the others a quarter of the messages is enough.
    return many if quick else many | {"count": many["count"] // 4}


def _publishers(parameters: Parameters) -> list[Contender]:
    return [
        ("iris publish", receive_published, publish, parameters),
        ("iris publish, batches", receive_batches, publish, parameters),
        ("iris publish, callback", receive_called, publish, parameters),
    ]


def _zmq(many: Parameters, few: Parameters) -> list[Contender]:
    return [("pyzmq", receive_zmq, send_zmq, many), ("pyzmq asyncio", receive_zmq_asyncio, send_zmq_asyncio, few)]


def _section(name: str, size: str, count: int, contenders: list[Contender]) -> Section:
    return Section(
        name,
        f"One-way messages of {size} from one process to another, {count:,} a run; pyzmq with PUSH/PULL. Only Iris encrypts.",
        [Trial(name, partial(_measure, receive, send, parameters)) for name, receive, send, parameters in contenders],
        ("pyzmq", "pyzmq asyncio"),
    )


def _measure(receive: Role, send: Role, parameters: Parameters) -> Sequence[Sample]:
    with Stage() as stage:
        _sent, receiver = stage.pair(receive, send, parameters)
        found = receiver.listen(MEASURE_TIMEOUT_S)
    notes = [found["note"]] if found["note"] else []
    lost = parameters["count"] - found["seen"]
    if lost:
        notes.insert(0, f"lost {lost:,} of {parameters['count']:,}")
    return [Sample("messages", found["rate"], "/s", "; ".join(notes))]


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


def receive_published(parameters: Parameters) -> None:
    """Be the only subscriber, and take one message after the other."""

    async def take(subscription: iris_py.Subscription, tally: Tally) -> None:
        add = tally.add
        async for _message in subscription:
            add()

    iris_py.run(_subscribe(parameters, take))


def receive_batches(parameters: Parameters) -> None:
    """Be the only subscriber, and take all messages that are there at once."""

    async def take(subscription: iris_py.Subscription, tally: Tally) -> None:
        add = tally.add
        async for batch in subscription.batches():
            for _message in batch:
                add()

    iris_py.run(_subscribe(parameters, take))


def receive_called(parameters: Parameters) -> None:
    """Be the only subscriber, and have every message given to a plain function."""

    async def take(_subscription: iris_py.Subscription, _tally: Tally) -> None: ...

    iris_py.run(_subscribe(parameters, take, has_callback=True))


async def _subscribe(
    parameters: Parameters,
    take: Callable[[iris_py.Subscription, Tally], Coroutine[Any, Any, None]],
    *,
    has_callback: bool = False,
) -> None:
    tally = Tally(parameters["count"])
    add = tally.add
    callback = (lambda _message: add()) if has_callback else None
    async with (
        iris_py.connect(secret=parameters["secret"], discovery=False) as node,
        node.subscribe(_TOPIC, callback, policy="block") as subscription,
    ):
        tell(address=node.address)
        taking = asyncio.create_task(take(subscription, tally))
        await tally.wait()
        tally.tell(", ".join(f"{reason}: {count:,}" for reason, count in node.statistics().drops.items()))
        taking.cancel()


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


# -- pyzmq


def receive_zmq(parameters: Parameters) -> None:
    """Pull with a blocking socket."""
    import zmq

    tally = Tally(parameters["count"])
    socket = zmq.Context().socket(zmq.PULL)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    tell(address=f"tcp://127.0.0.1:{port}")
    for _ in range(parameters["count"]):  # PUSH and PULL wait for each other and lose nothing while both live
        socket.recv()
        tally.add()
    tally.tell()


def send_zmq(parameters: Parameters) -> None:
    """Push with a blocking socket."""
    payload = _payload(parameters)
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(parameters["address"])
        for _ in range(parameters["count"]):
            socket.send(payload)
    tell()


def receive_zmq_asyncio(parameters: Parameters) -> None:
    """Pull in an event loop."""
    import zmq.asyncio

    async def main() -> None:
        tally = Tally(parameters["count"])
        socket = zmq.asyncio.Context().socket(zmq.PULL)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        tell(address=f"tcp://127.0.0.1:{port}")
        for _ in range(parameters["count"]):
            await socket.recv()
            tally.add()
        tally.tell()

    iris_py.run(main())


def send_zmq_asyncio(parameters: Parameters) -> None:
    """Push from an event loop."""
    payload = _payload(parameters)
    import zmq.asyncio

    async def main() -> None:
        with zmq.asyncio.Context() as context, context.socket(zmq.PUSH) as socket:
            socket.connect(parameters["address"])
            for _ in range(parameters["count"]):
                await socket.send(payload)
        tell()

    iris_py.run(main())


# -- TCP


class _Reader(asyncio.Protocol):
    def __init__(self, tally: Tally) -> None:
        self._add = tally.add
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        offset, end, add = 0, len(data), self._add
        while end - offset >= 4:
            (length,) = _LENGTH.unpack_from(data, offset)
            stop = offset + 4 + length
            if stop > end:
                break
            _payload = data[offset + 4 : stop]
            add()
            offset = stop
        self._rest = data[offset:]


class _Writer(asyncio.Protocol):
    transport: Any
    room: asyncio.Future[None] | None = None

    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(high=256 * 1024)

    def pause_writing(self) -> None:
        self.room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        assert self.room is not None
        self.room.set_result(None)
        self.room = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


def receive_tcp(parameters: Parameters) -> None:
    """Read lengths and messages."""

    async def main() -> None:
        tally = Tally(parameters["count"])
        server = await asyncio.get_running_loop().create_server(lambda: _Reader(tally), "127.0.0.1", 0)
        tell(address=server.sockets[0].getsockname()[1])
        await tally.wait()
        tally.tell()
        server.close()

    iris_py.run(main())


def send_tcp(parameters: Parameters) -> None:
    """Write lengths and messages, each at once or gathered."""
    payload = _payload(parameters)

    async def main() -> None:
        _, writer = await asyncio.get_running_loop().create_connection(_Writer, "127.0.0.1", parameters["address"])
        parts: list[bytes] = []
        parts_bytes, batch_bytes = 0, parameters["batch_bytes"]
        for _ in range(parameters["count"]):
            parts += (_LENGTH.pack(len(payload)), payload)
            parts_bytes += 4 + len(payload)
            if parts_bytes >= batch_bytes:
                writer.transport.write(b"".join(parts))
                parts, parts_bytes = [], 0
                if writer.room is not None:
                    await writer.room
        writer.transport.write(b"".join(parts))
        writer.transport.close()
        await writer.lost
        tell()

    iris_py.run(main())
