"""docs/wire.md says what the code does: its tables, and its test vectors, computed by Iris and by the stranger's node."""

from __future__ import annotations

import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from iris_overlay.detector.messages import DetectorMessage
from iris_overlay.groups.messages import GroupMessage, MemberRecord, member_part, user_part
from iris_overlay.groups.messages import Registration as Registered
from iris_overlay.ids import ID_BYTES, GroupId, NodeId
from iris_overlay.messages import (
    ADDRESS_LENGTH_MAX,
    ADDRESSES_MAX,
    ATTRIBUTES_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    SEQUENCE_MAX,
    ZONE_LENGTH_MAX,
    Beacon,
    NodeInfo,
)
from iris_overlay.peers.dial_back import DIAL_BACK, PACKET
from iris_overlay.ring.messages import RingMessage, RoutedKind
from iris_py.link import lanes
from iris_py.link.events import CloseReason
from iris_py.link.handshake import LinkHandshake, introduce
from iris_py.patterns.tunnel import end
from iris_py.peers import clocks
from iris_py.peers.group import CAST_LABEL
from iris_py.wire import packets
from iris_py.wire.cast_pieces import PIECE
from iris_py.wire.headers import HEADERS_BYTES_MAX
from iris_security import (
    AdministrationKey,
    DatagramSealer,
    GroupSealer,
    Identity,
    Keyring,
    RecordSealer,
    Secret,
    Suite,
    multicast_associated,
    unicast_associated,
)
from tests.wire.client import Group, hkdf, pack_permit

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
SECRET = Secret(bytes(range(32)))
KEYRING = Keyring(SECRET)
KEYS = KEYRING.primary
ECHO = KEYRING.cluster("echo")
ADMINISTRATION = AdministrationKey(b"a" * 32)
#: When A joined.
SINCE = 1_700_000_000_000
A, B = Identity(b"\x03" * 32), Identity(b"\x04" * 32)
HELLO_A = msgspec.msgpack.encode([A.node_id, ["127.0.0.1:1"], ""])
HELLO_B = msgspec.msgpack.encode([B.node_id, ["127.0.0.1:2"], ""])


def handshake() -> tuple[LinkHandshake, LinkHandshake, bytes, bytes]:
    """Return both sides of the handshake of the page, and its two messages."""
    sides = [
        LinkHandshake(
            initiator=identity is A, keyring=KEYRING, identity=identity, hello=hello, ephemeral_private=bytes((number,)) * 32
        )
        for number, (identity, hello) in enumerate(((A, HELLO_A), (B, HELLO_B)), 1)
    ]
    first = b"".join(sides[0].data_to_send())
    sides[1].receive_data(memoryview(first))
    second = b"".join(sides[1].data_to_send())
    sides[0].receive_data(memoryview(second))
    return sides[0], sides[1], first, second


def vectors() -> dict[str, bytes]:
    """Compute what the page says, by its names."""
    one, _other, first, second = handshake()
    assert one.keys is not None
    hello = bytes(8) + introduce(A, one.link_id, HELLO_A)
    frame = lanes.FRAME.pack(lanes.HELLO, len(hello)) + hello
    body = packets.MESSAGE.pack(packets.REQUEST, 0, 0, 5, 1, 1000) + b"hello"
    sealer = GroupSealer(ECHO, A.node_id, 1)
    unicast = sealer.seal(body, unicast_associated(ECHO.group_id, A.node_id, B.node_id))
    multicast = sealer.seal(body, multicast_associated(ECHO.group_id, A.node_id))
    node = NodeId(A.node_id)
    statement = member_part(Registered(GroupId(ECHO.group_id), ECHO.proof(A.node_id), 1 << 32, since=SINCE), node)
    signed = ADMINISTRATION.sign("default", 1, [SECRET])
    return {
        "the secret as text": SECRET.text.encode(),
        "key id": KEYS.key_id,
        "link key": KEYS.link_psk,
        "datagram key": KEYS.datagram_key,
        "group key of the cluster `echo`": ECHO.key,
        "group id of the cluster `echo`": ECHO.group_id,
        "group id of the topic `a`": KEYRING.topic("a").group_id,
        "group id of the topic `>`": KEYRING.topic(">").group_id,
        "id of A": A.node_id,
        "id of B": B.node_id,
        "proof of A in `echo`": ECHO.proof(A.node_id),
        "what the permit of A in `echo` with the stamp 2^32 at 1,700,000,000,000 ms is for": statement,
        "that permit": ECHO.permit(statement),
        "what the permit of A to watch is for": user_part(node),
        "the first message of A": first,
        "the answer of B": second,
        "handshake hash": one.link_id,
        "key of A's records": one.keys.send,
        "key of B's records": one.keys.receive,
        "the first record of A, a HELLO": RecordSealer(one.keys.send, one.suite).seal(frame),
        "the same under suite 2": RecordSealer(one.keys.send, Suite.CHACHA20_POLY1305).seal(frame),
        "A's proof of the same generation": KEYS.prove(one.link_id, initiator=True),
        "nonce of the first body of A in `echo`, epoch 1": unicast[0],
        "that body for B: REQUEST 1, 1000 ms, `hello`": unicast[1],
        "the head of the first one, sent through the ring when A's clock shows 2 s": packets.encode_routed(
            lanes.UNICAST, ECHO.group_id, unicast[0], b"", clocks.read(2.0)
        ),
        "the next one, for all": multicast[1],
        "the administrator whose private key is 32 bytes 0x61": ADMINISTRATION.administrator,
        "its SIGNED, number 1: the secret alone": signed.encoded,
        "the RANK of that": signed.rank.encode(),
        "the first datagram of A, with the payload `ping`": DatagramSealer(KEYS, A).seal(b"ping"),
    }


def test_the_vectors_are_those_of_the_code() -> None:
    said = re.findall(r"^\| (.+?) \| `([0-9a-f]+)` \|$", PAGE, re.MULTILINE)
    assert said == [(name, value.hex()) for name, value in vectors().items()]


def test_the_stranger_computes_the_same() -> None:
    said = vectors()
    group = Group(SECRET.value, "default", "cluster", "echo")
    assert (group.key, group.id) == (said["group key of the cluster `echo`"], said["group id of the cluster `echo`"])
    assert hkdf(SECRET.value, b"default", b"iris key id", 8) == said["key id"]
    assert group.proof(A.node_id) == said["proof of A in `echo`"]
    statement = pack_permit([1, A.node_id, 1 << 32, SINCE, group.proof(A.node_id)])
    assert statement == said["what the permit of A in `echo` with the stamp 2^32 at 1,700,000,000,000 ms is for"]
    assert group.permits.sign(b"permit", statement) == said["that permit"]
    assert pack_permit([2, A.node_id]) == said["what the permit of A to watch is for"]


def rows(*types: type[msgspec.Struct]) -> list[tuple[str, str, str]]:
    ordered = sorted(types, key=lambda each: int(each.__struct_config__.tag or 0))
    return [(str(each.__struct_config__.tag), each.__name__, ", ".join(each.__struct_fields__) or "-") for each in ordered]


@pytest.mark.parametrize(
    "types",
    [get_args(RingMessage), get_args(GroupMessage), (*get_args(DetectorMessage), Beacon)],
    ids=["ring", "groups", "datagrams"],
)
def test_the_messages_of_the_overlay_are_those_of_the_code(types: tuple[type[msgspec.Struct], ...]) -> None:
    said = re.findall(r"^\| (\d+) \| (\w+) \| ([^|]+?) \| [^|]+ \|$", PAGE, re.MULTILINE)
    expected = rows(*types)
    at = said.index(expected[0])
    assert said[at : at + len(expected)] == expected


#: Structures that have a name on the page.
NAMED = {NodeInfo: "hello", MemberRecord: "member", Registered: "registration", RoutedKind: f"0 to {max(RoutedKind)}"}


def shape(annotation: Any) -> str:
    """Return what a field is, in the words of the page."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, bound = arguments
        if inner is int:
            most = bound.lt - 1 if bound.le is None else bound.le
            return "number" if most == SEQUENCE_MAX else f"{bound.ge} to {most}"
        if bound.min_length == bound.max_length == ID_BYTES:
            return "id"
        return f"at most {bound.max_length} bytes" if inner is bytes else f"at most {bound.max_length} of {shape(inner)}"
    if origin in (UnionType, Union):
        assert arguments[1] is NoneType
        return f"{shape(arguments[0])} or nil"
    if origin is list or arguments[1:] == (...,):
        return shape(arguments[0])
    if origin is tuple:
        return f"[{', '.join(map(shape, arguments))}]"
    return NAMED.get(annotation) or str(annotation.__name__)


def test_the_fields_of_the_overlay_are_those_of_the_code() -> None:
    table = PAGE[PAGE.index("| what | fields |") : PAGE.index("* **Items**")]
    said = {
        name: what
        for what, names in re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
        for name in names.split(", ")
    }
    left = set(said) - {"fields", "---"}
    for each in (*get_args(RingMessage), *get_args(GroupMessage), *get_args(DetectorMessage), Beacon):
        for field, annotation in get_type_hints(each, include_extras=True).items():
            name = f"{each.__name__}.{field}"
            name = name if name in said else field
            assert said[name] == shape(annotation), f"{each.__name__}.{field}"
            left.discard(name)
    assert not left, "fields that no message has"


def test_the_bounds_are_those_of_the_code() -> None:
    assert (MESSAGE_BYTES_MAX, ADDRESSES_MAX, ADDRESS_LENGTH_MAX, ZONE_LENGTH_MAX) == (1 << 20, 8, 261, 64)
    assert (ATTRIBUTES_BYTES_MAX, HEADERS_BYTES_MAX, packets.SHARED_BODY_BYTES_MAX) == (256, 4 << 10, 64 << 10)
    assert packets.BODY_BYTES_LIMIT == (64 << 20) + (128 << 10)
    assert (PIECE.format, CAST_LABEL) == (">HH12s", b"cast")
    assert (end.PIECE_CHARGE, end.WINDOW_BYTES_MIN, end.WINDOW_BYTES_MAX) == (64, 4 << 10, 1 << 30)


def test_the_frames_and_kinds_are_those_of_the_code() -> None:
    frames = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    frames, of_tunnels = frames[: lanes.LAST_KIND + 1], frames[lanes.LAST_KIND + 1 :]
    assert [(int(number), getattr(end, name)) for number, name in of_tunnels] == [(number, number) for number in range(6)]
    assert [(int(number), getattr(lanes, name)) for number, name in frames] == [
        (number, number) for number in range(lanes.LAST_KIND + 1)
    ]
    kinds = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| [^|]* \| [^|]* \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert [(int(number), getattr(packets, name)) for number, name in kinds] == [
        (number, number) for number in range(1, packets.KINDS)
    ]
    assert [reason.value for reason in CloseReason] == list(range(5))


def test_the_packets_through_the_ring_are_those_of_the_code() -> None:
    said = [int(number) for number in re.findall(r"^kind:u8=(\d+) ", PAGE, re.MULTILINE)]
    assert said == [lanes.TUNNEL, packets.CLOCK_QUESTION, packets.CLOCK_ANSWER]
    assert f"UNICAST (kind {lanes.UNICAST}) or MULTICAST (kind {lanes.MULTICAST})" in PAGE
    assert (PACKET, DIAL_BACK) == (b"\x00", b"\x01")
