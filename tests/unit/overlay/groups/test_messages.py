"""Messages between groups layers: round trips, bounds, and bytes of strangers."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_overlay.errors import MessageError
from iris_overlay.groups import messages as gm
from iris_overlay.groups.messages import GroupMessage, decode_group_message, encode_group_message
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import MESSAGE_BYTES_MAX, NodeInfo
from iris_overlay.ring.messages import PAYLOAD_BYTES_MAX
from tests.profiles import examples

G, N = GroupId(b"g" * 16), NodeId(b"n" * 16)
INFO = NodeInfo(N, ("192.0.2.1:7000",), "eu/a")
RECORD = gm.MemberRecord(INFO, b"attributes", 3)
EXAMPLES: list[GroupMessage] = [
    gm.Register(INFO, [gm.GroupRegistration(G, b"attributes", 3)]),
    gm.Unregister(INFO, [(G, 4)]),
    gm.Applied(INFO, [(G, 4, 17, True)]),
    gm.Accused(N, (1 << 32) - 1),
    gm.Entrust(3, True, False, [G], [G]),
    gm.Accuse(N, 3, G),
    gm.Doubt(G, N),
    gm.Check(INFO, gm.Accuse(N, 3, G)),
    gm.Watch(INFO, 3, [(G, 0, b"")]),
    gm.Unwatch(N, [G]),
    gm.View(INFO, G, 7, 1, True, [RECORD]),
    gm.Change(G, 7, 8, 2, [RECORD], [N]),
    gm.Told(G, 8),
    gm.Copy(G, 0, 8, True, True, [RECORD], [(N, 5)], [INFO], [N]),
    gm.Copied(G, 8),
    gm.Drop(G),
    gm.Children(INFO, G, 8, [INFO]),
    gm.Adopted(G, 8),
    gm.CastUp(INFO, G, 2, 1, b"payload", b"signature"),
    gm.CastTaken(G, 2),
    gm.CastDown(G, N, 2, False, 1, b"payload", b"signature"),
    gm.Forgotten(G),
    gm.Moved([G]),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_what_is_written_is_read(message: GroupMessage) -> None:
    assert decode_group_message(encode_group_message(message)) == message


def test_every_message_has_its_number() -> None:
    assert [msgspec.msgpack.decode(encode_group_message(message))[0] for message in EXAMPLES] == list(range(len(EXAMPLES)))


def test_the_wire_format_stays() -> None:
    assert encode_group_message(gm.Told(G, 300)) == bytes.fromhex("930cc410" + "67" * 16 + "cd012c")
    assert encode_group_message(gm.Doubt(G, N)) == bytes.fromhex("9306c410" + "67" * 16 + "c410" + "6e" * 16)


@pytest.mark.parametrize(
    "message",
    [
        gm.Told(GroupId(b"short"), 1),
        gm.Told(G, -1),
        gm.View(INFO, G, 7, 1, True, [RECORD] * (gm.VIEW_MAX + 1)),
        gm.Children(INFO, G, 8, [INFO] * (gm.FANOUT_MAX + 1)),
        gm.Register(INFO, [gm.GroupRegistration(G, b"", 3)] * (gm.BATCH_MAX + 1)),
        gm.Register(INFO, [gm.GroupRegistration(G, b"a" * 257, 3)]),
        gm.Register(NodeInfo(N, ("no spaces",)), []),
        gm.CastDown(G, N, 2, False, 1, bytes(gm.CAST_BYTES_MAX + 1)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_bounds_are_checked(message: GroupMessage) -> None:
    with pytest.raises(MessageError):
        decode_group_message(encode_group_message(message))


def test_a_message_of_full_size_fits() -> None:
    info = NodeInfo(N, ("a" * 261,) * 8, "z" * 64)
    record = gm.MemberRecord(info, bytes(256), 1)
    copy = gm.Copy(
        G, 0, 8, True, True, [record] * gm.COPY_MEMBERS_MAX, [(N, 1 << 62)] * gm.COPY_REMOVED_MAX, [info] * gm.WATCHERS_MAX, []
    )
    assert len(encode_group_message(copy)) < MESSAGE_BYTES_MAX
    view = gm.View(
        info, G, 1 << 62, gm.VIEW_MAX, True, [gm.MemberRecord(info, bytes(256), 1 << 62, bytes(128), 1 << 62)] * gm.VIEW_MAX
    )
    assert PAYLOAD_BYTES_MAX // 2 < len(encode_group_message(view)) <= PAYLOAD_BYTES_MAX
    cast = gm.CastUp(info, G, 1 << 62, 1 << 62, bytes(gm.CAST_BYTES_MAX))
    assert len(encode_group_message(cast)) < MESSAGE_BYTES_MAX


@given(st.binary(max_size=200))
def test_bytes_of_strangers_raise_one_error_only(data: bytes) -> None:
    try:
        decode_group_message(data)
    except MessageError:
        pass


@settings(max_examples=examples(300))
@given(st.sampled_from(EXAMPLES), st.data())
def test_damaged_messages_raise_one_error_only(message: GroupMessage, data: st.DataObject) -> None:
    raw = bytearray(encode_group_message(message))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_group_message(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    except MessageError:
        return
    assert decode_group_message(encode_group_message(decoded)) == decoded


def test_oversized_messages_are_not_read() -> None:
    with pytest.raises(MessageError):
        decode_group_message(bytes(MESSAGE_BYTES_MAX + 1))
