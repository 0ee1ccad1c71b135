"""The window of a client: the waiting events for its connection, within fixed bounds."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["WINDOW_POLICIES", "ClientWindow", "EventBatch", "WindowItem", "WindowPolicy"]

#: The policy of a full window. ``drop_oldest``: the oldest messages are dropped, and the client is told how many;
#: ``latest``: the newest message of each topic stays; ``disconnect``: the stream ends.
WindowPolicy: TypeAlias = Literal["drop_oldest", "latest", "disconnect"]
WINDOW_POLICIES: Final[tuple[WindowPolicy, ...]] = ("drop_oldest", "latest", "disconnect")

#: Bytes joined for one write. Too small: many writes; too large: a copy that a client which does not read holds on to besides
#: its window.
WRITE_BYTES_MAX: Final = 64 * 1024


class WindowItem(NamedTuple):
    """An event in a window: a message or a gap."""

    text: bytes
    """The text; shared by all clients that get it."""
    topic: str
    """The topic of the message; empty for a gap."""
    missed: int | None = 1
    """The number of messages that are missed with the item; None if it is unknown."""


class EventBatch:
    """Events for many clients, joined once.

    Args:
        items: The events, in order; at least one.

    Attributes:
        items: As passed.
        bytes: The size of their texts.
    """

    __slots__ = ("_joined", "bytes", "items")

    def __init__(self, items: Sequence[WindowItem]) -> None:
        self.items = items
        self.bytes = sum([len(item.text) for item in items])
        self._joined: bytes | None = None

    def joined(self, start: int = 0) -> bytes:
        """Return the texts as one, from an event on."""
        if start:
            return b"".join([item.text for item in self.items[start:]])
        if self._joined is None:
            self._joined = b"".join([item.text for item in self.items])
        return self._joined


class MissedMessages:
    """The missed messages of a client since the last gap event.

    Attributes:
        count: Number of messages.
        is_unknown: Whether there may be more.
    """

    __slots__ = ("count", "is_unknown")

    def __init__(self) -> None:
        self.count = 0
        self.is_unknown = False

    def add(self, missed: int | None) -> None:
        """Add messages; None for an unknown number."""
        self.count += missed or 0
        self.is_unknown = self.is_unknown or missed is None

    def take(self) -> int | None:
        """Return the number, None if unknown, and begin anew."""
        missed = None if self.is_unknown else self.count
        self.count, self.is_unknown = 0, False
        return missed

    def __bool__(self) -> bool:
        return self.is_unknown or self.count > 0


class ClientWindow:
    """The waiting events of a client.

    Args:
        policy: The policy beyond the bounds.
        messages_max: The largest number of events.
        bytes_max: The largest size of their texts. No event is larger by itself.

    Attributes:
        bytes: The size of the texts that wait.
        dropped: Number of messages dropped or superseded so far.
        is_cut: Whether the policy has ended the stream. A window that was cut takes nothing.
        missed: The messages missed before the waiting ones.
    """

    def __init__(self, policy: WindowPolicy, messages_max: int, bytes_max: int) -> None:
        self.bytes = 0
        self.dropped = 0
        self.is_cut = False
        self.missed = MissedMessages()
        self._policy = policy
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._count = 0
        self._batches: deque[EventBatch] = deque()
        self._start = 0  # events of the oldest batch that do not wait any more
        # With the policy `latest`, once the window was full: the newest event of each topic, until all are taken.
        self._newest: dict[str, WindowItem] | None = None

    def __len__(self) -> int:
        return self._count

    def resize(self, messages_max: int, bytes_max: int) -> None:
        """Set other bounds; events beyond them are dropped when the next ones come.

        Args:
            messages_max: The largest number of events.
            bytes_max: The largest size of their texts. No event is larger by itself.
        """
        self._messages_max = messages_max
        self._bytes_max = bytes_max

    @property
    def has_output(self) -> bool:
        """Whether the client has something to take."""
        return self._count > 0 or bool(self.missed)

    def add(self, batch: EventBatch) -> None:
        """Add events; beyond the bounds the policy decides."""
        if self.is_cut:
            return
        if self._newest is not None:
            self._add_newest(batch.items)
            return
        self._batches.append(batch)
        self._count += len(batch.items)
        self.bytes += batch.bytes
        if self._count <= self._messages_max and self.bytes <= self._bytes_max:
            return
        if self._policy == "disconnect":
            self.is_cut = True
            self._clear()
        elif self._policy == "latest":
            items = list(self._items())
            self._clear()
            self._newest = {}
            self._add_newest(items)
        else:
            self._drop_oldest()

    def take(self, bytes_max: int = WRITE_BYTES_MAX) -> bytes:
        """Take events for a write. The caller tells the missed messages before."""
        parts: list[bytes] = []
        room = self._take_newest(parts, bytes_max) if self._newest is not None else bytes_max
        batches = self._batches
        while batches:
            batch, start = batches[0], self._start
            if batch.bytes > room:
                self._take_some(parts, room)
                break
            batches.popleft()
            text = batch.joined(start)
            self._start = 0
            self._count -= len(batch.items) - start
            self.bytes -= len(text)
            room -= len(text)
            parts.append(text)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # --

    def _take_some(self, parts: list[bytes], room: int) -> None:
        """Take as many events of the oldest batch as fit; the first event of a write always fits."""
        batches, batch = self._batches, self._batches[0]
        while batches and batches[0] is batch:
            text = batch.items[self._start].text
            if parts and len(text) > room:
                break
            room -= len(text)
            parts.append(text)
            self._advance(len(text))

    def _advance(self, size: int) -> None:
        """Remove the oldest event."""
        self._start += 1
        self._count -= 1
        self.bytes -= size
        if self._start == len(self._batches[0].items):
            self._batches.popleft()
            self._start = 0

    def _drop_oldest(self) -> None:
        while self._count > self._messages_max or self.bytes > self._bytes_max:
            item = self._batches[0].items[self._start]
            self._lose(item)
            self._advance(len(item.text))

    def _add_newest(self, items: Iterable[WindowItem]) -> None:
        newest = self._newest
        assert newest is not None
        for item in items:
            if not item.topic:
                self.missed.add(item.missed)
                continue
            older = newest.pop(item.topic, None)
            if older is not None:
                self.bytes -= len(older.text)
                self.dropped += 1
            newest[item.topic] = item
            self.bytes += len(item.text)
            while len(newest) > self._messages_max or self.bytes > self._bytes_max:
                oldest = newest.pop(next(iter(newest)))
                self.bytes -= len(oldest.text)
                self._lose(oldest)
        self._count = len(newest)

    def _take_newest(self, parts: list[bytes], room: int) -> int:
        newest = self._newest
        assert newest is not None
        while newest:
            topic = next(iter(newest))
            size = len(newest[topic].text)
            if parts and size > room:
                break
            parts.append(newest.pop(topic).text)
            self.bytes -= size
            room -= size
        self._count = len(newest)
        if not newest:
            self._newest = None
        return room

    def _lose(self, item: WindowItem) -> None:
        self.missed.add(item.missed)
        self.dropped += bool(item.topic)

    def _items(self) -> Iterator[WindowItem]:
        start = self._start
        for batch in self._batches:
            yield from batch.items[start:]
            start = 0

    def _clear(self) -> None:
        self._batches.clear()
        self._start = self._count = self.bytes = 0
