"""Histories: the last messages of some patterns, so that clients of a door can resume (docs/design.md 17.33).

A history is a sequence of entries in the order of arrival: messages, and the gaps between them. A client resumes by a cursor,
which may be of another door. Doors hear the publishers in different orders, so the client gets all messages from `OVERLAP_S`
before the place of the cursor on, and some messages twice. If messages may be missing, the client is told a gap first.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from iris_py.doors.rights import covers
from iris_py.doors.web.cursors import Cursor
from iris_py.doors.web.event_text import MessageText, TextCache, position_text
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.queue import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_py.doors.settings import HistorySettings
    from iris_py.doors.web.cursors import CursorKeys
    from iris_py.doors.web.event_text import EventFormat, GapEvent
    from iris_py.patterns.messages import Message
    from iris_py.patterns.topic.names import Tokens

__all__ = ["OVERLAP_S", "Histories", "History", "HistoryEntry", "ResumePoint"]

Value = TypeVar("Value")

#: The largest difference between the arrivals of a message at two doors, relative to other messages. Too small: a client that
#: changes the door misses messages of a slow publisher; too large: it gets many messages twice.
OVERLAP_S: Final = 2.0
#: Topics whose newest message a history keeps; beyond it the longest unchanged one is forgotten. Too small: a page opens
#: without some of its state; too large: memory, some 500 bytes for each and the message.
LAST_TOPICS_MAX: Final = 10_000
#: Publishers of a history whose newest number is known. Too small: a repeated message is sent to clients again, and quiet
#: clients are told a gap; too large: memory, some 400 bytes for each. A node remembers as many publishers of a topic.
PUBLISHERS_MAX: Final = 4096
#: Size of an entry besides payload and headers, so that the bound in bytes also holds for empty messages and for gaps.
ENTRY_BYTES: Final = 64
#: Bytes of texts that the entries of all histories keep for the next client. Too small: each client that resumes costs the
#: encoding of all its messages; too large: memory.
TEXTS_BYTES_MAX: Final = 16 * 1024 * 1024


class HistoryEntry:
    """A message or a gap in a history.

    Attributes:
        order: The place among the entries of all histories of the door.
        at: The time of arrival (seconds).
        content: The message or the gap.
        topic: The topic of the message; None for a gap, which is for all clients.
        size: The bytes that count for the bounds.
    """

    __slots__ = ("at", "content", "order", "size", "topic")

    def __init__(self, order: int, at: float, content: MessageText | GapEvent) -> None:
        self.order = order
        self.at = at
        self.content = content
        self.topic: str | None = None
        self.size = ENTRY_BYTES
        if isinstance(content, MessageText):
            message = content.message
            self.topic = message.topic
            self.size += size_of(message) + len(message.topic)


class ResumePoint(NamedTuple):
    """The beginning of the messages for a client that resumes."""

    at: float
    """The time of arrival from which on all entries are sent."""
    is_complete: bool
    """Whether nothing is missing before it."""


class History:
    """The last messages of a pattern.

    Args:
        settings: The pattern and the bounds.
        began_at: The time at which the door began to receive the pattern (seconds).

    Attributes:
        settings: As passed.
        pattern: The tokens of the pattern.
        first: The position of the oldest entry; positions are consecutive.
        end: The position of the next entry.
        bytes: The size of the entries.
        last_bytes: The size of the newest messages of each topic; bounded by the same number of bytes.
        repeated: Number of messages dropped as not newer than the last one of their publisher.
    """

    def __init__(self, settings: HistorySettings, began_at: float) -> None:
        self.settings = settings
        self.pattern = parse_pattern(settings.pattern)
        self.first = self.end = 0
        self.bytes = self.last_bytes = 0
        self.repeated = 0
        self._entries: dict[int, HistoryEntry] = {}  # by position
        self._arrivals: dict[tuple[bytes, int], float] = {}  # by publisher and number of the messages among the entries
        self._newest: OrderedDict[bytes, int] = OrderedDict()  # the number of the newest message, by publisher
        # Number and arrival of the newest message of each publisher that is not among the entries any more.
        self._newest_dropped: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        self._last: OrderedDict[str, HistoryEntry] = OrderedDict()  # by topic
        self._complete_after = began_at  # all later arrivals are among the entries

    @property
    def count(self) -> int:
        """The number of entries."""
        return self.end - self.first

    def apply(self, settings: HistorySettings, now: float) -> None:
        """Use other bounds, and drop the entries beyond them.

        Args:
            settings: The bounds, for the same pattern.
            now: The time (seconds).
        """
        self.settings = settings
        if not settings.last:
            self._last.clear()
            self.last_bytes = 0
        self._trim()
        self._trim_last()
        self.expire(now)

    def oldest_s(self, now: float) -> float | None:
        """Return the age of the oldest entry (seconds); None without entries."""
        return now - self._entries[self.first].at if self.first < self.end else None

    def is_newer(self, cursor: Cursor) -> bool:
        """Tell whether a message is newer than all messages of its publisher so far; other messages are repetitions."""
        return cursor.number > self._newest.get(cursor.publisher, -1)

    def add(self, entry: HistoryEntry) -> None:
        """Add an entry, and drop the oldest ones beyond the bounds."""
        content = entry.content
        if isinstance(content, MessageText):
            publisher, number, _elapsed = content.cursor
            self._arrivals[publisher, number] = entry.at
            _put(self._newest, publisher, number)
            if self.settings.last:
                self._keep_last(entry, content)
        self._entries[self.end] = entry
        self.end += 1
        self.bytes += entry.size
        self._trim()

    def expire(self, now: float) -> None:
        """Drop the entries that are too old."""
        oldest = now - self.settings.seconds
        while self.first < self.end and self._entries[self.first].at < oldest:
            self._drop_first()

    def arrival_of(self, publisher: bytes, number: int) -> float | None:
        """Return the time of arrival of a message; None if it is unknown here.

        Known are the messages among the entries and, for clients that were quiet for long, the newest dropped message of each
        publisher.
        """
        at = self._arrivals.get((publisher, number))
        if at is None:
            dropped_number, dropped_at = self._newest_dropped.get(publisher, (-1, 0.0))
            return dropped_at if dropped_number == number else None
        return at

    def has_all_from(self, at: float) -> bool:
        """Tell whether no entry is missing that arrived at a time or later."""
        return at > self._complete_after

    def position_at(self, at: float) -> int:
        """Return the position of the first entry that arrived at a time or later."""
        return bisect_left(range(self.first, self.end), at, key=lambda position: self._entries[position].at) + self.first

    def entry(self, position: int) -> HistoryEntry:
        """Return the entry at a position from ``first`` to before ``end``."""
        return self._entries[position]

    def find(self, position: int, matches: Callable[[str], object], entries_max: int) -> int:
        """Return the position of the next gap or message of some topics, or where the search ended.

        A crowd that resumes looks at each entry for each client, so the search is a single expression.

        Args:
            position: The first position, not before ``first``.
            matches: Its result is true for the topics.
            entries_max: The largest number of entries to look at.
        """
        entries = self._entries
        stop = min(self.end, position + entries_max)
        return next((at for at in range(position, stop) if (topic := entries[at].topic) is None or matches(topic)), stop)

    def last_topics(self) -> list[tuple[int, str]]:
        """Return the orders and topics of the kept newest messages; empty without ``last``."""
        return [(entry.order, topic) for topic, entry in self._last.items()]

    def newest_of(self, topic: str) -> HistoryEntry | None:
        """Return the entry of the newest message of a topic; None if there is none."""
        kept = self._last.get(topic)
        if kept is not None:
            return kept
        for position in reversed(range(self.first, self.end)):
            entry = self._entries[position]
            if entry.topic == topic:
                return entry
        return None

    # --

    def _trim(self) -> None:
        while self.end - self.first > self.settings.messages or self.bytes > self.settings.bytes:
            self._drop_first()

    def _trim_last(self) -> None:
        while len(self._last) > LAST_TOPICS_MAX or self.last_bytes > self.settings.bytes:
            self.last_bytes -= self._last.popitem(last=False)[1].size

    def _drop_first(self) -> None:
        entry = self._entries.pop(self.first)
        self.first += 1
        self.bytes -= entry.size
        self._complete_after = max(self._complete_after, entry.at)
        if isinstance(entry.content, MessageText):
            publisher, number, _elapsed = entry.content.cursor
            self._arrivals.pop((publisher, number), None)
            _put(self._newest_dropped, publisher, (number, entry.at))

    def _keep_last(self, entry: HistoryEntry, content: MessageText) -> None:
        last = self._last
        topic = content.message.topic
        older = last.pop(topic, None)
        if older is not None:
            self.last_bytes -= older.size
        last[topic] = entry
        self.last_bytes += entry.size
        self._trim_last()


class Histories:
    """All histories of a door.

    Args:
        settings: The histories.
        keys: The keys of cursors.
        mark: A random name of the door (8 bytes), for cursors before the first message.
        now: The time at which the door began to receive the patterns (seconds).

    Attributes:
        all: The histories.
        order: The place of the newest entry among the entries of all histories.
        cache: The bound of the texts of all messages.
    """

    def __init__(self, settings: Iterable[HistorySettings], keys: CursorKeys, mark: bytes, now: float) -> None:
        self.all = [History(each, now) for each in settings]
        self.order = 0
        self.cache = TextCache(TEXTS_BYTES_MAX)
        self._keys = keys
        self._began = (Cursor(mark, 0), now)
        self._newest = self._began  # the message that arrived last, and when
        self._position_texts: dict[EventFormat, tuple[float, bytes]] = {}  # and the times for which they are

    def covering(self, pattern: Tokens) -> History | None:
        """Return the history that has all messages of a pattern, for the longest time; None if there is none."""
        found = [history for history in self.all if covers(history.pattern, pattern)]
        return max(found, key=lambda history: history.settings.seconds, default=None)

    def add(self, history: History, message: Message[bytes], now: float) -> list[MessageText | GapEvent]:
        """Add a message and the gap before it, if any; returns the new events for clients.

        Repeated messages are dropped: they are not newer than the last message of their publisher in the history.
        """
        content = MessageText(message, self._keys, self.cache)
        found: list[MessageText | GapEvent] = []
        gap = content.gap()
        if gap is not None:
            found.append(gap)
        if history.is_newer(content.cursor):
            found.append(content)
            self._newest = (content.cursor, now)
        else:
            history.repeated += 1
        for each in found:
            self.order += 1
            history.add(HistoryEntry(self.order, now, each))
        history.expire(now)
        return found

    def expire(self, now: float) -> None:
        """Drop the entries that are too old."""
        for history in self.all:
            history.expire(now)

    def position_text(self, event_format: EventFormat, now: float) -> bytes:
        """Return the text of the place behind all received messages."""
        made_at, text = self._position_texts.get(event_format, (-math.inf, b""))
        if made_at != now:
            cursor, at = self._newest
            cursor = Cursor(cursor.publisher, cursor.number, math.floor((now - at) * 1000))
            text = position_text(self._keys.encode(cursor), event_format)
            self._position_texts[event_format] = (now, text)
        return text

    def resume(self, text: str, histories: Iterable[History], now: float) -> ResumePoint:
        """Return where a client begins that has a cursor.

        Args:
            text: The text of the client's cursor, from any door; other texts are unknown.
            histories: The histories of its patterns.
            now: The time (seconds).
        """
        self.expire(now)
        cursor = self._keys.decode(text)
        arrival = None if cursor is None else self._arrival_of(cursor)
        if cursor is None or arrival is None:
            return ResumePoint(-math.inf, is_complete=False)
        at = arrival + cursor.elapsed_ms / 1000 - OVERLAP_S
        return ResumePoint(at, all(history.has_all_from(at) for history in histories))

    def last(self, topic: Tokens) -> MessageText | None:
        """Return the newest message of a topic; None if the histories have no message."""
        name = ".".join(topic)
        found = [history.newest_of(name) for history in self.all if covers(history.pattern, topic)]
        newest = max((entry for entry in found if entry is not None), key=lambda entry: entry.order, default=None)
        return newest.content if newest is not None and isinstance(newest.content, MessageText) else None

    def _arrival_of(self, cursor: Cursor) -> float | None:
        mark, began_at = self._began
        if cursor[:2] == mark[:2]:
            return began_at
        arrivals = [history.arrival_of(cursor.publisher, cursor.number) for history in self.all]
        return min((at for at in arrivals if at is not None), default=None)


def _put(table: OrderedDict[bytes, Value], publisher: bytes, value: Value) -> None:
    """Set the value of a publisher, and forget the longest unchanged one beyond the bound."""
    table[publisher] = value
    table.move_to_end(publisher)
    if len(table) > PUBLISHERS_MAX:
        table.popitem(last=False)
