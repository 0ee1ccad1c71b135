"""Properties of event streams: a client misses nothing silently, whichever door it uses and whatever the doors lose.

Two doors hear several publishers, each in its own order and with its own losses. A client reads through a small window, loses
its connection in the middle of an event, and resumes at either door by the last cursor that it has.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iris_py.doors.settings import HistorySettings, WebLimits
from iris_py.doors.web.cursors import CursorKeys
from iris_py.doors.web.event_router import EventRouter, StreamOptions
from iris_py.doors.web.event_text import EventForm
from iris_py.doors.web.histories import OVERLAP_S, Histories
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.names import TopicTrie, parse_pattern
from tests.profiles import examples

if TYPE_CHECKING:
    from iris_py.doors.web.event_stream import EventStream
    from iris_py.doors.web.window import WindowPolicy

KEY = bytes(range(32))
PUBLISHERS = ("p" * 32, "q" * 32, "r" * 32)
TOPICS = ("notes.ann", "notes.bob", "news.ann", "news.bob")
#: Patterns of the client, all with histories; some of them match the same messages.
SUBSCRIPTIONS = (("notes.ann",), (">",), ("notes.*", "*.ann"), ("news.>", "notes.bob", "*.bob"))
#: A message takes at most so long to a door. So two messages arrive at two doors with less than `OVERLAP_S` between.
DELAY_S = OVERLAP_S / 2 - 0.05
DELAYS = st.sampled_from([0.0, DELAY_S / 2, DELAY_S])
SECONDS = 12
MESSAGES = 8
WINDOW = 4
POLICIES: tuple[WindowPolicy, ...] = ("drop_oldest", "disconnect")
#: Received bytes of a write that the connection loses: all of them, some, or none.
CUTS = st.sampled_from([None, 0.0, 0.3, 0.7])


class Published(NamedTuple):
    """A message of a publisher; ``at`` has the times at which it comes to the doors, or would come."""

    source: str
    number: int
    topic: str
    at: tuple[float, float]


class Door:
    """One door, with the messages that are on the way to it."""

    def __init__(self, mark: int, now: float) -> None:
        self.keys = CursorKeys(KEY)
        self.on_the_way: deque[tuple[float, Published, bool]] = deque()
        self.start(mark, now)

    def start(self, mark: int, now: float) -> None:
        """Begin anew, without any history; what is on the way to the former door is lost."""
        self.began_at = now
        self.on_the_way.clear()
        histories = [
            HistorySettings("notes.>", seconds=SECONDS, messages=MESSAGES, last=True),
            HistorySettings("*.ann", seconds=SECONDS, messages=MESSAGES),
            HistorySettings(">", seconds=SECONDS * 2, messages=2 * MESSAGES),
        ]
        self.histories = Histories(histories, self.keys, mark.to_bytes(8, "big"), now)
        limits = WebLimits(window_messages=WINDOW, window_bytes=WINDOW * 400)
        self.router = EventRouter(self.histories, self.keys, limits)
        self.trie: TopicTrie[int] = TopicTrie()
        self.missed: dict[tuple[int, str], int] = {}  # by history and publisher
        self.heard: set[tuple[int, str]] = set()
        for index, history in enumerate(self.histories.all):
            self.trie.add(parse_pattern(history.settings.pattern), index)

    def receive(self, published: Published, now: float) -> None:
        for index in sorted(self.trie.match(tuple(published.topic.split(".")))):
            key = (index, published.source)
            gap = self.missed.pop(key, 0) if key in self.heard else 0
            self.heard.add(key)
            message = Message(b"%d" % published.number, published.source, published.number, topic=published.topic, gap=gap)
            self.router.receive_kept(self.histories.all[index], [message], now)

    def lose(self, published: Published) -> None:
        for index in self.trie.match(tuple(published.topic.split("."))):
            key = (index, published.source)
            self.missed[key] = self.missed.get(key, 0) + 1


class Client:
    """A client of event streams, as a browser is: it knows whole events alone, and its last cursor."""

    def __init__(self, patterns: tuple[str, ...], opened_at: float) -> None:
        self.patterns = patterns
        self.opened_at = opened_at
        self.last_event_id = ""
        self.events: list[tuple[str, int] | None] = []  # source and number of messages; None for gaps
        self.pseudonyms = {CursorKeys(KEY).pseudonym(source).hex(): source for source in PUBLISHERS}
        self.connection: set[tuple[str, int]] = set()  # the messages of the connection
        self.rest = b""

    def receive(self, content: bytes) -> None:
        *texts, self.rest = (self.rest + content).split(b"\n\n")
        for text in texts:
            fields = dict(line.split(b": ", 1) for line in text.split(b"\n") if not line.startswith(b":"))
            if b"id" in fields:
                self.last_event_id = fields[b"id"].decode()
            if fields.get(b"event") == b"gap":
                self.events.append(None)
            elif fields.get(b"event") == b"message":
                data = json.loads(fields[b"data"])
                assert data["json"] == data["number"]
                event = (self.pseudonyms[data["publisher"]], data["number"])
                assert event not in self.connection, "nothing comes twice by one connection"
                self.connection.add(event)
                self.events.append(event)

    def disconnect(self) -> None:
        self.rest = b""
        self.connection.clear()


class EventStreamMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.doors = (Door(1, self.now), Door(2, self.now))
        self.marks = 2
        self.numbers = dict.fromkeys(PUBLISHERS, 0)
        self.published: list[Published] = []
        self.client: Client | None = None
        self.door: Door | None = None
        self.stream: EventStream | None = None
        self.first = 0

    # -- the network

    @rule(
        source=st.sampled_from(PUBLISHERS),
        topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=6),
        delays=st.tuples(DELAYS, DELAYS),
        losses=st.sets(st.tuples(st.integers(0, 1), st.integers(0, 5)), max_size=2),
    )
    def publish(self, source: str, topics: list[str], delays: tuple[float, float], losses: set[tuple[int, int]]) -> None:
        for place, topic in enumerate(topics):
            self.numbers[source] += 3  # other topics take numbers, too
            at = (self.now + delays[0], self.now + delays[1])
            published = Published(source, self.numbers[source], topic, at)
            self.published.append(published)
            for index, door in enumerate(self.doors):
                door.on_the_way.append((at[index], published, (index, place) in losses))

    @rule(seconds=st.sampled_from([0.01, 0.5, DELAY_S, 2.5, 11.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for door in self.doors:
            # Of one publisher in the order of its numbers; of several in any order.
            latest: dict[str, float] = {}
            coming: list[tuple[float, int, Published, bool]] = []
            for at, published, is_lost in door.on_the_way:
                latest[published.source] = max(at, latest.get(published.source, 0.0))
                coming.append((latest[published.source], len(coming), published, is_lost))
            door.on_the_way.clear()
            for at, _place, published, is_lost in sorted(coming):
                if at > self.now:
                    door.on_the_way.append((at, published, is_lost))
                elif is_lost:
                    door.lose(published)
                else:
                    door.receive(published, at)
            door.histories.expire(self.now)

    # -- the client

    @precondition(lambda self: self.stream is None)
    @rule(door=st.integers(0, 1), patterns=st.sampled_from(SUBSCRIPTIONS), policy=st.sampled_from(POLICIES))
    def connect(self, door: int, patterns: tuple[str, ...], policy: WindowPolicy) -> None:
        if self.client is None:
            self.client = Client(patterns, self.now)
            self.first = door
        self.door = self.doors[door]
        router = self.door.router
        options = StreamOptions(EventForm(), policy, self.client.last_event_id)
        self.stream = router.open(router.sources_of(self.client.patterns), options, 3000, self.now)
        if not self.client.last_event_id:
            self.client.receive(self.stream.take(self.now))

    @precondition(lambda self: self.stream is not None)
    @rule(writes=st.integers(1, 3), cut=CUTS)
    def read(self, writes: int, cut: float | None) -> None:
        assert self.stream is not None
        assert self.client is not None
        content = b"".join([self.stream.take(self.now) for _ in range(writes)])
        if cut is None:
            self.client.receive(content)
            if self.stream.has_ended:
                self.disconnect()
        else:
            self.client.receive(content[: int(cut * len(content))])
            self.disconnect()

    @precondition(lambda self: self.stream is not None)
    @rule()
    def beat(self) -> None:
        assert self.stream is not None
        self.stream.beat(self.now)

    @precondition(lambda self: self.stream is not None)
    @rule()
    def disconnect(self) -> None:
        assert self.stream is not None
        assert self.door is not None
        assert self.client is not None
        self.door.router.close(self.stream)
        self.client.disconnect()
        self.stream = None

    @rule(index=st.integers(0, 1))
    def restart(self, index: int) -> None:
        if self.stream is not None and self.door is self.doors[index]:
            self.disconnect()
        self.marks += 1
        self.doors[index].start(self.marks, self.now)

    # -- what holds

    @invariant()
    def bounds_hold(self) -> None:
        for door in self.doors:
            for history in door.histories.all:
                assert history.count <= history.settings.messages
                assert history.bytes == sum(history.entry(each).size for each in range(history.first, history.end))
            assert len(door.router.streams) == (self.stream is not None and door is self.door)
        if self.stream is not None:
            assert len(self.stream.window) <= WINDOW
            assert self.stream.window.bytes <= WINDOW * 400

    def teardown(self) -> None:
        if self.client is None:
            return
        # At last each publisher is heard by everybody, and the client reads everything.
        if self.stream is not None:
            self.read(1, 0.5)
        self.connect(self.first, self.client.patterns, "drop_oldest")
        for source in PUBLISHERS:
            for topic in TOPICS:
                self.publish(source, [topic], (0.0, 0.0), set())
                self.pass_time(DELAY_S)
                while self.stream is not None and self.stream.has_output:
                    self.read(1, None)
        self.check()

    def check(self) -> None:
        client = self.client
        assert client is not None
        trie: TopicTrie[int] = TopicTrie()
        for pattern in client.patterns:
            trie.add(parse_pattern(pattern), 1)
        events = client.events
        places: dict[tuple[str, int], int] = {}
        for place, event in enumerate(events):
            if event is not None:
                places.setdefault(event, place)
        wanted = {(each.source, each.number) for each in self.published if trie.match(tuple(each.topic.split(".")))}
        assert places.keys() <= wanted
        for published in self.published:
            key = (published.source, published.number)
            if key in places or key not in wanted or published.at[self.first] <= client.opened_at + DELAY_S:
                continue
            # The gap stands between the messages of the publisher around the missing one, as they came first.
            of_source = [(place, number) for (source, number), place in places.items() if source == published.source]
            end = min((place for place, number in of_source if number > published.number), default=len(events))
            begin = max((place for place, number in of_source if number < published.number and place < end), default=0)
            assert None in events[begin:end], f"{published} is missing without a gap: {events}"


EventStreamMachine.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=30, deadline=None)
TestEventStreams = EventStreamMachine.TestCase
