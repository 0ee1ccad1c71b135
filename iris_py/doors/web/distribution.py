"""Distribution of the messages of a source to the event streams of many clients.

Clients with equal topics and forms are an audience: its events are chosen, encoded and joined once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.doors.web.event_text import GapEvent
from iris_py.doors.web.replay import window_item
from iris_py.doors.web.topic_selection import TopicSelection
from iris_py.doors.web.window import EventBatch
from iris_py.patterns.topic.names import TopicTrie

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_py.doors.web.event_stream import EventStream
    from iris_py.doors.web.event_text import EventForm, MessageText
    from iris_py.doors.web.window import WindowItem

__all__ = ["Distribution"]


class Audience:
    """The streams with equal topics and forms.

    Attributes:
        form: The form of the events.
        streams: The streams.
        items: The events of the batch that is being made.
        is_excluded: Its result is true for the topics of other sources; None if there are none.
    """

    __slots__ = ("form", "is_excluded", "items", "streams")

    def __init__(self, form: EventForm, topics: TopicSelection) -> None:
        self.form = form
        self.streams: dict[EventStream, None] = {}
        self.items: list[WindowItem] = []
        self.is_excluded: Callable[[str], object] | None = None
        if topics.excluded:
            self.is_excluded = TopicSelection(topics.excluded).matcher()


class Distribution:
    """The event streams of a source.

    Args:
        bytes_max: The largest text of an event; a larger message becomes a gap.
        has_history: Whether the source is a history.

    Attributes:
        bytes_max: As passed.
    """

    def __init__(self, bytes_max: int, *, has_history: bool) -> None:
        self.bytes_max = bytes_max
        self._has_history = has_history
        self._audiences: dict[tuple[EventForm, TopicSelection], Audience] = {}
        self._trie: TopicTrie[Audience] = TopicTrie()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def attach(self, stream: EventStream, topics: TopicSelection) -> None:
        """Add a stream, which gets all events from now on."""
        key = (stream.form, topics)
        audience = self._audiences.get(key)
        if audience is None:
            audience = self._audiences[key] = Audience(stream.form, topics)
            for pattern in topics.patterns:
                self._trie.add(pattern, audience)
        audience.streams[stream] = None
        self._count += 1

    def detach(self, stream: EventStream, topics: TopicSelection) -> None:
        """Remove a stream."""
        audience = self._audiences[stream.form, topics]
        del audience.streams[stream]
        self._count -= 1
        if not audience.streams:
            del self._audiences[stream.form, topics]
            for pattern in topics.patterns:
                self._trie.remove(pattern, audience)

    def distribute(self, contents: Iterable[MessageText | GapEvent]) -> list[EventStream]:
        """Give events to the streams; returns the streams that had no output before.

        A gap goes to all streams: nobody knows the topics of the missing messages.

        Args:
            contents: Messages and gaps, in order; fewer than a window holds.
        """
        found: dict[Audience, None] = {}
        for content in contents:
            for audience in self._audiences_of(content):
                audience.items.append(window_item(content, audience.form, self.bytes_max))
                found[audience] = None
        woken: list[EventStream] = []
        for audience in found:
            batch = EventBatch(audience.items)
            audience.items = []
            for stream in audience.streams:
                if not stream.has_output:
                    woken.append(stream)
                stream.add(batch, has_history=self._has_history)
        return woken

    def _audiences_of(self, content: MessageText | GapEvent) -> Iterable[Audience]:
        if isinstance(content, GapEvent):
            return self._audiences.values()
        topic = content.message.topic
        found = self._trie.match(content.topic)
        return [each for each in found if each.is_excluded is None or not each.is_excluded(topic)]
