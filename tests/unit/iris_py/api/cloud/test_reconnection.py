"""Successive duplexes: each is read and written until its end, and the pauses between two grow until one succeeds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

import iris_py as iris
from iris_py.api.cloud.reconnection import RETRY_MAX_S, RETRY_MIN_S, Reconnecting
from iris_py.testing import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FOREVER_S: Final = 1000.0


class Duplex:
    """A duplex that breaks when the test says so."""

    def __init__(self) -> None:
        self.broken = asyncio.Event()
        self.reasons: list[str] = []
        self.closed_after: list[float] = []

    def break_off(self, reason: str) -> None:
        self.reasons.append(reason)
        self.broken.set()

    async def close(self, *, timeout: float) -> None:
        self.closed_after.append(timeout)
        self.broken.set()


class Owner:
    """The owner of successive duplexes, on the virtual clock as all of these tests."""

    def __init__(self, look_s: float | None = None) -> None:
        self.reads = 0
        self.readers_ended = 0
        self.written_at: list[float] = []
        self.wants = True
        self.loop = asyncio.get_running_loop()
        self.connection: Reconnecting[Any] = Reconnecting(self.read, self.loop.create_task, "seed", look_s)

    async def read(self, duplex: Duplex) -> None:
        self.reads += 1
        try:
            await duplex.broken.wait()
        finally:
            self.readers_ended += 1

    async def write(self, _duplex: Duplex) -> bool:
        self.written_at.append(self.loop.time())
        return self.wants


def simulate(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    run(main(), limit_s=10 * FOREVER_S)


def test_a_duplex_is_written_at_first_and_after_each_change_until_it_is_no_longer_wanted() -> None:
    async def scenario() -> None:
        owner, duplex = Owner(), Duplex()
        using = asyncio.ensure_future(owner.connection.use(cast("Any", duplex), owner.write))
        await asyncio.sleep(FOREVER_S)
        assert owner.written_at == [0.0], "nothing has changed"
        assert owner.connection.duplex is duplex
        owner.connection.changed.set()
        await asyncio.sleep(1.0)
        owner.wants = False
        owner.connection.changed.set()
        await using
        assert owner.written_at == [0.0, FOREVER_S, FOREVER_S + 1.0]
        assert (owner.reads, owner.readers_ended, len(duplex.reasons)) == (1, 1, 1)
        assert owner.connection.duplex is None

    simulate(scenario)


def test_a_duplex_is_looked_at_again_after_a_time_without_a_change() -> None:
    async def scenario() -> None:
        owner = Owner(look_s=1.0)
        using = asyncio.ensure_future(owner.connection.use(cast("Any", Duplex()), owner.write))
        await asyncio.sleep(3.5)
        assert owner.written_at == [0.0, 1.0, 2.0, 3.0]
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        assert owner.readers_ended == 1

    simulate(scenario)


def test_a_reader_that_waits_for_room_is_cancelled_at_the_end_of_the_use() -> None:
    async def scenario() -> None:
        owner = Owner()
        owner.wants = False
        duplex = Duplex()
        duplex.break_off = lambda reason: duplex.reasons.append(reason)  # type: ignore[method-assign] # the reader reads nothing
        await owner.connection.use(cast("Any", duplex), owner.write)
        assert (len(duplex.reasons), owner.readers_ended) == (1, owner.reads)

    simulate(scenario)


def test_the_end_of_the_reader_ends_the_use() -> None:
    async def scenario() -> None:
        owner, duplex = Owner(), Duplex()
        using = asyncio.ensure_future(owner.connection.use(cast("Any", duplex), owner.write))
        await asyncio.sleep(1.0)
        duplex.broken.set()
        await using
        assert owner.written_at == [0.0]
        assert owner.readers_ended == 1

    simulate(scenario)


@pytest.mark.parametrize(
    "error", [iris.TunnelBroken("databases@eu", "", "its link is lost"), iris.TunnelClosed("databases@eu", "")]
)
def test_a_break_while_writing_ends_the_use_and_any_other_error_is_raised(error: Exception) -> None:
    async def scenario() -> None:
        owner = Owner()

        async def fail(_duplex: Duplex) -> bool:
            raise error

        await owner.connection.use(cast("Any", Duplex()), cast("Any", fail))
        error_of_program, duplex = ZeroDivisionError(), Duplex()

        async def fail_otherwise(_duplex: Duplex) -> bool:
            await asyncio.sleep(1.0)
            raise error_of_program

        with pytest.raises(ZeroDivisionError):
            await owner.connection.use(cast("Any", duplex), cast("Any", fail_otherwise))
        assert len(duplex.reasons) == 1
        assert owner.connection.duplex is None
        assert owner.readers_ended == owner.reads

    simulate(scenario)


def test_the_pauses_grow_to_the_longest_and_begin_anew_after_a_success() -> None:
    async def scenario() -> None:
        owner = Owner()
        pauses = []
        for attempt in range(10):
            if attempt == 8:
                owner.connection.succeed()
            began_at = owner.loop.time()
            await owner.connection.pause()
            pauses.append(owner.loop.time() - began_at)
        bounds = [min(RETRY_MAX_S, RETRY_MIN_S * 2**failures) for failures in (*range(8), 0, 1)]
        assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True)), pauses

    simulate(scenario)


def test_a_change_ends_the_pause_and_one_before_it_does_not() -> None:
    async def scenario() -> None:
        owner = Owner()
        for _ in range(8):
            await owner.connection.pause()
        owner.connection.changed.set()
        began_at = owner.loop.time()
        pausing = asyncio.ensure_future(owner.connection.pause())
        await asyncio.sleep(0.01)
        assert not pausing.done()
        owner.connection.changed.set()
        await pausing
        assert owner.loop.time() - began_at < RETRY_MIN_S

    simulate(scenario)


def test_the_present_duplex_is_closed_and_its_reader_awaited() -> None:
    async def scenario() -> None:
        owner, duplex = Owner(), Duplex()
        await owner.connection.close(3.0)  # harmless without one
        owner.connection.begin(cast("Any", duplex))
        await asyncio.sleep(0)
        await owner.connection.close(3.0)
        assert (duplex.closed_after, owner.readers_ended, owner.connection.duplex) == ([3.0], 1, None)
        assert not owner.connection.forget(cast("Any", duplex))

    simulate(scenario)


def test_a_duplex_that_was_replaced_is_not_forgotten_twice() -> None:
    async def scenario() -> None:
        owner, first, second = Owner(), Duplex(), Duplex()
        owner.connection.begin(cast("Any", first))
        assert owner.connection.forget(cast("Any", first))
        owner.connection.begin(cast("Any", second))
        assert not owner.connection.forget(cast("Any", first))
        assert owner.connection.duplex is second
        first.broken.set()
        second.broken.set()
        await asyncio.sleep(0)

    simulate(scenario)
