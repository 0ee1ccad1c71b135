"""The channels of one connection between two gateways: streams of messages under credit, in fair turns (docs/design.md 15.41).

A channel carries what a request does not fit: the messages of a tunnel, of a subscription, of a publisher, of a survey. It is a
:class:`~iris_py.patterns.tunnel.stream.StreamEnd` at each gateway. Its chunks are not sealed, for the records of the connection
are; they travel in TUNNEL frames behind the number of the channel. It lives on one connection, for its order, and breaks with
it.

Both gateways count the channels that they open from 0 and by themselves. A frame carries the number as its sender has it: with
:data:`FAR_SIDE` if the receiver of the frame has opened the channel. Messages that open a channel travel elsewhere
(:mod:`iris_py.federation.frames`) and maybe on another connection, so an end may hear the far side before it hears that it was
accepted; it says nothing itself until then.

The windows of channels: how they grow with what the line holds, and how much memory they take together (15.42).

A window bounds a channel to one window in each round trip, so on a long line it has to be as large as what the line holds. The
receiver finds that out by itself, as TCP does (Fisk and Feng, Dynamic Right-Sizing in TCP, 2001): it takes note of what was
taken within a round trip, and lets a window have a share more than that (:data:`HEADROOM`), up to twice itself at once. A
reader that is slower than the line never takes so much, and its window stays small. Nor does the window of a stream grow that
fills the line: what is beyond would only wait in front of it, and with it whatever else goes that way.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

from iris_py.patterns.tunnel.stream import (
    FRAME,
    PIECE_CHARGE,
    TURN_BYTES,
    Failure,
    StreamEnd,
    Way,
    bounded_window,
)
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from iris_py.wire.headers import Headers

#: The window that a channel begins with, where there is room. Too small: short streams wait for credit; too large: few channels
#: have room.
FIRST_WINDOW_BYTES = 1024 * 1024
#: A channel does not begin with less: it is refused. Too small: channels that can hardly move; too large: fewer of them.
FIRST_WINDOW_BYTES_MIN = 64 * 1024
#: A window begins with at most this share of the room that is left: the last ones find some, too.
FIRST_WINDOW_SHARE = 8
#: A window grows to so many times what was taken within a round trip. Too small: a sender that waits for credit, which comes in
#: quarters of the window, never has more; too large: others wait so many round trips behind a stream that fills the line.
HEADROOM = 1.75
#: And not by less than this share of itself. Too small: much credit for little.
GROWTH_SHARE_MIN = 1 / 16
#: How far a window grows unless the operator says otherwise: at 80 ms that is 210 MB/s. Too small: long lines are not used; too
#: large: what a reader that stalls may hold up.
GROWN_WINDOW_BYTES = 16 * 1024 * 1024
#: The operator may say no more than this. Python's own speed is the bound before.
GROWN_WINDOW_BYTES_MAX = 256 * 1024 * 1024
#: The memory of all channels of a gateway together, unless the operator says otherwise. Too small: windows do not grow, and
#: channels are refused; too large: the gateway may run out of memory.
CHANNEL_BYTES = 1024 * 1024 * 1024
#: The memory of the channels to one neighbour, likewise: one that opens many leaves room for others.
NEIGHBOUR_CHANNEL_BYTES = 256 * 1024 * 1024
#: Channels of one neighbour. Too small: streams are refused; too large: tables that a neighbour can fill.
CHANNELS_MAX = 4096


class WindowBudget:
    """The memory that channels may take, and their number: of one neighbour, or of a gateway.

    Args:
        limit_bytes: How much memory.
        channels_max: How many channels; None for as many as there is memory for.
        within: The budget that this one is a part of, too: that of the gateway.

    Attributes:
        used_bytes: How much is taken. Invariant: 0 <= used_bytes <= limit_bytes.
        channels: How many channels there are.
    """

    def __init__(self, limit_bytes: int, *, channels_max: int | None = None, within: WindowBudget | None = None) -> None:
        self.used_bytes = 0
        self.channels = 0
        self._limit_bytes = limit_bytes
        self._channels_max = channels_max
        self._within = within

    @property
    def left_bytes(self) -> int:
        """The bytes that may still be taken."""
        left = self._limit_bytes - self.used_bytes
        return left if self._within is None else min(left, self._within.left_bytes)

    @property
    def has_place(self) -> bool:
        """Whether there may be another channel, as far as their number goes."""
        is_full = self._channels_max is not None and self.channels >= self._channels_max
        return not is_full and (self._within is None or self._within.has_place)

    def take(self, size: int, *, channels: int = 0) -> None:
        """Take some; only what :attr:`left_bytes` and :attr:`has_place` allow."""
        self.used_bytes += size
        self.channels += channels
        if self._within is not None:
            self._within.take(size, channels=channels)

    def give_back(self, size: int, *, channels: int = 0) -> None:
        """Give back what was taken."""
        self.take(-size, channels=-channels)


class WindowGrowth:
    """The conditions under which the windows of one connection grow.

    Args:
        budget: Where their memory comes from.
        largest_bytes: How far one grows.

    Attributes:
        budget: Where their memory comes from.
        now: The time of the present call.
        round_trip_s: The round trip of the line, smoothed, in seconds; 0 while it is not known: until then no window grows.
    """

    def __init__(self, budget: WindowBudget, largest_bytes: int) -> None:
        self.budget = budget
        self.now = 0.0
        self.round_trip_s = 0.0
        self._largest_bytes = largest_bytes

    def first_window_bytes(self, queue_bytes: int) -> int:
        """Return the window that a channel begins with; 0 if there is no room for another channel.

        Args:
            queue_bytes: What the channel takes besides its window.
        """
        if not self.budget.has_place:
            return 0
        left = self.budget.left_bytes
        size = min(FIRST_WINDOW_BYTES, self._largest_bytes, max(FIRST_WINDOW_BYTES_MIN, left // FIRST_WINDOW_SHARE))
        return size if size + queue_bytes <= left else 0

    def next_window_bytes(self, window_bytes: int, taken: int, elapsed_s: float) -> int:
        """Return the window that follows on another one, and take the memory for it.

        Args:
            window_bytes: The present one.
            taken: What was taken of it, as credits count.
            elapsed_s: In how long: a round trip at least.
        """
        wanted = int(HEADROOM * taken * self.round_trip_s / elapsed_s) - window_bytes
        more = min(wanted, window_bytes, self._largest_bytes - window_bytes)
        if wanted < GROWTH_SHARE_MIN * window_bytes or not 0 < more <= self.budget.left_bytes:
            return window_bytes
        self.budget.take(more)
        return window_bytes + more


#: Set in the number of a channel that the far side has opened.
FAR_SIDE = 1 << 63
#: The number of a channel, in front of its frames.
NUMBER = struct.Struct(">Q")
#: What an end holds that was written and has not left, in bytes and charges, however much credit the far side gives. Too small:
#: the line runs dry between turns of the event loop; too large: memory for each channel.
QUEUED_BYTES_MAX = 256 * 1024


class Line(Protocol):
    """A connection, as channels see it: a :class:`~iris_py.link.link.Link`."""

    @property
    def has_tunnel_room(self) -> bool:
        """Whether another chunk may be queued."""

    def send_tunnel(self, tunnel_id: bytes, sealed: bytes, now: float) -> None:
        """Queue a chunk."""


class RuleTurns(Way["ChannelEnd"]):
    """The channels of one rule, which take turns among themselves in the turn of the rule.

    Attributes:
        rule: Names it.
        channels: How many there are.
        allowance: How many bytes they may still send in the turn of the rule.
    """

    def __init__(self, ready_ways: dict[Way[ChannelEnd], None], rule: Hashable) -> None:
        super().__init__(ready_ways)
        self.rule = rule
        self.channels = 0
        self.allowance = 0


class ChannelEnd(StreamEnd):
    """One end of a channel.

    Args:
        number: What this side's frames carry.
        turns: The turns of its rule.
        growth: How its window grows.
        window_bytes: What the far side may send before any of it is taken, to begin with.
        credit_bytes: What this side may send before any of it is taken; None while the far side has not accepted it.
        changed: Where it notes that something changed which the application may wait for.
        headers: What was given when it was opened.

    Attributes:
        turns: The turns of its rule.
        is_opened: Whether the far side has accepted it. Before, nothing is sent.
        credit: What may still be written. Invariant: 0 <= credit <= the far side's window, and what is written and has not left
            is at most :data:`QUEUED_BYTES_MAX`.
    """

    __slots__ = ("_growth", "_left", "_measured_at", "_taken_then", "is_opened", "turns")

    def __init__(
        self,
        number: int,
        turns: RuleTurns,
        growth: WindowGrowth,
        *,
        window_bytes: int,
        credit_bytes: int | None,
        changed: dict[ChannelEnd, None],
        headers: Headers = NO_HEADERS,
    ) -> None:
        super().__init__(number, window_bytes=window_bytes, credit_bytes=0, way=turns, changed=changed, headers=headers)
        self.turns = turns
        self.is_opened = credit_bytes is not None
        self._growth = growth
        self._left = 0  # of what was written
        self._measured_at = growth.now
        self._taken_then = 0
        if credit_bytes is not None:
            self._granted = bounded_window(credit_bytes)
            self._set_credit()

    @property
    def rule(self) -> Hashable:
        """The rule under which it was opened."""
        return self.turns.rule

    @property
    def is_finished(self) -> bool:
        return super().is_finished or (self.failure is not None and self._reset is None)

    def accept(self, credit_bytes: int) -> None:
        """The far side has accepted it.

        Args:
            credit_bytes: Its window.
        """
        self.is_opened = True
        self._granted = max(self._granted, bounded_window(credit_bytes))  # it may have given more before this was heard
        self._set_credit()
        self._changed[self] = None
        if self.is_ready:
            self.way.add(self)

    def next_chunk(self) -> bytes:
        if self._is_credit_due:
            self._tune_window()
        parts = self._full[0] if self._full else self._parts
        was_crowded = 2 * (self.written - self._left) > QUEUED_BYTES_MAX
        self._left += sum(map(len, parts)) + len(parts) // 2 * (PIECE_CHARGE - FRAME.size)
        self._set_credit()
        if was_crowded and 2 * (self.written - self._left) <= QUEUED_BYTES_MAX:
            self._changed[self] = None
        return super().next_chunk()

    def _tune_window(self) -> None:
        growth = self._growth
        elapsed_s = growth.now - self._measured_at
        if growth.round_trip_s > 0 and elapsed_s >= growth.round_trip_s:
            window_bytes = growth.next_window_bytes(self._window, self._taken - self._taken_then, elapsed_s)
            if window_bytes > self._window:
                self.grow_window(window_bytes)
            self._measured_at, self._taken_then = growth.now, self._taken

    def _receive_credit(self, total: int) -> None:
        super()._receive_credit(total)
        self._set_credit()

    def _set_credit(self) -> None:
        self.credit = min(self._granted, self._left + QUEUED_BYTES_MAX) - self.written

    def _become_ready(self) -> None:
        self.is_ready = True
        if self.is_opened:
            self.way.add(self)


class Channels:
    """The channels of one connection.

    Args:
        line: The connection.
        budget: The memory and number of the channels of this neighbour.
        count_drop: Counts what is dropped, by reason.
        largest_window_bytes: How far windows grow: at most ``GROWN_WINDOW_BYTES_MAX``.
    """

    def __init__(
        self,
        line: Line,
        budget: WindowBudget,
        count_drop: Callable[[str], object],
        *,
        largest_window_bytes: int = GROWN_WINDOW_BYTES,
    ) -> None:
        self._line = line
        self._budget = budget
        self._count_drop = count_drop
        self._growth = WindowGrowth(budget, largest_window_bytes)
        self._ends: dict[int, ChannelEnd] = {}  # by what this side's frames carry
        self._rules: dict[Hashable, RuleTurns] = {}
        self._ready: dict[Way[ChannelEnd], None] = {}  # the rules with a channel that has a chunk, in the order of their turns
        self._changed: dict[ChannelEnd, None] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, number: int) -> bool:
        return number in self._ends

    def get(self, number: int) -> ChannelEnd | None:
        """Return a channel by its number: with :data:`FAR_SIDE` if the far side has opened it."""
        return self._ends.get(number)

    def ends(self) -> list[ChannelEnd]:
        """Return all channels."""
        return list(self._ends.values())

    # -- opening

    def first_window_bytes(self) -> int:
        """Return the window that the next channel begins with; 0 if there is no room for another channel."""
        return self._growth.first_window_bytes(QUEUED_BYTES_MAX)

    def open(
        self,
        number: int,
        *,
        rule: Hashable,
        window_bytes: int,
        credit_bytes: int | None = None,
        headers: Headers = NO_HEADERS,
    ) -> ChannelEnd:
        """Begin a channel: one that the far side is asked for, or has asked for.

        Args:
            number: A new one; with :data:`FAR_SIDE` if the far side has asked.
            rule: Names the rule that it falls under, for the turns.
            window_bytes: What the far side may send at first: what :meth:`first_window_bytes` has said in this turn.
            credit_bytes: The far side's window if it has asked; None if it is asked, until :meth:`opened` or :meth:`refused`.
            headers: What was given with it.
        """
        assert number not in self._ends
        turns = self._rules.get(rule)
        if turns is None:
            turns = self._rules[rule] = RuleTurns(self._ready, rule)
        turns.channels += 1
        self._budget.take(window_bytes + QUEUED_BYTES_MAX, channels=1)
        end = self._ends[number] = ChannelEnd(
            number,
            turns,
            self._growth,
            window_bytes=window_bytes,
            credit_bytes=credit_bytes,
            changed=self._changed,
            headers=headers,
        )
        return end

    def opened(self, number: int, credit_bytes: int) -> None:
        """The far side has accepted a channel that it was asked for.

        Args:
            number: As in :meth:`open`.
            credit_bytes: Its window.
        """
        end = self._ends.get(number)
        if end is None or end.is_opened:
            self._count_drop("unknown_channel")
        else:
            end.accept(credit_bytes)

    def refused(self, number: int, failure: Failure) -> None:
        """The far side has refused a channel that it was asked for."""
        end = self._ends.get(number)
        if end is None or end.is_opened:
            self._count_drop("unknown_channel")
        else:
            end.fail(failure, is_told=False)
            self._forget(end)

    def withdrawn(self, number: int, failure: Failure) -> None:
        """The far side has asked for a channel, and does not want it any more; it knows nothing of an end here."""
        end = self._ends.get(number)
        if end is not None:
            end.fail(failure, is_told=False)
            self._forget(end)

    def close(self, reason: str) -> None:
        """Break all channels: the connection is gone.

        Args:
            reason: Why, for people.
        """
        for end in self.ends():
            end.fail(Failure(reason), is_told=False)
            self._forget(end)

    # -- in

    def receive(self, number: bytes, data: bytes, start: int, stop: int, now: float) -> None:
        """Take a TUNNEL frame, as the link passes it on.

        Args:
            number: That of the channel, as the far side has it.
            data: Has the frames of the channel.
            start: Where they begin.
            stop: Where they end.
            now: The time.
        """
        end = self._ends.get(NUMBER.unpack(number)[0] ^ FAR_SIDE)
        if end is None:
            self._count_drop("unknown_channel")  # most often it ended here while this was under way
            return
        self._growth.now = now
        end.receive_frames(data, start, stop)
        if end.is_finished:
            self._forget(end)

    # -- out

    @property
    def has_work(self) -> bool:
        """Whether :meth:`fill` would send anything, or :meth:`changed` return any."""
        return bool(self._changed) or (bool(self._ready) and self._line.has_tunnel_room)

    @property
    def has_changed(self) -> bool:
        """Whether :meth:`changed` would return any."""
        return bool(self._changed)

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`fill` would send anything."""
        return bool(self._ready) and self._line.has_tunnel_room

    @property
    def round_trip_s(self) -> float:
        """The round trip of the line, in seconds; 0 while it is not known. The owner measures it."""
        return self._growth.round_trip_s

    @round_trip_s.setter
    def round_trip_s(self, round_trip_s: float) -> None:
        self._growth.round_trip_s = round_trip_s

    def fill(self, now: float) -> bool:
        """Give the line chunks while it has room, in turns of the rules; returns whether it got any."""
        ready, line = self._ready, self._line
        if not ready or not line.has_tunnel_room:
            return False
        self._growth.now = now
        while ready and line.has_tunnel_room:
            turns = next(iter(ready))
            assert isinstance(turns, RuleTurns)
            if turns.allowance <= 0:
                turns.allowance += TURN_BYTES
            end, chunk = turns.take_turn()
            turns.allowance -= len(chunk)
            line.send_tunnel(NUMBER.pack(end.id), chunk, now)
            if not turns.ready:
                del ready[turns]
                turns.allowance = min(0, turns.allowance)
            elif turns.allowance <= 0:
                del ready[turns]
                ready[turns] = None  # behind all others
            if end.is_finished:
                self._forget(end)
        return True

    def changed(self) -> list[ChannelEnd]:
        """Take the ends of which something changed that their applications may wait for: call ``on_changed`` of each."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    # --

    def _forget(self, end: ChannelEnd) -> None:
        del self._ends[end.id]
        turns = end.turns
        turns.ready.pop(end, None)
        if not turns.ready:
            self._ready.pop(turns, None)
        turns.channels -= 1
        if not turns.channels:
            del self._rules[turns.rule]
        self._budget.give_back(end.window_bytes + QUEUED_BYTES_MAX, channels=1)
