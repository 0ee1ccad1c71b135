"""Decoders of messages between patterns, of what a link begins with, and of names and addresses."""

from __future__ import annotations

import re
import struct

import msgspec

from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.errors import ConfigurationError, IrisError, NoMembers
from iris_py.federation.calls import Call, call_head, decode_call, decode_outcome, encode_call, encode_outcome
from iris_py.link.handshake import LinkHandshake, ProtocolError
from iris_py.net.addresses import format_address, is_loopback, parse_address
from iris_py.observe.journal import KINDS, Journal
from iris_py.observe.node_name import NodeName
from iris_py.observe.queries import (
    PAGE_BYTES,
    PARTS,
    About,
    AnswerPage,
    NodeQuestion,
    Pages,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    events_after,
    lean,
    take_page,
)
from iris_py.observe.statistics import ClusterStatistics, Statistics
from iris_py.patterns.topic.names import literal_prefix, parse_pattern, parse_topic
from iris_py.wire import packets
from iris_py.wire.cast_pieces import PIECE, CastAssembler, cut
from iris_py.wire.facts import FACTS_BYTES_MAX, decode_facts, decode_hello, encode_facts, encode_hello, is_name, name_in, named
from iris_py.wire.flows import (
    FETCHED_MESSAGES_MAX,
    MatchesBefore,
    MissedEntries,
    MissedRange,
    decode_count,
    decode_entries,
    decode_range,
)
from iris_py.wire.headers import HEADERS_BYTES_MAX, HeaderValue, decode_headers, encode_headers
from iris_py.wire.imported import NUMBER_MAX, ImportedHead, decode_imported
from iris_py.wire.shares import (
    SHARED_GROUPS_MAX,
    WINDOW_MAX,
    SharedNumber,
    TakenCounts,
    decode_numbers,
    decode_taken,
    encode_numbers,
)
from iris_security import AuthenticationError, Identity, Keyring, Secret
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
INFO = NodeInfo(NodeId(b"n" * 16), ("127.0.0.1:1",), "eu")
GIVEN: tuple[dict[str, HeaderValue], ...] = (
    {"name": "value"},
    {"a": 1, "b": 2.5, "c": True, "d": b"bytes"},
    {"n": -(1 << 63), "m": (1 << 64) - 1},
)
HEADERS = tuple(encode_headers(headers).encoded for headers in GIVEN)


def run_flows(data: bytes) -> None:
    """Read a question about missed messages, an answer and a count: what is accepted is consistent, and sent as it came."""
    asked = decode_range(data)
    if asked is not None:
        assert asked.flow <= asked.after < asked.before
        assert asked.encode() == data
    said = decode_count(7, data)
    if said is not None:
        assert said.encode()[packets.MESSAGE_BYTES :] == data
    messages, payload = int.from_bytes(data[:2], "big"), data[2:]
    found = decode_entries(messages, payload)
    if found is not None:
        assert max(found.counts.values(), default=0) <= found.messages <= min(sum(found.counts.values()), FETCHED_MESSAGES_MAX)
        assert sorted(found.encode()) == sorted(payload)


def run_shares(data: bytes) -> None:
    """Read a head of a SHARED, and a TAKEN: an accepted one is within the bounds, and is sent again as it came."""
    decoded = decode_numbers(data)
    if decoded is not None:
        numbers, rest = decoded
        assert 0 < len(numbers) <= SHARED_GROUPS_MAX
        assert encode_numbers(numbers) + rest == data
    taken = decode_taken(int.from_bytes(data[:4], "big"), data[4:])
    if taken is not None:
        assert max(taken.window, taken.queue) <= WINDOW_MAX
        assert len(taken.encode()) == len(data) - 4


def run_headers(data: bytes) -> None:
    """Read headers: what is taken is what an application could have given, and is sent again as it came."""
    headers = decode_headers(data)
    if headers is None:
        return
    assert len(headers.encoded) <= HEADERS_BYTES_MAX
    values = dict(headers)
    assert bool(headers) == bool(values)
    again = decode_headers(encode_headers(values, is_internal=True).encoded)
    assert again is not None
    assert repr(dict(again)) == repr(values)  # a float may be none


def run_packets(data: bytes) -> None:
    """Read everything that stands in a packet."""
    kind, text = packets.decode_failure(data)
    assert packets.decode_failure(packets.encode_failure_of(kind, text)) == (
        kind[: packets.FAILURE_TEXT_MAX],
        text[: packets.FAILURE_TEXT_MAX],
    )
    routed = packets.decode_routed(data)
    if routed is not None:
        assert packets.encode_routed(*routed) == data
    payloads = packets.decode_run(data, 0, len(data))
    if payloads is not None:
        assert sum(map(len, payloads)) + packets.RUN_COUNT.size + packets.RUN_MESSAGE_BYTES * len(payloads) == len(data)
    ids = packets.decode_ids(data)
    if ids is not None:
        assert packets.encode_ids(ids) == data
    registrations, reason = packets.decode_answer(int.from_bytes(data[:4], "big"))
    assert registrations >= 1
    assert 0 <= reason <= 255


def run_calls(data: bytes) -> None:
    """Read what a gateway is asked for, and what it says: what is taken is said again in the same way."""
    call = decode_call(data)
    if call is not None:
        assert encode_call(call) == data
        assert call_head(call) == data[: len(data) - len(call.payload)]
    outcome = decode_outcome(data, "name@eu", 1.0, "ab" * 16)
    if isinstance(outcome, IrisError):
        assert vars(outcome)["cluster"] == "name@eu"
        again = decode_outcome(encode_outcome(outcome), "name@eu", 1.0, "ab" * 16)
        assert isinstance(again, IrisError)
        assert repr(again) == repr(outcome)
    else:
        assert encode_outcome(outcome) == data


def run_imported(data: bytes) -> None:
    """Read the head of what came from another cloud: what is taken is sent again as it came."""
    decoded = decode_imported(data, 3)
    if decoded is None:
        return
    imported, rest = decoded
    assert imported.encode() + rest == data
    assert imported.after(2).number <= NUMBER_MAX
    assert re.fullmatch("[a-z0-9-]{1,32}", imported.cloud)


def run_pieces(data: bytes) -> None:
    """Put pieces together, as members cast them who do not keep to anything."""
    source = Source(data)
    dropped: list[str] = []
    assembler = CastAssembler(dropped.append)
    group, bodies = GroupId(b"g" * 16), [b"", b"body", b"large" * 110_000]
    while not source.is_empty:
        member = NodeId(bytes((source.byte() % 4,)) * 16)
        if source.flag():
            piece = PIECE.pack(source.number(0, 65535), source.number(0, 65535), bytes(12)) + source.blob()
        else:
            piece = source.choose(cut(bytes(12), source.choose(bodies)))
        assembler.receive(group, member, piece)
        assert len(assembler) <= 4
    for body in bodies:  # whatever was before, what is whole arrives
        nonce = source.raw(11) + b"n"
        results = [assembler.receive(group, NodeId(b"h" * 16), piece) for piece in cut(nonce, body)]
        assert results[-1] == (nonce, body)


def run_dialled(data: bytes) -> None:
    """Take the first bytes of whoever dials: a scanner, an old version, a thief without the secret."""
    handshake(data, initiator=False)


def run_answered(data: bytes) -> None:
    """Take the answer of whatever listens at an address."""
    handshake(data, initiator=True)


def handshake(data: bytes, *, initiator: bool) -> None:
    """Give an end of a handshake bytes, in two parts."""
    source = Source(data)
    end = LinkHandshake(
        initiator=initiator, keyring=KEYRING, identity=Identity(b"i" * 32), hello=b"hello", ephemeral_private=b"e" * 32
    )
    end.data_to_send()
    rest = source.raw(source.byte())
    try:
        used = end.receive_data(memoryview(rest))
        if not used:
            end.receive_data(memoryview(rest + source.raw(400)))
    except (ProtocolError, AuthenticationError):
        return
    assert end.keys is None or not initiator  # nobody answers without the secret


def run_names(data: bytes) -> None:
    """Read names of topics, patterns and addresses, as users write them and peers say them."""
    for text in (data.decode("latin-1"), data.decode("utf-8", "surrogateescape"), data.decode("utf-8", "replace")):
        try:
            tokens = parse_topic(text)
            assert ".".join(tokens) == text
            assert parse_pattern(text) == tokens == literal_prefix(tokens)
        except ValueError:
            pass
        try:
            assert ".".join(parse_pattern(text)) == text
        except ValueError:
            pass
        is_loopback(text)
        try:
            host, port = parse_address(text)
        except ConfigurationError:
            continue
        assert 0 <= port <= 65535
        assert parse_address(format_address(host, port)) == (host, port)


def _preambles() -> tuple[bytes, ...]:
    end = LinkHandshake(
        initiator=True, keyring=KEYRING, identity=Identity(b"j" * 32), hello=b"hello", ephemeral_private=b"f" * 32
    )
    (first,) = end.data_to_send()
    return bytes((len(first),)) + first, b"\x05" + first


def run_facts(data: bytes) -> None:
    """Read what a node says of itself: facts that can be written again, and a name that harms no terminal."""
    facts = decode_facts(data)
    assert sum(2 + len(value) for value in facts.values()) <= len(data)
    if len(data) <= FACTS_BYTES_MAX:
        assert decode_facts(encode_facts(facts)) == facts
    name = name_in(data)
    assert not name or (is_name(name) and name.isprintable() and name_in(named(name)) == name)


def run_link_hello(data: bytes) -> None:
    """Read the hello of a link: what is taken can be said again."""
    hello = decode_hello(data)
    if hello is None:
        return
    assert len(hello[1]) <= FACTS_BYTES_MAX
    assert decode_hello(encode_hello(*hello)) == hello


STATISTICS = Statistics(requests=1, drops={"late_reply": 1}, clusters={"a": ClusterStatistics(members=2)})


def _journal() -> Journal:
    journal = Journal()
    for number, kind in enumerate(KINDS):
        journal.note_at(
            float(number), kind, node=NodeName(f"{number:032x}", "h:1", "z", "n"), name="a", detail="b" * 40 * number
        )
    return journal


JOURNAL = _journal()


def run_question(data: bytes) -> None:
    """Read a question about a node, and answer it with one page."""
    question = decode_question(data)
    if question is None:
        return
    assert decode_question(encode_question(question)) == question
    after = events_after(question)
    events = () if after is None else JOURNAL.told_since(after)
    page = take_page(question, STATISTICS, About(version="1.0"), events)
    assert len(encode_answer(page)) <= PAGE_BYTES
    assert page.parts.keys() <= {*PARTS}


def run_node_answer(data: bytes) -> None:
    """Read what a node says of itself: numbers, or nothing."""
    answer = decode_answer(data)
    if answer is None:
        return
    pages = Pages(NodeQuestion(PARTS))
    for _ in range(3):
        pages.take(answer)
    decode_question(encode_question(pages.question))
    events = pages.events()
    assert events is None or all(isinstance(event.number, int) for event in events)
    statistics = pages.statistics()
    if statistics is not None:
        assert msgspec.convert(lean(statistics), Statistics) == statistics or "nan" in repr(statistics)


TARGETS = (
    Target(
        "node-question",
        run_question,
        Kind.DECODER,
        (encode_question(NodeQuestion(PARTS)), encode_question(NodeQuestion(("clusters",), "a", "clusters", "a"))),
        600,
    ),
    Target(
        "node-answer",
        run_node_answer,
        Kind.DECODER,
        (
            encode_answer(take_page(NodeQuestion(PARTS), STATISTICS, About(), JOURNAL.told_since(0))),
            encode_answer(AnswerPage("busy")),
        ),
        600,
    ),
    Target("facts", run_facts, Kind.DECODER, (named("web-1/orders.py"), encode_facts({2: bytes(16), 1: b"a"})), 300),
    Target("link-hello", run_link_hello, Kind.DECODER, (encode_hello(INFO), encode_hello(INFO, named("web"))), 400),
    Target("headers", run_headers, Kind.DECODER, HEADERS, HEADERS_BYTES_MAX + 100),
    Target(
        "packets",
        run_packets,
        Kind.DECODER,
        (
            packets.encode_failure(ValueError("text")),
            packets.encode_routed(5, b"g" * 16, b"n" * 12, b"sealed", 7),
            b"".join(packets.encode_run(b"", [b"one", b"two"], 1, 1)[2:]),
            packets.encode_ids([1, 2, 3]),
        ),
        400,
    ),
    Target(
        "flows",
        run_flows,
        Kind.DECODER,
        (
            MatchesBefore(1, 2, 3, 4).encode()[packets.MESSAGE_BYTES :],
            MissedRange(7, 8, 12).encode(),
            b"\0\0\3" + MissedEntries(3, {1: 2, 9: 3}).encode(),
        ),
        300,
    ),
    Target(
        "shares",
        run_shares,
        Kind.DECODER,
        (
            encode_numbers([SharedNumber(1, 2, 3), SharedNumber(4, 5, 6)]) + b"orders.new",
            b"\0\0\0\7" + TakenCounts(7, 9, 1, 7, 64, 3, 1500, "billing").encode(),
        ),
        300,
    ),
    Target(
        "calls",
        run_calls,
        Kind.DECODER,
        (
            encode_call(Call(name="name", payload=b"payload", identity=bytes(16), is_anchored=True, prefer="a", require="b")),
            encode_outcome(b"reply"),
            encode_outcome(NoMembers("name", 1, "eu/a", 2)),
        ),
        400,
    ),
    Target("imported", run_imported, Kind.DECODER, (ImportedHead(b"o" * 16, b"s" * 4, 7, 3, "eu").encode() + b"topic",), 400),
    Target("cast-pieces", run_pieces, Kind.SIGNATURE, (bytes(range(40)),), 200),
    Target("handshake-dialled", run_dialled, Kind.SIGNATURE, _preambles(), 600),
    Target("handshake-answered", run_answered, Kind.SIGNATURE, (b"\xff" + struct.pack(">H", 200) + bytes(300),), 600),
    Target("names", run_names, Kind.DECODER, (b"a.b.*.>", b"sensors.roof", b"[::1]:1", b"host:7000"), 300),
)
