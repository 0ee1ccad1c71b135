"""The servers that are compared, each the role of a process: the door, a bare loop, and python-socketio.

Each takes messages by ``POST`` and sends them to all its clients. A server tells ``address``, ``path`` and ``kind`` of its
streams, the path for messages and the headers of a client, and serves until it ends.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, cast

from benchmarks.worker import hear, tell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.types import ASGIApp

    from benchmarks.worker import Parameters

TOPIC: Final = "notes.all"
NDJSON: Final = "application/x-ndjson"
CLUSTER: Final = "echo"
NETWORK: Final = "benchmark-web"
#: What the clients of a benchmark, who are all at one address and of one subject, need.
SETTINGS: Final = """
[web]
listen = "127.0.0.1:{port}"
[web.limits]
connections = 1000000
connections_per_address = 1000000
connections_per_subject = 1000000
operations_per_s = 100000
burst = 100000
[histories]
{histories}
"""
_BACKLOG: Final = 4096


def missing_reason(*packages: str) -> str:
    """Return why python-socketio cannot be measured here; empty if all packages for it are there."""
    missing = [name for name in packages if find_spec(name) is None]
    return f"Left out: python-socketio, because {' and '.join(missing)} cannot be imported." if missing else ""


# -- the door


def serve_door(parameters: Parameters) -> None:
    """Serve as a door. A cue ends it in order, within its seconds.

    Args:
        parameters: ``secret``; ``seeds``, ``histories`` (lines of the file) and ``port`` if there are any.
    """
    import iris_py
    from iris_py.api.runtime import runtime_of
    from iris_py.doors.rights import Rights
    from iris_py.doors.settings import parse_settings
    from iris_py.servers.tokens import make_token
    from iris_py.servers.web.door import open_door

    async def main() -> None:
        text = SETTINGS.format(port=parameters.get("port", 0), histories=parameters.get("histories", ""))
        async with iris_py.connect(
            network=NETWORK, secret=parameters["secret"], seeds=parameters.get("seeds", ()), discovery=False
        ) as node:
            door = await open_door(node, parse_settings(text, "door.toml"))
            token = make_token(
                runtime_of(node).keyring.primary,
                subject="bench",
                lifetime_s=3600,
                rights=Rights(request=("*",), publish=(">",), subscribe=(">",), observe=True),
                now=time.time(),
                token_id=secrets.token_hex(16),
            )
            tell(
                kind="events",
                address=door.address,
                seed=node.address,
                path="/v1/topics/events?pattern=notes.*&as=text",
                own_path="/v1/topics/events?pattern=notes.{}&as=text",
                publish=f"/v1/topics/{TOPIC}",
                requests=f"/v1/clusters/{CLUSTER}/request",
                headers={"Authorization": f"Bearer {token}"},
                mark="event: message\n",
            )
            cue = await asyncio.to_thread(hear)
            await door.close(timeout=cue["drain_s"])
        tell(ended=True)

    iris_py.run(main())


def serve_member(parameters: Parameters) -> None:
    """Serve a cluster that answers with the payload."""
    import iris_py

    async def echo(request: iris_py.Request) -> bytes:
        return request.payload

    async def main() -> None:
        async with (
            iris_py.connect(network=NETWORK, secret=parameters["secret"], seeds=[parameters["seed"]], discovery=False) as node,
            node.join(CLUSTER, echo),
        ):
            tell()
            await asyncio.Event().wait()

    iris_py.run(main())


def publish_steadily(parameters: Parameters) -> None:
    """Publish numbers at a rate, to topics in turn, until a cue; then tell the number of messages.

    Args:
        parameters: ``secret``; ``topics``, their number; ``rate`` of all topics in messages a second.
    """
    import iris_py

    async def main() -> None:
        async with iris_py.connect(network=NETWORK, secret=parameters["secret"], discovery=False) as node:
            tell(seed=node.address)
            await _send_steadily(parameters, lambda topic, number: node.publish(f"notes.{topic}", b"%d" % number))

    iris_py.run(main())


async def _send_steadily(parameters: Parameters, send: Callable[[int, int], Awaitable[object]]) -> None:
    """Send numbers from a cue to the next one, counted for each topic; then tell the number of messages."""
    topics, rate = parameters["topics"], parameters["rate"]
    await asyncio.to_thread(hear)
    end = asyncio.ensure_future(asyncio.to_thread(hear))
    began, number = time.monotonic(), 0
    while not end.done():
        await send(number % topics, number // topics)
        number += 1
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
    tell(published=number)
    await asyncio.Event().wait()


# -- the peers


def serve_bare(parameters: Parameters) -> None:
    """Serve as a bare loop: a queue for each client, and nothing else. Parameters and cues: those of :func:`_serve`."""
    from starlette.applications import Starlette
    from starlette.requests import Request  # noqa: TC002 - Starlette evaluates annotations
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    clients: set[asyncio.Queue[bytes]] = set()

    async def events(_request: Request) -> Response:
        return StreamingResponse(stream(), media_type="text/event-stream")

    async def stream() -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        clients.add(queue)
        try:
            yield b":\n\n"
            while True:
                yield await queue.get()
        finally:
            clients.discard(queue)

    async def publish(request: Request) -> Response:
        for line in (await request.body()).split(b"\n"):
            event = b"event: message\ndata: %b\n\n" % line
            for queue in clients:
                queue.put_nowait(event)
        return Response(status_code=202)

    async def echo(request: Request) -> Response:
        return Response(await request.body(), media_type="application/octet-stream")

    app = Starlette(
        routes=[
            Route("/events", events),
            Route("/publish", publish, methods=["POST"]),
            Route("/echo", echo, methods=["POST"]),
        ]
    )
    told = {"path": "/events", "publish": "/publish", "requests": "/echo"}
    _serve(app, parameters, {"kind": "events", "mark": "event: message\n", **told})


def serve_socketio(parameters: Parameters) -> None:
    """Serve as python-socketio, over WebSocket.

    Args:
        parameters: ``redis``, the address of a Redis, if several servers have the same messages; and those of :func:`_serve`.
    """
    import socketio
    from starlette.applications import Starlette
    from starlette.requests import Request  # noqa: TC002 - Starlette evaluates annotations
    from starlette.responses import Response
    from starlette.routing import Route

    manager = socketio.AsyncRedisManager(parameters["redis"]) if "redis" in parameters else None
    server = socketio.AsyncServer(async_mode="asgi", client_manager=manager, ping_interval=3600, ping_timeout=3600)

    async def connect(client: str, environ: dict[str, str]) -> None:
        room = environ["QUERY_STRING"].partition("&room=")[2]
        if room:
            await server.enter_room(client, room)

    server.on("connect", connect)

    async def publish(request: Request) -> Response:
        for line in (await request.body()).split(b"\n"):
            await server.emit("m", line.decode())
        return Response(status_code=202)

    app = socketio.ASGIApp(server, Starlette(routes=[Route("/publish", publish, methods=["POST"])]))
    path = "/socket.io/?EIO=4&transport=websocket"
    told = {"path": path, "own_path": f"{path}&room={{}}", "publish": "/publish"}
    _serve(app, parameters, {"kind": "socket", "mark": '42["m"', **told})


def emit_steadily(parameters: Parameters) -> None:
    """Emit numbers through Redis at a rate, to rooms of python-socketio in turn, until a cue.

    Args:
        parameters: ``redis``; ``topics``, the number of rooms; ``rate`` of all rooms in messages a second.
    """
    import socketio

    async def main() -> None:
        manager = socketio.AsyncRedisManager(parameters["redis"], write_only=True)
        tell()
        await _send_steadily(parameters, lambda topic, number: manager.emit("m", str(number), room=str(topic)))

    asyncio.run(main())


def _serve(app: object, parameters: Parameters, told: Parameters) -> None:
    """Serve an application with uvicorn, as fast as it can. A cue ends it in order, within its seconds.

    Args:
        app: The application.
        parameters: ``port`` if there is any.
        told: Told besides the address.
    """
    import uvicorn
    import uvloop

    from iris_py.net.process import raise_limit

    raise_limit()
    listening = socket.create_server(("127.0.0.1", parameters.get("port", 0)), backlog=_BACKLOG)
    config = uvicorn.Config(
        cast("ASGIApp", app),
        http="httptools",
        ws="websockets" if told["kind"] == "socket" else "none",
        ws_ping_interval=None,  # the clients answer no pings
        timeout_keep_alive=3600,  # or the connection of the publisher ends while the clients are slow
        lifespan="off",
        access_log=False,
        log_level="error",
    )
    server = uvicorn.Server(config)

    async def main() -> None:
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        host, port = listening.getsockname()
        tell(address=f"{host}:{port}", headers={}, **told)
        cue = await asyncio.to_thread(hear)
        config.timeout_graceful_shutdown = cue["drain_s"]
        server.should_exit = True
        await serving
        tell(ended=True)

    uvloop.run(main())
