"""The event streams of a door: finds the sources of clients, and gives messages to the clients of their topics.

The owner subscribes to the sources of a stream before it opens the stream, and passes on all messages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.doors.problems import DoorRefusal
from iris_py.doors.web.distribution import Distribution
from iris_py.doors.web.event_stream import EventStream
from iris_py.doors.web.event_text import EventForm, MessageText, opening_text
from iris_py.doors.web.replay import Replay
from iris_py.doors.web.topic_selection import select_topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.doors.settings import WebLimits
    from iris_py.doors.web.cursors import CursorKeys
    from iris_py.doors.web.event_text import GapEvent
    from iris_py.doors.web.histories import Histories, History
    from iris_py.doors.web.topic_selection import SourceSelection
    from iris_py.doors.web.window import WindowPolicy
    from iris_py.patterns.messages import Message

__all__ = ["STREAM_PATTERNS_MAX", "EventRouter", "StreamOptions"]

#: Patterns of one stream. Too small: a page needs several streams, of which a browser has six to a host; too large: one client
#: takes the patterns of the door.
STREAM_PATTERNS_MAX: Final = 64


class StreamOptions(NamedTuple):
    """The choices of a client for its stream, besides the patterns."""

    form: EventForm = EventForm()
    """The form of the events."""
    policy: WindowPolicy = "drop_oldest"
    """The policy of its window."""
    last_event_id: str = ""
    """The text of its cursor; empty for a client that begins."""
    sends_last: bool = False
    """Whether the newest messages of topics come first, from histories with ``last``."""


class EventRouter:
    """The event streams of a door.

    Args:
        histories: The histories.
        keys: The keys of cursors.
        limits: The limits of the door.

    Attributes:
        histories: As passed.
        streams: The open streams, with their sources.
    """

    def __init__(self, histories: Histories, keys: CursorKeys, limits: WebLimits) -> None:
        self.histories = histories
        self.streams: dict[EventStream, tuple[SourceSelection, ...]] = {}
        self._keys = keys
        self._limits = limits
        bytes_max = limits.window_bytes
        self._of_histories = {id(each): Distribution(bytes_max, has_history=True) for each in histories.all}
        self._of_subscriptions: dict[str, Distribution] = {}
        self._patterns: dict[tuple[str, ...], int] = {}  # streams, by pattern

    @property
    def patterns(self) -> int:
        """The number of distinct patterns of all streams."""
        return len(self._patterns)

    def apply(self, limits: WebLimits) -> None:
        """Use other limits, also for the open streams."""
        self._limits = limits
        for distribution in (*self._of_histories.values(), *self._of_subscriptions.values()):
            distribution.bytes_max = limits.window_bytes
        for stream in self.streams:
            stream.resize(limits.window_messages, limits.window_bytes)

    def sources_of(self, patterns: Sequence[str]) -> tuple[SourceSelection, ...]:
        """Return the sources of a client's patterns.

        Raises:
            DoorRefusal: A pattern is invalid, or there are too many.
        """
        if not patterns:
            raise DoorRefusal("invalid", field="pattern")
        if len(patterns) > STREAM_PATTERNS_MAX:
            raise DoorRefusal("too-many", field="pattern")
        try:
            return tuple(select_topics(patterns, self.histories))
        except ValueError:
            raise DoorRefusal("invalid", field="pattern") from None

    def open(self, sources: tuple[SourceSelection, ...], options: StreamOptions, retry_ms: int, now: float) -> EventStream:
        """Open a stream. The owner has subscribed to the patterns of its sources.

        Args:
            sources: The sources of the client's patterns.
            options: The choices of the client.
            retry_ms: The time after which a browser comes back.
            now: The time (seconds).

        Raises:
            DoorRefusal: The door has too many patterns.
        """
        self._count_patterns(sources)
        limits = self._limits
        histories = self.histories
        stream = EventStream(histories, options.form, options.policy, limits.window_messages, limits.window_bytes)
        parts = [(each.history, each.topics) for each in sources if each.history is not None]
        opening = opening_text(options.form.format, retry_ms)
        if options.last_event_id:
            point = histories.resume(options.last_event_id, [history for history, _topics in parts], now)
            # The topics without a history may have had messages, too.
            is_complete = point.is_complete and len(parts) == len(sources)
            sends_last = options.sends_last and not point.is_complete
            from_at = math.inf if sends_last else point.at
            replay = Replay(parts, from_at, sends_last=sends_last)
            stream.resume(opening, replay, is_complete=is_complete)
        elif options.sends_last:
            stream.resume(opening, Replay(parts, math.inf, sends_last=True), is_complete=True)
        else:
            stream.open(opening, now)
        self.streams[stream] = sources
        for source in sources:
            self._distribution_of(source).attach(stream, source.topics)
        return stream

    def close(self, stream: EventStream) -> None:
        """Remove a stream; harmless if repeated."""
        sources = self.streams.pop(stream, ())
        for source in sources:
            distribution = self._distribution_of(source)
            distribution.detach(stream, source.topics)
            if source.subscription and not len(distribution):
                del self._of_subscriptions[source.subscription]
            for pattern in source.topics.patterns:
                key = (source.subscription, *pattern)
                self._patterns[key] -= 1
                if not self._patterns[key]:
                    del self._patterns[key]

    def receive_kept(self, history: History, messages: Sequence[Message[bytes]], now: float) -> list[EventStream]:
        """Give messages of a history to the streams; returns the streams that had no output before.

        Args:
            history: The history.
            messages: The messages, fewer than a window holds.
            now: The time (seconds).
        """
        contents = [content for message in messages for content in self.histories.add(history, message, now)]
        return self._of_histories[id(history)].distribute(contents)

    def receive(self, subscription: str, messages: Sequence[Message[bytes]]) -> list[EventStream]:
        """Give messages of a subscription to the streams; returns the streams that had no output before.

        Args:
            subscription: The pattern of the subscription.
            messages: The messages, fewer than a window holds.
        """
        distribution = self._of_subscriptions.get(subscription)
        if distribution is None:
            return []
        contents: list[MessageText | GapEvent] = []
        for message in messages:
            content = MessageText(message, self._keys)
            gap = content.gap()
            contents += [content] if gap is None else [gap, content]
        return distribution.distribute(contents)

    def streams_of(self, subscription: str) -> list[EventStream]:
        """Return the streams that a subscription gives messages to."""
        return [
            stream for stream, sources in self.streams.items() if any(source.subscription == subscription for source in sources)
        ]

    # --

    def _distribution_of(self, source: SourceSelection) -> Distribution:
        if source.history is not None:
            return self._of_histories[id(source.history)]
        found = self._of_subscriptions.get(source.subscription)
        if found is None:
            found = Distribution(self._limits.window_bytes, has_history=False)
            self._of_subscriptions[source.subscription] = found
        return found

    def _count_patterns(self, sources: Sequence[SourceSelection]) -> None:
        keys = [(source.subscription, *pattern) for source in sources for pattern in source.topics.patterns]
        if sum(key not in self._patterns for key in keys) + len(self._patterns) > self._limits.patterns:
            raise DoorRefusal("too-many", field="pattern")
        for key in keys:
            self._patterns[key] = self._patterns.get(key, 0) + 1
