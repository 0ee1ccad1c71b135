"""Plain functions, methods and callbacks: in threads, so that they hold up nobody, or inline; in their order."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
import iris_py.sync
from iris_py.defaults import CONCURRENCY, THREADS
from iris_security import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from tests.integration.conftest import Loops

PATIENCE_S = 60.0
SEAL = Secret(bytes(range(32)))


class Gate:
    """A place where a plain function blocks until the event loop, which must go on meanwhile, lets it pass."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.threads: list[threading.Thread] = []

    def block(self) -> None:
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S / 4), "the event loop stood still"


class Plain(iris.Handler[Any, Any]):
    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def on_request(self, request: iris.Request[Any]) -> Any:
        self.gate.block()
        return request.payload

    def on_survey(self, request: iris.Request[Any]) -> Any:
        self.gate.block()
        return request.payload

    def on_broadcast(self, message: iris.Message[Any]) -> None:
        self.gate.block()


class PlainTogether(iris.Handler[Any, Any]):
    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def on_requests(self, requests: Sequence[iris.Request[Any]]) -> Any:
        self.gate.block()
        return [request.payload for request in requests]


class PlainByDefault(iris.Handler[Any, Any]):
    """Answers surveys by default as requests."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def on_request(self, request: iris.Request[Any]) -> Any:
        self.gate.block()
        return request.payload


class PlainTunnel(iris.Handler[Any, Any]):
    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        self.gate.block()


class SyncHandler(iris_py.sync.Handler[Any, Any]):
    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def on_request(self, request: iris.Request[Any]) -> Any:
        self.gate.block()
        return request.payload


async def use_request(node: iris.Node, **how: Any) -> None:
    assert await node.request("c", b"x", timeout=PATIENCE_S, **how) == b"x"


async def use_survey(node: iris.Node, **how: Any) -> None:
    (reply,) = (await node.survey("c", b"x", timeout=PATIENCE_S, **how)).replies
    assert reply.payload == b"x"


async def use_broadcast(node: iris.Node, **_how: Any) -> None:
    assert await node.broadcast("c", b"x") == 1


async def use_tunnel(node: iris.Node, **_how: Any) -> None:
    async with node.tunnel("c", timeout=PATIENCE_S) as tunnel:
        await tunnel.end()
        with pytest.raises(iris.TunnelClosed):
            await tunnel.receive()


def function_of(gate: Gate) -> Callable[[iris.Request], bytes]:
    return PlainByDefault(gate).on_request


HOOKS: dict[str, tuple[Callable[[Gate], Any], Callable[..., Coroutine[Any, Any, None]]]] = {
    "function": (function_of, use_request),
    "function that is surveyed": (function_of, use_survey),
    "on_request": (Plain, use_request),
    "on_requests": (PlainTogether, use_request),
    "on_requests of a survey": (PlainTogether, use_survey),
    "on_survey": (Plain, use_survey),
    "on_survey by default": (PlainByDefault, use_survey),
    "on_broadcast": (Plain, use_broadcast),
    "on_tunnel": (PlainTunnel, use_tunnel),
}


#: What may lie between the node and the handler: how it joins, and how it is asked.
LAYERS: dict[str, tuple[Callable[[Any], Any], dict[str, Any], dict[str, Any]]] = {
    "bytes": (lambda handler: handler, {}, {}),
    "codec": (lambda handler: handler, {"codec": "msgpack"}, {"codec": "msgpack"}),
    "sealed": (lambda handler: iris.Sealed(handler, SEAL), {}, {"seal": SEAL}),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("hook", HOOKS)
def test_no_plain_hook_holds_up_the_event_loop(loop: Loops, hook: str, layer: str) -> None:
    make, use = HOOKS[hook]
    wrap, joined, asked = LAYERS[layer]
    if layer == "sealed" and make in (Plain, PlainTunnel):
        make, use = PlainByDefault, use_request  # what cannot be sealed is refused
    gate = Gate()

    async def other(_request: iris.Request) -> bytes:
        return b"other"

    async def main() -> None:
        async with iris.connect() as member, iris.connect() as caller:
            await member.join("c", wrap(make(gate)), **joined)
            await member.join("other", other)
            using = asyncio.create_task(use(caller, **asked))
            await asyncio.to_thread(gate.begun.wait, PATIENCE_S)
            assert await caller.request("other", b"") == b"other"
            gate.go_on.set()
            await using

    loop.run(main())
    assert threading.main_thread() not in gate.threads
    assert len(gate.threads) == 1


@pytest.mark.parametrize("codec", [None, "msgpack"])
def test_no_plain_callback_holds_up_the_event_loop(loops: Loops, codec: Any) -> None:
    gate = Gate()

    async def main() -> None:
        async with iris.connect() as member, iris.connect() as publisher:
            subscription = await member.subscribe("topic", lambda _message: gate.block(), codec=codec)
            await publisher.publish("topic", b"x", codec=codec)
            await asyncio.to_thread(gate.begun.wait, PATIENCE_S)
            closing = asyncio.create_task(subscription.close())
            await asyncio.sleep(0)
            assert not closing.done()
            gate.go_on.set()
            await closing

    loops.run(main())
    assert threading.main_thread() not in gate.threads


@pytest.mark.usefixtures("home")
def test_plain_methods_run_in_threads_in_the_other_api_too() -> None:
    async def other(_request: iris.Request) -> bytes:
        return b"other"

    makes: list[Callable[[Gate], Any]] = [PlainByDefault, PlainTogether, SyncHandler]
    for make in makes:
        gate = Gate()
        with iris_py.sync.connect() as node:
            node.join("c", make(gate))
            node.join("other", other)
            asking = node.request_future("c", b"x", timeout=PATIENCE_S)
            assert gate.begun.wait(PATIENCE_S)
            assert node.request("other", b"", timeout=PATIENCE_S) == b"other"
            gate.go_on.set()
            assert asking.result(PATIENCE_S) == b"x"
            (thread,) = gate.threads
            assert thread.name.startswith("iris-handler")


@pytest.mark.parametrize("hook", HOOKS)
def test_what_is_inline_runs_in_the_event_loop(loop: Loops, hook: str) -> None:
    make, use = HOOKS[hook]
    gate = Gate()
    gate.go_on.set()

    async def main() -> None:
        async with iris.connect() as member, iris.connect() as caller:
            async with member.join("c", make(gate), inline=True):
                await use(caller)
            async with member.subscribe("topic", lambda _message: gate.block(), inline=True):
                await caller.publish("topic", b"x")
                await loop.until(lambda: len(gate.threads) == 2)

    loop.run(main())
    assert gate.threads == [threading.main_thread()] * 2


def test_an_async_method_beside_plain_ones_stays_in_the_event_loop(loop: Loops) -> None:
    gate = Gate()
    gate.go_on.set()

    class Both(Plain):
        async def on_request(self, request: iris.Request[Any]) -> Any:
            self.gate.block()
            return request.payload

    async def main() -> None:
        async with iris.connect() as node, node.join("c", Both(gate)):
            await use_request(node)
            await use_survey(node)

    loop.run(main())
    assert [thread is threading.main_thread() for thread in gate.threads] == [True, False]


def test_as_many_run_at_once_as_the_registration_says_and_the_default_depends_on_the_method(loop: Loops) -> None:
    running = threading.Semaphore(0)
    go_on = threading.Event()

    class Blocking(iris.Handler):
        def on_request(self, request: iris.Request) -> bytes:
            running.release()
            assert go_on.wait(PATIENCE_S)
            return request.payload

    class Waiting(iris.Handler):
        async def on_request(self, request: iris.Request) -> bytes:
            return request.payload

    async def main() -> None:
        async with iris.connect() as node:
            async with node.join("plain", Blocking()) as plain, node.join("async", Waiting()) as waiting:
                assert plain._registration.concurrency == THREADS
                assert waiting._registration.concurrency == CONCURRENCY
            async with node.join("c", Blocking(), concurrency=7):
                asking = [asyncio.create_task(node.request("c", b"x", timeout=PATIENCE_S)) for _ in range(10)]
                for _ in range(7):
                    await asyncio.to_thread(running.acquire, timeout=PATIENCE_S)
                assert not running.acquire(blocking=False), "no more than that"
                go_on.set()
                assert await asyncio.gather(*asking) == [b"x"] * 10

    loop.run(main())


def test_broadcasts_and_publications_come_to_plain_functions_in_order_and_one_at_a_time(loops: Loops) -> None:
    count = 2000
    told: dict[str, list[int]] = {"broadcast": [], "publication": []}
    locks = {name: threading.Lock() for name in told}
    done = {name: threading.Event() for name in told}

    def note(name: str, message: iris.Message) -> None:
        assert locks[name].acquire(blocking=False), "another one runs"
        told[name].append(int(message.payload))
        locks[name].release()
        if len(told[name]) == count:
            done[name].set()

    class Listener(iris.Handler):
        def on_broadcast(self, message: iris.Message) -> None:
            note("broadcast", message)

    async def main() -> None:
        async with iris.connect() as member, iris.connect() as sender:
            await member.join("c", Listener())
            await member.subscribe("t", lambda message: note("publication", message), policy="block")
            for number in range(count):
                await sender.broadcast("c", b"%d" % number)
                await sender.publish("t", b"%d" % number)
            for event in done.values():
                assert await asyncio.to_thread(event.wait, PATIENCE_S)

    loops.run(main())
    assert told == {name: list(range(count)) for name in told}


def test_a_call_with_several_requests_that_nobody_waits_for_counts_until_its_thread_returns(loop: Loops) -> None:
    gate = Gate()

    async def main() -> None:
        async with iris.connect() as member, iris.connect() as caller:
            await member.join("c", PlainTogether(gate), concurrency=1, queue_messages=0)
            asking = asyncio.create_task(caller.request("c", b"1", timeout=PATIENCE_S, idempotent=True, key="1"))
            await asyncio.to_thread(gate.begun.wait, PATIENCE_S)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            with pytest.raises(iris.Overloaded):
                await caller.request("c", b"2", on_full="raise")
            gate.go_on.set()
            assert await caller.request("c", b"3", timeout=PATIENCE_S) == b"3"
            assert await caller.request("c", b"1", timeout=PATIENCE_S, idempotent=True, key="1") == b"1"

    loop.run(main())
    assert len(gate.threads) == 2, "the reply to the first one was kept for whoever repeats it"


def test_a_plain_method_may_return_a_coroutine_which_the_event_loop_awaits(loop: Loops) -> None:
    threads: list[threading.Thread] = []

    class Half(iris.Handler):
        def on_request(self, request: iris.Request) -> Any:
            threads.append(threading.current_thread())
            return self.rest(request.payload)

        def on_tunnel(self, tunnel: iris.Tunnel) -> Any:
            threads.append(threading.current_thread())
            return self.answer(tunnel)

        async def rest(self, payload: bytes) -> bytes:
            threads.append(threading.current_thread())
            return payload

        async def answer(self, tunnel: iris.Tunnel) -> None:
            await tunnel.send(await tunnel.receive())

    async def main() -> None:
        async with iris.connect() as node, node.join("c", Half()):
            await use_request(node)
            async with node.tunnel("c") as tunnel:
                await tunnel.send(b"x")
                assert await tunnel.receive() == b"x"

    loop.run(main())
    assert [thread is threading.main_thread() for thread in threads] == [False, True, False]


def test_the_threads_end_with_the_node(loops: Loops) -> None:
    gate = Gate()
    gate.go_on.set()

    async def main() -> None:
        async with iris.connect() as node, node.join("c", Plain(gate)), node.subscribe("t", lambda _message: gate.block()):
            await use_request(node)
            await use_broadcast(node)
            await node.publish("t", b"x")
            await loops.until(lambda: len(gate.threads) == 3)
        for thread in gate.threads:
            await asyncio.to_thread(thread.join, PATIENCE_S)
            assert not thread.is_alive()

    loops.run(main())
