"""Round trips: one process asks, another answers with the 1 KiB that it was sent.

Measured: the time from the call to the reply, of one caller that has one request on its way, as p50 and p99; and for Iris the
requests per second of 64 such callers in one process. All sockets are TCP on loopback, all event loops are uvloop.

Not measured: a real network, large messages, many members. And it is not all the same work: Iris authenticates and encrypts
every message twice (for the link, and for the cluster from end to end), chooses a member, keeps a deadline for every request
and reports what became of it. pyzmq and plain TCP do none of that. The first pyzmq row has blocking sockets and no event loop,
which no program that also does something else can have; the asyncio row is the fair peer of an asyncio program.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import iris_py
from benchmarks.harness import Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, Role, tell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

PAYLOAD = bytes(range(256)) * 4
CALLERS = 64
#: Round trips before any is counted: connections, caches and the interpreter's specialised code are warm then.
WARM_UP = 500
_CLUSTER = "echo"
_FOREVER_S = 3600.0  # the parent ends a worker that serves


def section(*, quick: bool) -> Section:
    """Return the contenders."""
    trips = 200 if quick else 10_000
    callers_requests = 1_000 if quick else 40_000
    iris = {"trips": trips, "callers_requests": callers_requests}
    peer = {"trips": trips}
    contenders: list[tuple[str, Role, Role, Parameters]] = [
        ("iris, async handler", serve_iris, measure_iris, iris | {"inline": False}),
        ("iris, inline handler", serve_iris, measure_iris, iris | {"inline": True}),
        ("pyzmq", serve_zmq, measure_zmq, peer),
        ("pyzmq asyncio", serve_zmq_asyncio, measure_zmq_asyncio, peer),
        ("tcp echo", serve_tcp, measure_tcp, peer),
    ]
    return Section(
        "latency",
        f"Round trips of 1 KiB between two processes, {trips:,} a run; pyzmq with REQ/REP. Only Iris encrypts.",
        [Trial(name, partial(_measure, serve, measure, parameters)) for name, serve, measure, parameters in contenders],
        ("pyzmq", "pyzmq asyncio"),
    )


def _measure(serve: Role, measure: Role, parameters: Parameters) -> Sequence[Sample]:
    with Stage() as stage:
        found, _server = stage.pair(serve, measure, parameters)
    samples = [
        Sample("round trip p50", found["p50_us"], "us"),
        Sample("round trip p99", found["p99_us"], "us"),
    ]
    if "requests_per_s" in found:
        samples.append(Sample(f"{CALLERS} callers", found["requests_per_s"], "/s"))
    return samples


def _summary(trips_s: list[float]) -> dict[str, float]:
    trips_s.sort()
    return {"p50_us": trips_s[len(trips_s) // 2] * 1e6, "p99_us": trips_s[len(trips_s) * 99 // 100] * 1e6}


async def _time_trips(ask: Callable[[bytes], Awaitable[bytes]], count: int) -> dict[str, float]:
    trips_s = []
    for _ in range(min(count, WARM_UP)):
        assert await ask(PAYLOAD) == PAYLOAD
    for _ in range(count):
        started = time.perf_counter()
        await ask(PAYLOAD)
        trips_s.append(time.perf_counter() - started)
    return _summary(trips_s)


# -- Iris


def serve_iris(parameters: Parameters) -> None:
    """Be the member."""

    async def on_request(request: iris_py.Request) -> bytes:
        return request.payload

    def on_request_inline(request: iris_py.Request) -> bytes:
        return request.payload

    async def main() -> None:
        inline = parameters["inline"]
        handler = on_request_inline if inline else on_request
        async with (
            iris_py.connect(secret=parameters["secret"], discovery=False) as node,
            node.join(_CLUSTER, handler, inline=inline),
        ):
            tell(address=node.address)
            await asyncio.sleep(_FOREVER_S)

    iris_py.run(main())


def measure_iris(parameters: Parameters) -> None:
    """Be the caller."""

    async def main() -> None:
        async with iris_py.connect(secret=parameters["secret"], seeds=[parameters["address"]], discovery=False) as node:

            async def ask(payload: bytes) -> bytes:
                return await node.request(_CLUSTER, payload)

            async def caller(count: int) -> None:
                for _ in range(count):
                    await node.request(_CLUSTER, PAYLOAD)

            found = await _time_trips(ask, parameters["trips"])
            each = parameters["callers_requests"] // CALLERS
            started = time.perf_counter()
            await asyncio.gather(*(caller(each) for _ in range(CALLERS)))
            found["requests_per_s"] = each * CALLERS / (time.perf_counter() - started)
        tell(**found)

    iris_py.run(main())


# -- pyzmq


def serve_zmq(parameters: Parameters) -> None:
    """Answer with a blocking socket."""
    import zmq

    socket = zmq.Context().socket(zmq.REP)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    tell(address=f"tcp://127.0.0.1:{port}")
    while True:
        socket.send(socket.recv())


def measure_zmq(parameters: Parameters) -> None:
    """Ask with a blocking socket."""
    import zmq

    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.connect(parameters["address"])
        for _ in range(min(parameters["trips"], WARM_UP)):
            socket.send(PAYLOAD)
            assert socket.recv() == PAYLOAD
        trips_s = []
        for _ in range(parameters["trips"]):
            started = time.perf_counter()
            socket.send(PAYLOAD)
            socket.recv()
            trips_s.append(time.perf_counter() - started)
    tell(**_summary(trips_s))


def serve_zmq_asyncio(parameters: Parameters) -> None:
    """Answer from an event loop."""
    import zmq.asyncio

    async def main() -> None:
        socket = zmq.asyncio.Context().socket(zmq.REP)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        tell(address=f"tcp://127.0.0.1:{port}")
        while True:
            await socket.send(await socket.recv())

    iris_py.run(main())


def measure_zmq_asyncio(parameters: Parameters) -> None:
    """Ask from an event loop."""
    import zmq.asyncio

    async def main() -> None:
        with zmq.asyncio.Context() as context, context.socket(zmq.REQ) as socket:
            socket.connect(parameters["address"])

            async def ask(payload: bytes) -> bytes:
                await socket.send(payload)
                return await socket.recv()

            found = await _time_trips(ask, parameters["trips"])
        tell(**found)

    iris_py.run(main())


# -- TCP


class _Echo(asyncio.Protocol):
    _transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class _Asker(asyncio.Protocol):
    _transport: Any
    _reply: asyncio.Future[bytes]

    def __init__(self) -> None:
        self._received = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    async def ask(self, payload: bytes) -> bytes:
        self._reply = self._loop.create_future()
        self._transport.write(payload)
        return await self._reply

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) == len(PAYLOAD):
            received, self._received = self._received, b""
            self._reply.set_result(received)


def serve_tcp(parameters: Parameters) -> None:
    """Echo bytes."""

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
        tell(address=server.sockets[0].getsockname()[1])
        await server.serve_forever()

    iris_py.run(main())


def measure_tcp(parameters: Parameters) -> None:
    """Wait until as many bytes have come back."""

    async def main() -> None:
        _, asker = await asyncio.get_running_loop().create_connection(_Asker, "127.0.0.1", parameters["address"])
        tell(**await _time_trips(asker.ask, parameters["trips"]))

    iris_py.run(main())
