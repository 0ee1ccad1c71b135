"""Publications for counted subscriptions on their way in: each has its number among the matches of its pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.patterns.messages import CountedMessage
from iris_py.patterns.topic import deliveries as deliveries_module
from iris_py.patterns.topic.queue import SubscriptionQueue
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.flows import NO_ANSWER, MatchesBefore
from tests.unit.iris_py.patterns.topic.test_deliveries import REMOTE, Receiver, imported_head

if TYPE_CHECKING:
    import pytest

    from iris_py.patterns.topic.own_interest import OwnEntry

Taken = list[tuple[int, int, int]]


class CountedReceiver(Receiver):
    """A node that has subscribed to ``a``, and to counted patterns."""

    def __init__(self) -> None:
        super().__init__()
        self.hasher = EntryHasher(self.keys.interest_key())

    def count(self, *pattern: str, messages_max: int = 1000) -> SubscriptionQueue:
        """Subscribe to a counted pattern."""
        queue = SubscriptionQueue(pattern, ".".join(pattern), "drop_oldest", messages_max, 1000, is_counted=True)
        self.interest.add(queue.pattern, is_counted=True)
        entry = self.interest.entry_of(queue.pattern, is_counted=True)
        self.deliveries.add_tag(entry.hash(self.group.id, self.hasher).tag, entry)
        self.deliveries.add(queue, entry)
        return queue

    def told(self, entry: OwnEntry, count: int, since: int = 0) -> MatchesBefore:
        return MatchesBefore(entry.hashed[self.group.id].tag, since, 7, count)

    def body(
        self, before: int, said: list[MatchesBefore], *runs: tuple[int, str, int], head: bytes = b"", flags: int = 0
    ) -> None:
        """Receive a body: the messages in the flow before it, COUNTs, and batches: first number, topic, size."""
        sender = self.deliveries.start_body(self.group, self.peer, 0, before, 0.0)
        for each in said:
            sender = self.deliveries.start_count(sender, each.count, each.encode()[packets.MESSAGE_BYTES :])
        for number, topic, count in runs:
            self.deliveries.receive(sender, flags, number, head or topic.encode(), [b"x"] * count, 0.0)


def taken(queue: SubscriptionQueue) -> Taken:
    """Return number, count and beginning of the count of each message; 0 without one."""
    return [
        (each.sequence, each.count, each.count_since) if isinstance(each, CountedMessage) else (each.sequence, 0, 0)
        for each in queue.take()
    ]


def test_each_message_has_its_number_among_the_matches_of_each_pattern() -> None:
    node = CountedReceiver()
    one, any_ = node.count("a"), node.count("*")
    node.body(0, [node.told(one.entry, 40, 5), node.told(any_.entry, 70)], (11, "a", 2), (15, "b", 1), (16, "a", 1))
    assert taken(one) == [(11, 41, 5), (12, 42, 5), (16, 43, 5)]
    assert taken(any_) == [(11, 71, 0), (12, 72, 0), (15, 73, 0), (16, 74, 0)]
    assert taken(node.queue) == [(11, 0, 0), (12, 0, 0), (16, 0, 0)]
    node.body(4, [node.told(any_.entry, 80)], (20, "a", 1))
    assert (taken(one), taken(any_)) == ([(20, 0, 0)], [(20, 81, 0)]), "a body without the count of a pattern"


def test_two_subscriptions_to_a_pattern_have_the_same_numbers() -> None:
    node = CountedReceiver()
    first, second = node.count("a"), node.count("a")
    assert first.entry is second.entry
    node.body(0, [node.told(first.entry, 3)], (1, "a", 2), (3, "a", 1))
    assert taken(first) == taken(second) == [(1, 4, 0), (2, 5, 0), (3, 6, 0)]


def test_late_messages_count_and_are_dropped() -> None:
    node = CountedReceiver()
    queue = node.count("a")
    node.body(0, [node.told(queue.entry, 10)], (1, "a", 2), (3, "a", 2))
    assert len(taken(queue)) == 4
    node.body(0, [node.told(queue.entry, 10)], (1, "a", 2), (3, "a", 4))
    assert taken(queue) == [(5, 15, 0), (6, 16, 0)]
    assert node.drops == {"late_publication": 4}


def test_messages_that_wait_for_an_answer_keep_their_numbers() -> None:
    node = CountedReceiver()
    queue = node.count("a")
    node.body(0, [node.told(queue.entry, 10)], (1, "a", 1))
    node.body(3, [node.told(queue.entry, 12)], (4, "a", 2), (6, "a", 1))
    assert taken(queue) == [(1, 11, 0)], "the publisher is asked which entries two messages matched"
    (fetch,) = node.outbound.fetches
    fetched = PeerMessage(fetch.group, fetch.peer, packets.FETCHED, fetch.id, NO_ANSWER, b"")
    assert node.deliveries.receive_fetched(fetched, 0.0)
    assert taken(queue) == [(4, 13, 0), (5, 14, 0), (6, 15, 0)]


def test_messages_of_other_clouds_have_no_number_and_take_none() -> None:
    node = CountedReceiver()
    queue = node.count("a")
    node.body(0, [node.told(queue.entry, 10)], (1, "a", 1), head=imported_head(1), flags=packets.CROSSED)
    node.body(1, [node.told(queue.entry, 10)], (2, "a", 1))
    assert taken(queue) == [(1, 0, 0), (2, 11, 0)]


def test_a_subscription_knows_the_first_count_of_each_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    node = CountedReceiver()
    queue = node.count("a")
    first = node.told(queue.entry, 10, 3)
    node.body(0, [first])
    node.body(0, [node.told(queue.entry, 11, 3)], (5, "a", 1))
    assert queue.starts == {REMOTE.hex(): first}
    later = node.count("a")
    node.body(1, [node.told(queue.entry, 12, 3)], (6, "a", 1))
    assert later.starts == {REMOTE.hex(): node.told(queue.entry, 12, 3)}

    monkeypatch.setattr(deliveries_module, "STARTS_MAX", 0)
    full = node.count("a")
    node.body(2, [node.told(queue.entry, 13, 3)], (7, "a", 1))
    assert (full.starts, taken(full)) == ({}, [(7, 14, 3)])


def test_counts_that_nobody_asked_for_are_ignored_and_malformed_ones_dropped() -> None:
    node = CountedReceiver()
    queue = node.count("a")
    plain = node.told(node.queue.entry, 5)
    node.body(0, [plain, MatchesBefore(1, 2, 3, 4)], (1, "a", 1))
    assert (taken(queue), taken(node.queue), node.drops) == ([(1, 0, 0)], [(1, 0, 0)], {})
    sender = node.deliveries.start_body(node.group, node.peer, 0, 1, 0.0)
    assert node.deliveries.start_count(sender, 1, b"short") is sender
    assert node.drops == {"malformed": 1}
    assert node.deliveries.remove(queue, 0.0)
    node.body(1, [node.told(queue.entry, 10)], (2, "a", 1))
    assert (queue.starts, taken(queue)) == ({}, [])


def test_a_message_behind_dropped_ones_keeps_its_number() -> None:
    node = CountedReceiver()
    queue = node.count("a", messages_max=2)
    node.body(0, [node.told(queue.entry, 10)], (1, "a", 5))
    messages = list(queue.take())
    assert [(message.sequence, message.gap) for message in messages] == [(4, 3), (5, 0)]
    assert [message.count for message in messages if isinstance(message, CountedMessage)] == [14, 15]
