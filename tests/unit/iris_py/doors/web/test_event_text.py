"""The text of events, in both formats and all forms of payloads."""

from __future__ import annotations

import msgspec
import pytest

from iris_py.doors.web.cursors import CursorKeys
from iris_py.doors.web.event_text import (
    ClosingEvent,
    ClosingEventLine,
    EventForm,
    GapEvent,
    GapEventLine,
    MessageEvent,
    MessageEventLine,
    MessageText,
    PositionEventLine,
    TextCache,
    closing_text,
    gap_text,
    opening_text,
    position_text,
)
from iris_py.patterns.messages import Message
from iris_py.wire.headers import encode_headers

KEYS = CursorKeys(bytes(32))
SOURCE = "ab" * 16
PSEUDONYM = KEYS.pseudonym(SOURCE).hex()
Line = MessageEventLine | GapEventLine | ClosingEventLine | PositionEventLine


def made(payload: bytes, cache: TextCache | None = None, **fields: object) -> MessageText:
    message = Message(payload, SOURCE, 7, topic="notes.ann", **fields)  # type: ignore[arg-type]
    return MessageText(message, KEYS, cache)


def test_a_message_is_a_server_sent_event() -> None:
    content = made(b'{"a": [1, 2]}', TextCache(1000))
    cursor = KEYS.encode(content.cursor)
    data = f'{{"topic":"notes.ann","publisher":"{PSEUDONYM}","number":7,"json":{{"a": [1, 2]}}}}'
    assert content.text(EventForm()).decode() == f"id: {cursor}\nevent: message\ndata: {data}\n\n"
    assert made(b"1").text(EventForm()).startswith(b"event: message\n")


def test_a_message_is_a_line() -> None:
    content = made(b"x", TextCache(1000), headers=encode_headers({"a": 1, "b": b"\xff"}), cloud="eu")
    text = content.text(EventForm("lines"))
    line = msgspec.json.decode(text, type=Line)
    expected = MessageEventLine(
        id=KEYS.encode(content.cursor),
        topic="notes.ann",
        publisher=PSEUDONYM,
        number=7,
        text="x",
        headers={"a": 1, "b": "/w=="},
        cloud="eu",
    )
    assert line == expected
    assert text.endswith(b"}\n")
    assert b'"id"' not in made(b"x").text(EventForm("lines"))


@pytest.mark.parametrize(
    ("payload", "forms"),
    [
        (b"[1]", ("json", "text", "base64")),
        (b"one", ("text", "text", "base64")),
        (b"\xff", ("base64", "base64", "base64")),
        (b'"\xff"', ("base64", "base64", "base64")),
        (b"", ("text", "text", "base64")),
        (b"[" * 5000 + b"]" * 5000, ("text", "text", "base64")),
    ],
    ids=["json", "text", "bytes", "bytes-in-json", "empty", "deep"],
)
def test_the_payload_has_the_wanted_form_or_the_next_one(payload: bytes, forms: tuple[str, ...]) -> None:
    for wanted, form in zip(("json", "text", "base64"), forms, strict=True):
        text = made(payload).text(EventForm("lines", wanted))  # type: ignore[arg-type]
        event = msgspec.json.decode(text, type=MessageEvent)
        assert [name for name in ("json", "text", "base64") if getattr(event, name) is not msgspec.UNSET] == [form]


def test_other_events_have_both_formats() -> None:
    gap, unknown = GapEvent(3, PSEUDONYM), GapEvent(None)
    assert gap_text(gap, "sse").decode() == f'event: gap\ndata: {{"missed":3,"publisher":"{PSEUDONYM}"}}\n\n'
    assert gap_text(unknown, "sse") == b'event: gap\ndata: {"missed":null}\n\n'
    assert gap_text(unknown, "lines") == b'{"kind":"gap","missed":null}\n'
    assert closing_text(ClosingEvent(2.5, "closing"), "sse") == b'event: closing\ndata: {"in_s":2.5,"reason":"closing"}\n\n'
    assert msgspec.json.decode(closing_text(ClosingEvent(0, "closing"), "lines"), type=Line) == ClosingEventLine(0, "closing")
    assert opening_text("sse", 2500) == b"retry: 2500\n\n"
    assert opening_text("lines", 2500) == b""
    assert position_text("abc", "sse") == b":\nid: abc\n\n"
    assert position_text("abc", "lines") == b'{"kind":"position","id":"abc"}\n'


def test_a_gap_comes_from_the_message_behind_it() -> None:
    assert made(b"").gap() is None
    assert made(b"", gap=2).gap() == GapEvent(2, PSEUDONYM)
    assert made(b"", gap=2, has_unknown_gap=True).gap() == GapEvent(None, PSEUDONYM)


def test_a_text_is_made_once_and_the_oldest_texts_are_forgotten() -> None:
    cache = TextCache(700)
    contents = [made(b"x" * 100, cache) for _ in range(4)]
    first = contents[0].text(EventForm())
    assert contents[0].text(EventForm()) is first
    assert cache.bytes == len(first)
    for each in contents:
        each.text(EventForm())
    assert cache.bytes == 700 // len(first) * len(first)
    assert contents[0].text(EventForm()) is not first
    assert contents[0].text(EventForm()) == first
