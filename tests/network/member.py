"""A node process in a namespace: joins clusters, answers requests with its own name, and says what it sees.

Usage: member.py NAME CLUSTER[,CLUSTER...]. The configuration comes from the environment. Every line of the standard output is a
JSON object with ``event`` and ``at`` (monotonic seconds, comparable on one machine); every line of the standard input is a JSON
object with ``do``, the name of a method of `Commands`, and its arguments. The process ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import iris_py as iris

if TYPE_CHECKING:
    from collections.abc import Coroutine

#: How often a view is looked at: far below every time that a test is about.
LOOK_INTERVAL_S = 0.02


def tell(event: str, **values: object) -> None:
    """Say something."""
    sys.stdout.write(json.dumps({"event": event, "at": time.monotonic(), **values}) + "\n")
    sys.stdout.flush()


class Commands:
    """The commands that a member can be given. Each runs as a task of its own."""

    def __init__(self, node: iris.Node) -> None:
        self._node = node
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_asking = False
        self.left = asyncio.Event()
        self.delay_s = 0.0
        "How long a request takes from now on."

    def begin(self, command: dict[str, Any]) -> None:
        """Do what a line says."""
        coroutine: Coroutine[Any, Any, None] = getattr(self, command.pop("do"))(**command)
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._handle_done)

    def _handle_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            tell("failed", error=f"{type(error).__name__}: {error}")

    def end(self) -> None:
        """Stop everything that runs."""
        for task in self._tasks:
            task.cancel()

    async def watch(self, cluster: str) -> None:
        """Tell the view of a cluster (``view``), now and whenever it changes."""
        members = self._node.members(cluster)
        before: list[str] | None = None
        await members
        while True:
            view = sorted(member.id for member in members)
            if view != before:
                tell("view", cluster=cluster, ids=view)
                before = view
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def members(self, cluster: str) -> None:
        """Tell the view of a cluster once (``members``)."""
        tell("members", cluster=cluster, ids=sorted(member.id for member in await self._node.members(cluster)))

    async def nodes(self) -> None:
        """Tell the nodes that this one knows (``nodes``)."""
        tell("nodes", ids=sorted(member.id for member in self._node.nodes()))

    async def request(self, cluster: str, count: int, lanes: int = 1) -> None:
        """Ask a cluster, in several lanes, and tell who answered how often, and what failed (``requested``)."""
        answers: Counter[str] = Counter()
        failures: Counter[str] = Counter()
        numbers = iter(range(count))

        async def ask() -> None:
            for number in numbers:
                try:
                    answers[(await self._node.request(cluster, str(number).encode())).decode()] += 1
                except iris.IrisError as exc:
                    failures[type(exc).__name__] += 1

        began = time.monotonic()
        await asyncio.gather(*(ask() for _ in range(lanes)))
        tell("requested", cluster=cluster, answers=answers, failures=failures, seconds=time.monotonic() - began)

    async def send(self, cluster: str, count: int, size: int) -> None:
        """Ask a cluster so many large things at once, and tell what failed (``sent``)."""
        requests = (self._node.request(cluster, bytes(size), timeout=300.0) for _ in range(count))
        outcomes = await asyncio.gather(*requests, return_exceptions=True)
        tell("sent", failures=[str(outcome) for outcome in outcomes if isinstance(outcome, BaseException)])

    async def ask(self, cluster: str, interval_s: float) -> None:
        """Go on asking a cluster at a steady rate, whatever becomes of earlier requests; each tells how it ended (``asked``).

        After :meth:`stop` and the end of the last request, tell so (``stopped``).
        """
        self._is_asking = True
        async with asyncio.TaskGroup() as requests:
            while self._is_asking:
                requests.create_task(self._ask_once(cluster))
                await asyncio.sleep(interval_s)
        tell("stopped", cluster=cluster)

    async def slow_down(self, delay_s: float) -> None:
        """Let each request take so long from now on (``slowed``)."""
        self.delay_s = delay_s
        tell("slowed", delay_s=delay_s)

    async def follow(self, pattern: str, pause_s: float, queue_messages: int) -> None:
        """Subscribe (``following``), and take one message after each pause, until the member ends."""
        async with self._node.subscribe(pattern, queue_messages=queue_messages) as messages:
            tell("following", pattern=pattern)
            async for _message in messages:
                await asyncio.sleep(pause_s)

    async def flood(self, topic: str, count: int, interval_s: float) -> None:
        """Publish so many messages in each interval until :meth:`stop`; then tell so (``flooded``)."""
        self._is_asking = True
        while self._is_asking:
            for _ in range(count):
                await self._node.publish(topic, b"")
            await asyncio.sleep(interval_s)
        tell("flooded", topic=topic)

    async def stop(self) -> None:
        """Begin no further requests."""
        self._is_asking = False

    async def _ask_once(self, cluster: str) -> None:
        began = time.monotonic()
        try:
            name, error = (await self._node.request(cluster, b"")).decode(), ""
        except iris.IrisError as exc:
            name, error = "", f"{type(exc).__name__}: {exc}"
        tell("asked", cluster=cluster, began=began, name=name, error=error)

    async def leave(self) -> None:
        """Leave the network, as a program does that ends."""
        self.left.set()


async def read_commands(commands: Commands) -> None:
    """Do what the lines of the standard input say, until it ends."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb"))
    try:
        while line := await reader.readline():
            commands.begin(json.loads(line))
    finally:
        transport.close()
    os._exit(1)  # the test is gone: nobody is left to whom a clean end would matter


async def main(name: str, clusters: list[str]) -> None:
    """Be a member."""

    async with iris.connect() as node:
        commands = Commands(node)

        async def answer(_request: iris.Request) -> bytes:
            await asyncio.sleep(commands.delay_s)
            return name.encode()

        tell("connected", id=node.id, address=node.address)
        for cluster in clusters:
            await node.join(cluster, answer)
        tell("serving", clusters=clusters)
        reading = asyncio.ensure_future(read_commands(commands))
        await commands.left.wait()
        reading.cancel()
        commands.end()
    tell("left")


if __name__ == "__main__":
    iris.run(main(sys.argv[1], [cluster for cluster in sys.argv[2].split(",") if cluster]))
