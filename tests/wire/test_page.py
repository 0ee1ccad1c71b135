"""docs/wire.md says what the code does: its tables, and its test vectors, computed by Iris and by the stranger's node."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from iris_overlay.detector.messages import DetectorMessage
from iris_overlay.groups.messages import EntryRow, GroupMessage, MemberRecord, member_part, user_part
from iris_overlay.groups.messages import GroupRegistration as Registered
from iris_overlay.ids import ID_BYTES, GroupId, NodeId
from iris_overlay.node_info import (
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
from iris_py.defaults import WINDOW_BYTES_MAX, WINDOW_BYTES_MIN
from iris_py.federation import calls, items, names
from iris_py.federation import messages as line
from iris_py.federation.bundle import PROBE_BUSY_S, PROBE_IDLE_S, SMALL_BYTES
from iris_py.federation.calls import Call, encode_call
from iris_py.federation.channels import FAR_SIDE, NUMBER
from iris_py.federation.handshake import HELLO_BYTES_MAX, FederationHandshake, decode_hello, pairs_of
from iris_py.federation.rules import USES
from iris_py.link import lanes
from iris_py.link.events import CloseReason
from iris_py.link.handshake import HANDSHAKE_BYTES_MAX, LinkHandshake
from iris_py.patterns.topic.counted_patterns import holder_of
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.patterns.tunnel import duplex
from iris_py.peers import clocks
from iris_py.peers.group import CAST_LABEL
from iris_py.peers.member import membership_attributes
from iris_py.wire import imported, packets
from iris_py.wire.cast_pieces import PIECE
from iris_py.wire.facts import encode_hello, named
from iris_py.wire.flows import MatchesBefore
from iris_py.wire.headers import HEADERS_BYTES_MAX
from iris_security import (
    AdministrationKey,
    CloudKey,
    DatagramSealer,
    GroupSealer,
    Identity,
    Keyring,
    RecordSealer,
    Secret,
    Suite,
    multicast_associated,
    pair_id,
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
COUNTED = EntryHasher(KEYRING.realm().interest_key()).entry(parse_pattern("orders.*.eu.>"), is_counted=True)
A, B = Identity(b"\x03" * 32), Identity(b"\x04" * 32)
HELLO_A = msgspec.msgpack.encode([A.node_id, ["127.0.0.1:1"], ""])
HELLO_B = msgspec.msgpack.encode([B.node_id, ["127.0.0.1:2"], ""])
C, D = CloudKey(b"\x05" * 32), CloudKey(b"\x06" * 32)
HELLO_C = msgspec.msgpack.encode({"gateway": b"c" * 16, "bundle": b"\x01" * 8, "count": 4, "max_message_bytes": 1 << 20})
HELLO_D = msgspec.msgpack.encode({"gateway": b"d" * 16, "max_message_bytes": 1 << 20})


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
    hello = bytes(8) + one.introduction.introduce(one.link_id)
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
        "group id of the realm": KEYRING.realm().group_id,
        "entry of `orders.*.eu.>`": EntryHasher(KEYRING.realm().interest_key()).entry(parse_pattern("orders.*.eu.>")).pack(),
        "the same, counted": COUNTED.pack(),
        "COUNT of that for A, from publication 5 on, after 7 matches": MatchesBefore(
            COUNTED.tag, 5, holder_of(A.node_id), 7
        ).encode(),
        "id of A": A.node_id,
        "id of B": B.node_id,
        "proof of A in `echo`": ECHO.proof(A.node_id),
        "attributes of A in `echo`, with rank 2 and for overflow": membership_attributes(
            ECHO, node, 1.0, 2, takes_overflow=True
        ),
        "facts of a node named `web-1/orders.py`": named("web-1/orders.py"),
        "hello of A with that name": encode_hello(NodeInfo(node, ("127.0.0.1:1",)), named("web-1/orders.py")),
        "attributes of A in `echo` with that name": membership_attributes(ECHO, node, 1.0, facts=named("web-1/orders.py")),
        "statement of the permit of A in `echo` with the stamp 2^32 at 1,700,000,000,000 ms": statement,
        "that permit": ECHO.permit(statement),
        "statement of the permit of A to watch": user_part(node),
        "the first message of A": first,
        "the answer of B": second,
        "handshake hash": one.link_id,
        "key of A's records": one.keys.send,
        "key of B's records": one.keys.receive,
        "the first record of A, a HELLO": RecordSealer(one.keys.send, one.suite).seal(frame),
        "the same under suite 2": RecordSealer(one.keys.send, Suite.CHACHA20_POLY1305).seal(frame),
        "A's proof of the same generation": KEYS.prove(one.link_id, initiator=True),
        "A's proof of the group `echo` on that link": ECHO.prove(one.link_id, initiator=True),
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


def vectors_of_gateways() -> dict[str, bytes]:
    """Compute what the page says of gateways, by its names."""
    one = FederationHandshake(key=C, peer=D.public, hello=HELLO_C, ephemeral_private=b"\x01" * 32)
    other = FederationHandshake(pairs=pairs_of([D], [C.public]), hello=HELLO_D, ephemeral_private=b"\x02" * 32)
    first = b"".join(one.data_to_send())
    other.receive_data(memoryview(first))
    second = b"".join(other.data_to_send())
    one.receive_data(memoryview(second))
    assert one.keys is not None
    hello = bytes(8) + one.introduction.introduce(one.link_id)
    frame = lanes.FRAME.pack(lanes.HELLO, len(hello)) + hello
    return {
        "the private key of C as text": C.text.encode(),
        "the public key of C": C.public,
        "that as text": C.public_text.encode(),
        "the public key of D": D.public,
        "the id of the cloud of C": C.cloud_id,
        "the pair of C and D": pair_id(D.public, C.public),
        "the hello of C": HELLO_C,
        "the first message of C": first,
        "the answer of D": second,
        "the handshake hash of C and D": one.link_id,
        "key of C's records": one.keys.send,
        "key of D's records": one.keys.receive,
        "the first record of C, a HELLO": RecordSealer(one.keys.send, one.suite).seal(frame),
        "the key of pseudonyms of C towards D": C.origin_key(D.public),
    }


def test_the_vectors_are_those_of_the_code() -> None:
    said = re.findall(r"^\| (.+?) \| `([0-9a-f]+)` \|$", PAGE, re.MULTILINE)
    assert said == [(name, value.hex()) for name, value in (vectors() | vectors_of_gateways()).items()]


def test_the_stranger_computes_the_same() -> None:
    said = vectors()
    group = Group(SECRET.value, "default", "cluster", "echo")
    assert (group.key, group.id) == (said["group key of the cluster `echo`"], said["group id of the cluster `echo`"])
    assert hkdf(SECRET.value, b"default", b"iris key id", 8) == said["key id"]
    assert group.proof(A.node_id) == said["proof of A in `echo`"]
    ranked = said["attributes of A in `echo`, with rank 2 and for overflow"]
    assert ranked == group.proof(A.node_id, bytes((0, 100, 0x82))) + bytes((0, 100, 0x82))
    assert group.link_proof(said["handshake hash"], b"i") == said["A's proof of the group `echo` on that link"]
    statement = pack_permit([1, A.node_id, 1 << 32, SINCE, group.proof(A.node_id)])
    assert statement == said["statement of the permit of A in `echo` with the stamp 2^32 at 1,700,000,000,000 ms"]
    assert group.permits.sign(b"permit", statement) == said["that permit"]
    assert pack_permit([2, A.node_id]) == said["statement of the permit of A to watch"]


def test_the_stranger_computes_the_same_of_gateways() -> None:
    said = vectors_of_gateways()
    keys = sorted((said["the public key of C"], said["the public key of D"]))
    assert said["the pair of C and D"] == hashlib.sha256(b"iris federation pair" + keys[0] + keys[1]).digest()[:8]
    assert said["the id of the cloud of C"] == hashlib.sha256(b"iris cloud" + said["the public key of C"]).digest()[:16]
    assert said["the key of pseudonyms of C towards D"] == hkdf(C.value, b"", b"iris origin" + said["the public key of D"])
    for prefix, label, key, name in (
        ("irisidp1.", b"iris cloud private checksum", C.value, "the private key of C as text"),
        ("irisid1.", b"iris cloud public checksum", C.public, "that as text"),
    ):
        checked = key + hashlib.sha256(label + key).digest()[:4]
        assert said[name] == prefix.encode() + base64.urlsafe_b64encode(checked)


def section_of(title: str) -> str:
    """Return a section of the page."""
    return PAGE.split(f"\n## {title}\n", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]


def test_the_hello_of_a_gateway_is_that_of_the_code() -> None:
    section = section_of("Federation: the first bytes")
    said = [name for names in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", names)]
    assert said == list(decode_hello(HELLO_C).__struct_fields__)
    assert (HELLO_BYTES_MAX, HANDSHAKE_BYTES_MAX) == (2048, 4096)


def test_the_control_messages_between_gateways_are_those_of_the_code() -> None:
    section = section_of("Federation: messages between gateways")
    said = re.findall(r"^\| (\d+) \| (\w+) \| ([^|]+?) \|$", section, re.MULTILINE)
    assert said == [
        (str(number), type_.__name__, ", ".join(type_.__struct_fields__) or "-") for type_, number in line._TYPES.items()
    ]
    assert f"`[{', '.join(line.CatalogueEntry.__struct_fields__)}]`" in section
    assert (line.CONTROL_BYTES_MAX, line.RULES_MAX, line.REQUIRED) == (256 << 10, 1024, 128)
    assert (line.NAME_BYTES_MAX, line.OPTIONS_BYTES_MAX, line.CHANNEL_NUMBERS) == (255, 16 << 10, 1 << 63)
    assert (line.CLUSTER, line.TOPIC) == (0, 1)
    assert (line.SUBSCRIBE, line.PUBLISH, line.SURVEY, line.TUNNEL) == (0, 1, 2, 3)
    bits = re.findall(r"(\d+) (request|survey|broadcast|tunnel|subscribe|publish)", " ".join(section.split()))
    assert [(int(bit), use) for bit, use in bits[:6]] == [(1 << place, use) for place, use in enumerate(USES)]
    assert line.ALLOW_BLOCK == 64
    assert (bytes(16), 62 << 10) == (line.LINE_GROUP, SMALL_BYTES)
    assert (PROBE_IDLE_S, PROBE_BUSY_S) == (5.0, 1.0)
    call = Call(name="db", payload=b"x", identity=b"i" * 16, prefer="eu", is_anchored=True, is_sealed=True)
    assert encode_call(call) == bytes((1, 1, 1 | 2 | 16, 2, 2, 0)) + b"i" * 16 + b"dbeu" + b"x"


def test_the_messages_of_surveys_between_clouds_are_those_of_the_code() -> None:
    section = section_of("Federation: surveys and tunnels")
    said = re.findall(r"^\| (\w+) \| (\d+) \| (.+?) \|$", section, re.MULTILINE)
    assert [(int(number), getattr(calls, name)) for name, number, _bytes in said] == [(each, each) for each in range(1, 5)]
    place = calls.MemberPlace(bytes(16), "eu")
    member = bytes(16) + b"\x02eu"
    assert calls.encode_question(b"payload") == b"\x01payload"
    assert calls.encode_said(calls.AskedMembers(3, (place,))) == b"\x02\0\0\0\x03\0\x01" + member
    reply = calls.encode_said(calls.Answer(place, packets.REPLY, True, b"payload"))
    assert reply == bytes((3, packets.REPLY, 1)) + member + b"payload"
    assert calls.encode_said(calls.Ended(b"\0")) == b"\x04\0"
    assert calls.encode_stop_after(7) == b"\0\0\0\x07"
    assert calls.DROPPED == 0
    headers = set(re.findall(r"`(iris-\w+)`", section))
    assert headers == {value for name, value in vars(names).items() if name.endswith("_HEADER")}


def test_the_messages_of_subscriptions_are_those_of_the_code() -> None:
    section = section_of("Federation: subscriptions, publishing and broadcasts")
    said = {name: int(number) for name, number in re.findall(r"^\| (\w+) \| (\d+) \|", section, re.MULTILINE)}
    assert said == {name: getattr(items, name) for name in said}
    assert sorted(said.values()) == list(range(1, items.PUBLISHED + 1))
    (record, size) = re.findall(r"each `(flags:u8 [^`]+)` \((\d+) bytes\)", " ".join(section.split()))[0]
    kinds = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "16": "16s", "4": "4s"}
    assert ">" + "".join(kinds[field.partition(":")[2]] for field in record.split()) == items.RECORD.format
    assert int(size) == items.RECORD.size
    assert re.findall(r"at most ([\d,]*\d)", section) == [
        f"{bound:,}" for bound in (items.PATTERNS_MAX, items.PUBLICATIONS_MAX, items.SEQUENCES_MAX)
    ]
    assert (items.BROADCAST, items.ANSWERED, items.ASKED) == (1, 2, 4)
    assert items.encode_add(7, ["a.>"]) == bytes.fromhex("0100000007000103612e3e")
    item = items.Item("a", [b"xy"], 3, b"o" * 16, b"s" * 4, 1, b"", items.ANSWERED)
    head = "0602010000" + "0001" + "6f" * 16 + "73" * 4 + "0000000000000003" + "00000001" + "00000002"
    assert items.encode_items(items.SAY, [item]) == bytes.fromhex(head) + b"axy"
    run = items.Item("a", [b"xy", b"", b"z"], 3, b"o" * 16, b"s" * 4, 1)
    head = "0500010000" + "0003" + "6f" * 16 + "73" * 4 + "0000000000000003" + "00000001" + "000000020000000000000001"
    assert items.encode_items(items.ITEM, [run]) == bytes.fromhex(head) + b"axyz"


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
NAMED = {
    NodeInfo: "hello",
    MemberRecord: "member",
    EntryRow: "row",
    Registered: "registration",
    RoutedKind: f"0 to {max(RoutedKind)}",
}


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
    assert (imported.HEAD.format, imported.CLOUD.pattern) == (">16s4sQQB", rb"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
    assert (PIECE.format, CAST_LABEL) == (">HH12s", b"cast")
    assert (duplex.PIECE_CHARGE, WINDOW_BYTES_MIN, WINDOW_BYTES_MAX) == (64, 4 << 10, 1 << 30)
    assert (NUMBER.format, FAR_SIDE) == (">Q", 1 << 63)


def test_the_frames_and_kinds_are_those_of_the_code() -> None:
    frames = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    frames, of_tunnels = frames[: lanes.LAST_KIND + 1], frames[lanes.LAST_KIND + 1 :]
    assert [(int(number), getattr(duplex, name)) for number, name in of_tunnels] == [(number, number) for number in range(6)]
    assert [(int(number), getattr(lanes, name)) for number, name in frames] == [
        (number, number) for number in range(lanes.LAST_KIND + 1)
    ]
    kinds = re.findall(r"^\| (\d+) \| ([A-Z_]+) \| [^|]* \| [^|]* \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert [(int(number), getattr(packets, name)) for number, name in kinds] == [
        (number, number) for number in (*range(1, 23), *range(24, packets.KINDS))
    ]
    assert f"Kinds 0, 23 and from {packets.KINDS} on are unassigned." in PAGE
    assert [reason.value for reason in CloseReason] == list(range(5))


def test_the_packets_through_the_ring_are_those_of_the_code() -> None:
    said = [int(number) for number in re.findall(r"^kind:u8=(\d+) ", PAGE, re.MULTILINE)]
    assert said == [lanes.TUNNEL, packets.CLOCK_QUESTION, packets.CLOCK_ANSWER, packets.STATUS]
    assert f"UNICAST (kind {lanes.UNICAST}) or MULTICAST (kind {lanes.MULTICAST})" in PAGE
    assert (PACKET, DIAL_BACK) == (b"\x00", b"\x01")
