"""The NATS door: bytes of clients, header blocks, clients with rights among others, messages of insiders, and its file."""

from __future__ import annotations

import json
import random
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from iris_py.doors.door_messages import DoorAnnouncement, DoorGreeting, decode_message, encode_message
from iris_py.doors.door_table import ADDRESSES_MAX, DoorTable
from iris_py.doors.nats.encoder import Delivery
from iris_py.doors.nats.headers import ReceivedBlock, carry, read_carried
from iris_py.doors.nats.inbox_messages import (
    InboxLoss,
    InboxReplies,
    InboxReply,
    decode_inbox_message,
    encode_inbox_message,
)
from iris_py.doors.nats.operations import Operation, ProtocolFault, PubRun
from iris_py.doors.nats.parser import CONTROL_LINE_MAX, ProtocolParser
from iris_py.doors.nats.settings import NatsLimits
from iris_py.doors.nats.subjects import NatsSubject, SubjectKind, read_subject
from iris_py.doors.nats.subscription import PatternKey
from iris_py.doors.nats.users import OPERATOR, NatsUser, read_user_rules
from iris_py.doors.rights import RULES_MAX, covers
from iris_py.doors.settings import parse_settings
from iris_py.errors import ConfigurationError
from iris_py.servers.nats.inbox_cluster import InboxCluster
from iris_py.servers.settings_file import check_nats_exposure
from iris_py.wire.headers import decode_headers, encode_headers
from tests.fuzz import oracles
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target
from tests.nats.lone_door import INFO, LoneDoor

if TYPE_CHECKING:
    from iris_py.api.node import Node
    from iris_py.doors.settings import DoorSettings

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
    assert read_carried(headers, carried.payload) == ReceivedBlock(b"_INBOX.a.1", header_bytes, content, 0)


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
    rb"(?: [^\0- \x7f]+)?(?: (?P<head>\d+))??(?P<size> \d+))\r\n)"
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
            assert int(line["head"] or 0) <= int(line["size"])
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


class InsiderSource(Source):
    """The messages of an insider: those of a door, with any field changed, or any bytes."""

    def text(self) -> bytes:
        """Return an inbox, another text, or any bytes."""
        choice = self.byte()
        return self.blob()[:512] if choice < 8 else TEXTS[choice % 2] if choice < 160 else TEXTS[choice % len(TEXTS)]

    def content(self) -> bytes:
        """Return the header block and payload of a message."""
        return bytes((self.byte(),)) * (self.byte() % 64)

    def message(self) -> bytes:
        """Return a message to the cluster of a door, or of all doors."""
        match self.byte() % 8:
            case 0:
                return self.blob()
            case 1:
                return encode_inbox_message(InboxLoss(self.text()))
            case 2:
                announcement = DoorAnnouncement(id=f"{self.byte():016x}", kind="nats", address=self.text().decode("latin-1"))
                return encode_message(DoorGreeting(announcement, bytes(8)))
            case _:
                contents = [self.content()] * (1 + self.byte() % 3) + ([self.content()] if self.byte() < 32 else [])
                reply = self.text() if self.flag() else b""
                header_bytes = self.byte() % 70 if self.byte() < 192 else self.number(-(1 << 63), (1 << 63) - 1)
                replies = [InboxReply(self.text(), reply, header_bytes, contents) for _ in range(1 + self.byte() % 3)]
                return encode_inbox_message(InboxReplies(replies))


class _NodePlace:
    """Stands for the node of a door, which has an id."""

    id = "0" * 32


TEXTS = (
    *(
        b"_INBOX.a.1",
        b"_INBOX.b",
        b"_INBOX.c.1",
        b"_INBOX.>",
        b"_INBOX",
        b"a.b",
        b"$JS.A",
        b"",
        b"a b",
        b"_INBOX.a.1 5\r\nMSG x 1 1\r\n",
    ),
    *(b"_INBOX.a\xff", b"door1.example:4222", b"door2.example:4222\r\n-ERR", b'"],"ldm":true,"x":["', b"[::1]:1", b":1"),
)


def run_door_messages(data: bytes) -> None:
    """Let an insider say anything to a door: clients read well-formed messages of their inboxes, and addresses of doors."""
    source = InsiderSource(data)
    door = LoneDoor()
    cluster = InboxCluster(cast("Node", _NodePlace()), door.clients.routes)
    doors = DoorTable("f" * 16)
    clients = [door.connect(b'{"verbose":false,"protocol":1%b}' % more) for more in (b"", b',"headers":true')]
    for client in clients:
        client.ask(b"PING\r\nSUB > 1\r\nSUB _INBOX.a.* 2\r\nSUB _INBOX.b q 3\r\nUNSUB 3 5\r\n")
    memory, turn = oracles.Memory((door.clients, doors)), oracles.Turn()
    while not source.is_empty:
        message = source.message()
        with turn:
            greeting = decode_message(message)
            if isinstance(greeting, DoorGreeting):
                doors.hear("node", greeting, bytes(8))
                door.clients.announce(doors.addresses("nats"))
            received = decode_inbox_message(message)
            if isinstance(received, InboxReplies):
                cluster.deliver(received, "1" * 32)
            elif isinstance(received, InboxLoss) and isinstance(subject := read_subject(received.subject), NatsSubject):
                door.clients.routes.inboxes.forget(subject.key, "1" * 32)
        for client in clients:
            client.written += client.session.take_output()
            for info in INFO.findall(client.written):
                urls = json.loads(info[5:]).get("connect_urls", ())
                assert len(urls) <= ADDRESSES_MAX
                assert not any(set(url) & set(" \r\n\"',") for url in urls)
            assert all(covers(("_INBOX", "a", "*"), _tokens(each)) or each == b"_INBOX.b" for each in _told(client.read()))
            assert client.end is None
    if oracles.is_weighed(data):
        memory.check(len(data))


def _tokens(subject: bytes) -> tuple[str, ...]:
    found = read_subject(subject)
    assert isinstance(found, NatsSubject)
    return found.tokens


DOOR_FILE = b"""
[nats]
listen = "0.0.0.0:4222"
advertise = "door1.example:4222"
server_name = "iris"
certificate_file = "door.pem"
key_file = "door.key"
client_ca_file = "ca.pem"
tls_first = true
behind_proxy = "10.0.0.0/8"
no_user = "guest"
[nats.limits]
connections = 5
waiting_bytes = 1_000
[roles.viewer]
subscribe = ["notes.{sub}", "news.>"]
publish = ["a.*@eu"]
[users.robot]
nkey = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
publish = ["orders.>", "!orders.internal.>"]
subscribe = ["prices.>", "orders.new queue workers"]
[users.guest]
role = "viewer"
token = "sha256:%b"
""" % (b"0f" * 32)
FIRST_LINE = re.compile(r"door\.toml:\d+: ")


def _settings(text: str) -> DoorSettings | str:
    """Return the settings in the text of a file, or its mistakes."""
    try:
        return parse_settings(text, "door.toml")
    except ConfigurationError as exc:
        return str(exc)


def run_door_file(data: bytes) -> None:
    """Read the file of a door: it has mistakes, each with its line, or settings that open no door to strangers."""
    text = data.decode(errors="replace")
    with oracles.Turn():
        settings = _settings(text)
    if isinstance(settings, str):
        assert all(map(FIRST_LINE.match, settings.splitlines())), settings
        return
    assert parse_settings(text, "door.toml") == settings
    nats = settings.nats
    assert all(type(limit) is int and limit > 0 for limit in asdict(nats.limits).values())
    assert bool(nats.certificate_file) is bool(nats.key_file)
    assert not nats.no_user or nats.no_user in settings.users
    for user in settings.users.values():
        for rules in (user.publish, user.subscribe):
            assert len(rules.given) + len(rules.taken) <= RULES_MAX
        assert user is not OPERATOR
    try:
        check_nats_exposure(settings)
    except ConfigurationError:
        return
    host = nats.listen.rpartition(":")[0]
    assert host in ("127.0.0.1", "localhost", "[::1]") or host.startswith(("127.", "[::1")) or settings.users


TARGETS = (
    Target("nats-parser", run_parser, Kind.DECODER, (b"\xff" + OPERATIONS, b"\x01" + OPERATIONS), 3 * PAYLOAD_MAX),
    Target("nats-headers", run_headers, Kind.DECODER, (bytes((len(BLOCK),)) + BLOCK + b"hi",), 1024),
    Target("nats-door-messages", run_door_messages, Kind.MACHINE, (bytes(range(256)) * 4, random.Random(1).randbytes(4096))),
    Target("door-file", run_door_file, Kind.DECODER, (DOOR_FILE, *DOOR_FILE.split(b"\n[")), 4096),
    Target("nats-session", run_session, Kind.MACHINE, (bytes(range(256)) * 4,)),
)
