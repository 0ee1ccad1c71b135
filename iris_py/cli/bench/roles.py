"""The roles of the processes of `iris bench`: members, callers, publishers, subscribers, senders, and short-lived nodes."""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import iris_py
from iris_py.cli.bench.load import Load
from iris_py.config import load_config
from iris_py.errors import IrisError, TunnelBroken
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT
from iris_security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from iris_py import OverflowPolicy
    from iris_py.api.awaitable_context import Opening
    from iris_py.cli.bench.load import Operation, OperationTally
    from iris_py.cli.bench.messages import Orders

__all__ = ["NETWORK", "ROLES", "STAMP", "Part"]

NETWORK: Final = "bench"
#: The first bytes of each publication: its start time, or with a rate its due time (ns).
STAMP: Final = struct.Struct(">Q")


@dataclass(frozen=True)
class Part:
    """The part of a process in the measurement, once the process is ready."""

    node: str = ""
    """The id of the process's node; empty without a node."""
    address: str = ""
    run: Callable[[int, int], Awaitable[None]] | None = None
    """Generates load: takes the time from which operations count, and the end. None for a role without load."""


Role: TypeAlias = "Callable[[Orders, OperationTally], AbstractAsyncContextManager[Part]]"


def _connect(orders: Orders) -> Opening[iris_py.Node]:
    if not orders.secret:
        return iris_py.connect(config=load_config(**orders.connect).without_shared_port())
    # A `Config` replaces environment and file, so no setting of the user reaches a private network.
    config = iris_py.Config(
        network=NETWORK,
        secret=Secret.parse(orders.secret),
        seeds=tuple(orders.seeds),
        discovery=False,
        max_message_bytes=MESSAGE_BYTES_LIMIT,
    )
    return iris_py.connect(config=config)


def _load(operate: Operation, orders: Orders, tally: OperationTally) -> Load:
    return Load(operate, tally, callers=orders.callers, interval_ns=orders.interval_ns, offset_ns=orders.offset_ns)


# -- members


class _BenchMember(iris_py.Handler):
    """The handler of the measured cluster: echoes requests or sends a fixed reply, and reads tunnels."""

    def __init__(self, reply: bytes | None) -> None:
        self.executed = 0
        self._reply = reply

    async def on_request(self, request: iris_py.Request) -> bytes:
        self.executed += 1
        return request.payload if self._reply is None else self._reply

    async def on_tunnel(self, tunnel: iris_py.Tunnel) -> None:
        try:
            async for _ in tunnel:
                self.executed += 1
        except TunnelBroken:
            pass  # counted by the caller


@asynccontextmanager
async def _member(orders: Orders, tally: OperationTally) -> AsyncIterator[Part]:
    member = _BenchMember(orders.reply)
    tally.counters["executed"] = lambda: member.executed
    async with _connect(orders) as node, node.join(orders.target, member):
        yield Part(node.id, node.address)


# -- requests


@asynccontextmanager
async def _caller(orders: Orders, tally: OperationTally) -> AsyncIterator[Part]:
    cluster, payload, timeout_s = orders.target, orders.payload, orders.timeout_s
    replies = reply_bytes = 0
    tally.counters["replies"], tally.counters["reply_bytes"] = lambda: replies, lambda: reply_bytes
    async with _connect(orders) as node:

        async def ask(number: int, began_ns: int) -> int:
            nonlocal replies, reply_bytes
            reply = await node.request(cluster, payload, timeout=timeout_s)
            reply_bytes += len(reply)
            replies += 1
            return time.monotonic_ns()

        yield Part(node.id, node.address, _load(ask, orders, tally).run)


# -- topics


@asynccontextmanager
async def _publisher(orders: Orders, tally: OperationTally) -> AsyncIterator[Part]:
    topic, rest = orders.target, orders.payload[STAMP.size :]
    async with _connect(orders) as node:

        async def publish(number: int, began_ns: int) -> int:
            del number
            nodes = await node.publish(topic, STAMP.pack(began_ns) + rest)
            if began_ns >= tally.begin_ns:
                tally.counts["sent_to"] += nodes
            return time.monotonic_ns()

        yield Part(node.id, node.address, _load(publish, orders, tally).run)


@asynccontextmanager
async def _subscriber(orders: Orders, tally: OperationTally) -> AsyncIterator[Part]:
    policy = cast("OverflowPolicy", orders.policy)
    async with _connect(orders) as node, node.subscribe(orders.target, policy=policy) as subscription:
        tally.counters["dropped"] = lambda: sum(subscription.dropped.values())
        taking = asyncio.create_task(_take_all(subscription, tally))
        try:
            yield Part(node.id, node.address)
        finally:
            taking.cancel()


async def _take_all(subscription: iris_py.Subscription, tally: OperationTally) -> None:
    lag, unpack = tally.recording("lag", "delivered"), STAMP.unpack_from
    async for batch in subscription.batches():
        now_ns, begin_ns = time.monotonic_ns(), tally.begin_ns
        counted = [(unpack(message.payload)[0], message.gap) for message in batch]
        if counted[0][0] < begin_ns:
            counted = [each for each in counted if each[0] >= begin_ns]
        lag.extend([now_ns - stamp_ns for stamp_ns, _ in counted])
        tally.counts["gaps"] += sum([gap for _, gap in counted])


# -- tunnels


@asynccontextmanager
async def _sender(orders: Orders, tally: OperationTally) -> AsyncIterator[Part]:
    async with _connect(orders) as node, AsyncExitStack() as stack:
        lines = [_SenderTunnel(node, orders, tally) for _ in range(orders.callers)]
        tally.counters["waits"] = lambda: node.statistics().tunnels.credit_waits
        for line in lines:
            stack.push_async_callback(line.close)

        async def send(number: int, began_ns: int) -> int:
            return await lines[number].send()

        async def run(begin_ns: int, end_ns: int) -> None:
            await _load(send, orders, tally).run(begin_ns, end_ns)
            await asyncio.gather(*(line.close() for line in lines))

        yield Part(node.id, node.address, run)


class _SenderTunnel:
    """A tunnel of a sender. After a failure, the next block opens a new tunnel."""

    def __init__(self, node: iris_py.Node, orders: Orders, tally: OperationTally) -> None:
        self._node = node
        self._orders = orders
        self._tally = tally
        self._tunnel: iris_py.Tunnel | None = None
        self._reading: asyncio.Task[None] | None = None

    async def send(self) -> int:
        """Send a block; return the time (ns) at which the tunnel accepted it."""
        try:
            if self._tunnel is None:
                self._tunnel = await self._node.tunnel(self._orders.target, timeout=self._orders.timeout_s)
                self._reading = asyncio.create_task(self._discard(self._tunnel))
            await self._tunnel.send(self._orders.payload)
        except IrisError:
            await self.close(is_counted=False)
            raise
        return time.monotonic_ns()

    async def close(self, *, is_counted: bool = True) -> None:
        """Close the tunnel, if one is open. A failure to deliver all data counts as an error of the measurement if
        `is_counted`.
        """
        tunnel, reading, self._tunnel, self._reading = self._tunnel, self._reading, None, None
        if tunnel is None or reading is None:
            return
        try:
            await tunnel.close(timeout=self._orders.timeout_s)
        except IrisError as exc:
            if is_counted:
                self._tally.fail(exc)
        finally:
            reading.cancel()

    async def _discard(self, tunnel: iris_py.Tunnel) -> None:
        """Read and discard the data that the member sends back: unread data would block the member."""
        try:
            while True:
                async for _ in tunnel.receive_chunks():
                    pass
        except IrisError:
            pass  # the end of the tunnel; sending reports the reason


# -- joining


@asynccontextmanager
async def _joiner(orders: Orders, tally: OperationTally) -> AsyncIterator[Part]:
    async def join(number: int, began_ns: int) -> int:
        del number
        started_ns = time.monotonic_ns()
        async with _connect(orders) as node:
            connected_ns = time.monotonic_ns()
            await node.request(orders.target, orders.payload, timeout=orders.timeout_s)
            answered_ns = time.monotonic_ns()
        if began_ns >= tally.begin_ns:
            tally.recording("connect").add(connected_ns - started_ns)
            tally.recording("request").add(answered_ns - connected_ns)
        return answered_ns

    yield Part(run=_load(join, orders, tally).run)


#: The roles by name.
ROLES: Final[dict[str, Role]] = {
    "member": _member,
    "caller": _caller,
    "publisher": _publisher,
    "subscriber": _subscriber,
    "sender": _sender,
    "joiner": _joiner,
}
