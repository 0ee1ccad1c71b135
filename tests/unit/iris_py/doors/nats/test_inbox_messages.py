"""The messages between doors about inboxes: equal after the way, and no bytes of an insider become protocol."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.doors.nats.inbox_messages import (
    InboxLoss,
    InboxReplies,
    InboxReply,
    decode_inbox_message,
    delivery_of,
    door_cluster_of,
    encode_inbox_message,
)

RIGHT = InboxReply(b"_INBOX.a.1", b"", 0, [b"x", b"y"])


@pytest.mark.parametrize(
    "message", [InboxReplies([RIGHT, InboxReply(b"_INBOX.a", b"_INBOX.b", 2, [b"xyz"])]), InboxLoss(b"_INBOX.a.1")]
)
def test_messages_come_back_equal(message: InboxReplies | InboxLoss) -> None:
    assert decode_inbox_message(encode_inbox_message(message)) == message


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_none(content: bytes) -> None:
    for prefix in (b"", b"\x01"):
        received = decode_inbox_message(prefix + content)
        assert received is None or encode_inbox_message(received)


def test_the_messages_for_clients_have_the_fields_of_the_reply() -> None:
    found = delivery_of(RIGHT)
    assert found is not None
    subject, delivery = found
    assert subject.key == ("_INBOX", "a")
    assert delivery.text(b"9", has_headers=True, count=2) == b"MSG _INBOX.a.1 9 1\r\nx\r\nMSG _INBOX.a.1 9 1\r\ny\r\n"


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": b"orders.new"},
        {"subject": b"_INBOX.a\r\nMSG b 1 0\r\n"},
        {"subject": b"_INBOX.*"},
        {"subject": b"$SYS.x"},
        {"reply": b"a\r\nPING"},
        {"reply": b"a b"},
        {"header_bytes": 2},
        {"contents": [b"x", b"yy"]},
    ],
    ids=repr,
)
def test_no_field_of_an_insider_becomes_protocol(changes: dict[str, object]) -> None:
    assert delivery_of(msgspec.structs.replace(RIGHT, **changes)) is None


def test_each_door_has_a_cluster_of_its_own() -> None:
    assert door_cluster_of("0123456789abcdef" * 2) == "iris.door.0123456789abcdef"
