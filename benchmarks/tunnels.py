"""Tunnels: memory and rate of a large message, a slow reader, many tunnels side by side, and small requests beside one.

Each contender measures one promise of a tunnel, between two processes on loopback: that a message of any size needs no more
memory than a window; that a slow reader slows the writer down; that tunnels share a link evenly; and that a small request does
not wait behind them. Nobody is compared: brokerless peers have no such thing as a flow-controlled stream to a name.

Not measured: a real network. On one machine both processes and the kernel share the processors, so what saturates is those.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from functools import partial
from typing import TYPE_CHECKING

import iris_py
from benchmarks.harness import START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, Role, tell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from iris_py.api.awaitable_context import Opening

WINDOW_BYTES = 1024 * 1024
BLOCK = bytes(256 * 1024)
MIB = 1024 * 1024
SLOW_BYTES_S = 1_000_000
TUNNELS = 100
_CLUSTER = "tunnels"
_FOREVER_S = 3600.0
#: 10 GiB at the rate of a busy machine.
_TIMEOUT_S = 500.0


def section(*, quick: bool, gib: float = 10.0) -> Section:
    """Return the measurements.

    Args:
        quick: Whether to do next to nothing.
        gib: How large the large message is.
    """
    size = 32 * MIB if quick else int(gib * 1024) * MIB
    contenders: list[tuple[str, Role, Parameters]] = [
        ("large message", measure_large, {"bytes": size}),
        ("slow reader", measure_slow, {"seconds": 1.0 if quick else 8.0}),
        (f"{TUNNELS} tunnels", measure_shares, {"seconds": 0.5 if quick else 5.0}),
        ("requests beside a tunnel", measure_requests, {"trips": 100 if quick else 5_000}),
    ]
    return Section(
        "tunnels",
        f"One message of {size // MIB:,} MiB through a window of 1 MiB; a reader of 1 MB/s; {TUNNELS} tunnels on one link; "
        "small requests, and the same while a tunnel takes all it can.",
        [Trial(name, partial(_measure, measure, parameters)) for name, measure, parameters in contenders],
    )


def _measure(measure: Role, parameters: Parameters) -> Sequence[Sample]:
    with Stage() as stage:
        parameters = {"secret": stage.home.secret, **parameters}
        server, client = stage.start(serve), stage.start(measure)
        server.begin(parameters)
        client.begin(parameters | server.listen(START_TIMEOUT_S))
        found = client.listen(_TIMEOUT_S)["samples"]
    return [Sample(metric, value, unit) for metric, value, unit in found]


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- the member


class Reader(iris_py.Handler):
    """Reads what comes, as the first message of a tunnel asks it to."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    async def on_request(self, request: iris_py.Request) -> bytes:
        return json.dumps(self._counts).encode() if request.payload == b"counts" else request.payload

    async def on_tunnel(self, tunnel: iris_py.Tunnel) -> None:
        bytes_s = json.loads(await tunnel.receive())["bytes_s"]
        taken, most, started = 0, 0, time.perf_counter()
        before = _resident_bytes()
        async for chunk in tunnel.receive_chunks():
            taken += len(chunk)
            self._counts[tunnel.id] = taken
            if taken % (64 * MIB) < len(chunk):
                most = max(most, _resident_bytes())
            if bytes_s:
                await asyncio.sleep(max(0.0, taken / bytes_s - (time.perf_counter() - started)))
        most = max(most, _resident_bytes())
        await tunnel.send(json.dumps({"taken": taken, "growth": most - before}).encode())


def serve(parameters: Parameters) -> None:
    """Be the member."""

    async def main() -> None:
        async with (
            iris_py.connect(secret=parameters["secret"], discovery=False) as node,
            node.join(_CLUSTER, Reader(), tunnel_window_bytes=WINDOW_BYTES),
        ):
            tell(address=node.address)
            await asyncio.sleep(_FOREVER_S)

    iris_py.run(main())


# -- the caller


async def _open(node: iris_py.Node, bytes_s: float = 0.0) -> iris_py.Tunnel:
    tunnel = await node.tunnel(_CLUSTER, timeout=START_TIMEOUT_S)
    await tunnel.send(json.dumps({"bytes_s": bytes_s}).encode())
    return tunnel


async def _endless() -> AsyncIterator[bytes]:
    while True:
        yield BLOCK


def _connect(parameters: Parameters) -> Opening[iris_py.Node]:
    return iris_py.connect(secret=parameters["secret"], seeds=[parameters["address"]], discovery=False)


def measure_large(parameters: Parameters) -> None:
    """Send one large message."""
    size, most = parameters["bytes"], 0

    def blocks() -> Iterator[bytes]:
        nonlocal most
        for number in range(size // len(BLOCK)):
            if number % 256 == 0:
                most = max(most, _resident_bytes())
            yield BLOCK

    async def main() -> None:
        async with _connect(parameters) as node, node.tunnel(_CLUSTER) as warm_up:
            await warm_up.send(b'{"bytes_s": 0}')
            await warm_up.send_chunks([BLOCK] * 64)
            await warm_up.receive()
            before = _resident_bytes()
            tunnel = await _open(node)
            started = time.perf_counter()
            assert await tunnel.send_chunks(blocks()) == size
            found = json.loads(await tunnel.receive())
            duration_s = time.perf_counter() - started
            assert found["taken"] == size
            await tunnel.close()
        tell(
            samples=[
                ("rate", size / duration_s / 1e6, "MB/s"),
                # At least a page, for a ratio of nothing says nothing.
                ("writer's memory grows by", max(4096, max(most, _resident_bytes()) - before) / 1e6, "MB"),
                ("reader's memory grows by", max(4096, found["growth"]) / 1e6, "MB"),
            ]
        )

    iris_py.run(main())


def measure_slow(parameters: Parameters) -> None:
    """Send as fast as a slow reader lets us."""
    sent = 0
    is_full = asyncio.Event()  # a window goes at once; from then on the reader holds the writer

    async def counted() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            yield BLOCK[:16384]
            sent += 16384
            if sent > WINDOW_BYTES:
                is_full.set()

    async def main() -> None:
        async with _connect(parameters) as node:
            tunnel = await _open(node, SLOW_BYTES_S)
            sending = asyncio.create_task(tunnel.send_chunks(counted()))
            await is_full.wait()
            before, started = sent, time.perf_counter()
            await asyncio.sleep(parameters["seconds"])
            rate = (sent - before) / (time.perf_counter() - started)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        tell(samples=[("reader's rate", SLOW_BYTES_S / 1e6, "MB/s"), ("writer's rate", rate / 1e6, "MB/s")])

    iris_py.run(main())


def measure_shares(parameters: Parameters) -> None:
    """Send through many tunnels as fast as they go."""

    async def main() -> None:
        async with _connect(parameters) as node:
            tunnels = [await _open(node) for _ in range(TUNNELS)]
            sending = [asyncio.create_task(tunnel.send_chunks(_endless())) for tunnel in tunnels]
            await asyncio.sleep(parameters["seconds"] / 2)
            before = json.loads(await node.request(_CLUSTER, b"counts", timeout=START_TIMEOUT_S))
            started = time.perf_counter()
            await asyncio.sleep(parameters["seconds"])
            after = json.loads(await node.request(_CLUSTER, b"counts", timeout=START_TIMEOUT_S))
            duration_s = time.perf_counter() - started
            moved = [count - before.get(tunnel, 0) for tunnel, count in after.items()]
            assert len(moved) == TUNNELS
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        mean = sum(moved) / TUNNELS
        tell(
            samples=[
                ("rate of all", sum(moved) / duration_s / 1e6, "MB/s"),
                ("least of the mean", 100 * min(moved) / mean, "%"),
                ("most of the mean", 100 * max(moved) / mean, "%"),
            ]
        )

    iris_py.run(main())


def measure_requests(parameters: Parameters) -> None:
    """Ask with and without a tunnel on the link."""

    async def trips(node: iris_py.Node, count: int) -> tuple[float, float]:
        trips_s = []
        for _ in range(count):
            started = time.perf_counter()
            await node.request(_CLUSTER, BLOCK[:100], timeout=START_TIMEOUT_S)
            trips_s.append(time.perf_counter() - started)
        trips_s.sort()
        return trips_s[count // 2] * 1e6, trips_s[count * 99 // 100] * 1e6

    async def main() -> None:
        async with _connect(parameters) as node:
            await trips(node, 500)
            tunnel = await _open(node)
            idle = await trips(node, parameters["trips"])
            sending = asyncio.create_task(tunnel.send_chunks(_endless()))
            await trips(node, 20)
            loaded = await trips(node, parameters["trips"])
            assert not sending.done()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        tell(
            samples=[
                ("idle p50", idle[0], "us"),
                ("idle p99", idle[1], "us"),
                ("beside a tunnel p50", loaded[0], "us"),
                ("beside a tunnel p99", loaded[1], "us"),
                ("p99 in terms of the idle one", loaded[1] / idle[1], "times"),
            ]
        )

    iris_py.run(main())
