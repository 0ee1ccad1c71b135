"""NNG through pynng: its blocking calls, and those for asyncio. Its TCP transport does not encrypt."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from benchmarks.peers.system import About, Ask, Foreign, Inbox, OpenMore, Place, Send, Survey, System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

_ANY: Final = "tcp://127.0.0.1:0"
#: Requests that the service answers at a time, each in a context of its socket.
_CONTEXTS: Final = 64
#: By default nothing larger than 1 MiB is received; this is the largest message here, and a little.
_SIZE_MAX: Final = 2 * 1024 * 1024


def _place(socket: Foreign) -> str:
    listener = socket.listen(_ANY)
    return f"tcp://{listener.local_address}"


class Nng(System):
    """Blocking calls."""

    about = About(
        name="pynng",
        use="blocking calls: Push0/Pull0 to one, Pub0/Sub0 to several; Req0/Rep0",
        imports="import pynng",
        modules=("pynng",),
        distributions=("pynng",),
        only=frozenset({"queue", "queue-latency", "stream", "fan-out", "request"}),
        callers_max=1,
    )

    def _publishing(self) -> Foreign:
        import pynng

        return pynng.Pub0() if self.parameters.get("subscribers", 1) > 1 else pynng.Push0()

    def _subscribing(self, place: str) -> Foreign:
        import pynng

        if self.parameters.get("subscribers", 1) > 1:
            return pynng.Sub0(dial=place, topics=b"", recv_max_size=_SIZE_MAX)
        return pynng.Pull0(dial=place, recv_max_size=_SIZE_MAX)

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[tuple[Place, Send]]:
        with self._publishing() as socket:

            async def send(payloads: Iterable[bytes]) -> None:
                for payload in payloads:
                    socket.send(payload)

            yield _place(socket), send

    @asynccontextmanager
    async def subscriber(self, place: str) -> AsyncIterator[Inbox]:
        with self._subscribing(place) as socket:
            messages: Iterator[bytes] = iter(socket.recv, None)
            yield Inbox(messages)

    @asynccontextmanager
    async def service(self) -> AsyncIterator[Place]:
        import pynng

        def serve() -> None:
            while True:
                socket.send(socket.recv())

        with pynng.Rep0() as socket:
            place = _place(socket)
            threading.Thread(target=serve, daemon=True).start()
            yield place

    @asynccontextmanager
    async def callers(self, place: Place, count: int) -> AsyncIterator[list[Ask]]:
        import pynng

        assert count == 1
        with pynng.Req0(dial=place) as socket:

            async def ask(payload: bytes) -> bytes:
                socket.send(payload)
                reply: bytes = socket.recv()
                return reply

            yield [ask]


class NngAsyncio(Nng):
    """The calls for asyncio."""

    about = replace(
        Nng.about,
        name="pynng-asyncio",
        use="asend() and arecv(): Push0/Pull0 to one, Pub0/Sub0 to several; Req0/Rep0, a context for each caller; Surveyor0",
        only=None,
        callers_max=1_000_000,
    )

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[tuple[Place, Send]]:
        with self._publishing() as socket:

            async def send(payloads: Iterable[bytes]) -> None:
                for payload in payloads:
                    await socket.asend(payload)

            yield _place(socket), send

    @asynccontextmanager
    async def subscriber(self, place: str) -> AsyncIterator[Inbox]:
        async def messages() -> AsyncIterator[bytes]:
            while True:
                yield await socket.arecv()

        with self._subscribing(place) as socket:
            yield Inbox(messages())

    @asynccontextmanager
    async def service(self) -> AsyncIterator[Place]:
        import pynng

        async def serve(context: Foreign) -> None:
            while True:
                await context.asend(await context.arecv())

        async def take() -> None:
            while True:
                await puller.arecv()

        with pynng.Rep0() as replier, pynng.Pull0(recv_max_size=_SIZE_MAX) as puller, pynng.Pub0() as publisher:
            running = [asyncio.create_task(serve(replier.new_context())) for _ in range(_CONTEXTS)]
            running.append(asyncio.create_task(take()))
            yield [_place(replier), _place(puller), _place(publisher)]
            for task in running:
                task.cancel()

    @asynccontextmanager
    async def callers(self, place: Place, count: int) -> AsyncIterator[list[Ask]]:
        import pynng

        with pynng.Req0(dial=place[0]) as socket, ExitStack() as contexts:
            yield [_ask_by(contexts.enter_context(socket.new_context())) for _ in range(count)]

    @asynccontextmanager
    async def surveyor(self) -> AsyncIterator[tuple[Place, Survey]]:
        import pynng

        members: int = self.parameters["members"]
        with pynng.Surveyor0(survey_time=5_000) as socket:

            async def survey(payload: bytes) -> int:
                await socket.asend(payload)
                answered = 0
                while answered < members:  # it does not know how many there are: the program has to
                    try:
                        await socket.arecv()
                    except pynng.Timeout:
                        break
                    answered += 1
                return answered

            yield _place(socket), survey

    @asynccontextmanager
    async def member(self, place: str) -> AsyncIterator[None]:
        import pynng

        async def answer() -> None:
            while True:
                await socket.asend(await socket.arecv())

        with pynng.Respondent0(dial=place) as socket:
            answering = asyncio.create_task(answer())
            yield
            answering.cancel()

    @asynccontextmanager
    async def bulk(self, place: Place) -> AsyncIterator[tuple[Ask, Send]]:
        import pynng

        with pynng.Req0(dial=place[0]) as asking, pynng.Push0(dial=place[1]) as pushing:

            async def send(blocks: Iterable[bytes]) -> None:
                for block in blocks:
                    await pushing.asend(block)

            yield _ask_by(asking), send

    @asynccontextmanager
    async def links(self, place: Place) -> AsyncIterator[OpenMore]:
        import pynng

        with ExitStack() as sockets:

            async def open_more(count: int) -> None:
                for _ in range(count):
                    await _ask_by(sockets.enter_context(pynng.Req0(dial=place[0])))(b"hello")

            yield open_more

    @asynccontextmanager
    async def subscriptions(self, place: Place) -> AsyncIterator[OpenMore]:
        import pynng

        with pynng.Sub0(dial=place[2]) as socket:

            async def open_more(count: int) -> None:
                for number in range(count):
                    socket.subscribe(f"measured.messages.{number}")

            yield open_more


def _ask_by(socket: Foreign) -> Ask:
    async def ask(payload: bytes) -> bytes:
        await socket.asend(payload)
        reply: bytes = await socket.arecv()
        return reply

    return ask
