"""The counts of a publisher for counted patterns: whose they are, how long they last, and how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_overlay.groups.entries import pack
from iris_overlay.ids import NodeId
from iris_py.patterns.topic import counted_patterns
from iris_py.patterns.topic.counted_patterns import (
    COUNTED_SHAPES_MAX,
    IDLE_S,
    CountedPatterns,
    holder_of,
    skip_counts,
    take_counts,
)
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.outgoing_flows import OutgoingFlow
from iris_py.patterns.topic.shapes import Entry, EntryHasher
from iris_py.patterns.topic.targets import PublicationTarget
from iris_py.wire.flows import MatchesBefore, decode_count
from iris_py.wire.packets import MESSAGE, MESSAGE_BYTES, NODE_COUNTED_MAX

if TYPE_CHECKING:
    import pytest

OLD, NEW = EntryHasher(bytes(32)), EntryHasher(b"\1" * 32)


def node(number: int) -> PublicationTarget:
    id_ = NodeId(bytes((number,)) * 16)
    peer: Any = type("Peer", (), {"id": id_})
    return PublicationTarget(peer, OutgoingFlow(id_, 0))


def read(message: bytes) -> MatchesBefore:
    said = decode_count(MESSAGE.unpack_from(message)[4], message[MESSAGE_BYTES:])
    assert said is not None
    return said


class Publisher:
    """The counts of a publisher, and what it publishes."""

    def __init__(self) -> None:
        self.counts = CountedPatterns()
        self.now = 0.0
        self.number = 0
        self.rekey(OLD)

    def rekey(self, hasher: EntryHasher) -> None:
        self.hasher = hasher
        self.counts.rekey(hasher, self.now)

    def claim(self, target: PublicationTarget, *patterns: str | Entry, remove: tuple[str, ...] = ()) -> list[MatchesBefore]:
        """Change the entries of a node; return what it is told at once."""
        added = [self.entry(each) if isinstance(each, str) else each for each in patterns]
        removed = [self.entry(each) for each in remove]
        self.counts.withdraw(target.counted, pack(removed), self.now)
        told = self.counts.claim(target.peer.id, target.counted, pack(added), self.number)
        return [read(message) for message in told]

    def entry(self, pattern: str) -> Entry:
        return self.hasher.entry(parse_pattern(pattern), is_counted=True)

    def publish(self, topic: str, count: int = 1) -> int:
        """Publish; return how many counts have grown."""
        self.number += count
        matched = self.counts.match(topic, self.hasher.stem(topic.split(".")[0]))
        for each in matched:
            each.count += count
        return len(matched)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.counts.handle_timeout(self.now)


def test_each_pattern_counts_its_matches_from_its_first_holder_on() -> None:
    publisher, first, second = Publisher(), node(1), node(2)
    assert publisher.publish("a.b") == 0
    assert publisher.claim(first, "a.*", "*.b", ">") == []
    assert [publisher.publish(topic) for topic in ("a.b", "a.c", "x.b", "y", "a.b.c")] == [3, 2, 2, 1, 1]
    assert publisher.claim(first, OLD.entry(("a", "b"))) == [], "an entry without the flag"
    assert publisher.publish("a.b") == 3
    told = publisher.claim(second, "a.*", "z")
    entry, holder = publisher.entry("a.*"), holder_of(first.peer.id)
    assert told == [MatchesBefore(entry.tag, 1, holder, 3)], "what had no match is told with the first one"
    assert len(publisher.counts) == 4


def test_bodies_tell_the_matches_before_them() -> None:
    publisher, target = Publisher(), node(1)
    publisher.claim(target, "a", "b")
    assert take_counts(target.counted) == []
    publisher.publish("a", 2)
    assert [read(each).count for each in take_counts(target.counted)] == [0]
    assert take_counts(target.counted) == []
    publisher.publish("a")
    publisher.publish("b")
    assert [read(each).count for each in take_counts(target.counted)] == [2, 0]
    publisher.publish("a", 5)
    skip_counts(target.counted)
    publisher.publish("a")
    assert [read(each).count for each in take_counts(target.counted)] == [8]


def test_a_count_ends_a_day_after_its_last_holder_left() -> None:
    publisher, first, second = Publisher(), node(1), node(2)
    publisher.claim(first, "a")
    publisher.claim(second, "a")
    publisher.publish("a")
    publisher.claim(first, remove=("a",))
    publisher.wait(2 * IDLE_S)
    publisher.claim(second, remove=("a",))
    assert publisher.counts.deadline() == publisher.now + IDLE_S
    publisher.wait(IDLE_S - 1)
    publisher.publish("a")
    assert [said.count for said in publisher.claim(first, "a")] == [2]
    assert publisher.counts.deadline() is None
    publisher.claim(first, remove=("a",))
    publisher.wait(IDLE_S)
    assert publisher.publish("a") == len(publisher.counts) == 0
    assert publisher.claim(second, "a") == []
    publisher.publish("a")
    assert read(take_counts(second.counted)[0]).since == publisher.number - 1, "another count"


def test_a_count_goes_on_under_the_next_secret_and_twice_the_same_pattern_is_one() -> None:
    publisher, first, second = Publisher(), node(1), node(2)
    publisher.claim(first, "a.*", "b.*", "b.>", "c")
    publisher.publish("a.b", 3)
    publisher.rekey(NEW)
    publisher.wait(1.0)
    publisher.rekey(OLD)
    publisher.rekey(NEW)
    assert publisher.publish("a.c") == 1
    assert publisher.publish("b.d") == 2, "without a match so far"
    assert publisher.claim(second, "c") == []
    assert publisher.publish("c") == 1
    told = {said.tag: (said.since, said.count) for said in publisher.claim(second, "a.*", "b.*", "b.>")}
    assert told == {publisher.entry(pattern).tag: (0, count) for pattern, count in (("a.*", 4), ("b.*", 1), ("b.>", 1))}
    counts = [read(message) for message in take_counts(second.counted)]
    assert counts == [MatchesBefore(publisher.entry("c").tag, 0, holder_of(first.peer.id), 0)]
    assert len(publisher.counts) == 4
    assert publisher.counts.deadline() is None


def test_holders_come_before_counts_that_nobody_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_patterns, "COUNTED_MAX", 3)
    publisher, first, second = Publisher(), node(1), node(2)
    publisher.claim(first, "a", "b", "c")
    publisher.claim(second, "d")
    assert (publisher.publish("d"), len(publisher.counts)) == (0, 3), "all are held"
    publisher.claim(first, remove=("b",))
    publisher.claim(first, remove=("a",))
    publisher.claim(second, "e")
    assert [publisher.publish(topic) for topic in "abcde"] == [1, 0, 1, 0, 1], "the first without a holder made room"


def test_the_shapes_of_counted_patterns_are_bounded() -> None:
    publisher = Publisher()
    patterns = [".".join("a" * length) for length in range(1, 16)] + ["a.>", "a.*"]
    assert len(patterns) == COUNTED_SHAPES_MAX + 1
    nodes = [node(number) for number in range(3)]
    for number, pattern in enumerate(patterns):
        publisher.claim(nodes[number >= 10], pattern)
    assert (publisher.publish("a.x"), len(publisher.counts)) == (1, COUNTED_SHAPES_MAX), "not by the last one"
    assert publisher.claim(nodes[2], "a") == []
    publisher.claim(nodes[0], remove=tuple(patterns[:10]))
    publisher.claim(nodes[2], "a.*")
    assert publisher.publish("a.x") == 2
    assert publisher.publish("a") == 1, "it is held by another node"
    assert publisher.publish("a.a") == 2, "the oldest without a holder made room"


def test_a_node_has_a_bounded_number_of_counted_patterns() -> None:
    publisher, target = Publisher(), node(1)
    topics = [f"t{number}" for number in range(NODE_COUNTED_MAX + 2)]
    publisher.claim(target, *topics)
    assert sum(map(publisher.publish, topics)) == NODE_COUNTED_MAX
    publisher.claim(target, remove=tuple(topics))
    assert not target.counted
    assert publisher.counts.deadline() is not None


def test_an_entry_with_a_false_stem_takes_no_place() -> None:
    publisher, liar, honest = Publisher(), node(1), node(2)
    entry = publisher.entry("a.*")
    publisher.claim(liar, entry._replace(stem=entry.stem ^ 1), entry._replace(shape=entry.shape ^ 1))
    assert publisher.publish("a.b") == 0
    publisher.claim(honest, "a.*")
    assert publisher.publish("a.b") == 1
    assert read(take_counts(honest.counted)[0]).since == 1
