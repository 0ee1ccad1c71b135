"""Calls one after the other: their order, their contexts, and what they raise."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import math
import threading
import time
from operator import length_hint
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.api.handler_exceptions import FailureLog
from iris_py.api.hooks import hook_of, run_in
from iris_py.api.ordered_calls import BATCH_MAX, BATCH_S, CALLS_PER_TURN_MAX, OrderedCalls
from iris_py.api.threads import DaemonThreads
from iris_py.testing.clock import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from concurrent.futures import Executor

who: contextvars.ContextVar[object] = contextvars.ContextVar("who", default="nobody")


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = object.__hash__


def calls(function: Callable[[int], Awaitable[object] | object], threads: Executor | None = None) -> OrderedCalls[int]:
    return OrderedCalls(hook_of(function, threads), contextvars.copy_context(), FailureLog("it"))


async def call_each(
    function: Callable[[int], Awaitable[object] | object], arguments: Any, threads: Executor | None = None
) -> None:
    made = calls(function, threads)
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


# -- in threads


@pytest.fixture
def threads() -> Iterator[DaemonThreads]:
    made = DaemonThreads(None, "test")
    yield made
    made.shutdown()


@pytest.mark.parametrize("kind", ["plain", "half"])
def test_calls_in_threads_come_in_order_one_at_a_time_each_in_a_context_of_its_own(kind: str, threads: DaemonThreads) -> None:
    seen: list[tuple[int, object]] = []
    running = threading.Lock()
    own: set[threading.Thread] = set()

    def plain(number: int) -> None:
        assert running.acquire(blocking=False), "another one runs"
        seen.append((number, who.get()))
        who.set(number)
        own.add(threading.current_thread())
        running.release()

    def half(number: int) -> Awaitable[None] | None:
        plain(number)
        return rest(number) if number % 3 == 0 else None

    async def rest(number: int) -> None:
        assert running.acquire(blocking=False)
        assert who.get() == number
        await asyncio.sleep(0.001)
        running.release()

    count = 3 * BATCH_MAX
    asyncio.run(call_each({"plain": plain, "half": half}[kind], iter(range(count)), threads))
    assert seen == [(number, "nobody") for number in range(count)]
    assert threading.main_thread() not in own


def test_what_a_call_in_a_thread_raises_is_logged_and_the_next_one_comes(
    threads: DaemonThreads, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    errors = [LookupError("a"), SystemExit(3), StopIteration(), KeyboardInterrupt(), asyncio.CancelledError()]

    def fail(number: int) -> None:
        seen.append(number)
        raise errors[number]

    async def main() -> None:
        await call_each(fail, range(len(errors)), threads)
        await asyncio.sleep(0)  # the log is written in the event loop

    asyncio.run(main())
    assert seen == list(range(len(errors)))
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * len(errors)


def test_a_slow_function_is_given_one_at_a_time_so_the_queue_keeps_the_rest(threads: DaemonThreads) -> None:
    taken: list[int] = []
    called: list[int] = []
    ahead: list[int] = []

    def take() -> Iterator[int]:
        for number in range(12):
            taken.append(number)
            yield number

    def slow(number: int) -> None:
        called.append(number)
        time.sleep(2 * BATCH_S)
        ahead.append(len(taken) - len(called))

    asyncio.run(call_each(slow, take(), threads))
    assert called == list(range(12))
    assert set(ahead) == {0}


def test_a_cancelled_task_takes_back_what_the_thread_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_py.api.ordered_calls.BATCH_S", math.inf)
    threads = DaemonThreads(1, "test")
    called: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def call(number: int) -> None:
        called.append(number)
        if number == 100:
            begun.set()
            go_on.wait(60)

    async def main() -> None:
        made = calls(call, threads)
        task = made.start(made.call_each(iter(range(100_000))))
        await asyncio.to_thread(begun.wait, 60)
        in_hand = length_hint(made.in_hand)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert length_hint(made.in_hand) == 0
        go_on.set()
        await asyncio.to_thread(threads.submit(int).result)  # behind whatever else the only thread does
        threads.shutdown()
        assert in_hand == 26, "of a batch of 64"

    asyncio.run(main())
    assert called == list(range(101))


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
