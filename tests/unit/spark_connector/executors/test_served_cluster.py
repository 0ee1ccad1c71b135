"""Tests of spark_connector/executors/served_cluster.py: an agent's cluster on a simulated network, and its driver's orders."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import iris_py
from iris_py import Handler, Message, NoMembers, RemoteError, Request
from iris_py.testing import VirtualNetwork, run
from spark_connector import Network
from spark_connector.errors import AgentFailed, OrderRefused
from spark_connector.executors.orders import BYE, GREET, UPDATE, Order, control_name, own_name, seal_order
from spark_connector.executors.served_cluster import GREET_TIMEOUT_S, Hosted
from spark_connector.executors.spawn import ExecutorProcess, Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iris_py import Node, Tunnel
    from iris_py.connector import Background

KEY = bytes(range(32))
NAME, INSTANCE = "executors", "i1"
LAUNCH = Launch(Path("/nowhere"), ExecutorProcess("7", 4711, 1), "agent", KEY)


class Numbered(Handler):
    """Answers with its number, and notes what it is told."""

    told: list[tuple[int, bytes]] = []  # noqa: RUF012 - the tests are one after the other

    def __init__(self, number: int) -> None:
        self.number = number

    async def on_request(self, request: Request) -> bytes:
        return b"%d %s" % (self.number, request.payload)

    async def on_broadcast(self, message: Message) -> None:
        self.told.append((self.number, message.payload))


class Tunnelled(Numbered):
    async def on_tunnel(self, tunnel: Tunnel) -> None:
        await tunnel.send(b"%d" % self.number)


class Unloadable:
    """A handler that cannot be loaded where it arrives."""

    def __reduce__(self) -> Any:
        return (_fail, ("the module is not there",))


def _fail(text: str) -> None:
    raise ImportError(text)


def _run_out_of_memory() -> None:
    raise MemoryError


class TooLarge:
    """A handler for which there is no memory."""

    def __reduce__(self) -> Any:
        return (_run_out_of_memory, ())


class Inline:
    """Runs in place what the event loop in a thread of Iris would run in other threads."""

    async def in_thread(self, function: Callable[..., object], *arguments: object) -> object:
        await asyncio.sleep(0)
        return function(*arguments)


class Executor:
    """An agent's cluster, and a driver in its network."""

    def __init__(self, agent: Node, driver: Node, handler: object, **more: Any) -> None:
        self.driver = driver
        self.dropped: list[Hosted] = []
        order = Order(NAME, INSTANCE, Network(), 1, pickle.dumps(handler), more.pop("options", {}), **more)
        background: Background = Inline()  # type: ignore[assignment]
        self.hosted = Hosted(LAUNCH, agent, order, background, self.dropped.append)

    async def order(
        self, verb: bytes, generation: int, content: bytes = b"", *, key: bytes = KEY, target: str = ""
    ) -> dict[str, Any]:
        sealed = seal_order(key, verb, target or self.hosted.node.id, generation, content)
        said: dict[str, Any] = json.loads(await self.driver.request(control_name(NAME, "7", INSTANCE), sealed, timeout=5.0))
        return said

    async def ask(self, cluster: str = NAME) -> bytes:
        return await self.driver.request(cluster, b"?", timeout=5.0)


def hosting(
    handler: object, test: Callable[[Executor, VirtualNetwork], Coroutine[Any, Any, None]], *, start: bool = True, **more: Any
) -> None:
    """Run a test with a cluster that is served."""

    async def main() -> None:
        async with VirtualNetwork() as network:
            executor = Executor(await network.connect(), await network.connect(), handler, **more)
            if start:
                await executor.hosted.start()
            await test(executor, network)

    Numbered.told.clear()
    run(main())


def test_it_is_asked_by_the_name_of_the_cluster_and_by_its_own() -> None:
    async def test(executor: Executor, _network: VirtualNetwork) -> None:
        assert await executor.ask() == b"1 ?"
        assert await executor.ask(own_name(NAME, "7")) == b"1 ?"
        said = await executor.order(GREET, 1)
        assert (said["executor"], said["agent"], said["jvm"]) == ("7", "agent", 4711)
        assert (said["node"], said["generation"], said["refused"]) == (executor.hosted.node.id, 1, 0)

    hosting(Numbered(1), test)


def test_a_newer_handler_takes_over_and_an_older_one_does_not() -> None:
    async def test(executor: Executor, _network: VirtualNetwork) -> None:
        third = pickle.dumps(Numbered(3))
        assert (await executor.order(UPDATE, 3, third))["generation"] == 3
        assert await executor.ask() == b"3 ?"
        assert (await executor.order(UPDATE, 3, third))["generation"] == 3  # the same once more
        for generation, handler in ((2, Numbered(2)), (3, Numbered(9))):
            with pytest.raises(RemoteError, match=r"generation \d is older than 3, which runs"):
                await executor.order(UPDATE, generation, pickle.dumps(handler))
        assert await executor.ask() == b"3 ?"
        assert executor.hosted.refused == 2

    hosting(Numbered(1), test)


@pytest.mark.parametrize(
    ("key", "target", "verb"), [(b"x" * 32, "", UPDATE), (KEY, "another node", UPDATE), (b"x" * 32, "", BYE)]
)
def test_an_order_that_is_not_from_the_driver_to_this_agent_is_refused_unread(key: bytes, target: str, verb: bytes) -> None:
    async def test(executor: Executor, _network: VirtualNetwork) -> None:
        with pytest.raises(RemoteError, match="it is not from the driver of this application"):
            await executor.order(verb, 2, pickle.dumps(Unloadable()), key=key, target=target)
        assert await executor.ask() == b"1 ?"
        assert (executor.hosted.refused, executor.hosted.generation, executor.dropped) == (1, 1, [])

    hosting(Numbered(1), test)


@pytest.mark.parametrize(
    ("handler", "reason"), [(Unloadable(), "ImportError: the module is not there"), (TooLarge(), "no memory")]
)
def test_a_handler_that_cannot_be_loaded_leaves_the_one_that_runs(handler: object, reason: str) -> None:
    async def test(executor: Executor, _network: VirtualNetwork) -> None:
        with pytest.raises(RemoteError, match=reason):
            await executor.order(UPDATE, 2, pickle.dumps(handler))
        assert await executor.ask() == b"1 ?"
        assert executor.hosted.generation == 1
        await executor.hosted.refresh(Order(NAME, INSTANCE, Network(), 2, pickle.dumps(handler), {}))  # of a task: no error
        assert executor.hosted.generation == 1
        assert (await executor.order(UPDATE, 3, pickle.dumps(Numbered(3))))["generation"] == 3

    hosting(Numbered(1), test)


def test_a_newcomer_that_cannot_load_the_handler_runs_the_one_before() -> None:
    async def test(executor: Executor, _network: VirtualNetwork) -> None:
        assert await executor.ask() == b"4 ?"
        assert executor.hosted.generation == 4

    hosting(Unloadable(), test, before=(4, pickle.dumps(Numbered(4))))


def test_a_newcomer_that_can_load_no_handler_says_why_and_is_no_member() -> None:
    async def test(executor: Executor, _network: VirtualNetwork) -> None:
        with pytest.raises(AgentFailed, match="the module is not there"):
            await executor.hosted.start()
        with pytest.raises(NoMembers):
            await executor.ask()

    hosting(Unloadable(), test, start=False)


def test_requests_that_come_while_the_handler_is_replaced_are_all_answered() -> None:
    async def test(executor: Executor, _network: VirtualNetwork) -> None:
        asked = [asyncio.create_task(executor.ask()) for _ in range(50)]
        updates = [executor.order(UPDATE, number, pickle.dumps(kind(number))) for number, kind in enumerate(kinds, 2)]
        for update in updates:
            await update
            asked += [asyncio.create_task(executor.ask()) for _ in range(50)]
        replies = await asyncio.gather(*asked)
        assert {reply.split()[1] for reply in replies} == {b"?"}
        assert replies[-1] == b"4 ?"

    kinds = (Numbered, Tunnelled, Numbered)
    hosting(Numbered(1), test)


def test_tunnels_come_and_go_with_the_handlers_that_serve_them() -> None:
    async def test(executor: Executor, _network: VirtualNetwork) -> None:
        with pytest.raises(iris_py.IrisError):
            await executor.driver.tunnel(NAME, timeout=2.0)
        await executor.order(UPDATE, 2, pickle.dumps(Tunnelled(2)))
        async with executor.driver.tunnel(NAME, timeout=5.0) as tunnel:
            assert await tunnel.receive() == b"2"
        await executor.order(UPDATE, 3, pickle.dumps(Tunnelled(3)))
        async with executor.driver.tunnel(NAME, timeout=5.0) as tunnel:
            assert await tunnel.receive() == b"3"

    hosting(Numbered(1), test)


def test_a_broadcast_is_heard_once_whatever_is_registered() -> None:
    async def test(executor: Executor, network: VirtualNetwork) -> None:
        assert await executor.ask() == b"1 ?"
        await executor.driver.broadcast(NAME, b"first")
        await network.advance(1.0)
        await executor.order(UPDATE, 2, pickle.dumps(Tunnelled(2)))  # another registration takes over
        await executor.driver.broadcast(NAME, b"second")
        await network.advance(1.0)
        assert Numbered.told == [(1, b"first"), (2, b"second")]

    hosting(Numbered(1), test)


def test_a_function_serves_requests_and_surveys_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def test(executor: Executor, network: VirtualNetwork) -> None:
        assert await executor.ask() == b"ok"
        assert [reply.payload for reply in await executor.driver.survey(NAME, b"?", timeout=2.0)] == [b"ok"]
        await executor.driver.broadcast(NAME, b"nobody hears it")
        await network.advance(1.0)

    hosting(answer_ok, test)
    assert "a broadcast to 'executors' was dropped" in caplog.text


async def answer_ok(_request: Request) -> bytes:
    return b"ok"


def test_an_agent_that_is_not_greeted_leaves_and_one_that_is_stays(caplog: pytest.LogCaptureFixture) -> None:
    async def greeted(executor: Executor, network: VirtualNetwork) -> None:
        await executor.order(GREET, 1)
        await network.advance(2 * GREET_TIMEOUT_S)
        assert executor.dropped == []

    async def ungreeted(executor: Executor, network: VirtualNetwork) -> None:
        await network.advance(GREET_TIMEOUT_S - 1.0)
        assert executor.dropped == []
        await network.advance(2.0)
        assert executor.dropped == [executor.hosted]

    hosting(Numbered(1), greeted)
    assert "did not greet" not in caplog.text
    hosting(Numbered(1), ungreeted)
    assert "did not greet" in caplog.text


def test_bye_is_answered_before_the_cluster_is_left() -> None:
    async def test(executor: Executor, network: VirtualNetwork) -> None:
        assert (await executor.order(BYE, 1))["generation"] == 1
        await network.advance(0.1)
        assert executor.dropped == [executor.hosted]
        await executor.hosted.leave()
        with pytest.raises(NoMembers):
            await executor.ask()
        with pytest.raises(NoMembers):
            await executor.ask(own_name(NAME, "7"))

    hosting(Numbered(1), test)


def test_options_of_the_order_hold_for_every_registration() -> None:
    async def test(executor: Executor, _network: VirtualNetwork) -> None:
        for generation, kind in ((1, None), (2, Tunnelled)):
            if kind is not None:
                await executor.order(UPDATE, generation, pickle.dumps(kind(generation)))
            places = {membership._registration.concurrency for membership in executor.hosted._memberships}
            assert places == {3}

    hosting(Numbered(1), test, options={"concurrency": 3, "inline": False})


def test_what_is_no_order_is_refused() -> None:
    async def test(executor: Executor, _network: VirtualNetwork) -> None:
        with pytest.raises(RemoteError, match="it is not an order") as refused:
            await executor.driver.request(control_name(NAME, "7", INSTANCE), b"hello", timeout=5.0)
        assert refused.value.type == OrderRefused.__name__

    hosting(Numbered(1), test)
