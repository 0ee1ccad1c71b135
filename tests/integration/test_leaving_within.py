"""To leave, close or end from within one's own handler or callback waits for all others, and not for the one that asks."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest

import iris_py as iris
from iris_py import sync
from tests.integration.conftest import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.integration.conftest import Loops

SECRET = bytes(range(32))
#: Nothing here may use it up: whoever waits for itself fails for want of time.
DRAIN_S = 4 * PATIENCE_S
WAYS = ["leave", "close"]


def connect(*seeds: str) -> Any:
    return iris.connect(secret=SECRET, network="within", listen="127.0.0.1:0", seeds=seeds, discovery=False)


def sync_connect(*seeds: str) -> sync.Node:
    return sync.connect(secret=SECRET, network="within", listen="127.0.0.1:0", seeds=seeds, discovery=False)


class World:
    """A caller, and a member whose handlers may end it.

    Attributes:
        holds: What other handlers wait for.
        begun: Those that have begun.
        ended: The names of what has ended, in order.
    """

    def __init__(self, way: str) -> None:
        self.way = way
        self.begun, self.holds = asyncio.Semaphore(0), asyncio.Event()
        self.ended: list[str] = []
        self.heard: list[bytes] = []

    async def __aenter__(self) -> Self:
        self.caller = await connect()
        self.node = await connect(self.caller.address)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.node.close()
        await self.caller.close()

    async def end(self) -> None:
        """Do what is tried here, and note that it has returned."""
        await (self.membership.leave(timeout=DRAIN_S) if self.way == "leave" else self.node.close(timeout=DRAIN_S))
        self.ended.append(self.way)

    async def slow(self) -> None:
        self.begun.release()
        await self.holds.wait()
        self.ended.append("slow")

    async def join(self, handler: Any, **options: Any) -> None:
        self.membership = await self.node.join("c", handler, **options)

    async def ask(self, payload: bytes) -> asyncio.Task[bytes]:
        """Send a request whose handler begins before this returns."""
        task = asyncio.create_task(self.caller.request("c", payload, timeout=PATIENCE_S))
        async with asyncio.timeout(PATIENCE_S):
            await self.begun.acquire()
        return task

    async def check_left(self) -> None:
        """See that the member has gone in the end, for everybody."""
        await self.end()
        with pytest.raises(iris.NoMembers):
            await self.caller.request("c", b"late")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def run(loops: Loops, way: str, main: Callable[[World], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with World(way) as world:
            await main(world)

    loops.run(scenario())


async def child(function: Callable[[], Any]) -> None:
    await asyncio.create_task(function())


async def block(function: Callable[[], Any]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(function())


STEPS = {"itself": lambda function: function(), "a task that it awaits": child, "a task group": block}


@pytest.mark.parametrize("step", STEPS)
def test_a_request_that_ends_its_member_is_answered_after_all_others(loops: Loops, way: str, step: str) -> None:
    async def main(world: World) -> None:
        async def handle(request: iris.Request) -> bytes:
            if request.payload == b"quit":
                world.begun.release()
                await STEPS[step](world.end)
                return b"bye"
            await world.slow()
            return b"done"

        await world.join(handle)
        slow = await world.ask(b"slow")
        quitting = await world.ask(b"quit")
        assert not quitting.done()
        world.holds.set()
        assert [await slow, await quitting] == [b"done", b"bye"]
        assert world.ended == ["slow", way], "it has waited for the other one"
        await world.check_left()

    run(loops, way, main)


def test_two_that_ask_do_not_wait_for_each_other(loops: Loops, way: str) -> None:
    async def main(world: World) -> None:
        async def handle(request: iris.Request) -> bytes:
            world.begun.release()
            await world.holds.wait()
            await world.end()
            return request.payload

        await world.join(handle)
        both = [await world.ask(b"1"), await world.ask(b"2")]
        world.holds.set()
        assert [await each for each in both] == [b"1", b"2"]
        await world.check_left()

    run(loops, way, main)


def test_what_waits_behind_it_is_finished_afterwards(loops: Loops, way: str) -> None:
    async def main(world: World) -> None:
        async def handle(request: iris.Request) -> bytes:
            world.begun.release()
            if request.payload == b"quit":
                await world.holds.wait()
                await world.end()
            return request.payload

        await world.join(handle, concurrency=1)
        quitting = await world.ask(b"quit")
        behind = asyncio.create_task(world.caller.survey("c", b"behind", timeout=PATIENCE_S)._gathering.all())
        await loops.until(lambda: len(world.membership._registration.queue) == 1, "the survey waits")
        world.holds.set()
        assert await quitting == b"quit"
        assert [reply.payload for reply in (await behind).replies] == [b"behind"]
        await world.check_left()

    run(loops, way, main)


class Hooks(iris.Handler):
    """Ends its member from each of the hooks."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def on_requests(self, requests: Any) -> list[bytes]:
        await self.world.end()
        return [b"bye"] * len(requests)

    async def on_survey(self, request: iris.Request) -> bytes:
        await self.world.end()
        return b"bye"

    async def on_broadcast(self, message: iris.Message) -> None:
        self.world.heard.append(message.payload)
        if message.payload == b"quit":
            await self.world.end()

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        await tunnel.receive()
        await self.world.end()
        await tunnel.send(b"bye")


def test_each_hook_of_a_handler(loops: Loops, way: str) -> None:
    async def request(world: World) -> bytes:
        reply: bytes = await world.caller.request("c", b"quit", timeout=PATIENCE_S)
        return reply

    async def survey(world: World) -> bytes:
        answers = await world.caller.survey("c", b"quit", timeout=PATIENCE_S)
        (reply,) = answers.replies
        return bytes(reply.payload)

    async def tunnel(world: World) -> bytes:
        async with world.caller.tunnel("c") as opened:
            await opened.send(b"quit")
            return bytes(await opened.receive())

    async def broadcast(world: World) -> bytes:
        for payload in (b"quit", b"behind"):
            assert await world.caller.broadcast("c", payload) == 1
        await loops.until(lambda: world.heard == [b"quit", b"behind"], "the broadcast behind it, too")
        return b"bye"

    for use in (request, survey, tunnel, broadcast):

        async def main(world: World, use: Any = use) -> None:
            await world.join(Hooks(world))
            assert await use(world) == b"bye"
            await world.check_left()

        run(loops, way, main)


def test_a_callback_that_closes_its_node_or_its_subscription(loops: Loops) -> None:
    for ends_node in (False, True):

        async def main(world: World, ends_node: bool = ends_node) -> None:
            async def callback(message: iris.Message) -> None:
                world.heard.append(message.payload)
                if message.payload == b"quit":
                    world.begun.release()
                    await child(world.node.close if ends_node else subscription.close)
                    world.ended.append("callback")

            subscription = await world.node.subscribe("t", callback)
            await world.caller.publish_many("t", [b"quit", b"behind"])
            await loops.until(lambda: world.ended == ["callback"], "the callback goes on")
            await (world.node.close() if ends_node else subscription.close())
            assert world.heard == [b"quit", b"behind"]

        run(loops, "close", main)


def test_the_end_of_a_block_within_a_handler(loops: Loops) -> None:
    async def main(world: World) -> None:
        blocks: list[Any] = []

        async def handle(request: iris.Request) -> bytes:
            await blocks[0].__aexit__(None, None, None)
            return b"bye"

        blocks.append(world.node.join("c", handle))
        await blocks[0].__aenter__()
        assert await world.caller.request("c", b"quit", timeout=PATIENCE_S) == b"bye"

    run(loops, "leave", main)


def test_a_task_that_outlives_its_handler_waits_for_the_whole_end(loops: Loops) -> None:
    async def main(world: World) -> None:
        async def end() -> None:
            await world.end()
            assert world.node._runtime.closing is not None
            world.ended.append("whole" if world.node._runtime.closing.done() else "part")

        ending: list[asyncio.Task[None]] = []

        async def handle(request: iris.Request) -> bytes:
            ending.append(asyncio.create_task(end()))
            await asyncio.sleep(0)  # it waits already
            return b"bye"

        await world.join(handle)
        assert await world.caller.request("c", b"quit", timeout=PATIENCE_S) == b"bye"
        await ending[0]
        assert world.ended == ["close", "whole"]

    run(loops, "close", main)


def test_others_that_take_too_long_are_cancelled_and_the_one_that_asked_is_answered(loops: Loops, way: str) -> None:
    async def main(world: World) -> None:
        async def handle(request: iris.Request) -> bytes:
            if request.payload == b"quit":
                await (world.membership.leave(timeout=0.1) if way == "leave" else world.node.close(timeout=0.1))
                return b"bye"
            await world.slow()
            return b"done"

        await world.join(handle)
        stuck = await world.ask(b"stuck")
        assert await world.caller.request("c", b"quit", timeout=PATIENCE_S) == b"bye"
        with pytest.raises(iris.RemoteError, match="cancelled"):
            await stuck

    run(loops, way, main)


def test_a_plain_function_of_the_synchronous_api(home: Path, way: str) -> None:
    held, begun = threading.Event(), threading.Event()
    ended: list[str] = []

    def handle(request: sync.Request) -> bytes:
        if request.payload == b"quit":
            membership.leave(timeout=DRAIN_S) if way == "leave" else node.close(timeout=DRAIN_S)
            ended.append("quit")
            return b"bye"
        begun.set()
        assert held.wait(PATIENCE_S)
        ended.append("slow")
        return b"done"

    with sync_connect() as caller, sync_connect(caller.address) as node:
        membership = node.join("c", handle)
        slow = caller.request_future("c", b"slow", timeout=PATIENCE_S)
        assert begun.wait(PATIENCE_S)
        quitting = caller.request_future("c", b"quit", timeout=PATIENCE_S)
        held.set()
        assert [slow.result(PATIENCE_S), quitting.result(PATIENCE_S)] == [b"done", b"bye"]
        assert ended == ["slow", "quit"]


def test_a_callback_of_the_synchronous_api(home: Path) -> None:
    closed = threading.Event()
    heard: list[bytes] = []
    with sync_connect() as node:

        def callback(message: sync.Message) -> None:
            heard.append(message.payload)
            if message.payload == b"quit":
                subscription.close(timeout=DRAIN_S)
                closed.set()

        subscription = node.subscribe("t", callback)
        node.publish_many("t", [b"quit", b"behind"])
        assert closed.wait(PATIENCE_S)
        subscription.close()
        assert heard == [b"quit", b"behind"]
