"""Properties of the text of events: whatever a message has, a client reads it back, and no reader sees another line."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from iris_py.doors.web.cursors import CursorKeys
from iris_py.doors.web.event_text import EventForm, EventFormat, MessageText, TextCache
from iris_py.doors.web.payload_text import PAYLOAD_FORMS, PayloadForm
from iris_py.patterns.messages import Message
from iris_py.wire.headers import encode_headers

KEYS = CursorKeys(bytes(32))
BREAKS = "\n\r\x00\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\ufeff"
TEXT = st.text(st.one_of(st.sampled_from(BREAKS + '":{}'), st.characters(exclude_categories=["Cs"])), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
DOCUMENTS = st.builds(
    lambda value, indent, is_ascii: json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode(),
    VALUES,
    st.sampled_from([None, 0, 2, "\t"]),
    st.booleans(),
)
PAYLOADS = DOCUMENTS | TEXT.map(str.encode) | st.binary(max_size=40)
HEADERS = st.dictionaries(st.sampled_from(["a", "b-c"]), TEXT | st.binary(max_size=9) | st.booleans() | st.integers(-9, 9))


def read(text: bytes, event_format: EventFormat) -> tuple[str, Any]:
    """Return the cursor and the data of an event, as clients of the format do."""
    assert len(text.decode().splitlines()) == (4 if event_format == "sse" else 1)
    if event_format == "lines":
        line = json.loads(text)
        assert line.pop("kind") == "message"
        return line.pop("id"), line
    identity, name, data, end, rest = text.decode().split("\n")
    assert (name, end, rest) == ("event: message", "", "")
    return identity.removeprefix("id: "), json.loads(data.removeprefix("data: "))


@given(PAYLOADS, TEXT, HEADERS, st.sampled_from(PAYLOAD_FORMS), st.integers(0, 2**64 - 1))
@example(b'"\xed\xa0\x80"', "a", {}, "json", 0)
@example(b'"\\ud800"', "a", {}, "json", 0)
@example(b"1e999", "a", {}, "json", 0)
@example(b"[\r\n1\r\n]", "a", {}, "json", 0)
@example('"\u2028"'.encode(), "a", {}, "json", 0)
def test_a_client_reads_what_was_published(
    payload: bytes, topic: str, headers: dict[str, Any], form: PayloadForm, number: int
) -> None:
    message = Message(payload, "ab" * 16, number, topic=topic, headers=encode_headers(headers))
    content = MessageText(message, KEYS, TextCache(10**6))
    cursor, data = read(content.text(EventForm("sse", form)), "sse")
    assert read(content.text(EventForm("lines", form)), "lines") == (cursor, data)
    assert KEYS.decode(cursor) == content.cursor
    assert (data["topic"], data["number"]) == (topic, number)
    expected = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value for name, value in headers.items()
    }
    assert data.get("headers", {}) == expected
    if "json" in data:
        assert form == "json"
        assert data["json"] == json.loads(payload)
    elif "text" in data:
        assert data["text"].encode() == payload
    else:
        assert base64.b64decode(data["base64"]) == payload
