"""Joining: who is asked, when, and in which order."""

from __future__ import annotations

import itertools
import random

import pytest

from iris_overlay.ring.join import CONTACTS_MAX
from iris_overlay.ring.messages import Got, JoinWaiting, Routed, RoutedKind, decode_ring_message, encode_ring_message
from iris_overlay.ring.pastry import Pastry
from iris_py.testing.cores.signer import NamedSigner
from tests.unit.overlay.rings import CONFIG, make_info


class Joiner:
    """Node 100, which is joining; the nodes that it asks take its requests."""

    def __init__(self, *contacts: int) -> None:
        self.pastry = Pastry(make_info(100), CONFIG, random.Random(1), NamedSigner(make_info(100).id))
        for contact in contacts:
            self.meet(contact, 0.0)

    def meet(self, contact: int, now: float) -> None:
        self.pastry.link_opened(make_info(contact), now)
        self.pastry.join_via(make_info(contact), now)

    def asked(self, now: float) -> list[int]:
        """Return who was asked, and let them take the request."""
        requests = [(to, decode_ring_message(data)) for to, data in self.pastry.messages_to_send()]
        asked = []
        for to, message in requests:
            assert isinstance(message, Routed)
            assert message.kind is RoutedKind.JOIN
            self.pastry.receive(to.id, encode_ring_message(Got([message.sequence])), now)
            asked.append(to.id[0])
        return asked

    def is_told(self, contact: int, now: float) -> None:
        """Let a contact say that it is joining as well."""
        self.pastry.receive(make_info(contact).id, encode_ring_message(JoinWaiting(make_info(contact))), now)

    def next(self) -> tuple[float, list[int]]:
        """Go on to the next request; return when it came, and who was asked."""
        while (now := self.pastry.deadline()) is not None and not self.pastry.is_active:
            self.pastry.handle_timeout(now)
            if asked := self.asked(now):
                return now, asked
        return now or 0.0, []


def test_who_gets_no_answer_asks_again_ever_more_slowly() -> None:
    joiner = Joiner(10)
    assert joiner.asked(0.0) == [10]
    times = [0.0]
    for _ in range(6):
        now, asked = joiner.next()
        assert asked == [10]
        times.append(now)
    waits = [after - before for before, after in itertools.pairwise(times)]
    for wait, usual in zip(waits, (1.0, 2.0, 4.0, 8.0, 10.0, 10.0), strict=True):
        assert 0.75 * usual <= wait / CONFIG.join_retry_s <= 1.25 * usual


def test_who_meets_a_joiner_gives_the_next_one_time_to_answer() -> None:
    joiner = Joiner(10, 20)
    assert joiner.asked(0.0) == [10]
    joiner.is_told(10, 0.1)
    assert joiner.asked(0.1) == [20]
    assert joiner.next() == (0.1 + CONFIG.join_retry_s, [10])


def test_who_meets_joiners_only_waits_longer_each_time_and_then_starts_a_ring() -> None:
    joiner = Joiner(10)
    assert joiner.asked(0.0) == [10]
    waited_since = 0.0
    for attempt in range(CONFIG.join_alone_attempts):
        joiner.is_told(10, waited_since)
        due = joiner.pastry.deadline()
        while not (joiner.pastry.is_active or joiner.asked(due or 0.0)):
            due = joiner.pastry.deadline()
            assert due is not None
            joiner.pastry.handle_timeout(due)
        assert due is not None
        longest = CONFIG.join_alone_delay_s * 2**attempt
        assert longest / 2 <= due - waited_since <= longest
        waited_since = due
    assert joiner.pastry.is_active


def test_a_link_to_somebody_else_that_ends_hurries_nothing() -> None:
    joiner = Joiner(10, 20, 30)
    assert joiner.asked(0.0) == [10]
    joiner.pastry.link_closed(make_info(20).id, 0.1)
    joiner.pastry.handle_timeout(0.1)
    assert joiner.asked(0.1) == []
    joiner.pastry.link_closed(make_info(10).id, 0.1)
    joiner.pastry.handle_timeout(0.1)
    assert joiner.asked(0.1) == [30]


@pytest.mark.parametrize("contacts", [(10,), (10, 20)])
def test_who_waits_for_a_joiner_or_knows_nobody_else_is_not_hurried_by_the_end_of_its_link(contacts: tuple[int, ...]) -> None:
    joiner = Joiner(*contacts)
    assert joiner.asked(0.0) == [10]
    for contact in contacts[1:]:
        joiner.is_told(10, 0.0)
        assert joiner.asked(0.0) == [contact]
        joiner.is_told(contact, 0.0)
    joiner.pastry.link_closed(make_info(contacts[-1]).id, 0.1)
    joiner.pastry.handle_timeout(0.1)
    assert joiner.asked(0.1) == []


def test_a_joiner_that_was_not_asked_does_not_count() -> None:
    joiner = Joiner(10, 20)
    assert joiner.asked(0.0) == [10]
    joiner.pastry.link_opened(make_info(70), 0.1)
    joiner.is_told(70, 0.1)
    assert joiner.asked(0.1) == []


def test_of_too_many_contacts_one_that_was_asked_already_is_forgotten() -> None:
    joiner = Joiner(10, 20)
    assert joiner.asked(0.0) == [10]
    joiner.is_told(10, 0.0)
    assert joiner.asked(0.0) == [20]
    others = list(range(30, 30 + CONTACTS_MAX - 1))
    for other in others:
        joiner.meet(other, 0.0)
    asked = [20]
    for _ in others:
        joiner.is_told(asked[-1], 0.0)
        asked += joiner.asked(0.0)
    assert asked == [20, *reversed(others)]


def test_a_joiner_that_left_asks_nobody_any_more() -> None:
    joiner = Joiner(10, 20)
    assert joiner.asked(0.0) == [10]
    joiner.pastry.leave(0.1)
    joiner.pastry.messages_to_send()
    joiner.is_told(10, 0.2)
    assert joiner.asked(0.2) == []
    joiner.pastry.handle_timeout(10.0)
    assert joiner.asked(10.0) == []
