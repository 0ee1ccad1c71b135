"""The NATS door: the bytes of clients, header blocks on their way through the network, and clients with rights among others."""

from __future__ import annotations

import re

from iris_py.doors.nats.encoder import Delivery
from iris_py.doors.nats.headers import carry, read_carried
from iris_py.doors.nats.operations import Operation, ProtocolFault, PubRun
from iris_py.doors.nats.parser import CONTROL_LINE_MAX, ProtocolParser
from iris_py.doors.nats.settings import NatsLimits
from iris_py.doors.nats.subjects import NatsSubject, SubjectKind, read_subject
from iris_py.doors.nats.subscription import PatternKey
from iris_py.doors.nats.users import NatsUser, read_user_rules
from iris_py.doors.rights import covers
from iris_py.wire.headers import decode_headers, encode_headers
from tests.fuzz import oracles
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target
from tests.nats.lone_door import LoneDoor

PAYLOAD_MAX = 2048
OPERATIONS = (
    b'CONNECT {"verbose":false,"headers":true}\r\nPING\r\nSUB a.* q 1\r\nUNSUB 1 5\r\nPUB a.b r 2\r\nhi\r\n'
    b"HPUB a.b 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPONG\r\nPUB a 1\r\nx\r\nPUB a 1\r\ny\r\n"
)
BLOCK = b"NATS/1.0\r\na: b\r\nc-d:  \xc3\xa9\r\n\r\n"


def _parsed(pieces: list[bytes]) -> list[object]:
    parser = ProtocolParser(PAYLOAD_MAX)
    memory = oracles.Memory(parser)
    turn = oracles.Turn()
    operations: list[Operation] = []
    for piece in pieces:
        with turn:
            operations += parser.receive(piece)
        assert parser.held_bytes <= max(PAYLOAD_MAX, CONTROL_LINE_MAX + len(b"CONNECT")) + 2
    whole = b"".join(pieces)
    if oracles.is_weighed(whole):
        memory.check(len(whole))
    found: list[object] = []
    for each in operations:
        found += [(each.line, content) for content in each.contents] if isinstance(each, PubRun) else [each]
    assert not any(isinstance(each, ProtocolFault) for each in found[:-1])
    return found


def run_parser(data: bytes) -> None:
    """Read a stream in one piece, and in pieces: the operations are the same, and an error is the last one."""
    size, stream = 1 + Source(data).byte(), data[1:]
    assert _parsed([stream[at : at + size] for at in range(0, len(stream), size)]) == _parsed([stream])


def run_headers(data: bytes) -> None:
    """Carry a message through the network: it comes back as it was."""
    content = data[1:]
    header_bytes = min(Source(data).byte(), len(content))
    carried = carry(content, header_bytes, b"_INBOX.a.1")
    headers = decode_headers(encode_headers(carried.headers).encoded)
    assert headers is not None
    assert read_carried(headers, carried.payload) == (b"_INBOX.a.1", header_bytes, content, 0)


USERS = {
    "shop": NatsUser("shop", publish=read_user_rules(["a.>", "!a.secret"]), subscribe=read_user_rules(["b.>", "a.b queue q"])),
}
SUBJECTS = (
    b"a",
    b"a.b",
    b"a.secret",
    b"b.c",
    b"b.*",
    b">",
    b"a.>",
    b"_INBOX.x.1",
    b"_INBOX.x.*",
    b"_INBOX.>",
    b"$JS.A",
    b"a..b",
)
OPTIONS = (b'{"verbose":false,"pedantic":false}', b'{"headers":true,"no_responders":true}', b'{"echo":false,"protocol":1}')
#: What a door says: lines of these forms, and payloads of the announced size.
SAID = re.compile(
    rb"(?:<INFO>|(?:\+OK|PING|PONG|-ERR '[^\r\n\0]*'|H?MSG (?P<subject>[^\0- \x7f]+) (?P<sid>[^\0- \x7f]+)"
    rb"(?: [^\0- \x7f]+)?(?: \d+)??(?P<size> \d+))\r\n)"
)


def _told(output: bytes) -> list[bytes]:
    """Return the subjects of the messages in the output of a door, which has to be well-formed."""
    found: list[bytes] = []
    at = 0
    while at < len(output):
        line = SAID.match(output, at)
        assert line is not None, output[at : at + 80]
        at = line.end()
        if line["size"] is not None:
            found.append(line["subject"])
            at += int(line["size"]) + 2
            assert output[at - 2 : at] == b"\r\n"
    return found


def _operation(source: Source) -> bytes:
    subject = source.choose(SUBJECTS)
    sid = b"%d" % (source.byte() % 4)
    match source.byte() % 8:
        case 0:
            return b"CONNECT %b\r\n" % source.choose(OPTIONS)
        case 1 | 2:
            return b"SUB %b %b%b\r\n" % (subject, b"q " if source.flag() else b"", sid)
        case 3:
            return b"UNSUB %b %d\r\n" % (sid, source.byte() % 4)
        case 4:
            return b"PING\r\n"
        case 5:
            content = source.blob()[:100]
            return b"HPUB %b r %d %d\r\n%b\r\n" % (subject, source.byte() % (len(content) + 1), len(content), content)
        case 6:
            return source.blob()[:100]
        case _:
            content = source.blob()[:100]
            reply = b" " + source.choose(SUBJECTS) if source.flag() else b""
            return (b"PUB %b%b %d\r\n%b\r\n" % (subject, reply, len(content), content)) * (1 + source.byte() % 3)


def run_session(data: bytes) -> None:
    """Let clients of a user do anything: they hear what their user may hear, and a witness hears all that is for it."""
    source = Source(data)
    limits = NatsLimits(
        waiting_bytes=20_000, waiting_bytes_total=50_000, subscriptions_per_client=8, subscriptions=20, patterns=6
    )
    door = LoneDoor(USERS, "shop", limits)
    witness = door.connect(OPTIONS[0])
    assert witness.ask(b"SUB b.witness 1\r\n") == b""
    clients = [door.connect() for _ in range(3)]
    memory, turn, told = oracles.Memory(door.clients), oracles.Turn(), 0
    while not source.is_empty:
        client = source.choose(clients)
        sent = _operation(source)
        told += len(sent)
        with turn:
            client.send(sent)
            if source.flag():
                door.now += source.pause()
                client.session.handle_timeout(door.now, is_reading=source.flag())
        for subject in _told(client.read()) if source.flag() else ():
            found = read_subject(subject)
            assert isinstance(found, NatsSubject)
            assert found.kind is SubjectKind.INBOX or covers(("b", ">"), found.tokens) or subject == b"a.b"
        if client.end is not None:
            door.clients.close(client.session)
            clients[clients.index(client)] = door.connect()
    routes = door.clients.routes
    assert routes.count == sum(session.subscriptions for session in door.clients.sessions)
    assert door.clients.waiting_bytes == sum(session.waiting_bytes for session in door.clients.sessions) <= 50_000
    assert routes.count <= 20
    assert routes.patterns <= 6
    assert witness.end is None
    routes.receive(PatternKey("b.witness", ""), ("b", "witness"), Delivery(b"b.witness", b"", 0, [b"end"]))
    assert witness.read().endswith(b"MSG b.witness 1 3\r\nend\r\n")
    if oracles.is_weighed(data):
        memory.check(told)


TARGETS = (
    Target("nats-parser", run_parser, Kind.DECODER, (b"\xff" + OPERATIONS, b"\x01" + OPERATIONS), 3 * PAYLOAD_MAX),
    Target("nats-headers", run_headers, Kind.DECODER, (bytes((len(BLOCK),)) + BLOCK + b"hi",), 1024),
    Target("nats-session", run_session, Kind.MACHINE, (bytes(range(256)) * 4,)),
)
