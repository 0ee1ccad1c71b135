"""ZeroMQ through pyzmq: its blocking sockets, and those for asyncio. Encrypts only with CURVE, which is not used here."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers.system import About, Ask, Foreign, Inbox, OpenMore, Place, Send, System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

_ANY: Final = "tcp://127.0.0.1"


class Zmq(System):
    """Blocking sockets: what a program has that does nothing else meanwhile."""

    about = About(
        name="pyzmq",
        use="blocking sockets: PUSH/PULL to one, PUB/SUB (XPUB_NODROP) to several; REQ/REP",
        imports="import zmq.asyncio",
        modules=("zmq",),
        distributions=("pyzmq",),
        only=frozenset({"queue", "queue-latency", "stream", "fan-out", "request"}),
        callers_max=1,
    )

    def _kinds(self) -> tuple[int, int]:
        """Return what publishes and what subscribes: to one subscriber the pair that waits and loses nothing."""
        import zmq

        return (zmq.PUB, zmq.SUB) if self.parameters.get("subscribers", 1) > 1 else (zmq.PUSH, zmq.PULL)

    def _publishing(self, context: Foreign) -> tuple[Any, str]:
        import zmq

        socket = context.socket(self._kinds()[0])
        if socket.type == zmq.PUB:
            socket.setsockopt(zmq.XPUB_NODROP, 1)
        return socket, f"{_ANY}:{socket.bind_to_random_port(_ANY)}"

    def _subscribing(self, context: Foreign, place: str) -> Foreign:
        import zmq

        socket = context.socket(self._kinds()[1])
        if socket.type == zmq.SUB:
            socket.subscribe(b"")
        socket.connect(place)
        return socket

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[tuple[Place, Send]]:
        import zmq

        with zmq.Context() as context:
            socket, place = self._publishing(context)

            async def send(payloads: Iterable[bytes]) -> None:
                for payload in payloads:
                    socket.send(payload)

            yield place, send
            socket.close()

    @asynccontextmanager
    async def subscriber(self, place: str) -> AsyncIterator[Inbox]:
        import zmq

        with zmq.Context() as context, self._subscribing(context, place) as socket:
            messages: Iterator[bytes] = iter(socket.recv, None)
            yield Inbox(messages)

    @asynccontextmanager
    async def service(self) -> AsyncIterator[str]:
        import zmq

        def serve() -> None:
            while True:
                socket.send(socket.recv())

        with zmq.Context() as context, context.socket(zmq.REP) as socket:
            place = f"{_ANY}:{socket.bind_to_random_port(_ANY)}"
            threading.Thread(target=serve, daemon=True).start()
            yield place

    @asynccontextmanager
    async def callers(self, place: Place, count: int) -> AsyncIterator[list[Ask]]:
        import zmq

        assert count == 1
        with zmq.Context() as context, context.socket(zmq.REQ) as socket:
            socket.connect(place)

            async def ask(payload: bytes) -> bytes:
                socket.send(payload)
                reply: bytes = socket.recv()
                return reply

            yield [ask]


class ZmqAsyncio(Zmq):
    """The sockets for asyncio."""

    about = replace(
        Zmq.about,
        name="pyzmq-asyncio",
        use="zmq.asyncio: PUSH/PULL to one, PUB/SUB (XPUB_NODROP) to several; REQ/REP, a socket for each caller",
        only=None,
        callers_max=1_000_000,
    )

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[tuple[Place, Send]]:
        import zmq.asyncio

        with zmq.asyncio.Context() as context:
            socket, place = self._publishing(context)

            async def send(payloads: Iterable[bytes]) -> None:
                for payload in payloads:
                    while True:
                        try:
                            await socket.send(payload)
                        except zmq.Again:  # a subscriber is full: with XPUB_NODROP it is then the program that has to wait
                            await asyncio.sleep(0)
                        else:
                            break

            yield place, send
            socket.close()

    @asynccontextmanager
    async def subscriber(self, place: str) -> AsyncIterator[Inbox]:
        import zmq.asyncio

        async def messages() -> AsyncIterator[bytes]:
            while True:
                yield await socket.recv()

        with zmq.asyncio.Context() as context, self._subscribing(context, place) as socket:
            yield Inbox(messages())

    @asynccontextmanager
    async def service(self) -> AsyncIterator[Place]:
        import zmq.asyncio

        async def serve() -> None:
            while True:
                await replier.send(await replier.recv())

        async def take() -> None:
            while True:
                await puller.recv()

        with (
            zmq.asyncio.Context() as context,
            context.socket(zmq.REP) as replier,
            context.socket(zmq.PULL) as puller,
            context.socket(zmq.PUB) as publisher,
        ):
            ports = [socket.bind_to_random_port(_ANY) for socket in (replier, puller, publisher)]
            running = [asyncio.create_task(serve()), asyncio.create_task(take())]
            yield [f"{_ANY}:{port}" for port in ports]
            for task in running:
                task.cancel()

    @asynccontextmanager
    async def callers(self, place: Place, count: int) -> AsyncIterator[list[Ask]]:
        import zmq.asyncio

        with zmq.asyncio.Context() as context, ExitStack() as sockets:
            # More sockets than a context has by default; each caller has to wait for its own reply.
            context.set(zmq.MAX_SOCKETS, max(1023, count + 8))
            yield [_ask_by(_open(sockets, context, place[0])) for _ in range(count)]

    @asynccontextmanager
    async def bulk(self, place: Place) -> AsyncIterator[tuple[Ask, Send]]:
        import zmq.asyncio

        with zmq.asyncio.Context() as context, ExitStack() as sockets:
            ask = _ask_by(_open(sockets, context, place[0]))
            pusher = sockets.enter_context(context.socket(zmq.PUSH))
            pusher.connect(place[1])

            async def send(blocks: Iterable[bytes]) -> None:
                for block in blocks:
                    await pusher.send(block)

            yield ask, send

    @asynccontextmanager
    async def links(self, place: Place) -> AsyncIterator[OpenMore]:
        import zmq.asyncio

        with zmq.asyncio.Context() as context, ExitStack() as sockets:

            async def open_more(count: int) -> None:
                for _ in range(count):
                    await _ask_by(_open(sockets, context, place[0]))(b"hello")

            yield open_more

    @asynccontextmanager
    async def subscriptions(self, place: Place) -> AsyncIterator[OpenMore]:
        import zmq.asyncio

        with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
            socket.connect(place[2])

            async def open_more(count: int) -> None:
                for number in range(count):
                    socket.subscribe(f"measured.messages.{number}")

            yield open_more


def _open(sockets: ExitStack, context: Foreign, place: str) -> Foreign:
    import zmq

    socket = sockets.enter_context(context.socket(zmq.REQ))
    socket.connect(place)
    return socket


def _ask_by(socket: Foreign) -> Ask:
    async def ask(payload: bytes) -> bytes:
        await socket.send(payload)
        reply: bytes = await socket.recv()
        return reply

    return ask
