"""The topics of one node: claims, subscriptions that are woken, and deadlines."""

from __future__ import annotations

import pytest

from iris_py.errors import ConfigurationError
from iris_py.patterns.topic.deliveries import PAUSE_AGAIN_S
from iris_py.patterns.topic.pauses import PAUSE_S
from iris_py.patterns.topic.queue import SubscriptionEnded, SubscriptionQueue, SubscriptionReady, SubscriptionTold
from tests.unit.iris_py.patterns.topic.test_publisher import Pair, make_queue


def test_a_subscription_is_woken_again_after_its_owner_was_told() -> None:
    pair = Pair()
    pair.net.settle()
    pair.net.take(pair.subscriber, SubscriptionReady)
    for payload in (b"1", b"2"):
        assert pair.publish(payload) == 1
        pair.net.settle()
        assert pair.net.take(pair.subscriber, SubscriptionReady) == [SubscriptionReady(pair.queue)]


def test_the_end_of_a_subscription_is_told_once_every_publisher_knows() -> None:
    pair = Pair()
    assert pair.subscriber.unsubscribe(pair.queue, pair.net.now)
    assert pair.net.take(pair.subscriber, SubscriptionEnded) == []
    pair.net.settle()
    assert pair.net.take(pair.subscriber, SubscriptionEnded) == [SubscriptionEnded(pair.queue)]
    assert pair.publish(b"1") == 0
    assert not pair.subscriber.unsubscribe(pair.queue, pair.net.now), "it has ended"


def test_a_subscription_that_begins_again_at_once_stays_known() -> None:
    pair = Pair()
    pair.subscriber.unsubscribe(pair.queue, pair.net.now)
    pair.subscriber.subscribe(pair.queue, pair.net.now)
    pair.net.settle()
    assert pair.publish(b"1") == 1


def test_subscriptions_with_one_pattern_share_an_entry() -> None:
    pair = Pair()
    other = make_queue()
    pair.net.take(pair.subscriber, SubscriptionTold)
    assert not pair.subscriber.subscribe(other, pair.net.now), "every publisher knows the entry"
    assert len(pair.subscriber.pubsub.interest.entries) == 1
    assert not pair.subscriber.unsubscribe(pair.queue, pair.net.now), "the other one still needs the entry"
    assert pair.publish(b"1") == 1
    assert pair.subscriber.unsubscribe(other, pair.net.now)
    assert pair.subscriber.pubsub.interest.entries == {}


def test_a_subscription_waits_for_the_claim_of_an_earlier_one_with_its_pattern() -> None:
    pair = Pair()
    first, second = make_queue("d"), make_queue("d")
    assert [pair.subscriber.subscribe(queue, pair.net.now) for queue in (first, second)] == [True, True]
    pair.net.settle()
    told = pair.net.take(pair.subscriber, SubscriptionTold)
    assert told[-2:] == [SubscriptionTold(first), SubscriptionTold(second)]


def test_a_refused_subscription_leaves_nothing_behind() -> None:
    pair = Pair()
    pair.subscriber.depart(pair.net.now)
    queue = make_queue("d")
    with pytest.raises(ConfigurationError):
        pair.subscriber.subscribe(queue, pair.net.now)
    assert [entry.pattern for entry in pair.subscriber.pubsub.interest.entries.values()] == [("c",)]
    assert queue not in pair.subscriber.pubsub.deliveries.queues


def test_the_earliest_of_its_deadlines_counts() -> None:
    pair = Pair()
    pubsub, now = pair.core.pubsub, pair.net.now
    assert pubsub.deadline() is None
    assert pair.pause()
    assert pubsub.deadline() == now + PAUSE_S
    full = SubscriptionQueue(("c",), "c", "block", 1, 1 << 30)
    pair.core.subscribe(full, now)
    late = now + PAUSE_S - PAUSE_AGAIN_S / 2
    flow = pubsub.deliveries.start_body(pair.realm, pair.peer, 0, 0, late)
    pubsub.deliveries.receive(flow, 0, 1, b"c", [b""], late)
    assert pubsub.deadline() == now + PAUSE_S
    pubsub.handle_timeout(now + PAUSE_S)
    assert pubsub.deadline() == late + PAUSE_AGAIN_S
    pubsub.publisher.receive_pause(pair.peer, pair.tag, late)
    assert pubsub.deadline() == late + PAUSE_AGAIN_S
