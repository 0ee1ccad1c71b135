"""The counts of `iris demo --nats`: lost, late and repeated messages."""

from __future__ import annotations

import pytest

from iris_py.cli.demo.nats_load import NATIVE, NATS, NumberedMessages, Replies, capitals


@pytest.mark.parametrize(
    ("numbers", "received", "repeated", "missing"),
    [
        ([], 0, 0, set()),
        ([1, 2, 3], 3, 0, set()),
        ([2, 5], 2, 0, {1, 3, 4}),
        ([1, 3, 2], 3, 0, set()),
        ([1, 3, 3, 1, 2, 2], 3, 3, set()),
    ],
)
def test_each_number_counts_once(numbers: list[int], received: int, repeated: int, missing: set[int]) -> None:
    deliveries = NumberedMessages()
    for number in numbers:
        deliveries.note(number)
    assert (deliveries.received, deliveries.repeated, deliveries.missing) == (received, repeated, missing)
    assert deliveries.last == max(numbers, default=0)


def test_replies_count_by_the_kind_of_their_service() -> None:
    replies = Replies()
    for reply in (capitals(NATIVE, b"a"), capitals(NATS, b"b"), capitals(NATS, b"c"), None, b""):
        replies.note(reply)
    assert (replies.by_kind[NATIVE], replies.by_kind[NATS], replies.answered, replies.lost) == (1, 2, 3, 2)
