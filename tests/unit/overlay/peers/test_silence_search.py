"""The search for those who fell silent together with one peer."""

from __future__ import annotations

import random

from iris_overlay.ids import NodeId
from iris_overlay.peers.silence_search import ASKED_MAX, FRUITLESS_S, SAMPLE, TOGETHER_S, SilenceSearch

LEAVES = [NodeId(bytes([number] * 16)) for number in range(16)]
ROOTS = [NodeId(bytes([number] * 16)) for number in range(14, 20)]
TABLE = [NodeId(bytes([number] * 16)) for number in range(10, 60)]
OTHER = NodeId(bytes([255] * 16))


def ask(look: SilenceSearch, now: float, silent: NodeId = OTHER) -> list[NodeId]:
    return look.whom(silent, LEAVES, ROOTS, TABLE, now)


def test_the_first_death_asks_leaves_and_roots_each_once() -> None:
    asked = ask(SilenceSearch(random.Random(1)), 0.0)
    assert asked == list(dict.fromkeys(LEAVES + ROOTS))


def test_after_a_search_in_vain_a_death_costs_two_questions_for_a_while() -> None:
    look = SilenceSearch(random.Random(1))
    ask(look, 0.0)
    for now in (10.0, 20.0, 100.0, FRUITLESS_S - 1.0):
        sample = ask(look, now)
        assert len(sample) == SAMPLE
        assert set(sample) <= set(LEAVES)
    assert len(ask(look, FRUITLESS_S)) > SAMPLE


def test_a_sample_that_finds_another_one_is_followed_by_a_search() -> None:
    look = SilenceSearch(random.Random(1))
    ask(look, 0.0)
    (found, *_) = ask(look, 100.0)
    assert len(ask(look, 100.0 + TOGETHER_S - 1.0, found)) > SAMPLE


def test_a_later_death_of_one_that_was_asked_is_another_matter() -> None:
    look = SilenceSearch(random.Random(1))
    ask(look, 0.0)
    (asked, *_) = ask(look, 100.0)
    assert len(ask(look, 100.0 + TOGETHER_S, asked)) == SAMPLE


def test_several_together_are_a_cut_and_the_table_is_asked_too() -> None:
    look = SilenceSearch(random.Random(1))
    ask(look, 0.0)
    assert len(ask(look, 50.0)) == SAMPLE
    assert len(ask(look, 51.0)) == SAMPLE
    asked = ask(look, 52.0)
    assert set(asked) == {*LEAVES, *ROOTS, *TABLE}
    # What comes after a cut may be another one.
    assert len(ask(look, 120.0)) > SAMPLE


def test_a_search_is_bounded_and_without_leaves_there_is_nobody_to_draw() -> None:
    many = [NodeId(number.to_bytes(16, "big")) for number in range(500)]
    look = SilenceSearch(random.Random(1))
    assert len(look.whom(OTHER, many, [], [], 0.0)) == ASKED_MAX
    assert look.whom(OTHER, [], [], [], 1.0) == []
