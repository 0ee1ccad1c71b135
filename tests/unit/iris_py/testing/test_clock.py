"""The virtual clock: time that jumps, exactly, and never hangs."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from iris_py.testing import clock
from iris_py.testing.clock import DeadlockError, LimitError, VirtualLoop, run


def test_an_hour_takes_no_time_and_is_exact() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    started = time.process_time()  # what others on this machine take does not count; and nobody sleeps here for an hour
    assert run(main(), limit_s=3600) == 3600
    assert time.process_time() - started < 5


@pytest.mark.parametrize("start_s", [0.0, 1e-9, 0.1, 1e6, 1e12])
def test_timers_fire_at_their_own_time_and_no_other(start_s: float) -> None:
    loop = VirtualLoop(start_s=start_s)
    planned = [start_s + delay for delay in (0.3, 0.1, 0.2, 0.1 + 2e-4, 5.0, 200_000.0)]
    fired: list[tuple[float, float]] = []

    def fire(when: float) -> None:
        fired.append((when, loop.time()))

    for when in planned:
        loop.call_at(when, fire, when)
    loop.call_at(max(planned), loop.stop)
    loop.run_forever()
    loop.close()
    assert fired == [(when, when) for when in sorted(planned)]


def test_sleepers_wake_in_order_of_time() -> None:
    async def main() -> list[int]:
        woken: list[int] = []

        async def sleeper(number: int) -> None:
            await asyncio.sleep(number * 0.1)
            woken.append(number)

        async with asyncio.TaskGroup() as group:
            for number in (3, 1, 2, 0):
                group.create_task(sleeper(number))
        return woken

    assert run(main(), limit_s=1) == [0, 1, 2, 3]


def test_timeout_strikes_at_its_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7.25):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run(main(), limit_s=10) == 7.25


def test_task_group_cancels_the_others_in_order_of_age() -> None:
    async def main() -> list[int]:
        cancelled: list[int] = []

        async def waiter(number: int) -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise

        async def fails() -> None:
            await asyncio.sleep(1)
            raise ValueError("boom")

        async def everyone() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(waiter(number))
                group.create_task(fails())

        with pytest.raises(ExceptionGroup):
            await everyone()
        assert asyncio.get_running_loop().time() == 1
        return cancelled

    assert run(main(), limit_s=10) == list(range(50))


def test_cancellation_reaches_a_sleeper() -> None:
    async def main() -> float:
        task = asyncio.create_task(asyncio.sleep(100), name="sleeper")
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.get_name() == "sleeper"
        return asyncio.get_running_loop().time()

    assert run(main(), limit_s=10) == 1


def test_many_cancelled_timers_are_forgotten() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        for handle in [loop.call_later(5, print) for _ in range(1000)]:
            handle.cancel()
        await asyncio.sleep(2)
        return loop.time()

    assert run(main(), limit_s=10) == 2


def line_of(text: str) -> int:
    """Return the number of the line of this file that has a text."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


def test_deadlock_is_an_error_that_names_the_line_of_each_task() -> None:
    class Numbers:
        def __aiter__(self) -> Numbers:
            return self

        async def __anext__(self) -> int:
            await asyncio.Event().wait()  # of an iterator
            return 0

    async def wait_for_it() -> None:
        await asyncio.wait_for(asyncio.Event().wait(), None)  # in a function below

    async def stuck() -> None:
        await wait_for_it()

    async def read() -> None:
        async for _number in Numbers():
            pass

    async def main() -> None:
        await asyncio.sleep(2.5)
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(stuck(), name="the stuck one"),
            asyncio.create_task(read(), name="the reader"),
        ]
        tasks.append(asyncio.create_task(asyncio.wait_for(asyncio.Event().wait(), None), name="of Python"))
        await asyncio.wait(tasks)  # of the main task

    with pytest.raises(DeadlockError) as caught:
        run(main(), limit_s=10)
    head, *lines = str(caught.value).splitlines()
    assert head == "deadlock at 2.5 s: nothing is ready and no timer is set"
    named = {name.strip(): place for name, _, place in (line.partition(": ") for line in lines)}
    for name, function, text in (
        ("the stuck one", "wait_for_it", "await asyncio.wait_for(asyncio.Event().wait(), None)  # in a function below"),
        ("the reader", "Numbers.__anext__", "await asyncio.Event().wait()  # of an iterator"),
        (lines[0].partition(":")[0].strip(), "main", "await asyncio.wait(tasks)  # of the main task"),
    ):
        place, _, shown = named[name].partition(": ")
        assert place.startswith(os.path.relpath(__file__)), place
        assert place.endswith(f".{function}")
        assert f":{line_of(text)}, in " in place
        assert shown == text
    assert ", in wait_for: " in named["of Python"]
    assert lines[-1].startswith("  of Python: "), "what is in no code of the program comes last"


def test_deadlock_that_swallows_its_cancellation_still_ends() -> None:
    async def main() -> None:
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

    with pytest.raises(DeadlockError):
        run(main(), limit_s=10)


def test_cleanup_may_take_virtual_time() -> None:
    cleaned: list[float] = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(5)
            cleaned.append(asyncio.get_running_loop().time())

    with pytest.raises(DeadlockError):
        run(main(), limit_s=1)
    assert cleaned == [5]


def test_limit_stops_what_never_ends() -> None:
    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    with pytest.raises(LimitError, match="limit of 100 s"):
        run(main(), limit_s=100)


def test_spinning_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "TURNS_PER_INSTANT_MAX", 1000)

    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(LimitError, match="something spins"):
        run(main(), limit_s=100)


def test_executor_runs_inline() -> None:
    async def main() -> tuple[int, float]:
        thread = await asyncio.to_thread(threading.get_ident)
        with pytest.raises(ZeroDivisionError):
            await asyncio.get_running_loop().run_in_executor(None, lambda: 1 // 0)
        return thread, asyncio.get_running_loop().time()

    assert run(main(), limit_s=1) == (threading.get_ident(), 0)


def test_threadsafe_call_comes_from_the_own_thread_only() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        called = asyncio.Event()
        loop.call_soon_threadsafe(called.set)
        await called.wait()
        failures: list[str] = []

        def foreign() -> None:
            try:
                loop.call_soon_threadsafe(called.set)
            except RuntimeError as exc:
                failures.append(str(exc))

        thread = threading.Thread(target=foreign)
        thread.start()
        thread.join()
        assert failures
        assert "one thread" in failures[0]

    run(main(), limit_s=1)


def test_result_and_exception_come_through() -> None:
    async def fails() -> None:
        raise KeyError("x")

    async def returns() -> dict[str, Any]:
        return {"a": 1}

    assert run(returns(), limit_s=1) == {"a": 1}
    with pytest.raises(KeyError):
        run(fails(), limit_s=1)


def test_asyncio_parts_work() -> None:
    async def main() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        lock = asyncio.Lock()

        async def produce() -> None:
            for number in range(5):
                async with lock:
                    await asyncio.sleep(0.5)
                await queue.put(number)

        async def consume() -> list[int]:
            return [await asyncio.wait_for(queue.get(), 10) for _ in range(5)]

        results = await asyncio.gather(produce(), consume())
        assert asyncio.get_running_loop().time() == 2.5
        return results[1]

    assert run(main(), limit_s=10) == list(range(5))
