"""The turns of clients of a NATS door: bounded in time, and all bytes in order."""

from __future__ import annotations

import asyncio
import random

import pytest

from iris_py.servers.nats import input_turns
from iris_py.servers.nats.input_turns import (
    CONTROL_BURST_S,
    CONTROL_SHARE,
    CONTROL_TURN_S,
    CONTROLS_MAX,
    PATTERNS_MAX,
    SLICE_BYTES_FIRST,
    SLICE_BYTES_MAX,
    SLICE_BYTES_MIN,
    TURN_S,
    ClientInput,
    InputTurns,
    PatternTurns,
)


class Clock:
    """The time of a test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(input_turns, "perf_counter", clock)
    return clock


def take(unread: ClientInput, clock: Clock, s_per_byte: float, controls: int = 0) -> tuple[bytes, float]:
    """Take a turn; return its bytes, and the time before the next turn."""
    piece = unread.take(is_whole=False)
    clock.now += len(piece) * s_per_byte
    return piece, unread.finish(controls)


def test_all_bytes_come_in_order_in_pieces_of_any_size(clock: Clock) -> None:
    rng = random.Random(1)
    unread, sent, got = ClientInput(), b"", b""
    for _ in range(200):
        data = rng.randbytes(rng.choice((1, 100, 5000)))
        unread.add(data)
        sent += data
        for _ in range(rng.randrange(4)):
            if unread:
                got += take(unread, clock, rng.choice((1e-9, 1e-6, 1e-5)))[0]
    while unread:
        got += take(unread, clock, 1e-9)[0]
    assert got == sent


@pytest.mark.parametrize(("controls", "budget"), [(CONTROLS_MAX - 1, TURN_S), (CONTROLS_MAX, CONTROL_TURN_S)])
def test_a_turn_takes_as_many_bytes_as_its_time_allows(clock: Clock, controls: int, budget: float) -> None:
    unread = ClientInput()
    unread.add(bytes(1 << 20))
    s_per_byte = budget / 2000
    sizes = [len(take(unread, clock, s_per_byte, controls)[0]) for _ in range(10)]
    assert sizes[:3] == [SLICE_BYTES_FIRST, 2 * SLICE_BYTES_FIRST, pytest.approx(2000, abs=2)]
    assert len(take(unread, clock, 1.0, controls)[0]) > 1990
    assert len(take(unread, clock, 1e-9, controls)[0]) == SLICE_BYTES_MIN


def test_cheap_bytes_come_in_large_pieces(clock: Clock) -> None:
    unread = ClientInput()
    unread.add(bytes(1 << 20))
    sizes = [len(take(unread, clock, 0.0)[0]) for _ in range(10)]
    assert max(sizes) == SLICE_BYTES_MAX


def test_a_last_turn_takes_everything(clock: Clock) -> None:
    unread = ClientInput()
    unread.add(bytes(100_000))
    take(unread, clock, 1.0)
    unread.add(b"end")
    assert unread.take(is_whole=True) == bytes(100_000 - SLICE_BYTES_FIRST)
    assert unread.take(is_whole=True) == b"end"
    assert not unread


def test_operations_besides_messages_get_a_share_of_the_time(clock: Clock) -> None:
    unread = ClientInput()
    unread.add(bytes(1 << 20))
    began, busy, delays = clock.now, 0.0, 0.0
    while busy < 1.0:
        before = clock.now
        _piece, delay = take(unread, clock, 1e-6, CONTROLS_MAX)
        busy += clock.now - before
        clock.now += delay
        delays += delay
    assert busy <= CONTROL_BURST_S + CONTROL_SHARE * (clock.now - began) + CONTROL_TURN_S
    assert delays > 0.0
    assert unread.is_control
    assert take(unread, clock, 1e-3, 0)[1] == 0.0, "messages do not wait"
    assert not unread.is_control


def test_clients_take_turns_and_others_come_in_between() -> None:
    async def main() -> list[str]:
        turns, order = InputTurns(), []
        left = {"a": 3, "b": 1}

        def proceed(name: str) -> None:
            order.append(name)
            left[name] -= 1
            if left[name]:
                turns.add(lambda: proceed(name))

        turns.add(lambda: proceed("a"))
        turns.add(lambda: proceed("b"))
        turns.add(lambda: order.append("late"), 1e-3)
        while "late" not in order or left["a"]:
            order.append("-")
            await asyncio.sleep(0)
        return [each for number, each in enumerate(order) if each != "-" or order[number - 1] != "-"]

    order = asyncio.run(main())
    assert [each for each in order if each not in ("-", "late")] == ["a", "b", "a", "a"]
    assert "".join(order).replace("late", "").replace("--", "-").startswith("-ab-a-a")


def test_few_subscriptions_begin_at_a_time_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_turns, "PATTERNS_S", 3600.0)

    async def main() -> None:
        turns, order = PatternTurns(), []

        async def begin(number: int) -> None:
            await turns.wait()
            order.append(number)

        tasks = [asyncio.create_task(begin(number)) for number in range(PATTERNS_MAX + 5)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert order == [*range(PATTERNS_MAX)]
        tasks[PATTERNS_MAX].cancel()
        turns._run()
        await asyncio.gather(*tasks[PATTERNS_MAX + 1 :])
        assert order == [*range(PATTERNS_MAX), *range(PATTERNS_MAX + 1, PATTERNS_MAX + 5)]
        await turns.wait()

    asyncio.run(main())
