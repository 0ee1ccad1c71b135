"""Successive upstreams: each is read and written until its end, and one that leaves is replaced without a loss."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

import iris_py as iris
from iris_py.api.cloud import succession
from iris_py.api.cloud.succession import RETRY_MAX_S, RETRY_MIN_S, Succession, Upstream
from iris_py.federation import items
from iris_py.federation.items import Item
from iris_py.testing import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FOREVER_S: Final = 1000.0


class Duplex:
    """A duplex that breaks when the test says so.

    Attributes:
        sent: What was sent into it.
    """

    def __init__(self) -> None:
        self.broken = asyncio.Event()
        self.reasons: list[str] = []
        self.sent: list[bytes] = []

    def break_off(self, reason: str) -> None:
        self.reasons.append(reason)
        self.broken.set()

    async def send(self, message: bytes) -> None:
        self.sent.append(message)


class One(Upstream[Any]):
    """An upstream whose duplex the test holds in its hands."""

    def __init__(self, owner: Owner, number: int, *, is_blocking: bool = False, look_s: float | None = None) -> None:
        self.line = Duplex()
        super().__init__(cast("Any", self.line), is_blocking=is_blocking, look_s=look_s)
        self.number = number
        self.written_at: list[float] = []
        self.is_read = False
        self._owner = owner

    async def read(self) -> None:
        self.is_read = True
        try:
            await self.line.broken.wait()
        finally:
            self.is_read = False

    async def write(self) -> bool:
        self.written_at.append(asyncio.get_running_loop().time())
        if self._owner.error is not None:
            raise self._owner.error
        return self._owner.wants

    def deliver(self, received: list[Item]) -> None:
        self._owner.log += [f"{self.number} brings {item.number}" for item in received]

    async def bring(self, *numbers: int, size: int = 0) -> bool:
        """Receive publications; returns whether they were handed out."""
        return await self.take([Item("t", [bytes(size)], number) for number in numbers])

    def answer(self) -> None:
        """Answer the last question."""
        kind, number = self.line.sent[-1][0], items.decode_flush(self.line.sent[-1])
        assert kind == items.FLUSH
        self.handle_flushed(items.encode_flush(items.FLUSHED, number))


class Owner:
    """The owner of a succession, on the virtual clock as all of these tests.

    Attributes:
        opened: All upstreams so far.
        log: What happened, in order.
        can_open: Whether an upstream can be opened.
    """

    def __init__(self, *, is_blocking: bool = False, look_s: float | None = None) -> None:
        self.opened: list[One] = []
        self.log: list[str] = []
        self.error: Exception | None = None
        self.wants = self.can_open = True
        self.loop = asyncio.get_running_loop()
        self.succession: Succession[One] = Succession(
            self.open, lambda: self.wants, lambda one: self.log.append(f"{one.number} ends"), self.loop.create_task, "seed"
        )
        self._options: dict[str, Any] = {"is_blocking": is_blocking, "look_s": look_s}
        self.running = self.loop.create_task(self.succession.run())

    async def open(self, present: One | None) -> One | None:
        if not self.can_open:
            return None
        self.log.append(f"{len(self.opened)} opens" + ("" if present is None else f" beside {present.number}"))
        self.opened.append(One(self, len(self.opened), **self._options))
        return self.opened[-1]

    async def end(self) -> None:
        self.wants = False
        self.succession.handle_changed()
        await self.running


def simulate(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    run(main(), limit_s=10 * FOREVER_S)


async def settle() -> None:
    """Let everything happen that takes no time."""
    await asyncio.sleep(0.001)


# -- one after the other


def test_an_upstream_is_written_at_first_and_after_each_change_until_it_is_no_longer_wanted() -> None:
    async def scenario() -> None:
        owner = Owner()
        await asyncio.sleep(FOREVER_S)
        (one,) = owner.opened
        assert one.written_at == [0.0], "nothing has changed"
        assert owner.succession.upstreams == [one]
        owner.succession.handle_changed()
        await asyncio.sleep(1.0)
        await owner.end()
        assert one.written_at == [0.0, FOREVER_S, FOREVER_S + 1.0]
        assert (one.is_read, one.is_over, len(one.line.reasons)) == (False, True, 1)
        assert owner.succession.upstreams == []

    simulate(scenario)


def test_an_upstream_is_looked_at_again_after_a_time_without_a_change() -> None:
    async def scenario() -> None:
        owner = Owner(look_s=1.0)
        await asyncio.sleep(3.5)
        (one,) = owner.opened
        assert one.written_at == [0.0, 1.0, 2.0, 3.0]
        owner.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await owner.running
        await settle()
        assert (one.is_over, one.is_read) == (True, False)

    simulate(scenario)


def test_the_next_one_is_opened_when_the_present_one_breaks() -> None:
    async def scenario() -> None:
        owner = Owner()
        await settle()
        owner.opened[0].line.broken.set()
        await asyncio.sleep(RETRY_MIN_S)
        assert owner.log == ["0 opens", "0 ends", "1 opens"]
        await owner.end()

    simulate(scenario)


@pytest.mark.parametrize(
    "error", [iris.TunnelBroken("databases@eu", "", "its link is lost"), iris.TunnelClosed("databases@eu", "")]
)
def test_a_break_while_writing_ends_the_use_and_any_other_error_is_raised(error: Exception) -> None:
    async def scenario() -> None:
        owner = Owner()
        owner.error = error
        await settle()
        assert owner.log == ["0 opens", "0 ends"]
        owner.error = ZeroDivisionError()
        with pytest.raises(ZeroDivisionError):
            await owner.running
        assert [one.is_over for one in owner.opened] == [True, True]

    simulate(scenario)


def test_the_pauses_grow_to_the_longest_and_begin_anew_after_a_success() -> None:
    async def scenario() -> None:
        owner = Owner()
        await owner.end()
        pauses = []
        for attempt in range(10):
            if attempt == 8:
                owner.succession.succeed()
            began_at = owner.loop.time()
            await owner.succession.pause()
            pauses.append(owner.loop.time() - began_at)
        bounds = [min(RETRY_MAX_S, RETRY_MIN_S * 2**failures) for failures in (*range(8), 0, 1)]
        assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True)), pauses

    simulate(scenario)


def test_a_change_ends_the_pause_and_one_before_it_does_not() -> None:
    async def scenario() -> None:
        owner = Owner()
        await owner.end()
        for _ in range(8):
            await owner.succession.pause()
        owner.succession.handle_changed()
        began_at = owner.loop.time()
        pausing = asyncio.ensure_future(owner.succession.pause())
        await asyncio.sleep(0.01)
        assert not pausing.done()
        owner.succession.handle_changed()
        await pausing
        assert owner.loop.time() - began_at < RETRY_MIN_S

    simulate(scenario)


# -- one beside the other


def test_a_successor_holds_what_it_brings_until_all_has_come_over_the_one_that_leaves() -> None:
    async def scenario() -> None:
        owner = Owner()
        await settle()
        one = owner.opened[0]
        one.note(is_leaving=True)
        await settle()
        two = owner.opened[1]
        assert not await two.bring(3, 4)
        assert await one.bring(1, 2)
        assert not one.line.sent, "the successor is not ready"
        two.note(is_ready=True)
        await settle()
        assert await one.bring(3)
        assert not one.is_over
        one.answer()
        await settle()
        assert (one.is_over, two.is_over) == (True, False)
        assert await two.bring(5)
        assert owner.log == [
            *("0 opens", "1 opens beside 0", "0 brings 1", "0 brings 2", "0 brings 3"),
            *("0 ends", "1 brings 3", "1 brings 4", "1 brings 5"),
        ]
        await owner.end()

    simulate(scenario)


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_successor_takes_over_at_once_when_the_one_that_leaves_breaks(is_ready: bool) -> None:
    async def scenario() -> None:
        owner = Owner()
        await settle()
        owner.opened[0].note(is_leaving=True)
        await settle()
        two = owner.opened[1]
        await two.bring(7)
        two.note(is_ready=is_ready)
        await settle()
        owner.opened[0].line.broken.set()
        await settle()
        assert owner.log[2:] == ["0 ends", "1 brings 7"]
        await owner.end()

    simulate(scenario)


def test_another_successor_is_opened_when_one_breaks_and_the_one_that_leaves_goes_on() -> None:
    async def scenario() -> None:
        owner = Owner()
        await settle()
        one = owner.opened[0]
        one.note(is_leaving=True)
        await settle()
        await owner.opened[1].bring(1)
        owner.opened[1].line.broken.set()
        await asyncio.sleep(RETRY_MIN_S)
        assert await one.bring(1)
        three = owner.opened[2]
        three.note(is_ready=True)
        await settle()
        three.line.broken.set()  # while all of the first one is awaited
        await asyncio.sleep(2 * RETRY_MIN_S)
        assert not one.is_over
        assert owner.log == ["0 opens", "1 opens beside 0", "2 opens beside 0", "0 brings 1", "3 opens beside 0"]
        await owner.end()
        assert all(each.is_over for each in owner.opened)

    simulate(scenario)


def test_without_a_successor_the_one_that_leaves_is_used_to_its_end() -> None:
    async def scenario() -> None:
        owner = Owner()
        await settle()
        one = owner.opened[0]
        owner.can_open = False
        one.note(is_leaving=True)
        await asyncio.sleep(60.0)
        assert await one.bring(1)
        one.line.broken.set()
        await asyncio.sleep(RETRY_MAX_S)
        owner.can_open = True
        await asyncio.sleep(RETRY_MAX_S)
        assert owner.log == ["0 opens", "0 brings 1", "0 ends", "1 opens"]
        await owner.end()

    simulate(scenario)


@pytest.mark.parametrize("is_blocking", [False, True])
def test_a_successor_holds_a_bounded_amount_and_reads_no_more(is_blocking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(succession, "HELD_BYTES_MAX", 10_000)

    async def scenario() -> None:
        owner = Owner(is_blocking=is_blocking)
        await settle()
        owner.opened[0].note(is_leaving=True)
        await settle()
        two = owner.opened[1]
        two.note(is_ready=True)
        await settle()
        bringing = asyncio.ensure_future(two.bring(1, size=10_000))
        await settle()
        assert bringing.done() is owner.opened[0].is_over is not is_blocking
        if is_blocking:  # its publishers wait, so nothing is given up
            owner.opened[0].answer()
            await bringing
        assert owner.log[2:] == ["0 ends", "1 brings 1"]
        await owner.end()

    simulate(scenario)


def test_many_who_wait_for_all_that_was_sent_ask_once_and_are_answered_at_the_end() -> None:
    async def scenario() -> None:
        owner = Owner()
        await settle()
        one = owner.opened[0]
        waiting = [asyncio.ensure_future(one.flush())]
        await settle()
        waiting += [asyncio.ensure_future(one.flush()) for _ in range(100)]
        await settle()
        assert len(one.line.sent) == 1
        one.answer()
        await settle()
        assert [each.done() for each in waiting] == [True] + [False] * 100, "they asked behind the first question"
        assert len(one.line.sent) == 2, "and have one question together"
        one.line.broken.set()
        await asyncio.gather(*waiting)
        await one.flush()
        await owner.end()

    simulate(scenario)
