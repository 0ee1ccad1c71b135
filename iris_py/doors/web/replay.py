"""Replay: the messages of histories for a client, before new messages, read at the pace of its connection.

A replay holds positions, and no message, so a slow client keeps no message in memory. Messages that a history has
dropped meanwhile become a gap.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final

from iris_py.doors.web.event_text import EventForm, GapEvent, MessageText, gap_text
from iris_py.doors.web.window import WindowItem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.doors.web.histories import History
    from iris_py.doors.web.topic_selection import TopicSelection

__all__ = ["Replay", "window_item"]

#: Entries read for one write, also those of other topics. Too small: many writes for a client of few topics; too large: one
#: client holds up the loop.
READ_ENTRIES_MAX: Final = 4096


def window_item(content: MessageText | GapEvent, form: EventForm, bytes_max: int) -> WindowItem:
    """Return an event for a client. A message whose text is above ``bytes_max`` becomes a gap.

    Args:
        content: The message or the gap.
        form: The form of the client's events.
        bytes_max: The largest text: the bytes of the client's window.
    """
    if isinstance(content, GapEvent):
        return WindowItem(gap_text(content, form.format), "", content.missed)
    if len(content.message.payload) <= bytes_max:
        text = content.text(form)
        if len(text) <= bytes_max:
            return WindowItem(text, content.message.topic)
    return WindowItem(gap_text(GapEvent(1, content.cursor.publisher.hex()), form.format), "")


class HistoryReader:
    """Reads a history for a client.

    Attributes:
        position: The position of the next entry.
    """

    __slots__ = ("_history", "_matches", "position")

    def __init__(self, history: History, topics: TopicSelection, position: int) -> None:
        self.position = position
        self._history = history
        self._matches: Callable[[str], object] | None = None
        if history.pattern not in topics.patterns or topics.excluded:
            self._matches = topics.matcher()

    @property
    def is_done(self) -> bool:
        """Whether the history has no further entry."""
        return self.position >= self._history.end

    @property
    def order(self) -> int:
        """The place of the next entry among those of all histories."""
        return self._history.entry(max(self.position, self._history.first)).order

    def skip_dropped(self) -> bool:
        """Go on at the oldest entry if the next one was dropped; returns whether it was."""
        if self.position >= self._history.first:
            return False
        self.position = self._history.first
        return True

    def find(self, entries_max: int) -> int:
        """Go on to the next entry for the client; returns the number of entries of other topics before it.

        Args:
            entries_max: The largest number of entries to leave out.
        """
        if self._matches is None or self.position < self._history.first:
            return 0
        began = self.position
        self.position = self._history.find(began, self._matches, entries_max)
        return self.position - began

    def read(self) -> MessageText | GapEvent:
        """Return the next entry."""
        content = self._history.entry(self.position).content
        self.position += 1
        return content


class Replay:
    """Reads the histories of a client's topics up to their ends.

    Args:
        parts: The histories to read, with the topics of the client.
        from_at: The time of arrival from which on entries are read; `math.inf` for new entries alone.
        sends_last: Whether the newest messages of topics come first, from histories with ``last``.
    """

    def __init__(
        self,
        parts: Sequence[tuple[History, TopicSelection]],
        from_at: float,
        *,
        sends_last: bool = False,
    ) -> None:
        self._readers = [HistoryReader(history, topics, history.position_at(from_at)) for history, topics in parts]
        self._last: list[tuple[int, str, History]] = []  # the newest message of each topic, the next one at the end
        if sends_last:
            for history, topics in parts:
                matches = topics.matcher()
                self._last += [(order, topic, history) for order, topic in history.last_topics() if matches(topic)]
            self._last.sort(reverse=True, key=itemgetter(0))

    @property
    def is_done(self) -> bool:
        """Whether the client has got all entries."""
        return not self._last and all(reader.is_done for reader in self._readers)

    def take(self, parts: list[bytes], form: EventForm, room: int, bytes_max: int) -> int:
        """Append texts for a write; returns the room left, at most 0 if there was not enough.

        Args:
            parts: The texts of the write.
            form: The form of the client's events.
            room: The bytes that fit into the write. The first text is appended whatever its size.
            bytes_max: The largest text; a larger message becomes a gap.
        """
        while self._last and room > 0:
            order, topic, history = self._last.pop()
            entry = history.newest_of(topic)
            if entry is not None and entry.order > order:
                continue  # a newer message of the topic, which comes at its place
            newest = GapEvent(None) if entry is None else entry.content
            text = window_item(newest, form, bytes_max).text
            parts.append(text)
            room -= len(text)
        if self._last:
            return room
        left = READ_ENTRIES_MAX
        while left > 0 and room > 0:
            for each in self._readers:
                left -= each.find(left)
            reader = self._next_reader()
            if reader is None or left <= 0:
                break
            content = GapEvent(None) if reader.skip_dropped() else reader.read()
            left -= 1
            text = window_item(content, form, bytes_max).text
            parts.append(text)
            room -= len(text)
        return room

    def _next_reader(self) -> HistoryReader | None:
        """Return the reader with the earliest entry; None at the ends of all histories."""
        readers = [reader for reader in self._readers if not reader.is_done]
        if len(readers) < 2:
            return readers[0] if readers else None
        return min(readers, key=attrgetter("order"))
