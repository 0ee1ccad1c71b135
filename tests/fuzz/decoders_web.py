"""Decoders of the web door: the bytes of a connection up to the operation, and the choices of an event stream."""

from __future__ import annotations

from typing import Final

import httptools

from iris_py.doors.problems import PROBLEMS, DoorRefusal
from iris_py.doors.settings import HistorySettings, WebLimits
from iris_py.doors.web.cursors import PSEUDONYM_BYTES, Cursor, CursorKeys
from iris_py.doors.web.event_router import EventRouter, StreamOptions
from iris_py.doors.web.event_text import EVENT_FORMATS, EventForm
from iris_py.doors.web.histories import Histories
from iris_py.doors.web.payload_text import PAYLOAD_FORMS
from iris_py.doors.web.request_boundary import RequestBoundary
from iris_py.doors.web.request_head import CHUNKED, HEAD_BYTES_MAX, RequestHead
from iris_py.doors.web.window import WINDOW_POLICIES
from iris_py.patterns.messages import Message
from iris_py.servers.web.paths import PATHS, find_path
from tests.fuzz.oracles import Memory, Turn, is_weighed
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target

BODY_BYTES: Final = 1000
#: Bytes received at a time.
PIECES: Final = (1, 2, 3, 7, 64, 1 << 16)
KEYS: Final = CursorKeys(bytes(range(32)))
SOURCE: Final = "ab" * 16
TOPICS: Final = ("notes.ann", "notes.bob", "news.a")
PATTERNS: Final = (">", "*", "notes.>", "notes.*", "*.ann", "notes.ann", "news.a", "notes.ann@eu", "a..b", "@eu", "")
LIMITS: Final = WebLimits(window_messages=4, window_bytes=2000, patterns=8)
HISTORIES: Final = (HistorySettings("notes.>", messages=3, last=True), HistorySettings("*.ann", messages=2))
STEPS_MAX: Final = 60
CURSOR: Final = KEYS.encode(Cursor(KEYS.pseudonym(SOURCE), 3))

GET: Final = b"GET /v1/topics/events?pattern=a HTTP/1.1\r\nHost: a\r\nLast-Event-ID: %b\r\n\r\n" % CURSOR.encode()
POST: Final = b"POST /v1/clusters/a%2Fb/request HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
CHUNKS: Final = (
    b"POST /v1/topics/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"
)

UPGRADE: Final = POST.replace(b"Host: a", b"Host: a\r\nConnection: Upgrade\r\nUpgrade: h2c")


class ParsedRequests:
    """The requests that the parser behind the boundary finds in its bytes.

    Attributes:
        begun: Requests whose head has begun.
        completed: Requests that have ended.
        body_bytes: Bytes of the body of the present request.
        url: The target of the present request.
    """

    def __init__(self) -> None:
        self.begun = self.completed = self.body_bytes = 0
        self.url = b""

    def on_message_begin(self) -> None:
        self.begun += 1
        self.body_bytes = 0
        self.url = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)

    def on_message_complete(self) -> None:
        self.completed += 1


class Connection:
    """One connection, as the listener reads it: the boundary in front, and the parser behind."""

    def __init__(self) -> None:
        self.boundary = RequestBoundary(BODY_BYTES)
        self.found = ParsedRequests()
        self.parser = httptools.HttpRequestParser(self.found)
        self.length = 0

    def receive(self, data: bytes) -> None:
        """Read all requests that are complete, and the part that there is of the next one."""
        boundary = self.boundary
        boundary.receive(data)
        while True:
            while (part := boundary.next_part()) is not None:
                self.parse(part)
            if not boundary.is_complete:
                return
            self.check_end()
            boundary.start_next()

    def parse(self, part: RequestHead | bytes) -> None:
        """Give a part to the parser, a new one for each request."""
        if isinstance(part, RequestHead):
            self.found = found = ParsedRequests()
            self.parser = httptools.HttpRequestParser(found)
            self.length = part.length
            self.parser.feed_data(part.data)
            assert found.begun == 1
            assert found.completed == (part.length == 0), "the parser sees another end of the request"
            _find_operation(found.url)
        else:
            try:
                self.parser.feed_data(part)
            except httptools.HttpParserError as exc:
                # The parser is stricter with extensions of chunks, which nobody reads.
                if "chunk ext" in str(exc):
                    raise
                raise AssertionError("the parser refuses a body that has passed") from exc
            assert self.found.begun == 1, "the parser sees a second request in the first"

    def check_end(self) -> None:
        """Check that the parser has seen the end, and the same body."""
        assert self.found.completed == 1, "the parser sees no end of the request"
        assert self.length in (CHUNKED, self.found.body_bytes)
        assert self.found.body_bytes <= BODY_BYTES


def run_connection(data: bytes) -> None:
    """Read a connection as the listener does: the boundary and the parser agree on each request, and on each operation."""
    size = Source(data[:1]).choose(PIECES)
    stream = data[1:]
    connection = Connection()
    for at in range(0, len(stream), size):
        try:
            with Turn():
                connection.receive(stream[at : at + size])
        except httptools.HttpParserError:
            return  # a head with a method that the parser does not know: the listener refuses the request
        except DoorRefusal as refusal:
            _check_refusal(refusal, *PROBLEMS)
            return
        assert connection.boundary.held_bytes <= HEAD_BYTES_MAX + size


def _find_operation(url: bytes) -> None:
    try:
        found = find_path(url.partition(b"?")[0])
    except DoorRefusal as refusal:
        _check_refusal(refusal, "unknown-path", "invalid")
        return
    assert found
    assert all(each.spec in PATHS for each in found.values())
    assert all(("{name}" in each.spec.path) == bool(each.name) for each in found.values())


def run_cursor(data: bytes) -> None:
    """Read the cursor of a client: nobody without the key makes one."""
    cursor = KEYS.decode(data.decode("latin-1"))
    if cursor is not None:
        # The last character of a text has two bits that mean nothing.
        assert KEYS.encode(cursor)[:-1] == data.decode("latin-1").lower()[:-1]
        assert cursor == Cursor(KEYS.pseudonym(SOURCE), 3), "a cursor was made without the key"


def run_streams(data: bytes) -> None:
    """Open, resume and close event streams with any choices, while messages come: bounded, and no error but refusals."""
    source = Source(data)
    now = 100.0
    router = EventRouter(Histories(HISTORIES, KEYS, bytes(PSEUDONYM_BYTES), now), KEYS, LIMITS)
    streams, sequence = [], 0
    last_id = CURSOR
    memory = Memory(router, shared=(KEYS, HISTORIES, LIMITS))
    for _ in range(STEPS_MAX):
        if source.is_empty:
            break
        match source.byte() % 5:
            case 0:
                options = StreamOptions(
                    EventForm(source.choose(EVENT_FORMATS), source.choose(PAYLOAD_FORMS)),
                    source.choose(WINDOW_POLICIES),
                    _last_event_id(source, last_id),
                    sends_last=source.flag(),
                )
                patterns = [_pattern(source) for _ in range(source.number(0, 70) % 70)]
                try:
                    streams.append(router.open(router.sources_of(patterns), options, 2000, now))
                except DoorRefusal as refusal:
                    _check_refusal(refusal, "invalid", "too-many")
            case 1:
                sequence += source.number(1, 10)
                message = Message(payload=source.blob()[:3000], source=SOURCE, sequence=sequence, topic=source.choose(TOPICS))
                last_id = KEYS.encode(Cursor(KEYS.pseudonym(SOURCE), sequence))
                with Turn():
                    for history in router.histories.all:
                        if history.settings.pattern == "notes.>" and message.topic.startswith("notes."):
                            router.receive_kept(history, [message], now)
                    router.receive("news.a", [message])
            case 2:
                now += source.pause()
                router.histories.expire(now)
            case 3 if streams:
                stream = source.choose(streams)
                with Turn():
                    if stream.has_output:
                        stream.take(now)
            case 4 if streams:
                stream = source.choose(streams)
                streams.remove(stream)
                router.close(stream)
        assert router.patterns <= LIMITS.patterns
        assert len(router.streams) == len(streams)
    if is_weighed(data):
        memory.check(len(data) + 70_000)
    for stream in streams:
        router.close(stream)
    assert not router.patterns


def _check_refusal(refusal: DoorRefusal, *names: str) -> None:
    assert refusal.name in names


def _last_event_id(source: Source, last_id: str) -> str:
    choice = source.byte() % 4
    if choice < 2:
        return ("", last_id)[choice]
    return source.blob()[:200].decode("latin-1")


def _pattern(source: Source) -> str:
    if source.flag():
        return source.choose(PATTERNS)
    return source.blob()[:300].decode("utf-8", "replace")


#: Steps of `run_streams`: two patterns with a history or a new one, as text or base64, from a cursor or not; then messages.
OPEN: Final = bytes((0, 0, 0, 0, 1, 0, 224, 2, 1, 2, 1, 6))
OPEN_LINES: Final = bytes((0, 1, 1, 2, 0, 1, 224, 1, 1, 0))
MESSAGES: Final = b"".join(bytes((1, 224, 1, 131)) + b'"a"' + bytes((topic,)) for topic in (0, 1, 2, 0))
TAKE: Final = bytes((3, 0, 3, 1, 2, 5))

TARGETS = (
    Target(
        "web", run_connection, Kind.DECODER, (b"\0" + GET, b"\4" + POST + GET, b"\5" + CHUNKS + POST, b"\3" + UPGRADE + GET)
    ),
    Target("web-cursor", run_cursor, Kind.DECODER, (CURSOR.encode(),), 200),
    Target("web-streams", run_streams, Kind.MACHINE, (OPEN + OPEN_LINES + MESSAGES + TAKE, (MESSAGES + OPEN + TAKE) * 3)),
)
