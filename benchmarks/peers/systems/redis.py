"""Redis through redis-py, and its server: publish and subscribe. Encrypts only where TLS is set up, which is not so here."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from benchmarks.peers.system import About, Foreign, Inbox, OpenMore, Place, Send, System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

_TOPIC: Final = "measured.messages"


class Redis(System):
    """Its publications are round trips to the server; requests to other programs, surveys and streams it does not have."""

    about = About(
        name="redis",
        use="redis.asyncio: publish(), `async for` over listen()",
        imports="import redis.asyncio",
        modules=("redis",),
        distributions=("redis",),
        server="redis-server",
    )

    def _connect(self) -> Foreign:
        import redis.asyncio

        return redis.asyncio.Redis(host="127.0.0.1", port=self.parameters["broker"])

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[tuple[Place, Send]]:
        async with self._connect() as client:

            async def send(payloads: Iterable[bytes]) -> None:
                for payload in payloads:
                    await client.publish(_TOPIC, payload)

            yield None, send

    @asynccontextmanager
    async def subscriber(self, place: Place) -> AsyncIterator[Inbox]:
        async with self._connect() as client, client.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(_TOPIC)
            yield Inbox(subscription.listen(), lambda message: message["data"])

    @asynccontextmanager
    async def service(self) -> AsyncIterator[Place]:
        async with self._connect() as client:
            await client.ping()
            yield None

    @asynccontextmanager
    async def links(self, place: Place) -> AsyncIterator[OpenMore]:
        async with AsyncExitStack() as stack:

            async def open_more(count: int) -> None:
                for _ in range(count):
                    await (await stack.enter_async_context(self._connect())).ping()

            yield open_more

    @asynccontextmanager
    async def subscriptions(self, place: Place) -> AsyncIterator[OpenMore]:
        async with self._connect() as client, client.pubsub() as subscription:

            async def open_more(count: int) -> None:
                for number in range(count):
                    await subscription.subscribe(f"{_TOPIC}.{number}")

            yield open_more
