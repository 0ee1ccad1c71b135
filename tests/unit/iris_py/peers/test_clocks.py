"""The clocks of other nodes: nothing is ever thought younger than it is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.ids import NodeId
from iris_py.peers.clocks import (
    ASKED_AGAIN_S,
    BELIEVED_S,
    CLOCKS_MAX,
    DOUBTED_S,
    NONCE_BYTES,
    QUESTIONS_MAX,
    RENEWED_S,
    Clocks,
    read,
)

ONE, TWO = NodeId(b"1" * 16), NodeId(b"2" * 16)


def clocks() -> Clocks:
    return Clocks(random.Random(1).randbytes)


def asked(known: Clocks, now: float = 10.0, told: int = 500_000, source: NodeId = ONE) -> None:
    assert known.told(source, known.ask(source, now), told)


def test_a_clock_that_nobody_asked_for_is_unknown() -> None:
    known = clocks()
    assert known.age_of(ONE, 0, 10.0) is None
    assert not known.is_asked(ONE, 10.0)
    assert not known.is_awaited(ONE)
    nonce = known.ask(ONE, 10.0)
    assert len(nonce) == NONCE_BYTES
    assert known.age_of(ONE, 0, 10.0) is None
    assert known.is_awaited(ONE)
    assert known.told(ONE, nonce, 500_000)
    assert not known.is_awaited(ONE)
    assert known.age_of(ONE, 500_000, 10.0) == 0
    assert known.age_of(ONE, 499_000, 10.5) == 1500
    assert known.age_of(TWO, 500_000, 10.0) is None


def test_only_the_source_answers_and_only_once() -> None:
    known = clocks()
    nonce = known.ask(ONE, 10.0)
    assert not known.told(TWO, nonce, 1)
    assert not known.told(ONE, bytes(NONCE_BYTES), 1)
    assert known.told(ONE, nonce, 1)
    assert not known.told(ONE, nonce, 999)
    assert known.age_of(ONE, 1, 10.0) == 0


def test_a_source_is_asked_again_after_a_while() -> None:
    known = clocks()
    asked(known)
    assert known.is_asked(ONE, 10.0 + 0.9 * ASKED_AGAIN_S)
    assert not known.is_asked(ONE, 10.0 + ASKED_AGAIN_S)


def test_what_seems_old_and_what_was_asked_long_ago_is_doubtful() -> None:
    known = clocks()
    assert known.is_doubtful(ONE, 0, 10.0)
    asked(known)
    doubted = round(DOUBTED_S * 1000)
    assert not known.is_doubtful(ONE, doubted, 10.0)
    assert known.is_doubtful(ONE, doubted + 1, 10.0)
    assert not known.is_doubtful(ONE, 0, 10.0 + RENEWED_S)
    assert known.is_doubtful(ONE, 0, 10.0 + RENEWED_S + 0.1)
    assert known.age_of(ONE, 500_000, 10.0 + BELIEVED_S) is not None
    assert known.age_of(ONE, 500_000, 10.0 + BELIEVED_S + 0.1) is None


def test_the_quickest_of_several_questions_counts_until_it_is_old() -> None:
    known = clocks()
    asked(known, 10.0, 503_000)  # the question took 3 s
    assert known.age_of(ONE, 503_000, 13.0) == 3000
    asked(known, 14.0, 504_000)
    assert known.age_of(ONE, 503_000, 14.0) == 1000
    asked(known, 16.0, 508_000)
    assert known.age_of(ONE, 508_000, 18.0) == 0
    later = 10.0 + RENEWED_S + 1.0
    asked(known, later, round(later * 1000) + 490_100)  # 100 ms under way; or the clocks drifted apart
    assert known.age_of(ONE, 490_100 + round(later * 1000), later) == 0


def test_late_answers_to_earlier_questions_still_count_and_answered_ones_are_forgotten() -> None:
    known = clocks()
    nonces = [known.ask(ONE, 10.0 + second) for second in range(QUESTIONS_MAX + 1)]
    assert len(set(nonces)) == QUESTIONS_MAX + 1
    assert not known.told(ONE, nonces[0], 500_000)
    assert known.told(ONE, nonces[2], 502_000)
    assert not known.told(ONE, nonces[1], 501_000)
    assert known.is_awaited(ONE)
    assert known.told(ONE, nonces[QUESTIONS_MAX], 504_000)
    assert not known.is_awaited(ONE)


def test_what_comes_from_the_future_shows_that_a_clock_stood_still() -> None:
    known = clocks()
    asked(known)
    assert known.age_of(ONE, 500_001, 10.0) is None
    assert known.age_of(ONE, 499_000, 10.0) is None  # nothing is believed any more
    asked(known, 11.0, 600_000)
    assert known.age_of(ONE, 600_000, 11.0) == 0


def test_the_source_that_was_asked_the_longest_ago_is_forgotten_first() -> None:
    known = clocks()
    sources = [NodeId(number.to_bytes(16, "big")) for number in range(CLOCKS_MAX)]
    for source in sources:
        asked(known, source=source)
    asked(known, 11.0, 501_000, sources[0])
    asked(known, 11.0, 501_000, ONE)
    assert len(known) == CLOCKS_MAX
    assert known.age_of(sources[0], 501_000, 11.0) is not None
    assert known.age_of(sources[1], 501_000, 11.0) is None
    assert known.age_of(ONE, 501_000, 11.0) is not None


def test_a_clock_is_read_downwards_for_what_is_sent_and_upwards_for_an_answer() -> None:
    assert (read(1.2345), read(1.2345, is_rounded_up=True), read(-1.0)) == (1234, 1235, 0)


@pytest.mark.parametrize("source_epoch", [0.0, 0.0004, 1e6])
@given(
    delays=st.lists(
        st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 30.0), st.floats(0.0, 30.0), st.floats(0.0, 60.0)), min_size=1
    )
)
def test_nothing_is_ever_thought_younger_than_it_is(
    source_epoch: float, delays: list[tuple[float, float, float, float]]
) -> None:
    """Questions, answers and packets are held up for any times: the age is too large by the question alone."""
    known, at = clocks(), 1000.0
    for pause, question_s, answer_s, packet_s in delays:
        at += pause
        nonce = known.ask(ONE, at)
        told = read(at + question_s + source_epoch, is_rounded_up=True)
        arrives_at = at + question_s + answer_s + packet_s
        assert known.told(ONE, nonce, told)
        sent_at = arrives_at - packet_s
        age = known.age_of(ONE, read(sent_at + source_epoch), arrives_at)
        if age is not None:
            assert age >= packet_s * 1000 - 1e-3
            assert age <= (packet_s + question_s) * 1000 + 4
