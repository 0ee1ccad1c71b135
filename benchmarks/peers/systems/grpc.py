"""gRPC through grpcio: its asyncio client and server, without code that is generated, so that no time goes into messages.

Encrypts only where TLS is set up, which is not so here.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from benchmarks.peers.system import About, Ask, Foreign, Inbox, OpenMore, Place, Send, SendBlocks, System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

_SERVICE: Final = "measured.Service"


class Grpc(System):
    """Calls for requests, a stream of replies for messages to subscribers, a stream of requests for tunnels."""

    about = About(
        name="grpcio",
        use="grpc.aio: a unary call for a request; a stream of replies to a subscriber; a stream of requests as a tunnel",
        imports="import grpc.aio",
        modules=("grpc",),
        distributions=("grpcio",),
    )

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[tuple[Place, Send]]:
        import grpc

        subscribed: dict[Any, None] = {}

        async def subscribe(_request: bytes, context: Foreign) -> None:
            subscribed[context] = None
            await asyncio.Event().wait()

        async def send(payloads: Iterable[bytes]) -> None:
            for payload in payloads:
                for context in list(subscribed):
                    await context.write(payload)

        async with self._serve({"subscribe": grpc.unary_stream_rpc_method_handler(subscribe)}) as place:
            yield place, send

    @asynccontextmanager
    async def subscriber(self, place: str) -> AsyncIterator[Inbox]:
        import grpc

        async with grpc.aio.insecure_channel(place) as channel:
            yield Inbox(aiter(channel.unary_stream(f"/{_SERVICE}/subscribe")(b"")))

    @asynccontextmanager
    async def _serve(self, methods: dict[str, Any]) -> AsyncIterator[str]:
        import grpc

        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        yield f"127.0.0.1:{port}"
        await server.stop(None)

    @asynccontextmanager
    async def service(self) -> AsyncIterator[str]:
        import grpc

        async def reply(request: bytes, _context: Foreign) -> bytes:
            return request

        async def take(blocks: AsyncIterator[bytes], _context: Foreign) -> bytes:
            taken = 0
            async for block in blocks:
                taken += len(block)
            return str(taken).encode()

        methods = {
            "ask": grpc.unary_unary_rpc_method_handler(reply),
            "tunnel": grpc.stream_unary_rpc_method_handler(take),
        }
        async with self._serve(methods) as place:
            yield place

    @asynccontextmanager
    async def callers(self, place: str, count: int) -> AsyncIterator[list[Ask]]:
        import grpc

        async with grpc.aio.insecure_channel(place) as channel:
            yield [channel.unary_unary(f"/{_SERVICE}/ask")] * count

    @asynccontextmanager
    async def tunnel(self, place: str) -> AsyncIterator[SendBlocks]:
        import grpc

        async with grpc.aio.insecure_channel(place) as channel:
            open_tunnel = channel.stream_unary(f"/{_SERVICE}/tunnel")

            async def send(blocks: Iterable[bytes]) -> int:
                call = open_tunnel()
                for block in blocks:
                    await call.write(block)
                await call.done_writing()
                return int(await call)

            yield send

    @asynccontextmanager
    async def bulk(self, place: str) -> AsyncIterator[tuple[Ask, Send]]:
        import grpc

        async with grpc.aio.insecure_channel(place) as channel:
            call = channel.stream_unary(f"/{_SERVICE}/tunnel")()

            async def send(blocks: Iterable[bytes]) -> None:
                for block in blocks:
                    await call.write(block)

            yield channel.unary_unary(f"/{_SERVICE}/ask"), send

    @asynccontextmanager
    async def links(self, place: str) -> AsyncIterator[OpenMore]:
        import grpc

        async with AsyncExitStack() as stack:

            async def open_more(count: int) -> None:
                for number in range(count):
                    # Channels with the same settings share a connection.
                    channel = grpc.aio.insecure_channel(place, [("grpc.use_local_subchannel_pool", 1), ("measured", number)])
                    await (await stack.enter_async_context(channel)).unary_unary(f"/{_SERVICE}/ask")(b"hello")

            yield open_more

    @asynccontextmanager
    async def idle_tunnels(self, place: str) -> AsyncIterator[OpenMore]:
        import grpc

        async with grpc.aio.insecure_channel(place) as channel:
            open_tunnel, kept = channel.stream_unary(f"/{_SERVICE}/tunnel"), []

            async def open_more(count: int) -> None:
                for _ in range(count):
                    kept.append(open_tunnel())
                    await kept[-1].write(b"hello")

            yield open_more
