"""Sessions of several clients at one door, beside a model server: any operations, however their bytes are cut."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from iris_py.doors.nats.encoder import Delivery
from iris_py.doors.nats.passwords import hash_token
from iris_py.doors.nats.users import NatsUser, read_user_rules
from tests.nats.lone_door import DoorConnection, LoneDoor
from tests.nats.model_server import Heard, ModelClient, ModelServer, matches
from tests.profiles import examples

#: The users of a door with users: what they may publish, and subscribe to.
USERS: Final = {
    "ann": ([">"], [">"]),
    "bob": (["a.>", "!a.c"], ["a.*", "!a.c", "b queue q", "b.>"]),
    "eve": (["b"], ["a.b", "*.c queue r"]),
}
CLIENTS_MAX: Final = 4
SUBJECTS: Final = st.sampled_from(["a.b", "a.c", "b"])
PATTERNS: Final = st.sampled_from(["a.b", "a.c", "b", "a.*", "a.*", "*.c", ">", "a.>", "a..b", "a.>.b"])
QUEUES: Final = st.sampled_from(["", "", "q", "r"])
SIDS: Final = st.sampled_from([b"1", b"2", b"3", b"q"])
NUMBERS: Final = st.integers(0, CLIENTS_MAX - 1)
#: ``CONNECT`` of clients of all kinds.
CONNECTS: Final = st.builds(
    lambda user, verbose, echo, kind: (
        f'CONNECT {{"verbose":{verbose},"pedantic":false,"echo":{echo},{kind},"auth_token":"{user}"}}\r\n'.replace(
            "True", "true"
        ).replace("False", "false")
    ),
    st.sampled_from(["ann", "ann", "ann", "bob", "bob", "bob", "eve", "nobody"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(['"name":""', '"headers":true', '"headers":true,"no_responders":true']),
)
HEAD: Final = b"NATS/1.0\r\nkey: v\r\n\r\n"


class Pair:
    """A client at the door and in the model; the bytes still to be sent."""

    def __init__(self, door: LoneDoor, server: ModelServer, number: int) -> None:
        self.connection: DoorConnection = door.connect()
        self.model: ModelClient = server.connect()
        self.unsent = b""
        self.inbox = f"_INBOX.c{number}"
        self.frames: list[Heard | bytes] = []  # those of the door since the last look


def read_frames(data: bytes) -> list[Heard | bytes]:
    """Return the frames in the output of a door."""
    frames: list[Heard | bytes] = []
    while data:
        line, end, data = data.partition(b"\r\n")
        assert end
        word, *fields = line.split(b" ")
        if word not in (b"MSG", b"HMSG"):
            frames.append(line)
            continue
        size = int(fields.pop())
        head_size = int(fields.pop()) if word == b"HMSG" else 0
        subject, sid, reply = fields if len(fields) == 3 else [*fields, b""]
        assert data[size : size + 2] == b"\r\n"
        frames.append(Heard(sid, subject, reply, data[:head_size], data[head_size:size]))
        data = data[size + 2 :]
    return frames


class NatsSessions(RuleBasedStateMachine):
    """Clients send operations in pieces; after each piece the output of every client is that of the model.

    The node of the door has no peers, and a rule plays a message of another program.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0  # of messages: each has a payload of its own
        self.pairs: dict[int, Pair] = {}

    @initialize(has_users=st.booleans(), options=st.lists(CONNECTS, min_size=CLIENTS_MAX, max_size=CLIENTS_MAX))
    def begin(self, has_users: bool, options: list[str]) -> None:
        users = {
            name: NatsUser(name, read_user_rules(rules[0]), read_user_rules(rules[1]), token=hash_token(name))
            for name, rules in USERS.items()
        }
        self.door = LoneDoor(users if has_users else None)
        self.server = ModelServer(USERS if has_users else None, self.choose)
        for number, each in enumerate(options):
            self.connect(number, each)
            self.send(number, b"SUB a.* %d\r\nSUB a.b q q\r\n" % number, [])

    # -- operations

    @precondition(lambda self: self.count % 5 == 4)  # seldom
    @rule(number=NUMBERS, options=CONNECTS)
    def move(self, number: int, options: str) -> None:
        """End a connection, and begin another one."""
        pair = self.pairs.pop(number)
        self.door.close(pair.connection)
        self.server.close(pair.model)
        self.connect(number, options)

    @precondition(lambda self: self.count % 5 == 3)
    @rule(number=NUMBERS, options=CONNECTS)
    def change(self, number: int, options: str) -> None:
        self.send(number, options.encode(), [])

    @rule(number=NUMBERS, pattern=PATTERNS, queue=QUEUES, sid=SIDS, cuts=st.lists(st.integers(0, 99), max_size=2))
    def subscribe(self, number: int, pattern: str, queue: str, sid: bytes, cuts: list[int]) -> None:
        self.send(number, b"SUB %b %b\r\n" % (f"{pattern} {queue}".encode(), sid), cuts)

    @rule(number=NUMBERS, sid=SIDS, cuts=st.lists(st.integers(0, 99), max_size=2))
    def subscribe_to_replies(self, number: int, sid: bytes, cuts: list[int]) -> None:
        self.send(number, b"SUB _INBOX.c%d.* %b\r\n" % (number, sid), cuts)

    @rule(
        number=NUMBERS,
        sid=SIDS,
        most=st.sampled_from([b"", b"0", b"1", b"2", b"5", b"x"]),
        cuts=st.lists(st.integers(0, 99), max_size=2),
    )
    def unsubscribe(self, number: int, sid: bytes, most: bytes, cuts: list[int]) -> None:
        self.send(number, b" ".join([b"UNSUB", sid, most]).rstrip() + b"\r\n", cuts)

    @rule(
        number=NUMBERS,
        subject=st.one_of(SUBJECTS, SUBJECTS, NUMBERS.map(lambda number: f"_INBOX.c{number}.1"), st.just("$JS.API.INFO")),
        has_reply=st.booleans(),
        has_head=st.booleans(),
        count=st.integers(1, 3),
        cuts=st.lists(st.integers(0, 99), max_size=3),
    )
    def publish(self, number: int, subject: str, has_reply: bool, has_head: bool, count: int, cuts: list[int]) -> None:
        data = b""
        for _ in range(count):
            self.count += 1
            payload = b"%06d" % self.count
            # No request to an inbox, which may have a client at another door, or to a group without the right to hear it.
            is_request = has_reply and subject != "a.c" and not subject.startswith("_INBOX")
            reply = b" _INBOX.c%d.1" % number if is_request else b""
            if has_head and self.pairs[number].model.options.get("headers"):
                sizes = len(HEAD), len(HEAD) + len(payload)
                data += b"HPUB %b%b %d %d\r\n%b%b\r\n" % (subject.encode(), reply, *sizes, HEAD, payload)
            else:
                data += b"PUB %b%b %d\r\n%b\r\n" % (subject.encode(), reply, len(payload), payload)
        self.send(number, data, cuts)

    @rule(number=NUMBERS, cuts=st.lists(st.integers(0, 99), max_size=1))
    def ping(self, number: int, cuts: list[int]) -> None:
        self.send(number, b"PING\r\n", cuts)

    @rule(subject=SUBJECTS)
    def hear(self, subject: str) -> None:
        """Another program publishes a message."""
        self.count += 1
        payload = b"%06d" % self.count
        self.door.hear(subject, Delivery(subject.encode(), b"", 0, [payload]), matches)
        self.read()
        self.server.hear(subject, payload)

    # --

    def connect(self, number: int, options: str) -> None:
        self.pairs[number] = Pair(self.door, self.server, number)
        self.send(number, options.encode(), [])

    def send(self, number: int, data: bytes, cuts: list[int]) -> None:
        """Send bytes in pieces. The last piece waits for the next operation, if there is more than one cut."""
        pair = self.pairs[number]
        if pair.model.is_over:
            return
        data = pair.unsent + data
        places = sorted(cut % (len(data) + 1) for cut in cuts)
        if len(cuts) < 2:
            places.append(len(data))
        begin = 0
        for place in places:
            piece, begin = data[begin:place], place
            pair.connection.send(piece)
            self.read()
            self.server.receive(pair.model, piece)
            self.compare()
        pair.unsent = data[begin:]

    def read(self) -> None:
        for pair in self.pairs.values():
            pair.frames += read_frames(pair.connection.read())

    def choose(self, queue: str, payload: bytes, members: list[tuple[ModelClient, bytes]]) -> tuple[ModelClient, bytes]:
        """Return the only member of a queue group to which the door gave a message."""
        found = [
            (pair.model, frame.sid)
            for pair in self.pairs.values()
            for frame in pair.frames
            if isinstance(frame, Heard) and frame.payload == payload and (pair.model, frame.sid) in members
        ]
        assert len(found) == 1, (queue, payload, found)
        return found[0]

    @invariant()
    def compare(self) -> None:
        for number, pair in self.pairs.items():
            assert _order(pair.frames) == _order(pair.model.frames), number
            pair.frames, pair.model.frames = [], []
            assert pair.connection.session.subscriptions == len(pair.model.subscriptions)
            assert (pair.connection.end is not None) is pair.model.is_over


def _order(frames: list[Heard | bytes]) -> list[object]:
    """Return the lines in order, and between two ``PONG`` the messages of each subscription in order."""
    parts: list[object] = []
    lines: list[bytes] = []
    messages: dict[bytes, list[Heard]] = defaultdict(list)
    for frame in [*frames, b"PONG"]:
        if isinstance(frame, Heard):
            messages[frame.sid].append(frame)
        elif frame == b"PONG":
            parts += [lines, dict(messages)]
            lines, messages = [], defaultdict(list)
        else:
            lines.append(frame)
    return parts


NatsSessions.TestCase.settings = settings(max_examples=examples(300), stateful_step_count=40, deadline=None)
TestNatsSessions = NatsSessions.TestCase
