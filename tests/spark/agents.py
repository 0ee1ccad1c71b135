"""An agent in a thread of the tests: a real node, and a real socket at which it is used."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

import iris_py
from iris_py import Handler, Message, Request
from iris_security import Secret
from spark_connector.local.private_directory import PrivateDirectory
from spark_connector.local.server import NodeServer, serve

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

Result = TypeVar("Result")

SECRET = Secret.generate(os.urandom).text


class Services(Handler):
    """The handlers of the node.

    Attributes:
        asked: The requests of ``hold``, as they came.
        cancelled: Those that were cancelled.
        told: Broadcasts.
        release: Set to let ``hold`` answer.
    """

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.cancelled: list[bytes] = []
        self.told: list[bytes] = []
        self.release = asyncio.Event()

    async def echo(self, request: Request) -> bytes:
        text = "".join(f"{name}={value!r};" for name, value in request.headers.items())
        return text.encode() + request.payload

    async def fail(self, request: Request) -> bytes:
        raise LookupError(request.payload.decode())

    async def inflate(self, request: Request) -> bytes:
        return bytes(int(request.payload))

    async def on_request(self, request: Request) -> bytes:
        """Hold a request until it is released."""
        self.asked.append(request.payload)
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.payload)
            raise
        return b"released " + request.payload

    async def on_broadcast(self, message: Message) -> None:
        self.told.append(message.payload)


class Agent:
    """A node in an event loop of its own, served at a path until :meth:`stop`."""

    node: iris_py.Node
    node_server: NodeServer
    services: Services
    loop: asyncio.AbstractEventLoop

    def __init__(self, path: Path, max_message_bytes: int | None = None) -> None:
        self.path = path
        self._max_message_bytes = max_message_bytes
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self._ready.result(30)

    def run(self, coroutine: Coroutine[object, object, Result]) -> Result:
        """Run something in its event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def wait_until(self, condition: str) -> None:
        """Wait until an expression about the agent, ``services`` and ``node_server`` is true."""
        names = {"agent": self, "services": self.services, "node_server": self.node_server}

        async def watch() -> None:
            async with asyncio.timeout(20):
                while not eval(condition, names):  # noqa: ASYNC110 - of all that it may be about, some says nothing
                    await asyncio.sleep(0.002)

        self.run(watch())

    def stop(self) -> None:
        """End it, as when its executor has ended."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._end.set)
            self._thread.join(30)

    def _serve(self) -> None:
        try:
            iris_py.run(self._main())
        except BaseException as exc:
            if self._ready.done():
                raise
            self._ready.set_exception(exc)

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self.services = services = Services()
        settings = iris_py.connect(
            secret=SECRET,
            network="tests",
            listen="127.0.0.1:0",
            seeds=(),
            discovery=False,
            zone="eu/a",
            max_message_bytes=self._max_message_bytes,
        )
        async with settings as self.node:
            await self.node.join("echo", services.echo)
            await self.node.join("fail", services.fail)
            await self.node.join("inflate", services.inflate)
            holding = await self.node.join("hold", services)
            with PrivateDirectory.open(self.path.parent) as directory:
                async with serve(self.node, directory, self.path.name) as self.node_server:
                    self._ready.set_result(None)
                    await self._end.wait()
            services.release.set()
            await holding.leave()
