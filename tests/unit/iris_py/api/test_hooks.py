"""Hooks of handlers: which asynchronous functions answer without a task."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.api.hooks import hooks_of
from iris_py.defaults import CONCURRENCY
from iris_py.testing.clock import run
from iris_py.testing.nodes import NodeSimulation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


async def at_once(request: Any) -> bytes:
    return bytes(request)


async def awaits(request: Any) -> bytes:
    await asyncio.sleep(0)
    return bytes(request)


async def iterates(request: Any) -> bytes:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    async for _ in numbers():
        pass
    return bytes(request)


async def enters(request: Any) -> bytes:
    async with AsyncExitStack():
        return bytes(request)


async def gathers(request: Any) -> bytes:
    return bytes([await each for each in [asyncio.sleep(0, 1)]]) + bytes(request)


class AtOnce(iris.Handler):
    async def on_request(self, request: iris.Request) -> bytes:
        return request.payload

    async def on_survey(self, request: iris.Request) -> bytes:
        await asyncio.sleep(0)
        return request.payload


def test_a_function_without_await_needs_no_task() -> None:
    hook = hooks_of(at_once, None).on_request
    assert hook.is_inline
    assert hook.function(b"x") == b"x"


@pytest.mark.parametrize("function", [awaits, iterates, enters, gathers])
def test_a_function_that_may_pause_needs_one(function: Callable[[Any], Any]) -> None:
    assert not hooks_of(function, None).on_request.is_inline


def test_each_method_decides_for_itself() -> None:
    hooks = hooks_of(AtOnce(), None)
    assert hooks.on_request.is_inline
    assert not hooks.on_survey.is_inline


def test_the_concurrency_is_that_of_other_asynchronous_functions() -> None:
    assert hooks_of(at_once, None).default_concurrency == CONCURRENCY


def test_an_exception_without_await_reaches_the_caller() -> None:
    async def fail(request: iris.Request) -> bytes:
        raise StopIteration(request.payload)

    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            caller, server = await simulation.start_nodes(2)
            await server.join("c", fail)
            with pytest.raises(iris.RemoteError, match="StopIteration"):
                await caller.request("c", b"x")

    run(main(), limit_s=60.0)


def test_no_task_is_made_for_a_function_without_await() -> None:
    async def handle(request: iris.Request) -> bytes:
        tasks.append(asyncio.current_task())
        return request.payload

    tasks: list[asyncio.Task[Any] | None] = []

    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            caller, server = await simulation.start_nodes(2)
            await server.join("c", handle)
            assert await caller.request("c", b"x") == b"x"
            assert len(await caller.survey("c", b"x")) == 1

    run(main(), limit_s=60.0)
    assert tasks == [None, None]
