"""The turns of NATS clients: a client that sends much does not make others wait (docs/design.md 18.9)."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["OPERATIONS_MAX", "ClientInput", "InputTurns", "PatternTurns"]

#: Time for the operations of one client, before others have their turn (seconds). Too small: few messages share the
#: work of a turn, and each one costs more; too large: other clients wait.
TURN_S: Final = 2e-3
#: The same for a busy client, while others are at work: the client has lately sent more than fits a turn. Too small: a program
#: that sends much beside others is slow; too large: other clients wait for each turn of it.
BUSY_TURN_S: Final = 0.2e-3
#: The same for a client that sends many operations besides messages, such as subscriptions, or messages that nobody may or can
#: get. Programs send few of these, so their cost matters less than the time of others.
CONTROL_TURN_S: Final = 0.03e-3
#: The number of such operations for each message from which on the shorter time counts. Too small: a program with a ``PING``
#: among its messages has short turns; too large: others wait.
CONTROLS_SHARE: Final = 0.5
#: Share of the time that one client may take with such operations, and the time at once after a pause (seconds). Too small: a
#: program with thousands of subscriptions starts late; too large: all others wait for one client.
CONTROL_SHARE: Final = 0.05
CONTROL_BURST_S: Final = 20e-3
#: Time that a client gets at once after it has used up its share (seconds): many turns, one after the other. Too small: most
#: turns begin with cold caches, and take four times as long; too large: the client waits long for the next ones.
CONTROL_REFILL_S: Final = 3e-3
#: Time for which a client is at work after it has sent something that fits a turn, or busy after it has sent more (seconds).
#: Too small: a client that sends now and then waits for long turns of others; too large: a client that has sent much has
#: short turns for long.
AT_WORK_S: Final = 0.1
#: Bytes of a turn: at least, at first, and at most. A turn takes as many as the last one took in its time, and grows slowly.
SLICE_BYTES_MIN: Final = 32
SLICE_BYTES_FIRST: Final = 1024
SLICE_BYTES_MAX: Final = 256 * 1024
_GROWTH: Final = 2
_TICK_S: Final = 1e-9
#: Rounds of the event loop between two turns while others are at work: one to read from others, one to write to them.
_RESTS: Final = 2
#: Operations of a turn. The bytes of an operation say little of its cost: behind large messages, a turn would take thousands of
#: small operations. Too small: few messages share the work of a turn; too large: others wait for such a turn.
OPERATIONS_MAX: Final = 256
#: Subscriptions of the node that begin or end at a time, and the time to the next ones (seconds). Each takes a tenth of a
#: millisecond. Too few or seldom: a client with thousands is known late; too many or often: other clients wait.
PATTERNS_MAX: Final = 2
PATTERNS_S: Final = 1e-3
#: The time between two of one client with many (seconds), one at a time, while clients are at work. Other clients with new
#: subscriptions share it, down to the time above. Too small: clients at work wait; too large: a client with thousands is known
#: late: with 10,000 after 45 s.
BUSY_PATTERNS_S: Final = 4e-3
#: Subscriptions of such a client in a row, each in a turn of its own; their pauses follow together. Too few: most of them begin
#: with cold caches, and take four times as long; too many: a client with new subscriptions waits long for the next row.
PATTERNS_IN_ROW: Final = 32
#: Waiting ones, or ones of the last GATHER_S, from which on publishers are told of the changes together, and the time until
#: then (seconds). Each telling takes half a millisecond and more, whatever the number of changes. Too small: a program with
#: some subscriptions starts late; too large: other clients wait.
MANY_PATTERNS: Final = 16
GATHER_S: Final = 0.3


class InputTurns:
    """Gives clients with waiting bytes their turns, and lets clients write what the turns of others have for them.

    One client has its turn in a round of the event loop. While others are at work, no client has one in the next rounds: what
    has come from others meanwhile is read, executed and written first. So a message waits for one turn of another client,
    whatever the number of clients that send much.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._outputs: deque[Callable[[], None]] = deque()
        self._is_due = False
        self._rests = 0
        self._last: Callable[[], None] | None = None
        self._last_at = self._other_at = -AT_WORK_S

    def note(self, client: Callable[[], None], now: float) -> None:
        """Note that a client has sent something that fits a single turn: it may wait for the effect.

        Args:
            client: The function that takes its turns.
            now: The time (seconds).
        """
        if client != self._last:
            self._last, self._other_at = client, self._last_at
        self._last_at = now

    def has_others(self, client: Callable[[], None], now: float) -> bool:
        """Return whether another client is at work.

        Args:
            client: The function that takes the turns of this client.
            now: The time (seconds).
        """
        return now - (self._other_at if client == self._last else self._last_at) < AT_WORK_S

    def add(self, proceed: Callable[[], None], delay: float = 0.0) -> None:
        """Give a client its turn soon. It has just had one.

        Args:
            proceed: Takes the turn.
            delay: Seconds before it.
        """
        if delay > 0.0:
            asyncio.get_running_loop().call_later(delay, self.add, proceed)
            return
        self._waiting.append(proceed)
        self._rests = _RESTS
        self._wake()

    def write_soon(self, write: Callable[[], None]) -> None:
        """Let a client write in the next round of the event loop, before other clients have their turn."""
        self._outputs.append(write)
        self._wake()

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        waiting, outputs = self._waiting, self._outputs
        if not waiting and len(outputs) == 1:  # the usual case, in half of the time
            outputs.popleft()()
            return
        has_output = bool(outputs)
        try:
            while outputs:
                outputs.popleft()()
            if waiting and not self._is_for_others(has_output=has_output):
                self._rests = _RESTS
                waiting.popleft()()
        finally:
            if waiting or outputs:
                self._wake()

    def _is_for_others(self, *, has_output: bool) -> bool:
        """Return whether this round is for others than the client with the next turn.

        uvloop writes behind all functions of a round, so what others are to get would wait for a turn in the same round.
        """
        rests = self._rests
        self._rests = max(0, rests - 1)
        is_due = rests == _RESTS or (rests > 0 and has_output)
        return is_due and self.has_others(self._waiting[0], asyncio.get_running_loop().time())


class ClientInput:
    """The received bytes of one client, taken in turns that are bounded in time.

    Attributes:
        is_control: Whether the last turn had many operations besides messages.
    """

    __slots__ = (
        "_at",
        "_began",
        "_busy_until",
        "_bytes_per_s",
        "_control_at",
        "_control_left",
        "_data",
        "_held",
        "_size",
        "_taken",
        "_used",
        "is_control",
    )

    def __init__(self) -> None:
        self.is_control = False
        self._data = b""
        self._at = 0
        self._held: list[bytes] = []
        self._set_rate(SLICE_BYTES_FIRST / TURN_S)
        self._busy_until = 0.0
        self._used = 0.0  # since no bytes waited
        self._began = self._control_at = 0.0
        self._control_left = CONTROL_BURST_S
        self._taken = 0

    def __bool__(self) -> bool:
        return bool(self._data or self._held)

    def add(self, data: bytes) -> None:
        """Add received bytes."""
        self._held.append(data)

    def is_busy(self, now: float) -> bool:
        """Return whether the client has lately sent more than fits a turn."""
        return now < self._busy_until

    def take(self, *, is_short: bool, is_whole: bool) -> bytes:
        """Return the bytes of a turn, which begins.

        Args:
            is_short: Whether the turn is that of a busy client beside others.
            is_whole: Whether the turn takes all bytes, whatever their time.
        """
        data, at, held = self._data, self._at, self._held
        if not data:
            self._data = data = held[0] if len(held) == 1 else b"".join(held)
            held.clear()
        size = self._size
        if self.is_control or is_short:
            budget_s = CONTROL_TURN_S if self.is_control else BUSY_TURN_S
            size = max(SLICE_BYTES_MIN, int(self._bytes_per_s * budget_s))
        piece = data if not at and len(data) <= size else data[at:] if is_whole else data[at : at + size]
        self._at = at + len(piece)
        self._taken = len(piece)
        self._began = perf_counter()
        return piece

    def finish(self, unread: int, controls: int, messages: int, now: float) -> float | None:
        """End the turn, and choose the size of the next one.

        Args:
            unread: The last bytes of the turn that were not read, because it has too many operations.
            controls: The operations of the turn besides messages, and the messages that nobody may or can get.
            messages: The messages of the turn.
            now: The time (seconds).

        Returns:
            The time before the next turn (seconds); None if no bytes are left, and others may come at once.
        """
        used = perf_counter() - self._began
        self._at -= unread
        if self._at >= len(self._data):
            self._data, self._at = b"", 0
        is_left = bool(self._data or self._held)
        self._used = self._used + used if is_left else 0.0
        if self._used > TURN_S:
            self._busy_until = now + AT_WORK_S
        taken = self._taken - unread
        if used * self._bytes_per_s > taken:
            self._set_rate(max(SLICE_BYTES_MIN / CONTROL_TURN_S, taken / used))
        elif is_left and not unread:
            self._set_rate(min(SLICE_BYTES_MAX / CONTROL_TURN_S, self._bytes_per_s * _GROWTH, taken / max(used, _TICK_S)))
        if not controls:
            self.is_control = False
            return 0.0 if is_left else None
        share = controls / max(controls, messages)
        self.is_control = share > CONTROLS_SHARE
        left = min(CONTROL_BURST_S, self._control_left + (now - self._control_at) * CONTROL_SHARE) - used * share
        self._control_at, self._control_left = now, left
        if left < 0.0:
            return (CONTROL_REFILL_S - left) / CONTROL_SHARE
        return 0.0 if is_left else None

    def _set_rate(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._size = min(SLICE_BYTES_MAX, max(SLICE_BYTES_MIN, int(bytes_per_s * TURN_S)))

    def drop(self) -> None:
        """Drop all bytes."""
        self._data, self._at = b"", 0
        self._held.clear()


class PatternTurns:
    """Lets the node open and close few subscriptions at a time: a client may have thousands.

    The clients have turns one after the other, so a client with few subscriptions waits for few of any other client.

    Args:
        turns: The turns of the clients, among which the subscriptions have theirs.
        gather: Called with a time (seconds) when many wait: publishers are to be told together after it.
    """

    def __init__(self, turns: InputTurns, gather: Callable[[float], None]) -> None:
        self._turns = turns
        self._gather = gather
        self._counts_until = self._gathers_until = 0.0
        self._begun = 0
        self._in_row = 0
        self._changes: dict[Hashable, _PatternChange] = {}
        self._clients: dict[Hashable, dict[Hashable, None]] = {}  # the names of the changes; the next client first
        self._is_due = False

    def __contains__(self, name: Hashable) -> bool:
        """Return whether a change waits for a turn."""
        return name in self._changes

    def add(self, client: Hashable, name: Hashable, begin: Callable[[], object]) -> None:
        """Let a subscription begin or end in the next turn of a client.

        Args:
            client: The client. Another one may wait for the same change.
            name: The name of the change.
            begin: Begins the change.
        """
        change = self._changes.setdefault(name, _PatternChange([], begin))
        names = self._clients.setdefault(client, {})
        if name not in names:
            names[name] = None
            change.clients.append(client)
        if not self._is_due:
            self._is_due = True
            self._turns.add(self._run)

    def discard(self, name: Hashable) -> bool:
        """Forget a change; return whether the change was waiting."""
        return self._take(name) is not None

    def begin_all(self) -> None:
        """Begin all changes at once, as at the end of the door."""
        while self._changes:
            self._begin_next()

    # --

    def _run(self) -> None:
        now = asyncio.get_running_loop().time()
        are_many = self._gather_many(now)
        count, pause = PATTERNS_MAX, PATTERNS_S
        if self._clients and self._turns.has_others(self._run, now):
            shared = BUSY_PATTERNS_S / len(self._clients)
            if shared >= PATTERNS_S:
                count, pause = 1, PATTERNS_S
                if are_many:
                    self._in_row = (self._in_row + 1) % PATTERNS_IN_ROW
                    pause = 0.0 if self._in_row else PATTERNS_IN_ROW * shared
        for _ in range(min(count, len(self._changes))):
            self._begun += 1
            self._begin_next()
        self._is_due = bool(self._changes)
        if self._is_due:
            self._turns.add(self._run, pause)

    def _begin_next(self) -> None:
        """Begin the oldest change of the next client, and put the client behind the others."""
        client = next(iter(self._clients))
        names = self._clients.pop(client)
        self._clients[client] = names
        change = self._take(next(iter(names)))
        if change is not None:
            change.begin()

    def _take(self, name: Hashable) -> _PatternChange | None:
        change = self._changes.pop(name, None)
        for client in () if change is None else change.clients:
            names = self._clients[client]
            del names[name]
            if not names:
                del self._clients[client]
        return change

    def _gather_many(self, now: float) -> bool:
        """Let publishers be told together if many subscriptions wait, or have begun or ended lately; return whether so."""
        are_many = max(len(self._changes), self._begun) > MANY_PATTERNS
        if now < self._gathers_until:
            return are_many
        if are_many:
            self._gathers_until = now + GATHER_S
            self._gather(GATHER_S)
        elif now < self._counts_until:
            return False
        self._begun, self._counts_until = 0, now + GATHER_S
        return are_many


class _PatternChange(NamedTuple):
    """The beginning or end of a subscription, in a turn."""

    clients: list[Hashable]
    begin: Callable[[], object]
