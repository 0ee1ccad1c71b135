"""A program of asyncio that forks in the middle of its work; for test_forks.py.

Usage: fork_program.py loop|thread. The fork is in the event loop, or in another thread. Whatever there is to say is a line of
the standard output.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from typing import TYPE_CHECKING, Any

import iris_py
from iris_security import Keyring, Secret
from tests.integration.sync_programs import network_sockets, say

if TYPE_CHECKING:
    from collections.abc import Callable


class Echo(iris_py.Handler):
    """Answers at once, or never."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def on_request(self, request: iris_py.Request) -> bytes:
        if request.payload == b"never":
            self.begun.set()
            await asyncio.Event().wait()
        return request.payload


#: Every public call of a node; the end of one is allowed, and what the driver calls is no part of the interface.
USES: dict[str, Callable[[iris_py.Node], Any]] = {
    "ask_nodes": lambda node: node.ask_nodes("node"),
    "broadcast": lambda node: node.broadcast("echo", b"by the child"),
    "clouds": lambda node: node.clouds(),
    "events": lambda node: anext(node.events()),
    "find_route": lambda node: node.find_route("echo"),
    "health": lambda node: node.health(),
    "join": lambda node: node.join("echo", Echo()),
    "members": lambda node: node.members("echo"),
    "nodes": lambda node: node.nodes(),
    "publish": lambda node: node.publish("a", b"by the child"),
    "publish_many": lambda node: node.publish_many("a", [b"by the child"]),
    "recent_events": lambda node: node.recent_events(),
    "rekey": lambda node: node.rekey(Keyring(Secret(bytes(32)))),
    "reload_keys": lambda node: node.reload_keys(),
    "request": lambda node: node.request("echo", b"by the child"),
    "rotate_secret": lambda node: node.rotate_secret("add", "no key"),
    "rotation": lambda node: node.rotation(),
    "statistics": lambda node: node.statistics(),
    "subscribe": lambda node: node.subscribe("a"),
    "survey": lambda node: node.survey("echo", b"by the child"),
    "trace": lambda node: node.trace("echo"),
    "try_publish": lambda node: node.try_publish("a", b"by the child"),
    "tunnel": lambda node: node.tunnel("echo"),
    "unreached_seeds": lambda node: node.unreached_seeds(),
}


async def use(node: iris_py.Node) -> None:
    """Try every call of a node."""
    for name, begin in USES.items():
        try:
            called = begin(node)
            await called if inspect.isawaitable(called) else called
        except iris_py.ConfigurationError as exc:
            say(name, str(os.getppid()) in str(exc) and str(os.getpid()) in str(exc))
        except Exception as exc:
            say(name, repr(exc))
        else:
            say(name, "is not refused")
    await node.close()


async def main(where: str) -> None:
    handler = Echo()
    async with iris_py.connect() as node, iris_py.connect() as other, node.join("echo", handler), node.subscribe("a") as news:
        assert await other.request("echo", b"a link is there") == b"a link is there"
        await other.publish("a", b"to learn who subscribes")
        pending = asyncio.create_task(other.request("echo", b"never", timeout=600))
        await handler.begun.wait()
        before = network_sockets()
        assert before
        if where == "loop":
            child = fork(other, before)
        else:
            child = await asyncio.to_thread(fork, other, before)
        say("status", (await asyncio.to_thread(os.waitpid, child, 0))[1])
        say((await other.request("echo", b"by the parent")).decode())
        await other.publish("a", b"still subscribed")
        async for message in news:
            if message.payload == b"still subscribed":
                say(message.payload.decode())
                break
        say("pending", not pending.done())
        pending.cancel()


def fork(node: iris_py.Node, before: set[str]) -> int:
    child = os.fork()
    if child:
        return child
    say("inherited", len(before & network_sockets()))
    asyncio.run(use(node))  # asyncio itself takes no running loop over a fork
    os._exit(0)


if __name__ == "__main__":
    iris_py.run(main(sys.argv[1]))
