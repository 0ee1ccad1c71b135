"""A node process whose handlers tell what they execute and see, and which asks, surveys and tunnels into other clouds.

Usage as that of member.py, whose commands it has, too. A payload is a JSON object with ``id``, and maybe with ``hold_s``, the
seconds for which the handler keeps it, and ``filling``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from typing import Any

import iris_py as iris
from iris_py.api.cloud.gateways import ask_gateways
from iris_py.federation.calls import Call, Op
from tests.network.member import LOOK_INTERVAL_S, Commands, read_commands, tell


class Works(iris.Handler):
    """Answers with the name of the member, and tells what it has executed, and for whom.

    Args:
        name: Of the member.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    async def on_request(self, request: iris.Request) -> bytes:
        """Answer a request."""
        asked = json.loads(request.payload)
        tell(
            "executed",
            id=asked["id"],
            cluster=request.cluster,
            cloud=request.cloud,
            source=request.source,
            headers=dict(request.headers),
            left_s=request.time_left_s,
            text=repr(request),
        )
        await asyncio.sleep(asked.get("hold_s", 0.0))
        return json.dumps({"name": self._name, "filling": asked.get("filling", "")}).encode()

    async def on_survey(self, request: iris.Request) -> bytes:
        """Answer a survey as a request."""
        return await self.on_request(request)

    async def on_broadcast(self, message: iris.Message) -> None:
        """Tell what was sent to everybody."""
        tell("heard", text=message.payload.decode(), cloud=message.cloud, source=message.source, headers=dict(message.headers))

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        """Send everything back."""
        tell("entered", cloud=tunnel.cloud, headers=dict(tunnel.headers), text=repr(tunnel), peer=tunnel.member)
        async for message in tunnel:
            await tunnel.send(message)


class FarCommands(Commands):
    """The commands that such a member can be given."""

    async def wait_for_cloud(self, alias: str, gateways: int) -> None:
        """Return when so many gateways here have a way to another cloud (``reached``)."""
        while True:
            with contextlib.suppress(iris.NotConnected):  # gateways that have just been started
                clouds = {cloud.alias: cloud for cloud in await self._node.clouds()}
                if alias in clouds and clouds[alias].is_up and clouds[alias].gateways >= gateways:
                    tell("reached", alias=alias)
                    return
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def status(self) -> None:
        """Tell what the gateways of this cloud say of themselves (``status``)."""
        tell("status", gateways=await ask_gateways(self._node, Call(op=Op.STATUS)))

    async def burst(
        self, cluster: str, count: int, lanes: int = 1, size: int = 0, headers: dict[str, Any] | None = None
    ) -> None:
        """Ask, in several lanes; tell how long each took, and what failed (``done``)."""
        seconds: list[float] = []
        failures: Counter[str] = Counter()
        numbers = iter(range(count))
        filling = "x" * size

        async def ask() -> None:
            for number in numbers:
                began = time.monotonic()
                payload = json.dumps({"id": f"burst/{number}", "filling": filling}).encode()
                try:
                    answer = await self._node.request(cluster, payload, headers=headers)
                    assert json.loads(answer)["filling"] == filling
                    seconds.append(time.monotonic() - began)
                except iris.IrisError as exc:
                    failures[f"{type(exc).__name__}: {exc}"] += 1

        await asyncio.gather(*(ask() for _ in range(lanes)))
        tell("done", seconds=seconds, failures=failures)

    async def once(self, cluster: str, id: str, **options: Any) -> None:  # noqa: A002 - as the message has it
        """Ask once; tell how that ended, as ``asked``, under its id."""
        await self._ask_for(id, cluster, options)

    async def load(self, run: str, cluster: str, interval_s: float, **options: Any) -> None:
        """Go on asking at a steady rate, whatever becomes of earlier requests; each tells how it ended (``asked``).

        After ``stop`` and the end of the last request, tell so (``stopped``).
        """
        self._is_asking = True
        number = 0
        async with asyncio.TaskGroup() as requests:
            while self._is_asking:
                requests.create_task(self._ask_for(f"{run}/{number}", cluster, dict(options)))
                number += 1
                await asyncio.sleep(interval_s)
        tell("stopped", run=run)

    async def survey_all(self, cluster: str, id: str) -> None:  # noqa: A002 - as the message has it
        """Survey; tell who has answered, and as whom (``surveyed``)."""
        answers = await self._node.survey(cluster, json.dumps({"id": id}).encode(), timeout=10.0)
        replies = [
            {"member": reply.member.id, "text": repr(reply), "payload": reply.payload.decode()} for reply in answers.replies
        ]
        tell("surveyed", replies=replies)

    async def tunnel(self, cluster: str, count: int, size: int) -> None:
        """Send messages through a tunnel to a member that returns them (``returned``)."""
        began = time.monotonic()
        async with self._node.tunnel(cluster, timeout=10.0) as tunnel:
            for number in range(count):
                message = number.to_bytes(8, "big") * (size // 8)
                await tunnel.send(message)
                assert await tunnel.receive() == message
        tell("returned", seconds=time.monotonic() - began)

    async def subscribe(self, pattern: str) -> None:
        """Subscribe (``subscribed``), and tell what comes (``message``), until the member ends."""
        async with self._node.subscribe(pattern) as messages:
            tell("subscribed", pattern=pattern)
            async for message in messages:
                tell(
                    "message",
                    topic=message.topic,
                    payload=message.payload.decode(),
                    cloud=message.cloud,
                    source=message.source,
                    headers=dict(message.headers),
                    text=repr(message),
                )

    async def publish(self, topic: str, payload: str, headers: dict[str, Any] | None = None) -> None:
        """Publish (``published``)."""
        tell("published", receivers=await self._node.publish(topic, payload.encode(), headers=headers))

    async def tell_all(self, cluster: str, text: str) -> None:
        """Broadcast within this cloud (``told``)."""
        tell("told", count=await self._node.broadcast(cluster, text.encode()))

    async def _ask_for(self, id_: str, cluster: str, options: dict[str, Any]) -> None:
        payload = {"id": id_, "hold_s": options.pop("hold_s", 0.0)}
        began = time.monotonic()
        name = error = text = ""
        try:
            name = json.loads(await self._node.request(cluster, json.dumps(payload).encode(), **options))["name"]
        except iris.IrisError as exc:
            error, text = type(exc).__name__, str(exc)
        tell("asked", id=id_, cluster=cluster, began=began, name=name, error=error, text=text)


async def main(name: str, clusters: list[str]) -> None:
    """Be a member."""
    async with iris.connect() as node:
        tell("connected", id=node.id, address=node.address)
        for cluster in clusters:
            await node.join(cluster, Works(name))
        tell("serving", clusters=clusters)
        commands = FarCommands(node)
        reading = asyncio.ensure_future(read_commands(commands))
        await commands.left.wait()
        reading.cancel()
        commands.end()
    tell("left")


if __name__ == "__main__":
    iris.run(main(sys.argv[1], [cluster for cluster in sys.argv[2].split(",") if cluster]))
