from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_overlay import node_info
from iris_overlay.errors import InfoError, MessageError
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import Beacon, NodeInfo
from iris_overlay.ring.messages import LeafProbe, decode_ring_message, encode_ring_message

IDS = st.binary(min_size=16, max_size=16)
SEQUENCES = st.integers(0, node_info.SEQUENCE_MAX)
PRINTABLE = st.characters(min_codepoint=33, max_codepoint=126)
ADDRESSES = st.lists(st.text(PRINTABLE, min_size=1, max_size=261), max_size=8).map(tuple)
INFOS = st.builds(NodeInfo, IDS.map(NodeId), ADDRESSES, st.text(PRINTABLE, max_size=64))
INFO = NodeInfo(NodeId(b"n" * 16), ("192.0.2.1:7000",), "eu/a")


def a_node(**changes: object) -> list[object]:
    return list({"id": b"n" * 16, "addresses": ["a:1"], "zone": "", **changes}.values())


@given(INFOS, st.booleans(), SEQUENCES, st.data())
def test_damaged_beacons_raise_only_message_errors(info: NodeInfo, asks: bool, peers: int, data: st.DataObject) -> None:
    raw = bytearray(node_info.encode_beacon(info, wants_answer=asks, peers=peers) or b"\x95")
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        node_info.decode_beacon(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    except MessageError:
        pass


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_message_errors(data: bytes) -> None:
    try:
        node_info.decode_beacon(data)
    except MessageError:
        pass


@given(INFOS, st.booleans(), SEQUENCES, st.integers(0, 1200))
def test_beacons_fit_and_survive_the_wire(info: NodeInfo, wants_answer: bool, peers: int, bytes_max: int) -> None:
    data = node_info.encode_beacon(info, wants_answer=wants_answer, peers=peers, bytes_max=bytes_max)
    if data is None:
        assert not info.addresses or bytes_max < node_info.DATAGRAM_BYTES_MAX
        return
    assert len(data) <= bytes_max
    assert not wants_answer or len(data) >= node_info.QUESTION_BYTES_MIN
    if len(data) <= node_info.DATAGRAM_BYTES_MAX:
        beacon = node_info.decode_beacon(data)
        assert (beacon.info.id, beacon.info.zone, beacon.wants_answer, beacon.peers) == (
            info.id,
            info.zone,
            wants_answer,
            peers,
        )
        assert beacon.info.addresses == info.addresses[: len(beacon.info.addresses)]


def test_one_large_address_fits_into_a_beacon() -> None:
    info = NodeInfo(INFO.id, ("h" * 255 + ":65535",) * 8, "z" * 64)
    data = node_info.encode_beacon(info, wants_answer=True, peers=node_info.SEQUENCE_MAX)
    assert data is not None
    assert len(node_info.decode_beacon(data).info.addresses) >= 1


def test_the_good_example_is_good() -> None:
    node_info.decode_beacon(msgspec.msgpack.encode([64, a_node(), False, 0]))


@pytest.mark.parametrize(
    "content",
    [
        [],
        None,
        {},
        [63, a_node(), False, 0],
        [-1, a_node(), False, 0],
        [64, a_node(), False],
        [64, a_node(), None, 0],
        [64, a_node(), False, -1],
        [64, a_node(), False, 2**63],
        [64, a_node(), False, "1"],
        [64, a_node(), False, 1.5],
        [64, a_node(id=b"short"), False, 0],
        [64, a_node(id=b"n" * 17), False, 0],
        [64, a_node(id="n" * 16), False, 0],
        [64, a_node(addresses=["a:1"] * 9), False, 0],
        [64, a_node(addresses=["a" * 262]), False, 0],
        [64, a_node(addresses=[""]), False, 0],
        [64, a_node(addresses=["\x1b[2J:1"]), False, 0],
        [64, a_node(addresses=["a:1\n"]), False, 0],
        [64, a_node(zone="z" * 65), False, 0],
        [64, a_node(zone="z\n"), False, 0],
    ],
)
def test_what_breaks_a_bound_is_refused(content: object) -> None:
    with pytest.raises(MessageError):
        node_info.decode_beacon(msgspec.msgpack.encode(content))


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\x94\x40\x93\xc6\xff\xff\xff\xff",  # an id of four gigabytes
        b"\x94\x40\x93\xc4\x10" + b"n" * 16 + b"\xdd\xff\xff\xff\xff",  # four billion addresses, no byte of them
        b"\x94\x40\x93\xc4\x10" + b"n" * 16 + b"\x91\xa1\xff\xa0\xc2\x00",  # bad UTF-8
        b"\x96\x40\x93\xc4\x10" + b"n" * 16 + b"\x91\xa3a:1\xa0\xc2\x00\xc4\x00" + b"\x91" * 900,  # deep, in a skipped field
        (node_info.encode_beacon(INFO, wants_answer=False, peers=0) or b"") + b"trailing",
        b"\x00" * (node_info.DATAGRAM_BYTES_MAX + 1),
    ],
)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        node_info.decode_beacon(data)


def test_beacons_and_link_messages_are_not_confused() -> None:
    beacon = node_info.encode_beacon(INFO, wants_answer=False, peers=0)
    assert beacon is not None
    with pytest.raises(MessageError):
        decode_ring_message(beacon)
    with pytest.raises(MessageError):
        node_info.decode_beacon(encode_ring_message(LeafProbe(INFO, [], True)))


def test_the_wire_form_is_pinned() -> None:
    info = NodeInfo(NodeId(b"n" * 16), ("a:1",))
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
        node_info.check_info(info)


def test_memberships_are_checked_at_home() -> None:
    node_info.check_membership(GroupId(b"g" * 16), b"a" * 256)
    with pytest.raises(InfoError):
        node_info.check_membership(GroupId(b"g" * 15))
    with pytest.raises(InfoError):
        node_info.check_membership(GroupId(b"g" * 16), b"a" * 257)


def test_a_beacon_may_fill_a_datagram_and_no_more() -> None:
    with pytest.raises(MessageError, match="not a valid beacon"):
        node_info.decode_beacon(bytes(node_info.DATAGRAM_BYTES_MAX))
    with pytest.raises(MessageError, match="exceeds"):
        node_info.decode_beacon(bytes(node_info.DATAGRAM_BYTES_MAX + 1))
