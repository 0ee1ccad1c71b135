"""The topics of one node: memberships that end, subscriptions that are woken, and when it has to be called."""

from __future__ import annotations

from iris_py.patterns.topic.deliveries import PAUSE_AGAIN_S
from iris_py.patterns.topic.publisher import PAUSE_S
from iris_py.patterns.topic.queue import SubscriptionQueue, SubscriptionReady
from tests.unit.iris_py.patterns.topic.test_publisher import Pair


def test_a_subscription_is_woken_again_after_its_owner_was_told() -> None:
    pair = Pair()
    pair.net.cores.drive()
    pair.net.take(pair.subscriber, SubscriptionReady)
    for payload in (b"1", b"2"):
        assert pair.publish(payload) == 1
        pair.net.cores.drive()
        assert pair.net.take(pair.subscriber, SubscriptionReady) == [SubscriptionReady(pair.queue)]


def test_a_membership_is_known_until_everybody_knows_of_its_end() -> None:
    pair = Pair()
    pubsub = pair.subscriber.pubsub
    assert [group.name for group in pubsub.groups_joined()] == ["c"]
    (group_id,) = pair.subscriber.unsubscribe(pair.queue, pair.net.now)
    seen = [pubsub.is_topic(group_id)]
    pair.net.cores.drive()
    seen.append(pubsub.is_topic(group_id))
    assert seen == [True, False]
    assert pubsub.groups_joined() == set()
    pubsub.left(group_id)
    assert pair.subscriber.unsubscribe(pair.queue, pair.net.now) == []


def test_who_subscribes_again_at_once_stays_a_member() -> None:
    pair = Pair()
    pair.subscriber.unsubscribe(pair.queue, pair.net.now)
    pair.subscriber.subscribe(pair.queue, pair.net.now)
    pair.net.cores.drive()
    assert [group.name for group in pair.subscriber.pubsub.groups_joined()] == ["c"]
    assert pair.publish(b"1") == 1


def test_the_earliest_of_its_deadlines_counts() -> None:
    pair = Pair()
    pubsub, now, peer = pair.core.pubsub, pair.net.now, pair.group.targets[0].peer
    assert pubsub.deadline() is None
    pubsub.publisher.receive_pause(pair.group, peer, now)
    assert pubsub.deadline() == now + PAUSE_S
    full = SubscriptionQueue(("c",), ("c",), "c", "block", 1, 1 << 30)
    pair.core.subscribe(full, now)
    late = now + PAUSE_S - PAUSE_AGAIN_S / 2
    pubsub.deliveries.receive(pair.group, peer, 0, 1, 1, b"c", [b""], late)
    assert pubsub.deadline() == now + PAUSE_S
    pubsub.handle_timeout(now + PAUSE_S)
    assert pubsub.deadline() == late + PAUSE_AGAIN_S
    pubsub.publisher.receive_pause(pair.group, peer, late)
    assert pubsub.deadline() == late + PAUSE_AGAIN_S
