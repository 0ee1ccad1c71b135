"""Messages of doors to each other: read as they were sent, and ignored if they are of another version or kind."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.doors.door_messages import (
    ClientPage,
    ClientPageQuestion,
    DoorAnnouncement,
    DoorGreeting,
    DoorMessage,
    DoorStatus,
    DoorStatusQuestion,
    RevocationOrder,
    RevocationPage,
    RevocationPageQuestion,
    RevocationReceipt,
    UserPage,
    UserPageQuestion,
    decode_message,
    encode_message,
)
from iris_py.doors.door_reports import PAGE_CLIENTS, TEXT_MAX, ClientReport, DoorFigures, UserDigest, clip_text
from iris_py.doors.revocations import SubjectRevocation, TokenRevocation, TotalRevocation

DOOR = DoorAnnouncement(id="0123456789abcdef", kind="web", address="https://iris.example", version="0.1.0")
REVOCATIONS = (TokenRevocation("0" * 32, 5.0), SubjectRevocation("ann", 6.0), TotalRevocation(7.0))
MESSAGES: list[DoorMessage] = [
    DoorGreeting(DOOR, bytes(8)),
    RevocationOrder(REVOCATIONS),
    RevocationReceipt(DOOR, ("added", "full", "ended")),
    RevocationPageQuestion(DOOR.id, 4000),
    RevocationPage(REVOCATIONS),
    ClientPageQuestion(DOOR.id, 500, 7),
    ClientPage(DOOR, 3, (ClientReport(), ClientReport(number=2, name="shop", messages_out=4, age_s=5.5))),
    DoorStatusQuestion(),
    DoorStatus(DOOR, DoorFigures(clients=3, connections=4, refused=5)),
    UserPageQuestion(DOOR.id, 5, 7),
    UserPage(DOOR, 2, b"d" * 32, (UserDigest("ann", b"12345678"), UserDigest("bob", b"87654321"))),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_read_as_it_was_sent(message: DoorMessage) -> None:
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize("message", MESSAGES)
def test_later_versions_may_add_fields(message: DoorMessage) -> None:
    content = msgspec.msgpack.decode(encode_message(message)[1:])
    later = msgspec.msgpack.encode({**content, "more": [1, {"a": 2}]})
    assert decode_message(b"\x01" + later) == message


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "presence"},
        {"door": {"id": "x", "kind": "web"}},
        {"door": {"id": "0" * 16, "kind": "w" * 513}},
        {"revocations": b"short"},
    ],
)
def test_what_does_not_fit_is_ignored(changes: dict[str, object]) -> None:
    content = msgspec.msgpack.decode(encode_message(MESSAGES[0])[1:])
    assert decode_message(b"\x01" + msgspec.msgpack.encode({**content, **changes})) is None


@pytest.mark.parametrize(
    "clients",
    [
        [{"name": "n" * (TEXT_MAX + 1)}],
        [{"subscriptions": -1}],
        [{"age_s": math.inf}],
        [{"age_s": math.nan}],
        [{}] * (PAGE_CLIENTS + 1),
    ],
)
def test_clients_beyond_the_bounds_are_ignored(clients: list[dict[str, object]]) -> None:
    content = {"type": "clients", "door": msgspec.to_builtins(DOOR), "total": 1, "clients": clients}
    assert decode_message(b"\x01" + msgspec.msgpack.encode(content)) is None
    assert decode_message(b"\x01" + msgspec.msgpack.encode({**content, "clients": [{}]})) is not None


def test_the_text_of_a_client_fits_a_report() -> None:
    text = clip_text("\N{SNOWMAN}" * 1000)
    assert decode_message(encode_message(ClientPage(DOOR, 1, (ClientReport(name=text, language=text),)))) is not None


@pytest.mark.parametrize("until", [math.nan, math.inf, -1.0, "soon"])
def test_a_revocation_has_a_time(until: object) -> None:
    content = {"type": "revoke", "revocations": [{"type": "token", "id": "0" * 32, "until": until}]}
    assert decode_message(b"\x01" + msgspec.msgpack.encode(content)) is None


def test_another_version_is_ignored() -> None:
    assert decode_message(b"\x02" + encode_message(MESSAGES[0])[1:]) is None
    assert decode_message(b"") is None


@given(st.sampled_from(MESSAGES), st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4))
def test_changed_bytes_never_raise(message: DoorMessage, changes: list[tuple[int, int]]) -> None:
    content = bytearray(encode_message(message))
    for place, value in changes:
        content[place % len(content)] = value
    decode_message(bytes(content))
    decode_message(bytes(content[: len(content) // 2]))
