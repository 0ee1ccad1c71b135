"""The text of events for clients: server-sent events (HTML Standard, section 9.2) and lines of JSON.

A text is made once for each form, and all clients of the form share the text. An event is one line of JSON in either form,
without line breaks inside; U+2028 also counts, because some readers take this character for one.
"""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from iris_py.doors.web.cursors import Cursor, CursorKeys
from iris_py.doors.web.payload_text import PayloadForm, payload_text, single_line

if TYPE_CHECKING:
    from iris_py.patterns.messages import Message
    from iris_py.wire.headers import HeaderValue

__all__ = [
    "EVENT_FORMATS",
    "ClosingEvent",
    "ClosingEventLine",
    "EventForm",
    "EventFormat",
    "GapEvent",
    "GapEventLine",
    "MessageEvent",
    "MessageEventLine",
    "MessageText",
    "PositionEventLine",
    "TextCache",
    "closing_text",
    "gap_text",
    "opening_text",
    "position_text",
]

#: ``sse``: server-sent events; ``lines``: a line of JSON for each event.
EventFormat: TypeAlias = Literal["sse", "lines"]
EVENT_FORMATS: Final[tuple[EventFormat, ...]] = ("sse", "lines")


class EventForm(NamedTuple):
    """The form of the events of a client."""

    format: EventFormat = "sse"
    payload: PayloadForm = "json"


class MessageEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message; the data of a server-sent event ``message``. The payload has one of three forms."""

    topic: str
    """The topic."""
    publisher: str
    """A pseudonym of the publisher, the same at all doors."""
    number: int
    """The number of the message at its publisher. Numbers increase; holes mean no loss."""
    json: msgspec.Raw | UnsetType = UNSET
    """The payload as a value of JSON."""
    text: str | UnsetType = UNSET
    """The payload as text."""
    base64: str | UnsetType = UNSET
    """The payload in base64."""
    headers: Mapping[str, str | int | float | bool] | UnsetType = UNSET
    """The headers of the message; bytes in base64."""
    cloud: str = ""
    """The cloud that the message came from; empty for this one."""


class MessageEventLine(MessageEvent, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="message"):
    """A message, as a line."""

    id: str = ""
    """The cursor; empty for topics without a history."""


class GapEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Messages are missing before the next event; the data of a server-sent event ``gap``."""

    missed: int | None
    """The largest number of missing messages, some of which other clients alone wanted; null if it is unknown."""
    publisher: str | UnsetType = UNSET
    """The pseudonym of the publisher; absent if the publishers are unknown."""


class GapEventLine(GapEvent, frozen=True, omit_defaults=True, tag_field="kind", tag="gap"):
    """Missing messages, as a line."""


class ClosingEvent(msgspec.Struct, frozen=True):
    """The stream is about to end; the data of a server-sent event ``closing``."""

    in_s: float
    """Time until the end (seconds). A client may resume by its last cursor."""
    reason: str
    """The name of a problem: ``closing`` for a door that closes, ``token-expired``, ``window-full``, ``not-exported``."""


class ClosingEventLine(ClosingEvent, frozen=True, tag_field="kind", tag="closing"):
    """The end, as a line."""


class PositionEventLine(msgspec.Struct, frozen=True, tag_field="kind", tag="position"):
    """The place of the stream, as a line: at first, and as a heartbeat. Server-sent events have a bare ``id`` instead."""

    id: str
    """The cursor."""


#: The text of a heartbeat without a place.
_SSE_COMMENT: Final = b":\n"


class TextCache:
    """Bounds the texts that messages of histories keep: beyond the bound the oldest texts are forgotten, and made again.

    Args:
        bytes_max: The largest size of all texts.

    Attributes:
        bytes: The size of the texts.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._noted: deque[tuple[MessageText, int]] = deque()

    def note(self, message: MessageText, size: int) -> None:
        """Note a new text of a message."""
        self._noted.append((message, size))
        self.bytes += size
        while self.bytes > self._bytes_max:
            oldest, freed = self._noted.popleft()
            oldest.forget_texts()
            self.bytes -= freed


class MessageText:
    """A message with its texts, made at their first use.

    Args:
        message: The message.
        keys: The keys of cursors.
        cache: The bound of the texts, for a message in a history. None for a message without a history and cursor.

    Attributes:
        message: As passed.
        topic: The tokens of the topic.
        cursor: The place of the message.
    """

    __slots__ = ("_cache", "_keys", "_texts", "cursor", "message", "topic")

    def __init__(self, message: Message[bytes], keys: CursorKeys, cache: TextCache | None = None) -> None:
        self.message = message
        self.topic = tuple(message.topic.split("."))
        self.cursor = Cursor(keys.pseudonym(message.source), message.sequence)
        self._keys = keys
        self._cache = cache
        self._texts: dict[EventForm, bytes] = {}

    def text(self, form: EventForm) -> bytes:
        """Return the text of the message in a form."""
        found = self._texts.get(form)
        if found is None:
            found = self._texts[form] = self._encode(form)
            if self._cache is not None:
                self._cache.note(self, len(found))
        return found

    def forget_texts(self) -> None:
        """Free the texts; the next use makes them again."""
        self._texts.clear()

    def gap(self) -> GapEvent | None:
        """Return the gap before the message; None if there is none."""
        message = self.message
        if not (message.gap or message.has_unknown_gap):
            return None
        return GapEvent(None if message.has_unknown_gap else message.gap, self.cursor.publisher.hex())

    def _encode(self, form: EventForm) -> bytes:
        data = single_line(msgspec.json.encode(self._event(form.payload)))
        cursor = self._keys.encode(self.cursor).encode() if self._cache is not None else b""
        if form.format == "sse":
            head = b"id: %b\n" % cursor if cursor else b""
            return b"%bevent: message\ndata: %b\n\n" % (head, data)
        identity = b'"id":"%b",' % cursor if cursor else b""
        return b'{"kind":"message",%b%b\n' % (identity, data[1:])

    def _event(self, form: PayloadForm) -> MessageEvent:
        message = self.message
        payload = payload_text(message.payload, form)
        headers = {name: _plain(value) for name, value in message.headers.items()} if message.headers else UNSET
        return MessageEvent(
            topic=message.topic,
            publisher=self.cursor.publisher.hex(),
            number=message.sequence,
            json=payload.json,
            text=payload.text,
            base64=payload.base64,
            headers=headers,
            cloud=message.cloud,
        )


def gap_text(gap: GapEvent, event_format: EventFormat) -> bytes:
    """Return the text of a gap."""
    if event_format == "sse":
        return _sse(b"gap", gap)
    return _line(GapEventLine(gap.missed, gap.publisher))


def closing_text(closing: ClosingEvent, event_format: EventFormat) -> bytes:
    """Return the text of the end."""
    if event_format == "sse":
        return _sse(b"closing", closing)
    return _line(ClosingEventLine(closing.in_s, closing.reason))


def opening_text(event_format: EventFormat, retry_ms: int) -> bytes:
    """Return the beginning of a stream: after the end of the stream, a browser waits ``retry_ms`` before it comes back."""
    return b"retry: %d\n\n" % retry_ms if event_format == "sse" else b""


def position_text(cursor: str, event_format: EventFormat) -> bytes:
    """Return the text of a place, which is a heartbeat, too. A browser only stores the cursor."""
    if event_format == "sse":
        return b"%bid: %b\n\n" % (_SSE_COMMENT, cursor.encode())
    return _line(PositionEventLine(cursor))


def _plain(value: HeaderValue) -> str | int | float | bool:
    """Return the value of a header for JSON: bytes in base64."""
    return b64encode(value).decode() if isinstance(value, bytes) else value


def _sse(name: bytes, event: msgspec.Struct) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, msgspec.json.encode(event))


def _line(event: msgspec.Struct) -> bytes:
    return msgspec.json.encode(event) + b"\n"
