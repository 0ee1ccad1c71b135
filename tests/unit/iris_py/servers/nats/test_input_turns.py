"""The turns of clients of a NATS door: bounded in time, and all bytes in order."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from iris_py.servers.nats import input_turns
from iris_py.servers.nats.input_turns import (
    AT_WORK_S,
    BUSY_PATTERNS_S,
    BUSY_TURN_S,
    CONTROL_BURST_S,
    CONTROL_REFILL_S,
    CONTROL_SHARE,
    CONTROL_TURN_S,
    MANY_PATTERNS,
    PATTERNS_IN_ROW,
    PATTERNS_MAX,
    PATTERNS_S,
    SLICE_BYTES_FIRST,
    SLICE_BYTES_MAX,
    SLICE_BYTES_MIN,
    TURN_S,
    ClientInput,
    InputTurns,
    PatternTurns,
)

if TYPE_CHECKING:
    from collections.abc import Callable


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


def take(
    unread: ClientInput, clock: Clock, s_per_byte: float, controls: int = 0, *, is_short: bool = False, rest: int = 0
) -> tuple[bytes, float]:
    """Take a turn; return its bytes, and the time before the next turn."""
    piece = unread.take(is_short=is_short, is_whole=False)
    rest = min(rest, len(piece) - 1)
    clock.now += len(piece) * s_per_byte
    return piece[: len(piece) - rest], unread.finish(rest, controls, len(piece), clock.now) or 0.0


def test_all_bytes_come_in_order_in_pieces_of_any_size(clock: Clock) -> None:
    rng = random.Random(1)
    unread, sent, got = ClientInput(), b"", b""
    for _ in range(200):
        data = rng.randbytes(rng.choice((1, 100, 5000)))
        unread.add(data)
        sent += data
        for _ in range(rng.randrange(4)):
            if unread:
                got += take(unread, clock, rng.choice((1e-9, 1e-6, 1e-5)), rest=rng.choice((0, 7)))[0]
    while unread:
        got += take(unread, clock, 1e-9)[0]
    assert got == sent


@pytest.mark.parametrize(
    ("controls", "is_short", "budget"),
    [(0, False, TURN_S), (0, True, BUSY_TURN_S), (1 << 20, False, CONTROL_TURN_S), (1 << 20, True, CONTROL_TURN_S)],
)
def test_a_turn_takes_as_many_bytes_as_its_time_allows(clock: Clock, controls: int, is_short: bool, budget: float) -> None:
    unread = ClientInput()
    unread.add(bytes(1 << 20))
    s_per_byte = budget / 20_000
    sizes = [len(take(unread, clock, s_per_byte, controls, is_short=is_short)[0]) for _ in range(30)]
    assert sizes[0] == (SLICE_BYTES_FIRST * BUSY_TURN_S / TURN_S if is_short else SLICE_BYTES_FIRST) // 1
    assert max(sizes) == pytest.approx(20_000, abs=2), "it never takes more"
    assert sizes[-1] == pytest.approx(20_000, abs=2)
    take(unread, clock, 1.0, controls, is_short=is_short)
    size = len(take(unread, clock, 1e-9, controls, is_short=is_short)[0])
    assert size == pytest.approx(SLICE_BYTES_MIN * budget / CONTROL_TURN_S, abs=1)


def test_a_short_turn_takes_its_share_of_the_bytes_of_a_long_one(clock: Clock) -> None:
    unread = ClientInput()
    unread.add(bytes(1 << 20))
    for _ in range(20):
        take(unread, clock, 1e-7)
    assert len(take(unread, clock, 1e-7)[0]) == pytest.approx(TURN_S / 1e-7, abs=2)
    assert len(take(unread, clock, 1e-7, is_short=True)[0]) == pytest.approx(BUSY_TURN_S / 1e-7, abs=2)


def test_a_client_is_busy_for_a_while_after_it_has_sent_more_than_fits_a_turn(clock: Clock) -> None:
    unread = ClientInput()
    for _ in range(100):
        unread.add(bytes(500))
        take(unread, clock, TURN_S / 600)
        assert not unread
        assert not unread.is_busy(clock.now), "all bytes fit a turn, whatever their number"
    unread.add(bytes(5000))
    while unread:
        assert not unread.is_busy(clock.now) or len(take(unread, clock, 0.0, is_short=True)[0]) < 500
        take(unread, clock, TURN_S / 600)
    assert unread.is_busy(clock.now)
    assert not unread.is_busy(clock.now + AT_WORK_S)


def test_bytes_behind_too_many_operations_come_again(clock: Clock) -> None:
    unread = ClientInput()
    unread.add(b"abcdefgh")
    assert unread.take(is_short=False, is_whole=False) == b"abcdefgh"
    unread.finish(3, 0, 1, clock.now)
    assert unread
    assert unread.take(is_short=False, is_whole=False) == b"fgh"
    unread.finish(0, 0, 1, clock.now)
    assert not unread


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
    assert unread.take(is_short=False, is_whole=True) == bytes(100_000 - SLICE_BYTES_FIRST)
    assert unread.finish(0, 0, 1, clock.now) == 0.0, "there is more"
    assert unread.take(is_short=False, is_whole=True) == b"end"
    assert unread.finish(0, 0, 1, clock.now) is None
    assert not unread


@pytest.mark.parametrize("size", [64, 1 << 20])
def test_operations_besides_messages_get_a_share_of_the_time_however_few_fit_a_turn(clock: Clock, size: int) -> None:
    unread = ClientInput()
    began, busy, delays = clock.now, 0.0, 0.0
    while busy < 1.0:
        unread.add(bytes(size))
        before = clock.now
        _piece, delay = take(unread, clock, 1e-6, 1 << 20)
        busy += clock.now - before
        clock.now += delay
        delays += delay
    assert busy <= CONTROL_BURST_S + CONTROL_SHARE * (clock.now - began) + 1e-3
    assert delays > 0.0
    assert unread.is_control
    assert take(unread, clock, 1e-3, 0)[1] == 0.0, "messages do not wait"
    assert not unread.is_control


def test_turns_of_such_a_client_come_in_rows_since_single_ones_have_cold_caches(clock: Clock) -> None:
    unread, delays = ClientInput(), list[float]()
    unread.add(bytes(1 << 20))
    while clock.now < 110.0:
        delay = take(unread, clock, 1e-6, 1 << 20)[1]
        clock.now += delay
        delays.append(delay)
    rows = sum(map(bool, delays))
    assert rows <= 10.0 * CONTROL_SHARE / CONTROL_REFILL_S
    assert len(delays) > 10 * rows, "short turns, one after the other"


def test_a_few_operations_among_messages_cost_their_share(clock: Clock) -> None:
    unread = ClientInput()
    unread.add(bytes(1 << 20))
    piece = unread.take(is_short=False, is_whole=False)
    clock.now += CONTROL_BURST_S
    assert unread.finish(0, 10, 100, clock.now) == 0.0, "there is more, and nothing to wait for"
    assert not unread.is_control
    assert piece


class Client:
    """A client whose turns and outputs are noted."""

    def __init__(self, turns: InputTurns, order: list[str], name: str, left: int = 0) -> None:
        self.left = left
        self._turns = turns
        self._order = order
        self._name = name

    def proceed(self) -> None:
        self._order.append(self._name)
        self.left -= 1
        if self.left > 0:
            self._turns.add(self.proceed)

    def receive(self) -> None:
        """Do as a connection does when bytes arrive that fit a turn."""
        self._turns.note(self.proceed, asyncio.get_running_loop().time())
        self._turns.write_soon(lambda: self._order.append(f"{self._name} writes"))


async def pass_rounds(order: list[str], until: Callable[[], bool]) -> None:
    while not until():
        order.append("-")
        await asyncio.sleep(0)


def test_between_two_turns_of_busy_clients_others_are_read_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_turns, "AT_WORK_S", 3600.0)

    async def main() -> list[str]:
        turns, order = InputTurns(), list[str]()
        busy = [Client(turns, order, name, 3) for name in "ab"]
        light = Client(turns, order, "light")
        light.receive()
        for each in busy:
            turns.add(each.proceed)

        async def send() -> None:
            while busy[1].left:
                light.receive()
                await asyncio.sleep(0)

        sender = asyncio.create_task(send())
        await pass_rounds(order, lambda: not busy[1].left)
        await sender
        return order

    order = asyncio.run(main())
    assert [each for each in order if each in "ab"] == ["a", "b"] * 3, "in order"
    between = "".join("t" if each in "ab" else "w" if each.endswith("writes") else each for each in order).split("t")[1:-1]
    assert all(each.count("-") == 3 and "w" in each for each in between), "a round to read, and a round to write"


def test_a_lone_busy_client_has_every_round() -> None:
    async def main() -> list[str]:
        turns, order = InputTurns(), list[str]()
        busy = Client(turns, order, "a", 4)
        busy.receive()
        turns.add(busy.proceed)
        await pass_rounds(order, lambda: not busy.left)
        return order

    assert "".join(asyncio.run(main())[1:]).replace("a writes", "") == "a-a-a-a"


def test_a_client_is_at_work_for_a_while_after_it_has_sent_something() -> None:
    turns, one, other = InputTurns(), (lambda: None), (lambda: None)
    turns.note(one, 10.0)
    assert turns.has_others(other, 10.0)
    assert not turns.has_others(one, 10.0)
    turns.note(one, 10.05)
    turns.note(other, 10.06)
    assert turns.has_others(one, 10.06)
    assert turns.has_others(other, 10.06)
    turns.note(other, 10.1)
    assert not turns.has_others(other, 10.051 + AT_WORK_S)
    assert not turns.has_others(one, 10.101 + AT_WORK_S)


def test_a_client_with_an_error_leaves_the_others_their_turns() -> None:
    async def main() -> list[str]:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        turns, order = InputTurns(), list[str]()
        turns.write_soon(lambda: order.remove("nothing"))  # a ValueError
        turns.write_soon(lambda: order.append("written"))
        turns.add(Client(turns, order, "a").proceed)
        await pass_rounds(order, lambda: "a" in order)
        return order

    assert [each for each in asyncio.run(main()) if each != "-"] == ["written", "a"]


class Changes:
    """Subscriptions that begin in turns.

    Attributes:
        begun: Their names, in the order in which they began.
        gathered: The times in which publishers are to be told together.
        turns: The turns of the subscriptions.
    """

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.gathered: list[float] = []
        self.inputs = InputTurns()
        self.turns = PatternTurns(self.inputs, self.gathered.append)

    def add(self, client: str, *names: str) -> None:
        for name in names:
            self.turns.add(client, name, lambda name=name: self.begun.append(name))  # type: ignore[misc]

    async def wait_for(self, count: int) -> None:
        await pass_rounds([], lambda: len(self.begun) >= count)


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_publishers_are_told_together_of_many_subscriptions_that_begin_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_turns, "GATHER_S", 3600.0)

    async def main() -> None:
        changes = Changes()
        for number in range(MANY_PATTERNS + 1):
            changes.add("a", str(number))
            await changes.wait_for(number + 1)
            assert not changes.gathered
        changes.add("a", "last")
        await changes.wait_for(MANY_PATTERNS + 2)
        assert changes.gathered == [3600.0]

    asyncio.run(main())


def test_few_subscriptions_begin_at_a_time_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_turns, "PATTERNS_S", 3600.0)
    monkeypatch.setattr(input_turns, "GATHER_S", 1800.0)

    async def main() -> None:
        changes, expected = Changes(), names("a", MANY_PATTERNS + PATTERNS_MAX + 1)
        changes.add("a", *expected)
        await changes.wait_for(PATTERNS_MAX)
        assert changes.begun == expected[:PATTERNS_MAX]
        assert changes.gathered == [1800.0], "publishers are told together"
        assert changes.turns.discard(expected.pop(PATTERNS_MAX))
        assert not changes.turns.discard(expected[0]), "it has begun"
        while len(changes.begun) < len(expected):
            changes.turns._run()
        assert changes.begun == expected
        assert changes.gathered == [1800.0], "once for all"
        assert expected[-1] not in changes.turns

    asyncio.run(main())


def test_the_subscriptions_of_clients_begin_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_turns, "PATTERNS_S", 3600.0)

    async def main() -> None:
        changes = Changes()
        changes.add("large", *names("large", 100))
        changes.add("small", "small0", "small1", "large99")
        changes.add("other", "other0")
        assert "small1" in changes.turns
        while "large99" in changes.turns:
            changes.turns._run()
        assert changes.begun[:8] == ["large0", "small0", "other0", "large1", "small1", "large2", "large99", "large3"]
        changes.turns.begin_all()
        assert sorted(changes.begun) == sorted([*names("large", 100), "small0", "small1", "other0"]), "each once"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("clients", "is_busy", "waiting", "count", "pauses"),
    [
        (1, True, 100, 1, [0.0] * (PATTERNS_IN_ROW - 1) + [PATTERNS_IN_ROW * BUSY_PATTERNS_S, 0.0]),
        (2, True, 100, 1, [0.0] * (PATTERNS_IN_ROW - 1) + [PATTERNS_IN_ROW * BUSY_PATTERNS_S / 2]),
        (2, True, MANY_PATTERNS // 2, 1, [PATTERNS_S] * 2),
        (int(BUSY_PATTERNS_S / PATTERNS_S) + 1, True, 100, PATTERNS_MAX, [PATTERNS_S] * 2),
        (1, False, 100, PATTERNS_MAX, [PATTERNS_S] * 2),
    ],
)
def test_a_client_with_many_subscriptions_is_slow_while_others_are_at_work(
    clients: int, is_busy: bool, waiting: int, count: int, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_turns, "AT_WORK_S", 3600.0)

    async def main() -> None:
        changes, found = Changes(), list[float]()
        if is_busy:
            changes.inputs.note(lambda: None, asyncio.get_running_loop().time())
        for client in names("client", clients):
            changes.add(client, *names(client, waiting))
        monkeypatch.setattr(changes.inputs, "add", lambda _proceed, pause: found.append(pause))
        for _ in pauses:
            changes.turns._run()
        assert len(changes.begun) == len(pauses) * count
        assert found == pauses

    asyncio.run(main())
