"""Context variables: each call of a handler or callback begins in a fresh copy of the context of its registration."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

import iris_py as iris
import iris_py.sync

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.integration.conftest import Loops

who: contextvars.ContextVar[object] = contextvars.ContextVar("who", default="nobody")
#: A value that cannot be compared with others, as an array of numpy.
odd: contextvars.ContextVar[object] = contextvars.ContextVar("odd", default=None)

TEXTS = [b"1", b"2", b"3"]


class Odd:
    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = object.__hash__


class Notes:
    """The values of the variable that calls saw when they began, by hook; each call then sets it."""

    def __init__(self) -> None:
        self.seen: dict[str, list[object]] = {}
        self._count = threading.Semaphore(0)

    def begin(self, hook: str, payload: bytes) -> bytes:
        self.seen.setdefault(hook, []).append(who.get())
        who.set(payload)
        odd.set(Odd())
        return payload

    def end(self, hook: str, payload: bytes) -> None:
        """After a pause the call sees what it has set itself."""
        if who.get() != payload:
            self.seen[hook].append(f"lost {payload!r}")
        self._count.release()

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self._count.acquire(timeout=60), self.seen

    async def later(self, hook: str, payload: bytes) -> bytes:
        self.begin(hook, payload)
        await asyncio.sleep(0.001)
        self.end(hook, payload)
        return payload

    def now(self, hook: str, payload: bytes) -> bytes:
        self.begin(hook, payload)
        self.end(hook, payload)
        return payload


class Later(iris.Handler):
    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    async def on_request(self, request: iris.Request) -> bytes:
        return await self.notes.later("async on_request", request.payload)

    async def on_survey(self, request: iris.Request) -> bytes:
        return await self.notes.later("async on_survey", request.payload)

    async def on_broadcast(self, message: iris.Message) -> None:
        await self.notes.later("async on_broadcast", message.payload)

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        await self.notes.later("async on_tunnel", await tunnel.receive())


class Together(iris.Handler):
    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    async def on_requests(self, requests: Any) -> Any:
        return [await self.notes.later("async on_requests", request.payload) for request in requests]


class Threaded(iris_py.sync.Handler):
    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def on_request(self, request: iris.Request) -> bytes:
        return self.notes.now("on_request in a thread", request.payload)

    def on_survey(self, request: iris.Request) -> bytes:
        return self.notes.now("on_survey in a thread", request.payload)

    def on_broadcast(self, message: iris.Message) -> None:
        self.notes.now("on_broadcast in a thread", message.payload)

    def on_tunnel(self, tunnel: iris_py.sync.Tunnel) -> None:
        self.notes.now("on_tunnel in a thread", tunnel.receive())


def functions(notes: Notes) -> dict[str, tuple[Callable[[Any], Any], bool]]:
    """Return functions for requests, and whether each runs inline."""

    async def later(request: iris.Request) -> bytes:
        return await notes.later("async function", request.payload)

    def half(request: iris.Request) -> Coroutine[Any, Any, bytes]:
        notes.begin("function that returns a coroutine", request.payload)
        return finish(request.payload)

    async def finish(payload: bytes) -> bytes:
        await asyncio.sleep(0.001)
        notes.end("function that returns a coroutine", payload)
        return payload

    return {
        "later": (later, False),
        "thread": (lambda request: notes.now("function in a thread", request.payload), False),
        "inline": (lambda request: notes.now("function inline", request.payload), True),
        "half": (half, False),
    }


def callbacks(notes: Notes) -> list[Callable[[Any], Any]]:
    async def later(message: iris.Message) -> None:
        await notes.later("async callback", message.payload)

    def half(message: iris.Message) -> Coroutine[Any, Any, bytes]:
        return notes.later("callback that returns a coroutine", message.payload)

    return [later, lambda message: notes.now("callback", message.payload), half]


def expected(notes: Notes) -> dict[str, list[object]]:
    return {hook: ["the registration"] * len(TEXTS) for hook in notes.seen}


async def within(value: object, doing: Coroutine[Any, Any, Any]) -> Any:
    """Do something in a context of its own, in which the variable has a value."""
    context = contextvars.copy_context()
    context.run(who.set, value)
    return await asyncio.get_running_loop().create_task(doing, context=context)


@pytest.mark.parametrize("traced", [False, True])
def test_each_call_begins_in_the_context_of_its_registration(loops: Loops, traced: bool) -> None:
    notes = Notes()
    tracing = TracerProvider(shutdown_on_exit=False) if traced else False

    async def register(node: iris.Node) -> None:
        await node.join("handler", Later(notes))
        await node.join("together", Together(notes))
        for name, (function, inline) in functions(notes).items():
            await node.join(name, function, inline=inline)
        for callback in callbacks(notes):
            await node.subscribe("topic", callback)

    async def use(node: iris.Node, payload: bytes) -> None:
        for name in ("handler", "together", *functions(notes)):
            assert await node.request(name, payload) == payload
        assert len((await node.survey("handler", payload)).replies) == 1
        async with node.tunnel("handler") as tunnel:
            await tunnel.send(payload)
        await node.broadcast("handler", payload)
        await node.publish("topic", payload)

    async def main() -> None:
        async with iris.connect(tracing=tracing) as member, iris.connect(tracing=tracing) as caller:
            await within("the registration", register(member))
            for number, payload in enumerate(TEXTS):
                await within(f"caller {number}", use(caller, payload))
            await asyncio.to_thread(notes.wait, 12 * len(TEXTS))

    loops.run(main())
    assert len(notes.seen) == 12
    assert notes.seen == expected(notes)


def test_calls_that_wait_together_share_no_context(loop: Loops) -> None:
    """Many that come at once are handled one after the other, or side by side: none sees another's."""
    notes = Notes()
    count = 100

    async def main() -> None:
        async with iris.connect() as member, iris.connect() as caller:
            await within("the registration", member.join("handler", Later(notes))._opening)
            await within("the registration", member.subscribe("topic", callbacks(notes)[0])._opening)
            await asyncio.gather(*(caller.request("handler", b"%d" % number) for number in range(count)))
            for number in range(count):
                await caller.broadcast("handler", b"%d" % number)
            await caller.publish_many("topic", [b"%d" % number for number in range(count)])
            await asyncio.to_thread(notes.wait, 3 * count)

    loop.run(main())
    hooks = ("async on_request", "async on_broadcast", "async callback")
    assert notes.seen == {hook: ["the registration"] * count for hook in hooks}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("traced", [False, True])
def test_each_call_begins_in_the_context_of_its_registration_without_await(traced: bool) -> None:
    notes = Notes()
    tracing = TracerProvider(shutdown_on_exit=False) if traced else False

    def register(node: iris_py.sync.Node) -> None:
        who.set("the registration")
        node.join("handler", Threaded(notes))
        node.join("together", Together(notes))
        for name, (function, inline) in functions(notes).items():
            node.join(name, function, inline=inline)
        for callback in callbacks(notes):
            node.subscribe("topic", callback)

    def use(node: iris_py.sync.Node, payload: bytes) -> None:
        who.set(f"caller of {payload!r}")
        for name in ("handler", "together", *functions(notes)):
            assert node.request(name, payload) == payload
        assert len(node.survey("handler", payload).wait().replies) == 1
        with node.tunnel("handler") as tunnel:
            tunnel.send(payload)
        node.broadcast("handler", payload)
        node.publish("topic", payload)

    with iris_py.sync.connect(tracing=tracing) as node:
        contextvars.copy_context().run(register, node)
        for payload in TEXTS:
            contextvars.copy_context().run(use, node, payload)
        notes.wait(12 * len(TEXTS))
    assert len(notes.seen) == 12
    assert notes.seen == expected(notes)
