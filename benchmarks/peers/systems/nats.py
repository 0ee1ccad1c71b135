"""NATS through nats-py, and its server: core NATS, which stores nothing. Encrypts only with TLS, which is not used here."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from benchmarks.peers.system import About, Ask, Foreign, Inbox, OpenMore, Place, Send, Survey, System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

_TOPIC: Final = "measured.messages"
_SERVICE: Final = "measured.service"
_BULK: Final = "measured.bulk"
_TIMEOUT_S: Final = 30.0


class Nats(System):
    """One connection for each client."""

    about = About(
        name="nats",
        use="publish() and flush(), `async for` over a subscription; request() and a callback that responds",
        imports="import nats",
        modules=("nats",),
        distributions=("nats-py",),
        server="nats-server",
    )

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Place]:
        import nats

        client = await nats.connect(f"nats://127.0.0.1:{self.parameters['broker']}", error_cb=_ignore)
        yield client
        await client.close()

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[tuple[Place, Send]]:
        async with self._connect() as client:

            async def send(payloads: Iterable[bytes]) -> None:
                for payload in payloads:
                    await client.publish(_TOPIC, payload)
                await client.flush(_TIMEOUT_S)

            yield None, send

    @asynccontextmanager
    async def subscriber(self, place: Place) -> AsyncIterator[Inbox]:
        async with self._connect() as client:
            subscription = await client.subscribe(_TOPIC)
            await client.flush()
            yield Inbox(aiter(subscription.messages), attrgetter("data"))

    @asynccontextmanager
    async def service(self) -> AsyncIterator[Place]:
        async def reply(message: Foreign) -> None:
            await message.respond(message.data)

        async with self._connect() as client:
            await client.subscribe(_SERVICE, cb=reply)
            await client.subscribe(_BULK, cb=_ignore)
            await client.flush()
            yield None

    @asynccontextmanager
    async def callers(self, place: Place, count: int) -> AsyncIterator[list[Ask]]:
        async with self._connect() as client:
            yield [_ask_by(client)] * count

    @asynccontextmanager
    async def surveyor(self) -> AsyncIterator[tuple[Place, Survey]]:
        members: int = self.parameters["members"]
        async with self._connect() as client:

            async def survey(payload: bytes) -> int:
                inbox = client.new_inbox()
                replies = await client.subscribe(inbox)
                await client.publish(_SERVICE, payload, reply=inbox)
                answered = 0
                while answered < members:  # it does not know how many there are: the program has to
                    try:
                        await replies.next_msg(timeout=1.0)
                    except TimeoutError:
                        break
                    answered += 1
                await replies.unsubscribe()
                return answered

            yield None, survey

    @asynccontextmanager
    async def member(self, place: Place) -> AsyncIterator[None]:
        async with self.service():
            yield

    @asynccontextmanager
    async def bulk(self, place: Place) -> AsyncIterator[tuple[Ask, Send]]:
        async with self._connect() as client:

            async def send(blocks: Iterable[bytes]) -> None:
                for block in blocks:
                    await client.publish(_BULK, block)
                await client.flush(_TIMEOUT_S)

            yield _ask_by(client), send

    @asynccontextmanager
    async def links(self, place: Place) -> AsyncIterator[OpenMore]:
        async with AsyncExitStack() as stack:

            async def open_more(count: int) -> None:
                for _ in range(count):
                    await _ask_by(await stack.enter_async_context(self._connect()))(b"hello")

            yield open_more

    @asynccontextmanager
    async def subscriptions(self, place: Place) -> AsyncIterator[OpenMore]:
        async with self._connect() as client:

            async def open_more(count: int) -> None:
                for number in range(count):
                    await client.subscribe(f"{_TOPIC}.{number}")
                await client.flush()

            yield open_more

    @asynccontextmanager
    async def overflowing(self, place: Place, queue_messages: int) -> AsyncIterator[Callable[[], int]]:
        dropped = 0

        async def count(_error: Exception) -> None:
            nonlocal dropped
            dropped += 1

        import nats

        client = await nats.connect(f"nats://127.0.0.1:{self.parameters['broker']}", error_cb=count)
        await client.subscribe(_TOPIC, pending_msgs_limit=queue_messages)
        await client.flush()
        yield lambda: dropped
        await client.close()


async def _ignore(_anything: object) -> None:
    await asyncio.sleep(0)


def _ask_by(client: Foreign) -> Ask:
    async def ask(payload: bytes) -> bytes:
        reply: bytes = (await client.request(_SERVICE, payload, timeout=_TIMEOUT_S)).data
        return reply

    return ask
