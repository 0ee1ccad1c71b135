"""The order of multicasts from each source, without duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from iris_overlay.groups.messages import STAMP_SHIFT
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.ids import GroupId, NodeId

T = TypeVar("T")
SourceKey: TypeAlias = "tuple[GroupId, NodeId]"

#: The largest number of multicasts of one source that wait for an earlier one; beyond it the earlier one is skipped. Too small:
#: losses after reordering; too large: memory.
HELD_MAX: Final = 64

#: The largest number of sources with a remembered order, of all groups; beyond it the source silent for longest is forgotten.
#: Too small: a duplicate from a forgotten source is delivered twice; too large: memory.
SOURCES_MAX: Final = 4096


class Sequence(Generic[T]):
    """The order of the multicasts from one source to one group.

    A late member begins with the first multicast it sees, because a lost earlier one would look the same.
    """

    __slots__ = ("_held", "deadline", "expected", "since", "skipped", "used_at")

    def __init__(self) -> None:
        # The next number: all earlier ones were delivered or skipped; None before the first. Invariant: no held number is
        # lower.
        self.expected: int | None = None
        self._held: dict[int, T] = {}
        # From this number on none was skipped.
        self.since = 0
        self.deadline: float | None = None
        self.skipped = 0
        self.used_at = 0.0

    def is_new(self, number: int) -> bool:
        """Return whether the multicast with a number was neither delivered nor skipped, and does not wait."""
        return self.expected is None or (number >= self.expected and number not in self._held)

    def accept(self, number: int, item: T, now: float, reorder_s: float, base: int | None = None) -> list[T]:
        """Take a multicast; return all multicasts that can now be delivered, in order.

        Args:
            number: The number of the multicast.
            item: The multicast.
            now: Monotonic seconds.
            reorder_s: The longest wait for earlier multicasts.
            base: The first number that may still come, if the sender reports it: missing multicasts before it are skipped.
        """
        self.used_at = now
        earlier: list[T] = []
        if base is not None:
            if self.expected is None:
                self.expected = self.since = base
            elif self.expected < base:
                earlier = self._skip_to(base)
        if self.expected is None or number >> STAMP_SHIFT > self.expected >> STAMP_SHIFT:
            # The source starts over; its earlier multicasts come first.
            earlier += [self._held[held] for held in sorted(self._held)]
            self._held.clear()
            self.deadline = None
            self.since, self.expected = number, number + 1
            return [*earlier, item]
        if number >= self.expected:
            self._held.setdefault(number, item)
        # The expected one may be held, after a move of the base.
        if self.expected in self._held or len(self._held) > HELD_MAX:
            return earlier + self._drain(now, reorder_s)
        if self._held and self.deadline is None:
            self.deadline = now + reorder_s
        return earlier

    def expire(self, now: float, reorder_s: float) -> list[T]:
        """Skip overdue multicasts; return the waiting multicasts up to the next gap."""
        if self.deadline is None or self.deadline > now:
            return []
        return self._drain(now, reorder_s)

    def _drain(self, now: float, reorder_s: float) -> list[T]:
        """Return the waiting multicasts up to the next gap; skip the missing numbers before the first."""
        assert self.expected is not None
        first = min(self._held)
        if first != self.expected:
            self.skipped += first - self.expected
            self.since = first
        ready: list[T] = []
        while first in self._held:
            ready.append(self._held.pop(first))
            first += 1
        self.expected = first
        self.deadline = now + reorder_s if self._held else None
        return ready

    def _skip_to(self, base: int) -> list[T]:
        """Return the waiting multicasts below a number, and skip the missing ones."""
        assert self.expected is not None
        numbers = sorted(number for number in self._held if number < base)
        if base >> STAMP_SHIFT == self.expected >> STAMP_SHIFT:
            self.skipped += base - self.expected - len(numbers)
        self.expected = self.since = base
        if not any(number >= base for number in self._held):
            self.deadline = None
        return [self._held.pop(number) for number in numbers]


class Sequences(Generic[T]):
    """The order of multicasts from many sources to many groups."""

    __slots__ = ("_gaps", "_reorder_s", "_sequences", "_sources_max", "skipped")

    def __init__(self, reorder_s: float, sources_max: int) -> None:
        """Create the order of no sources.

        Args:
            reorder_s: The wait of a multicast for an earlier one.
            sources_max: The bound of known sources; beyond it the source silent for longest is forgotten.
        """
        self.skipped = 0
        self._reorder_s = reorder_s
        self._sources_max = sources_max
        # In order of use. Invariant: a key has a deadline in _gaps exactly while one of its multicasts waits.
        self._sequences: dict[SourceKey, Sequence[T]] = {}
        self._gaps: DeadlineTable[SourceKey] = DeadlineTable()

    def __len__(self) -> int:
        return len(self._sequences)

    def __contains__(self, key: SourceKey) -> bool:
        return key in self._sequences

    def is_new(self, key: SourceKey, number: int) -> bool:
        """Return whether the multicast with a number is neither a duplicate nor was skipped."""
        sequence = self._sequences.get(key)
        return sequence is None or sequence.is_new(number)

    def since(self, key: SourceKey) -> int:
        """Return the lowest number from which on no multicast of a source was skipped."""
        return self._sequences[key].since

    def accept(self, key: SourceKey, number: int, item: T, now: float, base: int | None = None) -> list[T]:
        """Take a multicast; return all multicasts of its source that can now be delivered, in order. See `Sequence.accept`."""
        sequence = self._sequences.pop(key, None)
        if sequence is None:
            sequence = Sequence()
            if len(self._sequences) >= self._sources_max:
                self._forget(next(iter(self._sequences)))
        self._sequences[key] = sequence
        skipped = sequence.skipped
        ready = sequence.accept(number, item, now, self._reorder_s, base)
        self._note(key, sequence, skipped)
        return ready

    def expired(self, now: float) -> list[tuple[SourceKey, list[T]]]:
        """Skip overdue multicasts; return the multicasts that waited for them, by source."""
        ready: list[tuple[SourceKey, list[T]]] = []
        for key in self._gaps.expired(now):
            sequence = self._sequences[key]
            skipped = sequence.skipped
            ready.append((key, sequence.expire(now, self._reorder_s)))
            self._note(key, sequence, skipped)
        return ready

    def deadline(self) -> float | None:
        """Return the earliest end of a wait for a missing multicast, or None."""
        return self._gaps.deadline()

    def forget_group(self, group: GroupId) -> None:
        """Forget the order of all sources of a group."""
        for key in [key for key in self._sequences if key[0] == group]:
            self._forget(key)

    def forget_idle(self, before: float) -> None:
        """Forget the sources that were silent since a time."""
        for key in [key for key, sequence in self._sequences.items() if sequence.used_at < before]:
            self._forget(key)

    def _forget(self, key: SourceKey) -> None:
        del self._sequences[key]
        self._gaps.cancel(key)

    def _note(self, key: SourceKey, sequence: Sequence[T], skipped: int) -> None:
        self.skipped += sequence.skipped - skipped
        if sequence.deadline is None:
            self._gaps.cancel(key)
        else:
            self._gaps.set(key, sequence.deadline)
