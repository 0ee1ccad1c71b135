"""The channels of a connection between two gateways: duplexes with credit, in fair turns (docs/design.md 15.41).

A channel carries messages that do not fit a request: of a tunnel, subscription, publisher or survey. Each gateway holds one
end, a :class:`~iris_py.patterns.tunnel.duplex.DuplexEnd`. Chunks need no encryption of their own, because the connection
encrypts its records. TUNNEL frames carry the chunks behind the channel's number. A channel stays on one connection, to keep its
order, and breaks with the connection.

Both gateways number the channels they open from 0. A frame carries its sender's number, with :data:`FAR_SIDE` set if the
receiver opened the channel. Opening messages travel separately (:mod:`iris_py.federation.messages`), possibly on another
connection, so an end may receive data before its acceptance; the end sends nothing until accepted.

A channel carries at most one window in each round trip, so a long line needs a large window (15.42). The receiver sizes the
window as TCP does (Fisk and Feng, Dynamic Right-Sizing in TCP, 2001): from the bytes consumed within a round trip, with some
:data:`HEADROOM`, at most doubling at once. The window stays small for a reader slower than the line. The window stops growing
for a transfer that fills the line, where a larger window would only lengthen the queue.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

from iris_py.link.lanes import TUNNEL
from iris_py.patterns.tunnel.duplex import DuplexEnd, Failure, Way, bounded_window, charge_of
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from iris_py.patterns.tunnel.duplex import Piece
    from iris_py.wire.headers import Headers

#: The initial window of a channel, if memory allows. Too small: short transfers wait for credit; too large: few channels fit.
FIRST_WINDOW_BYTES = 1024 * 1024
#: The smallest initial window: with less memory a channel is refused. Too small: channels that can hardly move; too large:
#: fewer channels fit.
FIRST_WINDOW_BYTES_MIN = 64 * 1024
#: An initial window is at most this fraction of the remaining memory, so that the last channels find some, too.
FIRST_WINDOW_SHARE = 8
#: The window as a multiple of the bytes consumed within a round trip. Too small: a sender limited by credit, which comes in
#: quarters of the window, never gets more; too large: other traffic waits as many round trips behind a transfer that fills the
#: line.
HEADROOM = 1.75
#: The smallest growth, as a fraction of the window. Too small: many credits for little growth.
GROWTH_SHARE_MIN = 1 / 16
#: The default of the largest window: 210 MB/s at 80 ms. Too small: long lines are not used; too large: a stalled reader holds
#: up as much.
GROWN_WINDOW_BYTES = 16 * 1024 * 1024
#: The largest value that an operator may set. Python's own speed is a lower bound.
GROWN_WINDOW_BYTES_MAX = 256 * 1024 * 1024
#: The default memory of all channels of a gateway. Too small: windows do not grow, and channels are refused; too large: the
#: gateway may run out of memory.
CHANNEL_BYTES = 1024 * 1024 * 1024
#: The default memory of the channels to one neighbour: a neighbour with many channels leaves room for others.
NEIGHBOUR_CHANNEL_BYTES = 256 * 1024 * 1024
#: Channels of one neighbour. Too small: channels are refused; too large: a neighbour can fill large tables.
CHANNELS_MAX = 4096


class WindowBudget:
    """A bound on the memory and number of channels, of one neighbour or of a gateway.

    Args:
        limit_bytes: The largest memory.
        channels_max: The largest number of channels; None for no bound but memory.
        within: The gateway's budget that includes this neighbour's budget.

    Attributes:
        used_bytes: The memory in use. Invariant: 0 <= used_bytes <= limit_bytes.
        channels: The number of channels.
    """

    def __init__(self, limit_bytes: int, *, channels_max: int | None = None, within: WindowBudget | None = None) -> None:
        self.used_bytes = 0
        self.channels = 0
        self._limit_bytes = limit_bytes
        self._channels_max = channels_max
        self._within = within

    @property
    def left_bytes(self) -> int:
        """The remaining bytes."""
        left = self._limit_bytes - self.used_bytes
        return left if self._within is None else min(left, self._within.left_bytes)

    @property
    def has_place(self) -> bool:
        """Whether the bound on the number allows another channel."""
        is_full = self._channels_max is not None and self.channels >= self._channels_max
        return not is_full and (self._within is None or self._within.has_place)

    def take(self, size: int, *, channels: int = 0) -> None:
        """Count memory and channels as used. Check :attr:`left_bytes` and :attr:`has_place` before."""
        self.used_bytes += size
        self.channels += channels
        if self._within is not None:
            self._within.take(size, channels=channels)

    def give_back(self, size: int, *, channels: int = 0) -> None:
        """Count memory and channels as free again."""
        self.take(-size, channels=-channels)


class WindowGrowth:
    """Sizes the windows of the channels of one connection, from the bytes consumed in a round trip.

    Attributes:
        budget: The memory budget.
        now: The time of the present call.
        round_trip_s: The smoothed round trip of the line in seconds; 0 while unknown, when no window grows.
    """

    def __init__(self, budget: WindowBudget, largest_bytes: int) -> None:
        self.budget = budget
        self.now = 0.0
        self.round_trip_s = 0.0
        self._largest_bytes = largest_bytes

    def first_window_bytes(self, queue_bytes: int) -> int:
        """Return the initial window of a channel; 0 without room for another channel.

        Args:
            queue_bytes: The channel's memory besides its window.
        """
        if not self.budget.has_place:
            return 0
        left = self.budget.left_bytes
        size = min(FIRST_WINDOW_BYTES, self._largest_bytes, max(FIRST_WINDOW_BYTES_MIN, left // FIRST_WINDOW_SHARE))
        return size if size + queue_bytes <= left else 0

    def next_window_bytes(self, window_bytes: int, taken: int, elapsed_s: float) -> int:
        """Return the next window of a channel, and count the memory of its growth in the budget.

        Args:
            taken: The bytes consumed in the measured time, as counted by credits.
            elapsed_s: The measured time: at least a round trip.
        """
        wanted = int(HEADROOM * taken * self.round_trip_s / elapsed_s) - window_bytes
        more = min(wanted, window_bytes, self._largest_bytes - window_bytes)
        if wanted < GROWTH_SHARE_MIN * window_bytes or not 0 < more <= self.budget.left_bytes:
            return window_bytes
        self.budget.take(more)
        return window_bytes + more


#: Set in the number of a channel opened by the peer.
FAR_SIDE = 1 << 63
#: The number of a channel, in front of its frames.
NUMBER = struct.Struct(">Q")
#: The largest send queue of an end, in bytes and charges, regardless of the peer's credit. Too small: the line runs dry between
#: turns of the event loop; too large: memory for each channel.
QUEUED_BYTES_MAX = 256 * 1024


class ChannelLink(Protocol):
    """A connection, as used by channels: a :class:`~iris_py.link.link.Link`."""

    @property
    def chunk_room(self) -> int:
        """Largest chunk that may be queued now, in bytes; 0 without room for another one."""

    def send_tunnel(self, kind: int, tunnel_id: bytes, chunk: Sequence[Piece], size: int, now: float) -> None:
        """Queue a chunk, in parts."""


class RuleTurns(Way["ChannelEnd"]):
    """The channels of one rule on a connection: rules take turns, and the rule's channels take turns within its turn.

    Attributes:
        rule: The key of the rule.
        channels: The number of channels.
        allowance: The bytes left in the rule's turn.
    """

    def __init__(self, ready_ways: dict[Way[ChannelEnd], None], rule: Hashable) -> None:
        super().__init__(ready_ways)
        self.rule = rule
        self.channels = 0
        self.allowance = 0


class ChannelEnd(DuplexEnd):
    """The local end of a channel to a gateway of another cloud.

    Args:
        number: The number in frames sent from this end.
        window_bytes: The peer's initial credit.
        credit_bytes: The initial credit from the peer; None before the peer accepts.
        changed: A table to which this end adds itself after a change that its application may wait for.

    Attributes:
        turns: The turns of the rule.
        is_opened: Whether the peer has accepted the channel. Nothing is sent before.
        credit: The bytes that may still be written. Invariant: 0 <= credit <= the peer's window, and at most
            :data:`QUEUED_BYTES_MAX` written bytes are unsent.
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
        self._left = 0  # sent part of the written bytes
        self._measured_at = growth.now
        self._taken_then = 0
        if credit_bytes is not None:
            self._granted = bounded_window(credit_bytes)
            self._set_credit()

    @property
    def rule(self) -> Hashable:
        """The key of the channel's rule."""
        return self.turns.rule

    @property
    def is_finished(self) -> bool:
        return super().is_finished or (self.failure is not None and self._reset is None)

    def accept(self, credit_bytes: int) -> None:
        """Handle the peer's acceptance.

        Args:
            credit_bytes: The peer's window.
        """
        self.is_opened = True
        self._granted = max(self._granted, bounded_window(credit_bytes))  # a credit may have overtaken the acceptance
        self._set_credit()
        self._changed[self] = None
        if self.is_ready:
            self.way.add(self)

    def next_chunk(self, chunk_bytes: int) -> list[Piece]:
        if self._is_credit_due:
            self._tune_window()
        return super().next_chunk(chunk_bytes)

    def _take_pieces(self, chunk_bytes: int) -> list[Piece]:
        frames = super()._take_pieces(chunk_bytes)
        was_crowded = 2 * (self.written - self._left) > QUEUED_BYTES_MAX
        self._left += sum([charge_of(len(piece)) for piece in frames[1::2]])
        self._set_credit()
        if was_crowded and 2 * (self.written - self._left) <= QUEUED_BYTES_MAX:
            self._changed[self] = None
        return frames

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
    """The channels of a connection between two gateways.

    Args:
        budget: The budget of the neighbour's channels.
        count_drop: Counts a dropped message by its reason.
        largest_window_bytes: The largest window: at most ``GROWN_WINDOW_BYTES_MAX``.
    """

    def __init__(
        self,
        line: ChannelLink,
        budget: WindowBudget,
        count_drop: Callable[[str], object],
        *,
        largest_window_bytes: int = GROWN_WINDOW_BYTES,
    ) -> None:
        self._line = line
        self._budget = budget
        self._count_drop = count_drop
        self._growth = WindowGrowth(budget, largest_window_bytes)
        self._ends: dict[int, ChannelEnd] = {}  # by the number in sent frames
        self._rules: dict[Hashable, RuleTurns] = {}
        self._ready: dict[Way[ChannelEnd], None] = {}  # the rules with a chunk to send, in the order of their turns
        self._changed: dict[ChannelEnd, None] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, number: int) -> bool:
        return number in self._ends

    def get(self, number: int) -> ChannelEnd | None:
        """Return a channel by number: with :data:`FAR_SIDE` if opened by the peer."""
        return self._ends.get(number)

    def ends(self) -> list[ChannelEnd]:
        """Return all channels."""
        return list(self._ends.values())

    # -- opening

    def first_window_bytes(self) -> int:
        """Return the initial window of the next channel; 0 without room for another channel."""
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
        """Add a channel, requested by the local gateway or by the peer.

        Args:
            number: A new number; with :data:`FAR_SIDE` for the peer's request.
            rule: The key of the channel's rule, for the turns.
            window_bytes: The peer's initial credit: the result of :meth:`first_window_bytes` in the same turn.
            credit_bytes: The peer's window for the peer's request; None for a local request, until :meth:`opened` or
                :meth:`refused`.
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
        """Handle the peer's acceptance of a channel.

        Args:
            number: As in :meth:`open`.
            credit_bytes: The peer's window.
        """
        end = self._ends.get(number)
        if end is None or end.is_opened:
            self._count_drop("unknown_channel")
        else:
            end.accept(credit_bytes)

    def refused(self, number: int, failure: Failure) -> None:
        """Handle the peer's refusal of a channel."""
        end = self._ends.get(number)
        if end is None or end.is_opened:
            self._count_drop("unknown_channel")
        else:
            end.fail(failure, is_told=False)
            self._forget(end)

    def withdrawn(self, number: int, failure: Failure) -> None:
        """Remove a channel whose request the peer has withdrawn; the peer has no end of the channel."""
        end = self._ends.get(number)
        if end is not None:
            end.fail(failure, is_told=False)
            self._forget(end)

    def close(self, reason: str) -> None:
        """Break all channels after the end of the connection."""
        for end in self.ends():
            end.fail(Failure(reason), is_told=False)
            self._forget(end)

    # -- in

    def receive(self, number: bytes, data: Piece, start: int, stop: int, now: float) -> None:
        """Handle a TUNNEL frame from the link.

        Args:
            number: The peer's number of the channel.
            data: The buffer with the channel's frames.
        """
        end = self._ends.get(NUMBER.unpack(number)[0] ^ FAR_SIDE)
        if end is None:
            self._count_drop("unknown_channel")  # usually the channel ended here while the frame was under way
            return
        self._growth.now = now
        end.receive_frames(data, start, stop)
        if end.is_finished:
            self._forget(end)

    # -- out

    @property
    def has_work(self) -> bool:
        """Whether :meth:`fill` has chunks to send, or :meth:`changed` ends to return."""
        return bool(self._changed) or self.is_ready

    @property
    def has_changed(self) -> bool:
        """Whether :meth:`changed` has ends to return."""
        return bool(self._changed)

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`fill` has chunks to send."""
        return bool(self._ready) and self._line.chunk_room > 0

    @property
    def round_trip_s(self) -> float:
        """The round trip of the line in seconds, measured by the owner; 0 while unknown."""
        return self._growth.round_trip_s

    @round_trip_s.setter
    def round_trip_s(self, round_trip_s: float) -> None:
        self._growth.round_trip_s = round_trip_s

    def fill(self, now: float) -> bool:
        """Send chunks while the line has room, in turns of the rules; return whether any was sent."""
        ready, line = self._ready, self._line
        if not ready or not line.chunk_room:
            return False
        self._growth.now = now
        while ready and (chunk_bytes := line.chunk_room):
            turns = next(iter(ready))
            assert isinstance(turns, RuleTurns)
            if turns.allowance <= 0:
                turns.allowance += chunk_bytes
            end, chunk, size = turns.take_turn(chunk_bytes)
            turns.allowance -= size
            line.send_tunnel(TUNNEL, NUMBER.pack(end.id), chunk, size, now)
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
        """Take the ends with changes; the owner calls ``on_changed`` of each."""
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
