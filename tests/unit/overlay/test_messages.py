from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay import messages
from overlay.errors import InfoError, MessageError
from overlay.ids import GroupId, NodeId
from overlay.messages import Beacon, Joined, Leaving, Left, LinkMessage, Membership, NodeInfo, Told, Welcome

IDS = st.binary(min_size=16, max_size=16)
SEQUENCES = st.integers(0, messages.SEQUENCE_MAX)
PRINTABLE = st.characters(min_codepoint=33, max_codepoint=126)
ADDRESSES = st.lists(st.text(PRINTABLE, min_size=1, max_size=261), max_size=8).map(tuple)
INFOS = st.builds(NodeInfo, IDS.map(NodeId), ADDRESSES, st.text(PRINTABLE, max_size=64))
GROUPS = IDS.map(GroupId)
ATTRIBUTES = st.binary(max_size=256)
LINK_MESSAGES: st.SearchStrategy[LinkMessage] = st.one_of(
    st.builds(Welcome, st.lists(INFOS, max_size=4), st.lists(st.builds(Membership, GROUPS, ATTRIBUTES), max_size=4), SEQUENCES),
    st.builds(Joined, SEQUENCES, GROUPS, ATTRIBUTES),
    st.builds(Left, SEQUENCES, GROUPS),
    st.builds(Told, SEQUENCES),
    st.builds(Leaving, SEQUENCES),
)
INFO = NodeInfo(NodeId(b"n" * 16), ("192.0.2.1:7000",), "eu/a")


@given(LINK_MESSAGES)
def test_link_messages_survive_the_wire(message: LinkMessage) -> None:
    assert messages.decode_message(messages.encode_message(message)) == message


@given(LINK_MESSAGES, st.data())
def test_damaged_messages_raise_only_message_errors(message: LinkMessage, data: st.DataObject) -> None:
    raw = bytearray(messages.encode_message(message))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    for decode in (messages.decode_message, messages.decode_beacon):
        try:
            decode(damaged)
        except MessageError:
            pass


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_message_errors(data: bytes) -> None:
    for decode in (messages.decode_message, messages.decode_beacon):
        try:
            decode(data)
        except MessageError:
            pass


@given(INFOS, st.booleans(), SEQUENCES, st.integers(0, 1200))
def test_beacons_fit_and_survive_the_wire(info: NodeInfo, wants_answer: bool, peers: int, bytes_max: int) -> None:
    data = messages.encode_beacon(info, wants_answer=wants_answer, peers=peers, bytes_max=bytes_max)
    if data is None:
        assert not info.addresses or bytes_max < messages.DATAGRAM_BYTES_MAX
        return
    assert len(data) <= bytes_max
    assert not wants_answer or len(data) >= messages.QUESTION_BYTES_MIN
    if len(data) <= messages.DATAGRAM_BYTES_MAX:
        beacon = messages.decode_beacon(data)
        assert (beacon.info.id, beacon.info.zone, beacon.wants_answer, beacon.peers) == (
            info.id,
            info.zone,
            wants_answer,
            peers,
        )
        assert beacon.info.addresses == info.addresses[: len(beacon.info.addresses)]


def test_one_large_address_fits_into_a_beacon() -> None:
    info = NodeInfo(INFO.id, ("h" * 255 + ":65535",) * 8, "z" * 64)
    data = messages.encode_beacon(info, wants_answer=True, peers=messages.SEQUENCE_MAX)
    assert data is not None
    assert len(messages.decode_beacon(data).info.addresses) >= 1


GOOD: dict[str, Any] = {"welcome": [0, [], [], 0], "joined": [1, 1, b"g" * 16, b""], "left": [2, 1, b"g" * 16], "told": [3, 1]}


@pytest.mark.parametrize("name", GOOD)
def test_the_good_examples_are_good(name: str) -> None:
    messages.decode_message(msgspec.msgpack.encode(GOOD[name]))


def a_peer(**changes: object) -> list[object]:
    return list({"id": b"n" * 16, "addresses": ["a:1"], "zone": "", **changes}.values())


@pytest.mark.parametrize(
    "content",
    [
        [],
        None,
        {},
        [5, 1],
        [-1, 1],
        [0, [], []],
        [0, [a_peer(id=b"short")], [], 0],
        [0, [a_peer(id=b"n" * 17)], [], 0],
        [0, [a_peer(id="n" * 16)], [], 0],
        [0, [a_peer(addresses=["a:1"] * 9)], [], 0],
        [0, [a_peer(addresses=["a" * 262])], [], 0],
        [0, [a_peer(addresses=[""])], [], 0],
        [0, [a_peer(addresses=["\x1b[2J:1"])], [], 0],
        [0, [a_peer(addresses=["a:1\n"])], [], 0],
        [0, [a_peer(zone="z" * 65)], [], 0],
        [0, [a_peer(zone="z\n")], [], 0],
        [0, [a_peer()] * 10_000, [], 0],
        [0, [], [[b"g" * 16, b""]] * 1025, 0],
        [0, [], [], -1],
        [0, [], [], 2**63],
        [1, 1, b"g" * 15, b""],
        [1, 1, b"g" * 16, b"a" * 257],
        [3, "1"],
        [3, 1.5],
        [3, None],
    ],
)
def test_what_breaks_a_bound_is_refused(content: object) -> None:
    with pytest.raises(MessageError):
        messages.decode_message(msgspec.msgpack.encode(content))


@pytest.mark.parametrize(
    "data",
    [
        b"\x94\x00\xdd\xff\xff\xff\xff\x90\x00",  # four billion peers, no byte of them
        b"\xdd\xff\xff\xff\xff",
        b"\x94\x01\x01\xc6\xff\xff\xff\xff",  # a group id of four gigabytes
        b"\x95\x03\x01" + b"\x91" * 100_000,  # deeper than the stack, in a field that is skipped
        b"\x94\x00\x91\x93\xc4\x10" + b"n" * 16 + b"\x91\xa1\xff\xa0\x90\x00",  # bad UTF-8
        b"\x92\x03\x01trailing",
        b"\x00" * (messages.MESSAGE_BYTES_MAX + 1),
    ],
)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        messages.decode_message(data)
    with pytest.raises(MessageError):
        messages.decode_beacon(data)


def test_beacons_and_link_messages_are_not_confused() -> None:
    beacon = messages.encode_beacon(INFO, wants_answer=False, peers=0)
    assert beacon is not None
    with pytest.raises(MessageError):
        messages.decode_message(beacon)
    with pytest.raises(MessageError):
        messages.decode_beacon(messages.encode_message(Welcome([], [], 0)))


def test_the_wire_form_is_pinned() -> None:
    group = GroupId(b"g" * 16)
    assert messages.encode_message(Joined(7, group, b"a")).hex() == "940107c410" + "67" * 16 + "c40161"
    assert messages.encode_message(Told(7)).hex() == "920307"
    assert messages.encode_message(Leaving(8)).hex() == "920408"
    info = NodeInfo(NodeId(b"n" * 16), ("a:1",))
    assert messages.encode_message(Welcome([info], [], 1)).hex() == "94009193c410" + "6e" * 16 + "91a3613a31a09001"
    assert msgspec.msgpack.encode(Beacon(info, False, 3)).hex() == "954093c410" + "6e" * 16 + "91a3613a31a0c203c400"


@pytest.mark.parametrize(
    "info",
    [
        NodeInfo(NodeId(b""), ()),
        NodeInfo(NodeId(b"n" * 16), ("a:1",) * 9),
        NodeInfo(NodeId(b"n" * 16), ("ä:1",)),
        NodeInfo(NodeId(b"n" * 16), ("a:1",), "z" * 65),
        NodeInfo(NodeId(b"n" * 16), ("\ud800:1",)),
    ],
)
def test_what_peers_would_refuse_is_refused_at_home(info: NodeInfo) -> None:
    with pytest.raises(InfoError):
        messages.check_info(info)


def test_memberships_are_checked_at_home() -> None:
    messages.check_membership(GroupId(b"g" * 16), b"a" * 256)
    with pytest.raises(InfoError):
        messages.check_membership(GroupId(b"g" * 15))
    with pytest.raises(InfoError):
        messages.check_membership(GroupId(b"g" * 16), b"a" * 257)
