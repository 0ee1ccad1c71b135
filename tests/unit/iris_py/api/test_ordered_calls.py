"""Calls one after the other: their order, their contexts, and what they raise."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.api.failures import FailureLog
from iris_py.api.ordered_calls import CALLS_PER_TURN_MAX, OrderedCalls, run_in
from iris_py.testing.clock import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

who: contextvars.ContextVar[object] = contextvars.ContextVar("who", default="nobody")


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = object.__hash__


def calls(function: Callable[[int], Awaitable[object] | object]) -> OrderedCalls[int]:
    return OrderedCalls(function, contextvars.copy_context(), FailureLog("it"))


async def call_each(function: Callable[[int], Awaitable[object] | object], arguments: Any) -> None:
    made = calls(function)
    await made.start(made.call_each(arguments))


@pytest.mark.parametrize("value", ["own", ["own"], Incomparable()])
@pytest.mark.parametrize("kind", ["plain", "async", "pausing", "half"])
def test_no_call_sees_what_another_one_has_set(kind: str, value: object) -> None:
    seen: list[object] = []

    def plain(_number: int) -> None:
        seen.append(who.get())
        who.set(value)

    async def later(number: int) -> None:
        plain(number)

    async def pausing(number: int) -> None:
        plain(number)
        await asyncio.sleep(1)
        assert who.get() is value
        await asyncio.get_running_loop().create_task(asyncio.sleep(1))
        assert who.get() is value

    def half(number: int) -> Awaitable[None]:
        plain(number)
        return rest()

    async def rest() -> None:
        assert who.get() is value, "what a function returns goes on in its context"
        who.set("the rest")

    async def main() -> None:
        who.set("base")
        await call_each({"plain": plain, "async": later, "pausing": pausing, "half": half}[kind], range(4))
        assert who.get() == "base"

    run(main())
    assert seen == ["base"] * 4


def test_a_call_that_sets_and_raises_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []

    async def fail(_number: int) -> None:
        seen.append(who.get())
        who.set("own")
        raise LookupError("as you wish")

    async def main() -> None:
        await call_each(fail, range(3))

    run(main())
    assert seen == ["nobody"] * 3
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "it failed: LookupError: as you wish" in caplog.text


def test_one_ends_before_the_next_is_taken() -> None:
    steps: list[str] = []

    def take() -> Iterator[int]:
        for number in range(3):
            steps.append(f"take {number}")
            yield number

    async def call(number: int) -> None:
        steps.append(f"begin {number}")
        await asyncio.sleep(3 - number)
        steps.append(f"end {number}")

    run(call_each(call, take()))
    assert steps == [f"{what} {number}" for number in range(3) for what in ("take", "begin", "end")]


@pytest.mark.parametrize("sets", [False, True])
def test_others_have_their_turn_between_many_calls(sets: bool) -> None:
    called: list[int] = []
    between: list[int] = []

    async def call(number: int) -> None:
        called.append(number)
        if sets:
            who.set(number)

    async def look() -> None:
        while len(called) < 3 * CALLS_PER_TURN_MAX:
            await asyncio.sleep(0)
            between.append(len(called))

    async def main() -> None:
        looking = asyncio.create_task(look())
        await call_each(call, range(3 * CALLS_PER_TURN_MAX))
        await looking

    run(main())
    assert between[:3] == [CALLS_PER_TURN_MAX, 2 * CALLS_PER_TURN_MAX, 3 * CALLS_PER_TURN_MAX]


@pytest.mark.parametrize("sets", [False, True])
def test_to_cancel_the_task_cancels_the_call_and_begins_no_other(sets: bool) -> None:
    steps: list[object] = []

    async def call(number: int) -> None:
        steps.append(number)
        if sets:
            who.set(number)
        if number == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                steps.append("cancelled")
                raise

    async def main() -> None:
        made = calls(call)
        task = made.start(made.call_each(range(9)))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert steps == [0, 1, "cancelled"]


# -- run_in


def test_what_is_awaited_in_another_context_returns_raises_and_pauses_as_ever() -> None:
    async def work(outcome: object) -> object:
        assert who.get() == "within"
        await asyncio.sleep(1)
        assert who.get() == "within"
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def main() -> None:
        context = contextvars.copy_context()
        context.run(who.set, "within")
        assert await run_in(context, work(17)) == 17
        with pytest.raises(LookupError, match="as you wish"):
            await run_in(context, work(LookupError("as you wish")))
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1, future.set_result, 18)
        assert await run_in(context, future) == 18
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await run_in(context, work(19))
        assert who.get() == "nobody"

    run(main())


def test_what_is_thrown_away_in_the_middle_ends_in_its_context() -> None:
    ended: list[object] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(who.get())

    async def wait() -> None:
        context = contextvars.copy_context()
        context.run(who.set, "within")
        await run_in(context, work())

    async def main() -> None:
        waiting = wait()
        waiting.send(None)
        waiting.close()

    run(main())
    gc.collect()
    assert ended == ["within"]
