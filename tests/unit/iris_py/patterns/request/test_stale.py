"""Requests that came through the ring: begun in time, kept until their age is known, or dropped."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.messages import NodeInfo
from iris_py.patterns.request.stale import ROUTED_BYTES_MAX, ROUTED_MAX, ROUTED_S_MAX, RoutedRequests
from iris_py.peers.clocks import ASKED_AGAIN_S, NONCE_BYTES, Clocks
from iris_py.peers.message import PeerMessage
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.packets import CLOCK_ANSWER, CLOCK_QUESTION, REQUEST

if TYPE_CHECKING:
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
