"""Zenoh through eclipse-zenoh, whose Python client is a blocking one with callbacks. Peer to peer, without a router."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers.servers import free_port
from benchmarks.peers.system import About, Ask, Foreign, Inbox, OpenMore, Place, Send, Survey, System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

_TOPIC: Final = "measured/messages"
_SERVICE: Final = "measured/service"
_BULK: Final = "measured/bulk"


class Zenoh(System):
    """Blocking puts and iteration; queries with a callback where several callers wait in one event loop."""

    about = About(
        name="zenoh",
        use="put() with congestion control BLOCK, iteration over a subscriber; get() and queryables; peers over TCP",
        imports="import zenoh",
        modules=("zenoh",),
        distributions=("eclipse-zenoh",),
    )

    @contextmanager
    def _open(self, place: str | None = None) -> Iterator[tuple[Any, str]]:
        """Open a session: one that others connect to, or one that connects to that."""
        import zenoh

        config = zenoh.Config()
        config.insert_json5("mode", '"peer"')
        config.insert_json5("scouting/multicast/enabled", "false")
        if place is None:
            place = f"tcp/127.0.0.1:{free_port()}"
            config.insert_json5("listen/endpoints", json.dumps([place]))
        else:
            config.insert_json5("listen/endpoints", "[]")
            config.insert_json5("connect/endpoints", json.dumps([place]))
        with zenoh.open(config) as session:
            yield session, place

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[tuple[Place, Send]]:
        import zenoh

        with self._open() as (session, place):
            publisher = session.declare_publisher(_TOPIC, congestion_control=zenoh.CongestionControl.BLOCK)

            async def send(payloads: Iterable[bytes]) -> None:
                for payload in payloads:
                    publisher.put(payload)

            yield place, send

    @asynccontextmanager
    async def subscriber(self, place: str) -> AsyncIterator[Inbox]:
        with self._open(place) as (session, _), session.declare_subscriber(_TOPIC) as subscriber:
            # The payload is bytes of Python only when it is asked for; a program that reads it does.
            yield Inbox(sample.payload.to_bytes() for sample in subscriber)

    @asynccontextmanager
    async def service(self) -> AsyncIterator[str]:
        with (
            self._open() as (session, place),
            session.declare_queryable(_SERVICE, lambda query: query.reply(_SERVICE, query.payload)),
            session.declare_subscriber(_BULK, lambda sample: sample.payload.to_bytes()),
        ):
            yield place

    @asynccontextmanager
    async def callers(self, place: str, count: int) -> AsyncIterator[list[Ask]]:
        with self._open(place) as (session, _):
            querier = session.declare_querier(_SERVICE)
            yield [_ask_waiting(querier) if count == 1 else _ask_by_callback(querier)] * count

    @asynccontextmanager
    async def surveyor(self) -> AsyncIterator[tuple[Place, Survey]]:
        import zenoh

        with self._open() as (session, place):
            querier = session.declare_querier(
                f"{_SERVICE}/**", target=zenoh.QueryTarget.ALL, consolidation=zenoh.ConsolidationMode.NONE
            )

            async def survey(payload: bytes) -> int:
                return sum(len(reply.ok.payload.to_bytes()) > 0 for reply in querier.get(payload=payload))

            yield place, survey

    @asynccontextmanager
    async def member(self, place: str) -> AsyncIterator[None]:
        with self._open(place) as (session, _):
            key = f"{_SERVICE}/{session.zid()}"
            with session.declare_queryable(key, lambda query: query.reply(key, query.payload)):
                yield

    @asynccontextmanager
    async def bulk(self, place: str) -> AsyncIterator[tuple[Ask, Send]]:
        import zenoh

        with self._open(place) as (session, _):
            publisher = session.declare_publisher(_BULK, congestion_control=zenoh.CongestionControl.BLOCK)

            def put_all(blocks: Iterable[bytes]) -> None:
                for block in blocks:
                    publisher.put(block)

            async def send(blocks: Iterable[bytes]) -> None:
                await asyncio.to_thread(put_all, blocks)

            yield _ask_waiting(session.declare_querier(_SERVICE)), send

    @asynccontextmanager
    async def links(self, place: str) -> AsyncIterator[OpenMore]:
        with ExitStack() as sessions:

            async def open_more(count: int) -> None:
                for _ in range(count):
                    session, _place = sessions.enter_context(self._open(place))
                    await _ask_waiting(session.declare_querier(_SERVICE))(b"hello")

            yield open_more

    @asynccontextmanager
    async def subscriptions(self, place: str) -> AsyncIterator[OpenMore]:
        with self._open(place) as (session, _):
            kept: list[Any] = []

            async def open_more(count: int) -> None:
                for _ in range(count):
                    kept.append(session.declare_subscriber(f"{_TOPIC}/{len(kept)}"))

            yield open_more

    @asynccontextmanager
    async def overflowing(self, place: str, queue_messages: int) -> AsyncIterator[Callable[[], int]]:
        import zenoh

        ring: Foreign = zenoh.handlers.RingChannel(queue_messages)
        with self._open(place) as (session, _), session.declare_subscriber(_TOPIC, ring):
            yield lambda: -1  # it does not say how many it dropped


def _ask_waiting(querier: Foreign) -> Ask:
    async def ask(payload: bytes) -> bytes:
        while True:
            for reply in querier.get(payload=payload):
                answer: bytes = reply.ok.payload.to_bytes()
                return answer
            await asyncio.sleep(0.01)  # the queryable is not known yet

    return ask


def _ask_by_callback(querier: Foreign) -> Ask:
    loop = asyncio.get_running_loop()

    async def ask(payload: bytes) -> bytes:
        answered: asyncio.Future[bytes] = loop.create_future()

        def handle(reply: Foreign) -> None:
            loop.call_soon_threadsafe(_resolve, answered, reply.ok.payload.to_bytes())

        querier.get(handle, payload=payload)
        return await answered

    return ask


def _resolve(future: asyncio.Future[bytes], answer: bytes) -> None:
    if not future.done():
        future.set_result(answer)
