"""Calls and futures whose tasks end in a loop of another thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from iris_py.errors import NodeClosed
from iris_py.sync import background
from iris_py.sync.background import BlockingCall, _end_future

#: For anything to happen on a busy machine.
PATIENCE_S = 30.0


async def _answer() -> bytes:
    return b"answer"


async def _fail() -> bytes:
    raise ValueError("why")


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_future_that_nobody_waits_for_any_more_ends_without_an_error(is_cancelled: bool, fails: bool) -> None:
    """Its user cancels it while the task ends: an error here would go to the handler of the loop."""

    async def main() -> concurrent.futures.Future[bytes]:
        future: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        task = asyncio.ensure_future(_fail() if fails else _answer())
        await asyncio.wait([task])
        if is_cancelled:
            future.cancel()
        _end_future(future, task)
        return future

    future = asyncio.run(main())
    if is_cancelled:
        assert future.cancelled()
    elif fails:
        with pytest.raises(ValueError, match="why"):
            future.result(0)
    else:
        assert future.result(0) == b"answer"


def test_a_task_that_was_cancelled_is_a_closed_node() -> None:
    async def main() -> concurrent.futures.Future[bytes]:
        future: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        task = asyncio.ensure_future(_answer())
        task.cancel()
        await asyncio.wait([task])
        _end_future(future, task)
        return future

    with pytest.raises(NodeClosed):
        asyncio.run(main()).result(0)


class Waited:
    """A call of a thread, in the event loop, and what was discarded of it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.may_end = asyncio.Event()
        self.fails = fails
        self.discarded: list[bytes] = []
        self.call = BlockingCall(self.work, self.discarded.append)
        self.call.task = asyncio.ensure_future(self.call.function())
        self.call.task.add_done_callback(self.call.end)

    async def work(self) -> bytes:
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            pass  # it was too late for that
        return await (_fail() if self.fails else _answer())

    def is_awaited(self) -> bool:
        return self.call.ended.locked()


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_result_is_for_who_waits() -> None:
    async def main() -> None:
        waited = Waited()
        await _turns()
        assert waited.is_awaited()
        waited.may_end.set()
        await _turns()
        assert not waited.is_awaited()
        assert waited.call.result() == b"answer"
        assert waited.discarded == []

    asyncio.run(main())


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
def test_what_nobody_waits_for_any_more_is_discarded_unless_it_failed(is_late: bool, fails: bool) -> None:
    async def main() -> None:
        waited = Waited(fails=fails)
        await _turns()
        if is_late:
            waited.may_end.set()
            await _turns()
        waited.call.give_up()
        await _turns()
        assert waited.discarded == ([] if fails else [b"answer"])
        assert waited.call.task is not None
        assert waited.call.task.cancelling() == (not is_late)

    asyncio.run(main())


def test_a_call_that_is_cancelled_has_no_result() -> None:
    async def main() -> None:
        waited = Waited()
        assert waited.call.task is not None
        waited.call.task.cancel()  # before it has begun
        await _turns()
        with pytest.raises(NodeClosed):
            waited.call.result()
        waited.call.give_up()
        assert waited.discarded == []

    asyncio.run(main())


def test_at_the_end_of_the_program_calls_that_are_under_way_are_cancelled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("EXIT_CLOSE_S", "EXIT_TIMEOUT_S"):
        monkeypatch.setattr(background, bound, 3600.0)
    loop = background.Background()
    begun = threading.Event()

    async def call() -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    waiting = loop.submit(call)
    assert begun.wait(PATIENCE_S)
    ending = threading.Thread(target=loop.shut_down, daemon=True)
    ending.start()
    assert isinstance(waiting.exception(PATIENCE_S), NodeClosed)
    ending.join(PATIENCE_S)
    assert not ending.is_alive()
    with pytest.raises(NodeClosed):
        loop.check()
    assert loop.is_gone
