"""Tests of iris_py/patterns/request/stale.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_py.patterns.request.stale import REQUEST_BYTES, STANDING_BYTES_MAX, StandingRequests
from iris_py.peers.message import PeerMessage
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Sequence


class FakeLink:
    """A link, told from others by what it is."""


LINK: Any = FakeLink()
OTHER: Any = FakeLink()


def message(number: int, payload: bytes = b"") -> PeerMessage:
    group: Any = None
    peer: Any = None
    return PeerMessage(group, peer, packets.REQUEST, number, 1000, payload)


def standing(numbers: Sequence[int], link: Any = LINK) -> StandingRequests:
    requests = StandingRequests()
    for number in numbers:
        requests.add(link, message(number), float(number))
    return requests


def ids(taken: list[tuple[PeerMessage, float]]) -> list[tuple[int, float]]:
    return [(each.id, arrived_at) for each, arrived_at in taken]


def test_what_stands_is_taken_once_in_order_with_the_times_at_which_it_was_read() -> None:
    requests = standing([3, 1, 2])
    assert len(requests) == 3
    assert ids(requests.take(LINK)) == [(3, 3.0), (1, 1.0), (2, 2.0)]
    assert requests.take(LINK) == []
    assert len(requests) == 0


def test_links_are_kept_apart() -> None:
    requests = standing([1, 2])
    requests.add(OTHER, message(1), 9.0)
    assert not requests.cancel(OTHER, 2)
    assert ids(requests.take(OTHER)) == [(1, 9.0)]
    assert ids(requests.take(LINK)) == [(1, 1.0), (2, 2.0)]


def test_what_its_caller_gave_up_is_forgotten() -> None:
    requests = standing([1, 2, 3])
    assert requests.cancel(LINK, 2)
    assert not requests.cancel(LINK, 2)
    assert ids(requests.take(LINK)) == [(1, 1.0), (3, 3.0)]
    assert not requests.cancel(LINK, 1)


@pytest.mark.parametrize("how", ["taken", "cancelled"])
def test_it_is_full_by_payload_and_number_and_has_room_again(how: str) -> None:
    requests = StandingRequests()
    fullness = []
    for link, number, size in ((LINK, 1, STANDING_BYTES_MAX - 2 * REQUEST_BYTES - 1), (OTHER, 1, 0), (OTHER, 2, 0)):
        requests.add(link, message(number, bytes(size)), 0.0)
        fullness.append(requests.is_full)
    assert fullness == [False, False, True]  # one byte was left
    if how == "taken":
        requests.take(LINK)
    else:
        requests.cancel(LINK, 1)
    assert not requests.is_full
    requests.take(OTHER)
    requests.take(LINK)
    requests.add(LINK, message(1, bytes(STANDING_BYTES_MAX - REQUEST_BYTES - 1)), 0.0)
    assert not requests.is_full  # nothing of before is counted any more


def test_a_second_message_with_the_same_id_takes_the_place_of_the_first() -> None:
    """Only a liar sends one. What it costs is counted once, or there would be no room for anybody after a while."""
    requests = standing([1, 2])
    for _ in range(3):
        requests.add(LINK, message(1, bytes(STANDING_BYTES_MAX - 3 * REQUEST_BYTES)), 9.0)
        assert not requests.is_full
    assert ids(requests.take(LINK)) == [(2, 2.0), (1, 9.0)]
    assert requests._bytes == 0
