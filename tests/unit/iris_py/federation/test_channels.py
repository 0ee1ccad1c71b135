"""The channels of a connection: numbers, turns, windows that grow, and a neighbour that does what it likes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest

from iris_py.defaults import WINDOW_BYTES_MAX
from iris_py.federation.channels import (
    FAR_SIDE,
    FIRST_WINDOW_BYTES,
    NUMBER,
    QUEUED_BYTES_MAX,
    ChannelEnd,
    Channels,
    WindowBudget,
)
from iris_py.link.lanes import TUNNEL
from iris_py.link.pacing import CHUNK_BYTES_MIN
from iris_py.patterns.tunnel.duplex import CREDIT, DONE, END, FRAME, LAST, MORE, PIECE_CHARGE, RESET, Failure
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.patterns.tunnel.duplex import Piece

MIB = 1024 * 1024


class Wire:
    """A connection that has room for so much, and keeps what it is given."""

    def __init__(self) -> None:
        self.room = 1 << 40
        self.sent: deque[tuple[int, bytes]] = deque()

    @property
    def chunk_room(self) -> int:
        return CHUNK_BYTES_MIN if self.room > 0 else 0

    def send_tunnel(self, kind: int, tunnel_id: bytes, chunk: Sequence[Piece], size: int, now: float) -> None:
        assert (kind, size) == (TUNNEL, sum(map(len, chunk)))
        self.room -= size
        self.sent.append((NUMBER.unpack(tunnel_id)[0], b"".join(chunk)))


class Gateway:
    """The channels of one connection at one gateway."""

    def __init__(self, limit_bytes: int = 1024 * MIB, **options: int) -> None:
        self.wire = Wire()
        self.drops: list[str] = []
        self.budget = WindowBudget(limit_bytes, channels_max=4096)
        self.channels = Channels(self.wire, self.budget, self.drops.append, **options)
        self.channels.round_trip_s = 0.08

    def open(self, number: int, rule: str = "rule", *, credit_bytes: int | None = FIRST_WINDOW_BYTES) -> ChannelEnd:
        window_bytes = self.channels.first_window_bytes()
        return self.channels.open(number, rule=rule, window_bytes=window_bytes, credit_bytes=credit_bytes)

    def receive(self, number: int, *frames: tuple[int, bytes]) -> None:
        """Receive frames of the far side: the number is as this side has it."""
        body = b"".join(FRAME.pack(kind, len(body)) + body for kind, body in frames)
        self.channels.receive(NUMBER.pack(number ^ FAR_SIDE), body, 0, len(body), 0.0)

    def read(self, now: float = 0.0) -> list[tuple[int, int, bytes]]:
        """Return the frames that are sent: number, kind, body."""
        self.channels.fill(now)
        frames = []
        while self.wire.sent:
            number, chunk = self.wire.sent.popleft()
            offset = 0
            while offset < len(chunk):
                kind, length = FRAME.unpack_from(chunk, offset)
                offset += FRAME.size + length
                frames.append((number, kind, chunk[offset - length : offset]))
        return frames


def total(number: int) -> bytes:
    return number.to_bytes(8, "big")


def join(one: Gateway, other: Gateway) -> None:
    """Carry everything between two gateways until nothing moves."""
    while one.channels.fill(0.0) or other.channels.fill(0.0):
        for source, target in ((one, other), (other, one)):
            while source.wire.sent:
                number, chunk = source.wire.sent.popleft()
                target.channels.receive(NUMBER.pack(number), chunk, 0, len(chunk), 0.0)


def pair() -> tuple[Gateway, Gateway, ChannelEnd, ChannelEnd]:
    one, other = Gateway(), Gateway()
    near = one.open(7, credit_bytes=None)
    far = other.open(7 | FAR_SIDE, credit_bytes=near.window_bytes)
    one.channels.opened(7, far.window_bytes)
    return one, other, near, far


# -- numbers and opening


def test_both_sides_may_open_channels_of_one_number() -> None:
    one, other, near, far = pair()
    far_too = other.open(7, credit_bytes=None)
    near_too = one.open(7 | FAR_SIDE, credit_bytes=far_too.window_bytes)
    other.channels.opened(7, near_too.window_bytes)
    for end, text in ((near, b"near"), (far, b"far"), (near_too, b"near too"), (far_too, b"far too")):
        end.write(text, is_last=True)
    join(one, other)
    assert [end.take() for end in (near, far, near_too, far_too)] == [
        (b"far", True),
        (b"near", True),
        (b"far too", True),
        (b"near too", True),
    ]
    assert one.drops == other.drops == []


def test_an_end_says_nothing_before_it_is_opened_and_hears_everything() -> None:
    gateway = Gateway()
    end = gateway.open(1, credit_bytes=None)
    assert end.write(b"early", is_last=True) == -1
    gateway.receive(1, (LAST, b"hello"), (CREDIT, total(8192)))
    assert end.take() == (b"hello", True)
    assert end.write(b"early", is_last=True) == 5
    end.tell_credit()
    assert gateway.read() == []
    gateway.channels.opened(1, 4096)
    assert end in gateway.channels.changed()
    assert end.credit == 8192 - 5 - PIECE_CHARGE
    assert [(number, kind) for number, kind, _body in gateway.read()] == [(1, LAST), (1, CREDIT)]


def test_an_end_that_was_given_up_is_broken_off_behind_its_opening() -> None:
    gateway = Gateway()
    end = gateway.open(1, credit_bytes=None)
    end.fail(Failure("given up"), is_told=True, type="TimeoutError", text="too late")
    assert gateway.read() == []
    assert 1 in gateway.channels
    gateway.channels.opened(1, 4096)
    assert gateway.read() == [(1, RESET, packets.encode_failure_of("TimeoutError", "too late"))]
    assert 1 not in gateway.channels


def test_what_is_refused_is_broken_and_gone() -> None:
    gateway = Gateway()
    end = gateway.open(1, credit_bytes=None)
    gateway.channels.refused(1, Failure("not exported"))
    assert end.failure == Failure("not exported")
    assert gateway.channels.changed() == [end]
    assert gateway.read() == []
    assert (len(gateway.channels), gateway.budget.used_bytes, gateway.budget.channels) == (0, 0, 0)


@pytest.mark.parametrize("is_ready", [False, True])
def test_what_the_far_side_withdraws_after_it_was_accepted_is_broken_and_gone(is_ready: bool) -> None:
    gateway = Gateway()
    end = gateway.open(1 | FAR_SIDE)
    if is_ready:
        end.write(b"message", is_last=True)
    gateway.channels.withdrawn(1 | FAR_SIDE, Failure("the other side gave up"))
    assert end.failure == Failure("the other side gave up")
    assert gateway.channels.changed() == [end]
    assert gateway.read() == []
    assert (len(gateway.channels), gateway.budget.used_bytes, gateway.budget.channels) == (0, 0, 0)
    gateway.channels.withdrawn(1 | FAR_SIDE, Failure("again"))


def test_an_answer_that_nobody_waits_for_is_counted() -> None:
    gateway = Gateway()
    end = gateway.open(1)
    gateway.channels.opened(1, 4096)
    gateway.channels.refused(1, Failure("too late"))
    gateway.channels.opened(2, 4096)
    gateway.channels.refused(2, Failure("nothing"))
    gateway.receive(3, (LAST, b"late"))
    assert gateway.drops == ["unknown_channel"] * 5
    assert (end.failure, end.credit) == (None, QUEUED_BYTES_MAX)


@pytest.mark.parametrize("claimed", [0, 1, WINDOW_BYTES_MAX + 1, (1 << 64) - 1])
def test_a_window_that_cannot_be_is_bounded(claimed: int) -> None:
    gateway = Gateway()
    end = gateway.open(1 | FAR_SIDE, credit_bytes=claimed)
    assert end.credit == (4096 if claimed < 4096 else QUEUED_BYTES_MAX)
    gateway.receive(1 | FAR_SIDE, (CREDIT, total(WINDOW_BYTES_MAX)))
    assert end.failure is None
    assert end.credit == QUEUED_BYTES_MAX


# -- a neighbour that does what it likes


@pytest.mark.parametrize(
    "frames",
    [
        [(MORE, bytes(MIB + 1))],
        [(LAST, b"")] * (MIB // PIECE_CHARGE + 1),
        [(END, b""), (LAST, b"more")],
        [(CREDIT, total(1))],
        [(DONE, total(1))],
        [(16, b"item")],
        [(DONE, b"short")],
    ],
)
def test_a_violation_breaks_its_channel_and_no_other(frames: list[tuple[int, bytes]]) -> None:
    gateway = Gateway()
    broken, other = gateway.open(1 | FAR_SIDE), gateway.open(2 | FAR_SIDE)
    gateway.receive(1 | FAR_SIDE, *frames)
    assert broken.failure is not None
    assert "violation of the protocol" in broken.failure.reason
    ((number, kind, body),) = gateway.read()
    assert (number, kind, packets.decode_failure(body)[0]) == (1 | FAR_SIDE, RESET, "ProtocolError")
    assert gateway.channels.ends() == [other]
    gateway.receive(2 | FAR_SIDE, (LAST, b"fine"))
    assert other.take() == (b"fine", True)


def test_frames_that_are_cut_off_break_the_channel() -> None:
    gateway = Gateway()
    end = gateway.open(1)
    body = FRAME.pack(LAST, 100) + bytes(99)
    gateway.channels.receive(NUMBER.pack(1 | FAR_SIDE), body, 0, len(body), 0.0)
    assert end.failure is not None


def test_a_far_side_that_gives_endless_credit_is_sent_no_more_than_the_line_takes() -> None:
    gateway = Gateway()
    end = gateway.open(1, credit_bytes=WINDOW_BYTES_MAX)
    gateway.wire.room = 0
    written = 0
    while (accepted := end.write(bytes(10_000), is_last=True)) > 0:
        written += accepted
    assert QUEUED_BYTES_MAX - 2 * PIECE_CHARGE * 30 < written <= QUEUED_BYTES_MAX
    assert end.credit < 10_000
    assert not gateway.channels.changed()
    gateway.wire.room = 1
    assert gateway.read()
    assert not gateway.channels.changed()  # seldom, and not for each chunk
    gateway.wire.room = QUEUED_BYTES_MAX // 2
    assert gateway.read()
    assert gateway.channels.changed() == [end]
    assert end.credit > QUEUED_BYTES_MAX // 2
    gateway.wire.room = 1
    assert gateway.read()
    assert not gateway.channels.changed()


# -- turns


def shares(gateway: Gateway, sizes: dict[int, int], chunks_bytes: int) -> dict[int, int]:
    """Let channels write as much as they can, messages of these sizes; return how much of each left."""
    sent = dict.fromkeys(sizes, 0)
    while sum(sent.values()) < chunks_bytes:
        for number, size in sizes.items():
            end = gateway.channels.get(number)
            assert end is not None
            while end.credit > size + PIECE_CHARGE:
                end.write(bytes(size), is_last=True)
        gateway.wire.room = 100_000
        gateway.channels.fill(0.0)
        while gateway.wire.sent:
            number, chunk = gateway.wire.sent.popleft()
            sent[number] += len(chunk)
    return sent


def test_rules_share_a_line_evenly_however_many_channels_and_of_what_messages() -> None:
    gateway = Gateway()
    sizes = {}
    for number in range(1, 12):
        gateway.open(number, "few" if number == 1 else "many", credit_bytes=WINDOW_BYTES_MAX)
        sizes[number] = 30_000 if number == 1 else 100
    sent = shares(gateway, sizes, 40 * MIB)
    few, many = sent[1], sum(sent.values()) - sent[1]
    assert few == pytest.approx(many, rel=0.1)
    assert all(sent[number] == pytest.approx(many / 10, rel=0.1) for number in range(2, 12))


def test_a_rule_alone_has_the_whole_line() -> None:
    gateway = Gateway()
    gateway.open(1, "busy", credit_bytes=WINDOW_BYTES_MAX)
    gateway.open(2, "idle", credit_bytes=WINDOW_BYTES_MAX)
    sent = shares(gateway, {1: 20_000}, 10 * MIB)
    assert sent[1] >= 10 * MIB


# -- windows


def flow(
    largest_bytes: int, *, seconds: float, taken_per_s: float | None = None, limit_bytes: int = 1024 * MIB
) -> tuple[int, float]:
    """Let a writer that always has something and a reader use a line of 80 ms and 500 MB/s; return the window, and the rate.

    Args:
        largest_bytes: How far the window grows.
        seconds: For how long.
        taken_per_s: Bytes that the reader takes; None for all that comes.
        limit_bytes: The budget of the reader's gateway.
    """
    one, other = Gateway(), Gateway(limit_bytes, largest_window_bytes=largest_bytes)
    near = one.open(7, credit_bytes=None)
    far = other.open(7 | FAR_SIDE, credit_bytes=near.window_bytes)
    one.channels.opened(7, far.window_bytes)
    under_way: deque[tuple[float, Gateway, int, bytes]] = deque()
    step_s, taken, allowed = 0.001, 0, 0.0
    for step in range(round(seconds / step_s)):
        now = step * step_s
        while near.credit > 30_000 + PIECE_CHARGE:
            near.write(bytes(30_000), is_last=True)
            one.wire.room = 500_000
            one.channels.fill(now)
        allowed = allowed + taken_per_s * step_s if taken_per_s is not None else float(1 << 60)
        while far.can_take and allowed > 0:
            entry = far.take()
            assert entry is not None
            allowed -= len(entry[0])
            taken += len(entry[0])
        other.channels.fill(now)
        for source, target in ((one, other), (other, one)):
            while source.wire.sent:
                under_way.append((now + 0.04, target, *source.wire.sent.popleft()))
        while under_way and under_way[0][0] <= now:
            _at, target, number, chunk = under_way.popleft()
            target.channels.receive(NUMBER.pack(number), chunk, 0, len(chunk), now)
    return far.window_bytes, taken / seconds


def test_a_window_grows_to_what_a_long_line_holds() -> None:
    window_bytes, rate = flow(16 * MIB, seconds=2.0)
    assert window_bytes == 16 * MIB
    assert rate > 100e6
    assert flow(MIB, seconds=2.0)[1] < 14e6  # one window in each round trip


def test_a_window_stays_small_for_a_slow_reader() -> None:
    window_bytes, rate = flow(16 * MIB, seconds=4.0, taken_per_s=4e6)
    assert window_bytes == MIB
    assert rate == pytest.approx(4e6, rel=0.1)


def test_a_window_grows_no_further_than_the_reader_needs() -> None:
    window_bytes, rate = flow(256 * MIB, seconds=4.0, taken_per_s=20e6)
    assert window_bytes <= 4 * MIB  # 1.6 MB in each round trip
    assert rate == pytest.approx(20e6, rel=0.1)


def test_a_window_does_not_grow_for_bursts_of_less_than_a_half_of_it() -> None:
    gateway = Gateway()
    end = gateway.open(1 | FAR_SIDE)
    for step in range(50):
        gateway.receive(1 | FAR_SIDE, *[(LAST, bytes(90_000))] * 5)
        for part in range(5):
            assert end.take() is not None
            gateway.read(0.15 * step + 0.001 * part)
    assert end.window_bytes == FIRST_WINDOW_BYTES


def test_no_window_grows_without_memory_or_before_the_round_trip_is_known() -> None:
    assert 4 * MIB < flow(16 * MIB, seconds=1.0, limit_bytes=9 * MIB)[0] < 9 * MIB
    gateway = Gateway()
    gateway.channels.round_trip_s = 0.0
    end = gateway.open(1 | FAR_SIDE)
    for second in range(20):
        gateway.receive(1 | FAR_SIDE, (LAST, bytes(900_000)))
        assert end.take() is not None
        assert gateway.read(float(second))
    assert end.window_bytes == FIRST_WINDOW_BYTES


# -- the end


def test_channels_that_end_cleanly_leave_nothing() -> None:
    one, other, near, far = pair()
    near.write(b"last words", is_last=True)
    near.end()
    far.end()
    join(one, other)
    assert far.take() == (b"last words", True)
    join(one, other)
    assert near.is_over
    assert far.is_over
    assert near.is_taken
    for gateway in (one, other):
        assert (len(gateway.channels), gateway.budget.used_bytes, gateway.budget.channels) == (0, 0, 0)
        assert gateway.channels.changed()
        assert not gateway.channels.has_work


def test_a_connection_that_is_gone_breaks_its_channels() -> None:
    one, _other, near, _far = pair()
    near.write(bytes(1000), is_last=True)
    one.channels.close("the line was cut")
    assert near.failure == Failure("the line was cut")
    assert one.channels.changed() == [near]
    assert (len(one.channels), one.budget.used_bytes, one.read()) == (0, 0, [])


def test_a_channel_that_the_far_side_breaks_is_gone_though_the_line_has_no_room() -> None:
    gateway = Gateway()
    end = gateway.open(1)
    gateway.wire.room = 0
    end.write(b"never sent", is_last=True)
    gateway.receive(1, (RESET, packets.encode_failure_of("LookupError", "oh")))
    assert (len(gateway.channels), gateway.budget.used_bytes) == (0, 0)
    gateway.wire.room = MIB
    assert gateway.read() == []


def test_there_are_no_more_channels_than_the_budget_has_places_for() -> None:
    gateway = Gateway()
    gateway.budget.take(0, channels=4095)
    assert gateway.channels.first_window_bytes() > 0
    gateway.open(1)
    assert gateway.channels.first_window_bytes() == 0
