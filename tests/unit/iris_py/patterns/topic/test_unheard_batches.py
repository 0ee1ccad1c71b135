"""Publications that no node and no subscription gets: counted and numbered, and never sent or kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.patterns.topic import unheard_batches
from iris_py.patterns.topic.unheard_batches import BATCH_BYTES
from iris_py.wire.headers import encode_headers
from tests.unit.iris_py.patterns.topic.test_publisher import Pair, make_queue

if TYPE_CHECKING:
    import pytest

TOPICS = [f"nobody.{number}" for number in range(5)]


def published(pair: Pair) -> int:
    pair.net.settle()
    return pair.core.groups.topic_counts.by_name["nobody"].published


def publish(pair: Pair, topic: str, payload: bytes = b"x") -> int | None:
    """Publish as a node does: append to an open batch, or begin one."""
    count = pair.publisher.add(topic, payload)
    return pair.core.publish(topic, payload, pair.net.now) if count is None else count


def test_batches_of_many_topics_are_open_at_a_time() -> None:
    pair = Pair()
    for topic in TOPICS:
        assert publish(pair, topic) == 0
    assert [pair.publisher.add(topic, b"x") for topic in TOPICS] == [0] * len(TOPICS)


def test_every_message_counts_however_many_bytes_and_topics_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unheard_batches, "BATCHES_MAX", 3)
    pair = Pair()
    for _ in range(10):
        for topic in TOPICS:
            publish(pair, topic, bytes(BATCH_BYTES // 4))
    assert published(pair) == 10 * len(TOPICS)


def test_messages_without_receivers_do_not_end_the_batch_of_others() -> None:
    pair = Pair()
    pair.arrived()
    for number in range(4):
        assert publish(pair, "c", b"%d" % number) == 1
        assert publish(pair, "nobody") == 0
    (_body,) = pair.bodies()
    assert pair.arrived() == [(b"%d" % number, 0) for number in range(4)], "and no gap"


def test_a_message_behind_a_subscription_is_heard() -> None:
    pair = Pair()
    publish(pair, "nobody")
    queue = make_queue("nobody")
    pair.subscriber.subscribe(queue, pair.net.now)
    pair.net.settle()
    assert publish(pair, "nobody", b"heard") == 1
    pair.net.settle()
    assert [message.payload for message in queue.take()] == [b"heard"]


def test_headers_of_a_message_without_receivers_end_no_batch() -> None:
    pair = Pair()
    headers = encode_headers({"a": 1})
    for _ in range(3):
        assert pair.core.publish("nobody", b"x", pair.net.now, headers) == 0
    assert pair.publisher.add("nobody", b"x") == 0
    assert published(pair) == 4
