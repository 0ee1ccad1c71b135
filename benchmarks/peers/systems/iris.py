"""Iris, encrypted, through its public interface."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import iris_py
from benchmarks.peers.system import About, Ask, Inbox, Kind, OpenMore, Place, Send, SendBlocks, Survey, System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from iris_py.api.awaitable_context import Opening

_CLUSTER: Final = "measured"
_TOPIC: Final = "measured.messages"


class _Member(iris_py.Handler):
    """Replies with what it is sent, and counts what a tunnel brings."""

    async def on_request(self, request: iris_py.Request) -> bytes:
        return request.payload

    async def on_tunnel(self, tunnel: iris_py.Tunnel) -> None:
        taken = 0
        async for chunk in tunnel.receive_chunks():
            taken += len(chunk)
        await tunnel.send(str(taken).encode())


class Iris(System):
    """Messages one by one with ``async for``; publishers wait when a subscription is full."""

    about = About(
        name="iris",
        kind=Kind.IRIS,
        is_encrypted=True,
        use="publish(), `async for`, policy=block; request() of an async handler; tunnels",
        imports="from iris_py import Handler, connect, run",
        modules=("iris_py",),
        distributions=("iris-messaging", "cryptography", "uvloop"),
    )

    def _connect(self, place: str | None = None) -> Opening[iris_py.Node]:
        seeds = [] if place is None else [place]
        return iris_py.connect(secret=self.parameters["secret"], seeds=seeds, discovery=False)

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[tuple[Place, Send]]:
        async with self._connect() as node:

            async def send(payloads: Iterable[bytes]) -> None:
                for payload in payloads:
                    await node.publish(_TOPIC, payload)

            yield node.address, send

    @asynccontextmanager
    async def subscriber(self, place: str) -> AsyncIterator[Inbox]:
        async with self._connect(place) as node, node.subscribe(_TOPIC, policy="block") as subscription:
            yield Inbox(aiter(subscription), attrgetter("payload"))

    @asynccontextmanager
    async def service(self) -> AsyncIterator[str]:
        async with self._connect() as node, node.join(_CLUSTER, _Member(), tunnels=100_000):
            yield node.address

    @asynccontextmanager
    async def callers(self, place: str, count: int) -> AsyncIterator[list[Ask]]:
        async with self._connect(place) as node:
            yield [lambda payload: node.request(_CLUSTER, payload)] * count

    @asynccontextmanager
    async def surveyor(self) -> AsyncIterator[tuple[Place, Survey]]:
        async with self._connect() as node:

            async def survey(payload: bytes) -> int:
                return len(await node.survey(_CLUSTER, payload))

            yield node.address, survey

    @asynccontextmanager
    async def member(self, place: str) -> AsyncIterator[None]:
        async with self._connect(place) as node, node.join(_CLUSTER, _Member()):
            yield

    @asynccontextmanager
    async def tunnel(self, place: str) -> AsyncIterator[SendBlocks]:
        async with self._connect(place) as node:

            async def send(blocks: Iterable[bytes]) -> int:
                async with node.tunnel(_CLUSTER) as tunnel:
                    await tunnel.send_chunks(blocks)
                    return int(await tunnel.receive())

            yield send

    @asynccontextmanager
    async def bulk(self, place: str) -> AsyncIterator[tuple[Ask, Send]]:
        async with self._connect(place) as node, node.tunnel(_CLUSTER) as tunnel:

            async def send(blocks: Iterable[bytes]) -> None:
                await tunnel.send_chunks(blocks)

            yield lambda payload: node.request(_CLUSTER, payload), send

    @asynccontextmanager
    async def links(self, place: str) -> AsyncIterator[OpenMore]:
        async with AsyncExitStack() as stack:

            async def open_more(count: int) -> None:
                for _ in range(count):
                    node = await stack.enter_async_context(self._connect(place))
                    await node.request(_CLUSTER, b"hello")

            yield open_more

    @asynccontextmanager
    async def subscriptions(self, place: str) -> AsyncIterator[OpenMore]:
        async with self._connect(place) as node:
            kept: list[object] = []

            async def open_more(count: int) -> None:
                for _ in range(count):
                    kept.append(await node.subscribe(f"{_TOPIC}.{len(kept)}"))

            yield open_more

    @asynccontextmanager
    async def idle_tunnels(self, place: str) -> AsyncIterator[OpenMore]:
        async with self._connect(place) as node:
            kept: list[object] = []

            async def open_more(count: int) -> None:
                kept.extend([await node.tunnel(_CLUSTER) for _ in range(count)])

            yield open_more

    @asynccontextmanager
    async def overflowing(self, place: str, queue_messages: int) -> AsyncIterator[Callable[[], int]]:
        async with (
            self._connect(place) as node,
            node.subscribe(_TOPIC, policy="drop_oldest", queue_messages=queue_messages) as subscription,
        ):
            yield lambda: sum(subscription.dropped.values())


class IrisBatches(Iris):
    """Messages in batches."""

    about = replace(
        Iris.about,
        name="iris-batches",
        use="publish(), `async for` over batches(), policy=block",
        only=frozenset({"queue", "queue-latency", "stream", "fan-out"}),
    )

    @asynccontextmanager
    async def subscriber(self, place: str) -> AsyncIterator[Inbox]:
        async with self._connect(place) as node, node.subscribe(_TOPIC, policy="block") as subscription:
            yield Inbox(subscription.batches(), attrgetter("payload"), has_batches=True)


class IrisMany(IrisBatches):
    """Many messages published with one call, and taken in batches."""

    about = replace(
        IrisBatches.about,
        name="iris-many",
        use="publish_many(), `async for` over batches(), policy=block",
    )

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[tuple[Place, Send]]:
        async with self._connect() as node:

            async def send(payloads: Iterable[bytes]) -> None:
                await node.publish_many(_TOPIC, payloads)

            yield node.address, send


class IrisInline(Iris):
    """Requests that a plain function answers in the event loop itself."""

    about = replace(
        Iris.about,
        name="iris-inline",
        use="request() of a plain handler with inline=True",
        only=frozenset({"request"}),
    )

    @asynccontextmanager
    async def service(self) -> AsyncIterator[str]:
        def reply(request: iris_py.Request) -> bytes:
            return request.payload

        async with self._connect() as node, node.join(_CLUSTER, reply, inline=True):
            yield node.address
