"""Decoders of what gateways of other clouds say, and strangers to their address."""

from __future__ import annotations

import struct
from contextlib import suppress

from iris_py.federation import items
from iris_py.federation.calls import (
    Answer,
    AskedMembers,
    Call,
    Ended,
    MemberPlace,
    call_head,
    decode_said,
    encode_outcome,
    encode_said,
)
from iris_py.federation.handshake import (
    HELLO_BYTES_MAX,
    FederationHandshake,
    HelloError,
    LineHello,
    decode_hello,
    encode_hello,
    pairs_of,
)
from iris_py.federation.messages import (
    CLUSTER,
    Catalogue,
    CatalogueEntry,
    Control,
    LineError,
    Open,
    Probe,
    decode_control,
    decode_messages,
    decode_request,
    encode_control,
    encode_message,
)
from iris_py.federation.rules import ReceivedCatalogue
from iris_py.link.handshake import ProtocolError
from iris_py.peers.group import DIRECT_MEMBERS_MAX
from iris_py.wire import packets
from iris_security import AuthenticationError, CloudKey
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target

OWN, NEIGHBOUR, STRANGER = (CloudKey(bytes((number,)) * 32) for number in (1, 2, 3))
HELLO = encode_hello(LineHello(gateway=b"g" * 16, name="us", zone="us/a", max_message_bytes=1 << 20))

PLACE = MemberPlace(b"p" * 16, "eu/a")
SAID = (AskedMembers(1, (PLACE,)), AskedMembers(100), Answer(PLACE, packets.REPLY, True, b"reply"), Ended(encode_outcome(b"")))


def run_hello(data: bytes) -> None:
    """Read a hello: what is taken can be shown to people, and said again."""
    try:
        hello = decode_hello(data)
    except HelloError:
        return
    assert hello.index < hello.count
    assert (hello.name + hello.zone).isprintable()
    assert decode_hello(encode_hello(hello)) == hello


def run_said(data: bytes) -> None:
    """Read what a gateway says of a survey: what is taken is bounded, and can be said again."""
    said = decode_said(data)
    if said is None:
        return
    assert encode_said(said) == data
    if isinstance(said, AskedMembers):
        assert len(said.members) <= DIRECT_MEMBERS_MAX


def run_dialled(data: bytes) -> None:
    """Take the first bytes of whoever dials: of them a neighbour's make a link, and nothing else does."""
    end = FederationHandshake(pairs=pairs_of([OWN], [NEIGHBOUR.public]), hello=HELLO, ephemeral_private=b"e" * 32)
    if receive(end, data):
        assert end.keys is not None
        assert end.introduction.read_introduction(end.link_id, b"") == (NEIGHBOUR.public, b"")


def run_answered(data: bytes) -> None:
    """Take the answer of whatever listens at an address."""
    end = FederationHandshake(key=OWN, peer=NEIGHBOUR.public, hello=HELLO, ephemeral_private=b"e" * 32)
    end.data_to_send()
    assert not receive(end, data)  # nobody answers without the key


def receive(end: FederationHandshake, data: bytes) -> bool:
    """Give an end of a handshake bytes, in two parts; tell whether it is complete."""
    source = Source(data)
    rest = source.raw(source.byte())
    try:
        used = end.receive_data(memoryview(rest))
        if not used:
            used = end.receive_data(memoryview(rest + source.raw(400)))
    except (ProtocolError, AuthenticationError):
        assert end.keys is None
        assert not end.data_to_send()
        return False
    assert bool(used) == (end.keys is not None)
    return bool(used)


def _preambles() -> tuple[bytes, ...]:
    (first,) = FederationHandshake(key=NEIGHBOUR, peer=OWN.public, hello=HELLO, ephemeral_private=b"f" * 32).data_to_send()
    (strange,) = FederationHandshake(key=STRANGER, peer=OWN.public, hello=HELLO, ephemeral_private=b"f" * 32).data_to_send()
    return bytes((len(first),)) + first, b"\x05" + first, bytes((len(strange),)) + strange, b"\x50" + first[:17] + bytes(63)


def run_control(data: bytes) -> None:
    """Read a control message of a neighbour; a catalogue is searched, too."""
    try:
        message = decode_control(data)
        if isinstance(message, Catalogue):
            offer = ReceivedCatalogue(message)
            assert all(0 <= entry.requests_per_s < float("inf") for entry in offer.entries.values())
            offer.find(CLUSTER, "a.b", 1)
            offer.overlapping("a.>")
    except LineError:
        return
    if message is not None:
        assert decode_control(encode_control(message)) == message


def run_body(data: bytes) -> None:
    """Read the messages of a body, and the requests among them; nothing is lost or made up."""
    try:
        messages = decode_messages(data, 0, len(data))
    except LineError:
        return
    said = [part for _kind, _number, _argument, head, payload in messages for part in (head, payload)]
    assert sum(map(len, said)) + len(messages) * packets.MESSAGE_BYTES == len(data)
    for kind, _number, _argument, _head, payload in messages:
        if kind == packets.REQUEST:
            with suppress(LineError):
                call = decode_request(payload)
                assert call_head(call) + call.payload == payload


def run_items(data: bytes) -> None:
    """Read what follows on a subscription and in publishing: what is taken is bounded, and says the same again."""
    decoders = (
        items.decode_add,
        items.decode_added,
        items.decode_remove,
        items.decode_lost,
        items.decode_said,
        items.decode_flush,
        items.decode_published,
    )
    for decode in decoders:
        with suppress(items.ItemError):
            decode(data)
    try:
        read = items.decode_items(data)
    except items.ItemError:
        return
    assert 0 < sum(len(item.payloads) for item in read) <= items.PUBLICATIONS_MAX
    assert sum(item.payload_bytes for item in read) <= len(data) * max(len(item.payloads) for item in read)
    again = items.encode_items(data[0], read)
    assert len(again) == len(data)
    assert items.decode_items(again) == read


CONTROLS: tuple[Control, ...] = (
    Catalogue(1, (CatalogueEntry(0, 0, "db", 1, 0.0, 9), CatalogueEntry(1, 1, "t.>", 16, 2.5, 9))),
    Open(1, 1, 3, 0, "db", 1000, 1 << 20, b"o", b""),
    Probe(1),
)
BODY = b"".join(encode_message(packets.REQUEST, 1, 9, b"", (call_head(Call(name="db", identity=b"i" * 16)), b"x")))

RUN = items.Item("t.a", [b"x", b"", b"yz"], 7, b"o" * 16, b"s" * 4, 1, b"h")
SAYING = items.Item("workers", [b"x"], 8, flags=items.BROADCAST | items.ANSWERED)
ITEMS = (
    items.encode_items(items.ITEM, (RUN, SAYING)),
    items.encode_items(items.SAY, (SAYING,)),
    items.encode_add(1, ("t.>", "a")),
    items.encode_lost("t.>", encode_outcome(b"")),
    items.encode_said(8, encode_outcome(b"")),
    items.encode_flush(items.FLUSH, 9),
)

TARGETS = (
    Target("gateway-control", run_control, Kind.DECODER, tuple(map(encode_control, CONTROLS)), 600),
    Target("gateway-body", run_body, Kind.DECODER, (BODY, BODY * 2), 600),
    Target("gateway-hello", run_hello, Kind.DECODER, (HELLO,), HELLO_BYTES_MAX + 100),
    Target("gateway-survey", run_said, Kind.DECODER, tuple(encode_said(said) for said in SAID), 200),
    Target("gateway-items", run_items, Kind.DECODER, ITEMS, 400),
    Target("gateway-dialled", run_dialled, Kind.SIGNATURE, _preambles(), 600),
    Target("gateway-answered", run_answered, Kind.SIGNATURE, (b"\xff" + struct.pack(">H", 200) + bytes(300),), 600),
)
