"""Properties of the channels of a connection: what is taken is what was written, within windows, and nothing stays behind.

Two tables, joined by a wire that loses nothing and keeps the order. The machine knows what was written and taken. Whatever is
opened, refused, written, taken, ended, stopped and broken, the far side takes a beginning of what was written, all of it after
a clean end; no end holds more than its window, which may have grown, nor queues more than its bound; and when all channels have
ended, both tables and both budgets are empty.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iris_py.federation.channels import FAR_SIDE, QUEUED_BYTES_MAX, ChannelEnd, Channels, WindowBudget
from iris_py.link.pacing import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN
from iris_py.patterns.tunnel.duplex import FRAME, PIECE_CHARGE, Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.patterns.tunnel.duplex import Piece

DATA = random.Random(1).randbytes(1 << 20)
ROUND_TRIP_S = 0.1
BUDGET_BYTES = 8 << 20
LARGEST_BYTES = 4 << 20
SIDES = st.sampled_from((0, 1))
PICKS = st.integers(0, 1000)
SIZES = st.one_of(st.integers(0, 200), st.integers(0, 400_000))


class Wire:
    """One direction of the connection."""

    def __init__(self) -> None:
        self.frames: deque[tuple[bytes, bytes]] = deque()
        self.room = 0

    @property
    def chunk_room(self) -> int:
        return (CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)[self.room % 2] if self.room > 0 else 0

    def send_tunnel(self, kind: int, tunnel_id: bytes, chunk: Sequence[Piece], size: int, now: float) -> None:
        self.room -= 1
        self.frames.append((tunnel_id, b"".join(chunk)))


class Side:
    """One end of a channel, and what the model knows of it."""

    def __init__(self, end: ChannelEnd) -> None:
        self.end = end
        self.written: list[bytes] = []
        self.unwritten: bytes | None = None
        self.partial = bytearray()
        self.taken: list[bytes] = []
        self.is_stopped = False


class ChannelMachine(RuleBasedStateMachine):
    """Two gateways and what is between them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.wires = Wire(), Wire()  # from each side
        self.gateway = WindowBudget(2 * BUDGET_BYTES)
        self.budgets = tuple(WindowBudget(BUDGET_BYTES, channels_max=6, within=self.gateway) for _ in (0, 1))
        self.drops: list[str] = []
        self.tables = tuple(
            Channels(self.wires[each], self.budgets[each], self.drops.append, largest_window_bytes=LARGEST_BYTES)
            for each in (0, 1)
        )
        for table in self.tables:
            table.round_trip_s = ROUND_TRIP_S
        self.opened = 0
        self.asked: list[tuple[int, int]] = []  # by whom, and which number
        self.pairs: list[tuple[Side, Side]] = []

    def sides(self) -> list[Side]:
        return [side for pair in self.pairs for side in pair]

    # -- opening

    @rule(which=SIDES, name=st.sampled_from("ab"))
    def ask(self, which: int, name: str) -> None:
        table = self.tables[which]
        window_bytes = table.first_window_bytes()
        if window_bytes:
            self.opened += 1
            table.open(self.opened, rule=name, window_bytes=window_bytes)
            self.asked.append((which, self.opened))

    @precondition(lambda self: self.asked)
    @rule(is_accepted=st.booleans())
    def answer(self, is_accepted: bool) -> None:
        which, number = self.asked.pop(0)
        asking, asked = self.tables[which], self.tables[1 - which]
        end, window_bytes = asking.get(number), asked.first_window_bytes()
        assert end is not None
        if is_accepted and window_bytes:
            far = asked.open(number | FAR_SIDE, rule=end.rule, window_bytes=window_bytes, credit_bytes=end.window_bytes)
            asking.opened(number, window_bytes)
            self.pairs.append((Side(end), Side(far)))
        else:
            asking.refused(number, Failure("refused"))
            assert number not in asking

    @precondition(lambda self: self.asked)
    @rule(pick=PICKS)
    def give_up(self, pick: int) -> None:
        """Break a channel that was not answered yet: the far side is told behind its answer."""
        which, number = self.asked[pick % len(self.asked)]
        end = self.tables[which].get(number)
        assert end is not None
        end.fail(Failure("ours"), is_told=True, type="TimeoutError", text="too late")

    # -- what applications do

    @precondition(lambda self: self.pairs)
    @rule(pick=PICKS, size=SIZES)
    def write(self, pick: int, size: int) -> None:
        side = self.sides()[pick % len(self.sides())]
        if side.unwritten is None and not side.end.is_ended and side.end.failure is None:
            side.unwritten = DATA[:size]
            side.written.append(side.unwritten)
        self.go_on(side)

    def go_on(self, side: Side) -> None:
        if side.unwritten is None or side.end.is_ended or side.end.failure is not None:
            return
        accepted = side.end.write(side.unwritten, is_last=True)
        if accepted == len(side.unwritten):
            side.unwritten = None
        elif accepted > 0:
            side.unwritten = side.unwritten[accepted:]

    @precondition(lambda self: self.pairs)
    @rule(pick=PICKS, count=st.integers(1, 60))
    def take(self, pick: int, count: int) -> None:
        self.take_from(self.sides()[pick % len(self.sides())], count)

    def take_from(self, side: Side, count: int) -> None:
        for _ in range(count):
            entry = side.end.take()
            if entry is None:
                break
            side.partial += entry[0]
            if entry[1]:
                side.taken.append(bytes(side.partial))
                side.partial.clear()

    @precondition(lambda self: self.pairs)
    @rule(pick=PICKS)
    def end(self, pick: int) -> None:
        side = self.sides()[pick % len(self.sides())]
        if side.unwritten is None:
            side.end.end()

    @precondition(lambda self: self.pairs)
    @rule(pick=PICKS, seldom=st.integers(0, 9))
    def stop(self, pick: int, seldom: int) -> None:
        side = self.sides()[pick % len(self.sides())]
        if seldom == 0:
            side.is_stopped = True
            side.end.stop()
        elif seldom == 1:
            side.end.fail(Failure("ours"), is_told=True, type="LookupError", text="oh")

    # -- what the connection does

    @rule(which=SIDES, room=st.integers(1, 40))
    def carry(self, which: int, room: int) -> None:
        wire, table = self.wires[which], self.tables[which]
        wire.room = room
        had_work = table.has_work
        assert not (table.fill(self.now) and not had_work)

    @rule(which=SIDES, count=st.integers(1, 40), later_s=st.sampled_from((0.0, 0.01, ROUND_TRIP_S)))
    def arrive(self, which: int, count: int, later_s: float) -> None:
        self.now += later_s
        wire, table = self.wires[1 - which], self.tables[which]
        for _ in range(min(count, len(wire.frames))):
            number, frames = wire.frames.popleft()
            table.receive(number, b"xx" + frames + b"y", 2, 2 + len(frames), self.now)
        changed = table.changed()
        assert all(isinstance(end, ChannelEnd) for end in changed)
        assert not table.changed()

    @rule()
    def settle(self) -> None:
        """Everything arrives, and everything is taken: then all is said."""
        while self.asked:
            self.answer(is_accepted=True)
        before: object = None
        for _ in range(10_000):
            for side in self.sides():
                self.go_on(side)
                self.take_from(side, 1000)
            for which in (0, 1):
                self.carry(which, 1000)
                self.arrive(1 - which, 1000, 0.01)
            after = [(side.end.written, len(side.taken), len(side.partial), side.end.is_ready) for side in self.sides()]
            if before == after and not any(wire.frames for wire in self.wires):
                break
            before = after
        else:
            raise AssertionError("it does not come to rest")
        for near, far in self.pairs:
            for side, other in ((near, far), (far, near)):
                if near.end.failure is None and not other.is_stopped:
                    assert other.taken == side.written
                    assert side.end.is_taken == side.end.is_ended
            assert (near.end.failure is None) == (far.end.failure is None)

    @precondition(lambda self: self.pairs)
    @rule()
    def finish(self) -> None:
        """All channels end, and nothing stays behind."""
        self.settle()
        for side in self.sides():
            if side.end.failure is None:
                if side.end.is_in_message:
                    side.end.fail(Failure("it is not finished"), is_told=True)
                else:
                    side.end.end()
        self.settle()
        for table, budget in zip(self.tables, self.budgets, strict=True):
            assert len(table) == 0
            assert not table.has_work
            assert not table._rules
            assert (budget.used_bytes, budget.channels) == (0, 0)
        self.pairs.clear()

    # -- what holds at any time

    @invariant()
    def nothing_is_lost_or_made_up(self) -> None:
        for near, far in self.pairs:
            for side, other in ((near, far), (far, near)):
                assert other.taken == side.written[: len(other.taken)]
                if other.partial:
                    assert side.written[len(other.taken)].startswith(other.partial)

    @invariant()
    def memory_is_bounded(self) -> None:
        for table, budget in zip(self.tables, self.budgets, strict=True):
            windows = sum(end.window_bytes + QUEUED_BYTES_MAX for end in table.ends())
            assert windows == budget.used_bytes <= BUDGET_BYTES
            assert len(table) == budget.channels <= 6
        for near, far in self.pairs:
            for side, other in ((near, far), (far, near)):
                end = side.end
                assert end.failure is None or end.failure.reason in (
                    "ours",
                    "it is not finished",
                    "the other side aborted it",
                )
                assert 0 <= end.buffered_bytes <= end.window_bytes <= LARGEST_BYTES
                if end.failure is None and not end.is_ended:
                    assert 0 <= end.credit <= other.end.window_bytes
                headers = FRAME.size * (end.queued_bytes // PIECE_CHARGE + 1)
                assert end.queued_bytes <= QUEUED_BYTES_MAX + headers


TestChannels = ChannelMachine.TestCase
TestChannels.settings = settings(stateful_step_count=50, deadline=None)
