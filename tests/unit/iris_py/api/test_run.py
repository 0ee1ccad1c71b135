"""Signals to a program that waits for them, and to one that does so no more."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from iris_py.api import run
from iris_py.api.run import Stopping, until_stopped, use_stopping

if TYPE_CHECKING:
    from collections.abc import Iterator

WISH, OTHER = signal.SIGUSR1, signal.SIGUSR2


@pytest.fixture(autouse=True)
def handler() -> Iterator[object]:
    """The program's own handlers of these signals, before it waits for them."""

    def handle(_number: int, _frame: object) -> None:
        raise AssertionError("a signal came here that somebody has waited for")

    before = {number: signal.signal(number, handle) for number in (WISH, OTHER)}
    yield handle
    for number, each in before.items():
        signal.signal(number, each)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The signals that would have ended the process at once."""
    numbers: list[int] = []
    monkeypatch.setattr(run, "end_at_once", numbers.append)
    return numbers


async def come(number: signal.Signals) -> None:
    """Let a signal come, and let the event loop handle it."""
    assert signal.getsignal(number) is not signal.SIG_DFL, "it would end the tests"
    signal.raise_signal(number)
    for _ in range(10):
        await asyncio.sleep(0)


async def begin(*signals: signal.Signals) -> asyncio.Task[signal.Signals]:
    waiting = asyncio.create_task(until_stopped(signals=signals))
    await asyncio.sleep(0)
    return waiting


def test_everybody_who_waits_goes_on_also_who_comes_later() -> None:
    async def main() -> None:
        waiting = [await begin(WISH, OTHER), await begin(WISH)]
        await come(OTHER)
        assert [await each for each in waiting] == [OTHER, OTHER]
        assert await until_stopped(signals=[WISH]) is OTHER

    asyncio.run(main())


@pytest.mark.parametrize(("repeated_s", "ends"), [(1000.0, []), (0.0, [WISH])])
def test_a_second_signal_is_the_same_wish_or_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, ended: list[int], repeated_s: float, ends: list[int]
) -> None:
    monkeypatch.setattr(run, "REPEATED_S", repeated_s)

    async def main() -> None:
        waiting = await begin(WISH)
        await come(WISH)
        assert await waiting is WISH
        assert ended == []
        await come(WISH)
        assert ended == ends

    asyncio.run(main())


def test_when_the_last_one_waits_no_more_signals_do_what_they_did(handler: object) -> None:
    async def main() -> None:
        waiting = [await begin(WISH), await begin(WISH)]
        assert signal.getsignal(WISH) is not handler
        for each, is_restored in zip(waiting, (False, True), strict=True):
            each.cancel()
            await asyncio.gather(each, return_exceptions=True)
            assert (signal.getsignal(WISH) is handler) is is_restored
        again = await begin(WISH)
        await come(WISH)
        assert await again is WISH

    asyncio.run(main())


def test_what_the_process_ignores_it_goes_on_to_ignore() -> None:
    async def main() -> None:
        signal.signal(WISH, signal.SIG_IGN)
        waiting = await begin(WISH, OTHER)
        await come(WISH)
        assert signal.getsignal(WISH) is signal.SIG_IGN
        assert not waiting.done()
        await come(OTHER)
        assert await waiting is OTHER

    asyncio.run(main())


def test_a_signal_cancels_the_main_task_when_nobody_waits_for_it() -> None:
    async def main() -> None:
        signal.signal(WISH, signal.SIG_DFL)
        stopping = Stopping()
        use_stopping(stopping)
        stopping.cancel_by(WISH)
        await come(WISH)
        raise AssertionError("it was not cancelled")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_a_signal_for_which_the_program_has_a_handler_cancels_nothing(handler: object) -> None:
    async def main() -> None:
        Stopping().cancel_by(WISH)
        assert signal.getsignal(WISH) is handler

    asyncio.run(main())


def test_who_waits_no_more_gives_back_what_was_not_the_main_tasks(handler: object) -> None:
    async def main() -> None:
        signal.signal(WISH, signal.SIG_DFL)
        stopping = Stopping()
        use_stopping(stopping)
        stopping.cancel_by(WISH)
        waiting = await begin(WISH, OTHER)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert signal.getsignal(OTHER) is handler
        await come(WISH)
        raise AssertionError("it was not cancelled")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
