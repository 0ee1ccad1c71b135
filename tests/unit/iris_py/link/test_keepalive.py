"""The signs of life of a link: PING, PONG, and round trips by those that it was asked for."""

from __future__ import annotations

import pytest

from iris_py.link.handshake import ProtocolError
from iris_py.link.keepalive import CLOCK_BYTES, Lateness, Signs
from iris_py.observe.histogram import Histogram


def test_a_round_trip_lasts_from_the_first_question_to_the_first_sign() -> None:
    signs, lateness = Signs(), Lateness()
    signs.round_trips = Histogram()
    signs.take_answer(b"", lateness, 1.0)  # nobody asked
    assert not signs.round_trips.show().count
    signs.question(2.0)
    signs.question(2.5)
    signs.take_answer(b"", lateness, 3.0)
    signs.take_answer(b"", lateness, 4.0)
    assert signs.round_trip_s == 1.0
    assert signs.round_trips.show().count == 1


def test_it_is_measured_for_an_owner_who_counts_nothing() -> None:
    signs = Signs()
    signs.question(0.0)
    signs.take_answer(b"", Lateness(), 0.25)
    assert signs.round_trip_s == 0.25


def test_an_answer_to_what_was_asked_before_this_side_stood_still_is_none() -> None:
    asking, answering, lateness = Signs(), Signs(), Lateness()
    answering.take_question(asking.question(1.0))
    early = answering.answer(lateness, 1.0)
    asking.stood_still()
    assert not asking.take_answer(early, lateness, 2.0)
    answering.take_question(asking.question(2.0))
    assert asking.take_answer(answering.answer(lateness, 2.0), lateness, 3.0)


def test_who_was_asked_nothing_tells_no_clock_and_that_settles_a_doubt() -> None:
    asking, answering, lateness = Signs(), Signs(), Lateness()
    answering.take_question(b"")  # of `Link.ask_for_sign`
    answer = answering.answer(lateness, 1.0)
    assert answer == b""
    asking.stood_still()
    assert asking.take_answer(answer, lateness, 1.0)


def test_what_is_malformed_breaks_the_protocol() -> None:
    signs, lateness = Signs(), Lateness()
    with pytest.raises(ProtocolError, match="over the limit"):
        signs.take_question(bytes(5))
    with pytest.raises(ProtocolError, match="malformed"):
        signs.take_answer(bytes(4 + CLOCK_BYTES - 1), lateness, 1.0)
