"""Held requests: those that stood in front of a stopped process, and those that came through the ring."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.request.held_requests import (
    REQUEST_BYTES,
    ROUTED_BYTES_MAX,
    ROUTED_MAX,
    ROUTED_S_MAX,
    STANDING_BYTES_MAX,
    RoutedRequests,
    StandingRequests,
)
from iris_py.peers.clocks import ASKED_AGAIN_S, NONCE_BYTES, Clocks
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.packets import CLOCK_ANSWER, CLOCK_QUESTION, REQUEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.peers.group import Group

GROUP = cast("Group", None)
#: What the clock of the source is ahead (ms).
AHEAD = 7_000_000


class Receiver:
    """A receiver at a time, and what it did."""

    def __init__(self) -> None:
        self.now = 100.0
        self.begun: list[tuple[int, int]] = []
        self.drops: list[str] = []
        self.peer = Peer(NodeInfo(NodeId(b"p" * 16), ()), None)
        self.routed = RoutedRequests(
            Clocks(random.Random(1).randbytes),
            lambda message, now: self.begun.append((message.id, message.argument)),
            self.drops.append,
        )

    def clock(self) -> int:
        """Return what the clock of the source shows."""
        return round(self.now * 1000) + AHEAD

    def receive(self, number: int, left_ms: int = 1000, *, held_ms: int = 0, size: int = 8) -> None:
        message = PeerMessage(GROUP, self.peer, REQUEST, number, left_ms, bytes(size))
        self.routed.receive(message, self.clock() - held_ms, self.now)

    def question(self) -> bytes:
        """Take the one question that was asked; returns its nonce."""
        ((info, packet),) = self.routed.packets_to_route()
        assert info is self.peer.info
        assert (packet[0], len(packet)) == (CLOCK_QUESTION, 1 + NONCE_BYTES)
        return packet[1:]

    def answer(self, nonce: bytes, told: int | None = None) -> None:
        told = self.clock() if told is None else told
        packet = bytes((CLOCK_ANSWER,)) + nonce + told.to_bytes(8, "big")
        self.routed.receive_answer(self.peer, packet, self.now)

    def take(self) -> list[tuple[int, int]]:
        begun, self.begun = self.begun, []
        return begun


def test_requests_stand_until_their_source_told_its_clock() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.receive(2)
    assert not receiver.take()
    nonce = receiver.question()  # one question for all
    receiver.now += 0.1
    receiver.answer(nonce)
    assert receiver.take() == [(1, 800), (2, 800)]  # the question may have taken all of the 100 ms, and they stood for 100
    assert not receiver.drops
    assert len(receiver.routed) == 0
    receiver.receive(3)
    assert receiver.take() == [(3, 900)]
    assert not receiver.routed.packets_to_route()


@pytest.mark.parametrize(("held_ms", "begins"), [(0, True), (999, True), (1000, False), (60_000, False)])
def test_what_was_held_for_longer_than_its_time_never_begins(held_ms: int, begins: bool) -> None:
    receiver = Receiver()
    receiver.receive(1, held_ms=held_ms)
    receiver.answer(receiver.question())
    assert receiver.take() == ([(1, 1000 - held_ms)] if begins else [])
    assert receiver.drops == ([] if begins else ["request_without_caller"])
    receiver.now += 2 * ASKED_AGAIN_S  # and neither where the clock is known: what seems late is asked for once more
    receiver.receive(2, held_ms=held_ms)
    assert receiver.take() == ([(2, 1000 - held_ms)] if begins else [])
    if held_ms:
        receiver.answer(receiver.question())
        assert len(receiver.drops) == (0 if begins else 2)
    assert not receiver.take()


def test_a_held_answer_lets_nothing_begin_late() -> None:
    receiver = Receiver()
    receiver.receive(1)
    nonce, told = receiver.question(), receiver.clock()
    receiver.now += 1.0
    receiver.answer(nonce, told)
    assert not receiver.take()
    assert receiver.drops == ["request_without_caller"]


def test_a_held_question_makes_all_seem_older_until_the_next_one() -> None:
    receiver = Receiver()
    receiver.receive(1, 10_000)
    nonce = receiver.question()
    receiver.now += 3.0
    receiver.answer(nonce)
    assert receiver.take() == [(1, 4000)]
    receiver.receive(2, 1000)  # seems to be 3 s old
    assert not receiver.take()
    receiver.answer(receiver.question())
    assert receiver.take() == [(2, 1000)]
    assert not receiver.drops


def test_what_seems_late_just_after_an_answer_is_dropped() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.answer(receiver.question())
    receiver.receive(2, held_ms=1000)
    assert not receiver.routed.packets_to_route()
    assert receiver.drops == ["request_without_caller"]


def test_a_request_that_seems_late_stands_while_a_later_question_is_under_way() -> None:
    receiver = Receiver()
    receiver.receive(1, 4000)
    first = receiver.question()
    receiver.now += ASKED_AGAIN_S
    receiver.receive(2, 1000)
    second = receiver.question()
    receiver.answer(first, round(receiver.now * 1000) + AHEAD)  # the first question took a second, as it seems
    assert receiver.take() == [(1, 2000)]
    assert len(receiver.routed) == 1
    receiver.answer(second)
    assert receiver.take() == [(2, 1000)]


def test_a_source_that_does_not_answer_has_its_requests_dropped() -> None:
    receiver = Receiver()
    receiver.receive(1, 1000)
    receiver.receive(2, 3_600_000)
    nonce = receiver.question()
    receiver.now += 0.999
    receiver.routed.handle_timeout(receiver.now)
    assert len(receiver.routed) == 2
    receiver.now += 0.001
    receiver.routed.handle_timeout(receiver.now)
    assert len(receiver.routed) == 1
    receiver.now += ROUTED_S_MAX
    receiver.routed.handle_timeout(receiver.now)
    assert receiver.drops == ["request_without_caller"] * 2
    receiver.answer(nonce)
    assert not receiver.take()
    receiver.receive(3, 20_000)  # the answer counts nevertheless: what comes next is 6 s old at most
    assert receiver.take() == [(3, 20_000 - 1000 - round(ROUTED_S_MAX * 1000))]


def test_a_caller_that_gives_up_takes_its_request_away() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.receive(2)
    assert receiver.routed.cancel(receiver.peer, 1)
    assert not receiver.routed.cancel(receiver.peer, 1)
    receiver.answer(receiver.question())
    assert receiver.take() == [(2, 1000)]
    assert not receiver.routed.cancel(receiver.peer, 2)


def test_the_same_request_again_stands_once() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.receive(1)
    assert len(receiver.routed) == 1
    receiver.answer(receiver.question())
    assert receiver.take() == [(1, 1000)]


@pytest.mark.parametrize(("size", "count"), [(8, ROUTED_MAX), (1 << 20, ROUTED_BYTES_MAX >> 20)])
def test_what_stands_is_bounded(size: int, count: int) -> None:
    receiver = Receiver()
    for number in range(count + 1):
        receiver.receive(number, size=size)
    assert len(receiver.routed) == count
    assert receiver.drops == ["standing_full"]
    receiver.now += 1.0
    receiver.receive(count + 1, size=size)  # the time of those is over
    assert len(receiver.routed) == 1
    assert receiver.drops == ["standing_full", *["request_without_caller"] * count]


def test_a_node_tells_its_clock_to_whoever_asks() -> None:
    receiver = Receiver()
    receiver.now = 1.2345
    receiver.routed.receive_question(receiver.peer, bytes((CLOCK_QUESTION,)) + b"n" * NONCE_BYTES, receiver.now)
    assert receiver.routed.packets_to_route() == [
        (receiver.peer.info, bytes((CLOCK_ANSWER,)) + b"n" * NONCE_BYTES + (1235).to_bytes(8, "big"))
    ]


@pytest.mark.parametrize("change", [-1, 1])
def test_malformed_questions_and_answers_are_counted(change: int) -> None:
    receiver = Receiver()
    receiver.routed.receive_question(receiver.peer, bytes(1 + NONCE_BYTES + change), receiver.now)
    receiver.routed.receive_answer(receiver.peer, bytes(1 + NONCE_BYTES + 8 + change), receiver.now)
    assert receiver.drops == ["malformed"] * 2
    assert not receiver.routed.packets_to_route()
    assert packets.CLOCK_QUESTION != packets.CLOCK_ANSWER


# -- requests that stood in front of a stopped process


class FakeLink:
    """A link that equals itself alone."""


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
