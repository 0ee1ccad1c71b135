"""The rate of claims: a hostile node is refused beyond it, and an honest one keeps to it by itself."""

from __future__ import annotations

import random

import pytest

from iris_overlay.events import Claimed
from iris_overlay.groups import claim_rates, entries
from iris_overlay.groups.claim_rates import (
    CLAIM_COST,
    COST_MAX,
    COST_PER_S,
    OWN_COST_MAX,
    ClaimRate,
    ClaimRates,
    cost_of,
)
from iris_overlay.groups.entries import ENTRIES_MAX
from iris_overlay.groups.messages import Claim, TablePart
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from tests.unit.overlay.groups.test_layer import LOCAL, OTHER, PEER, THIRD, Fixture, G
from tests.unit.overlay.groups.test_own_entries import Fixture as MemberFixture
from tests.unit.overlay.groups.test_own_entries import T, joined
from tests.unit.overlay.groups.test_table_layer import claim, packed, watch


def test_a_claim_may_cost_more_than_is_left_and_the_next_one_waits() -> None:
    rate = ClaimRate(100.0, 10.0)
    assert rate.wait_s(10.0) == 0.0
    rate.charge(100.0 + COST_PER_S)
    wait_s = rate.wait_s(10.0)
    assert 1.0 < wait_s < 1.001
    assert rate.wait_s(10.9) > 0.0
    assert rate.wait_s(10.0 + wait_s) == 0.0
    rate.charge(1.0)
    assert rate.wait_s(1000.0) == 0.0
    rate.charge(99.5)
    assert rate.wait_s(1000.0) == 0.0, "no more than the bound is saved up"
    rate.charge(1.0)
    assert rate.wait_s(1000.0) > 0.0


def test_the_cost_of_a_claim_counts_its_changes_and_the_entries_that_are_checked() -> None:
    assert cost_of(claim(OTHER)) == CLAIM_COST
    assert cost_of(claim(OTHER, 1, 2)) == CLAIM_COST + 2
    renewal = Claim(OTHER, G, b"", 1, b"", 1, ENTRIES_MAX, bytes(8))
    assert cost_of(renewal) == CLAIM_COST + 16
    assert cost_of(Claim(OTHER, G, b"", 1, b"", 1, 3, bytes(8), packed(1, 2), packed(3))) == CLAIM_COST + 3


def test_a_node_that_claims_ten_thousand_times_a_second_is_refused_and_others_are_not() -> None:
    fixture = Fixture()
    fixture.receive(watch(PEER), PEER)
    (_, view) = fixture.sent()[0]
    assert isinstance(view, TablePart)
    honest = 0
    for number in range(30_000):
        now = 1.0 + number / 10_000
        fixture.receive(claim(OTHER, number % 2, stamp=number + 1), OTHER, now)
        if number % 100 == 0:
            honest += 1
            fixture.receive(claim(THIRD, number, stamp=number + 1), THIRD, now)
            assert fixture.layer.entries_of(G)[THIRD.id] == packed(number)  # type: ignore[index]
        fixture.layer.outputs_to_send()
    refused = fixture.counters.claims_refused
    assert refused == pytest.approx(30_000 - (COST_MAX + 3.0 * COST_PER_S) / (CLAIM_COST + 1), abs=2)
    assert honest == 300
    fixture.receive(claim(OTHER, 7, stamp=200_000), OTHER, 12.0)
    assert fixture.layer.entries_of(G)[OTHER.id] == packed(7), "it is heard again when it keeps to the rate"  # type: ignore[index]
    assert fixture.counters.claims_refused == refused


def test_a_refused_claim_is_answered_with_nothing() -> None:
    fixture = Fixture()
    whole = Claim(OTHER, G, b"", 1, b"", 0, ENTRIES_MAX, bytes(8), entries.pack((n, 0, 0) for n in range(ENTRIES_MAX)))
    for _ in range(COST_MAX // ENTRIES_MAX):
        fixture.receive(whole, OTHER, 1.0)
    assert len(fixture.sent()) == COST_MAX // ENTRIES_MAX
    fixture.receive(whole, OTHER, 1.0)
    assert fixture.sent() == []
    assert fixture.counters.claims_refused == 1


def test_nodes_beyond_the_bound_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_rates, "NODES_MAX", 2)
    rates = ClaimRates()
    spent = [claim(NodeInfo(NodeId(bytes([number]) * 16), ()), 1) for number in range(3)]
    for _ in range(COST_MAX // (CLAIM_COST + 1) + 1):
        assert rates.take(spent[0], 1.0)
    assert not rates.take(spent[0], 1.0)
    assert rates.take(spent[1], 1.0)
    assert not rates.take(spent[0], 1.0), "it is not the one with the oldest claim"
    assert rates.take(spent[2], 1.0)
    assert not rates.take(spent[0], 1.0)
    assert rates.take(spent[1], 1.0)
    assert rates.take(spent[2], 1.0)
    assert rates.take(spent[0], 1.0), "it was forgotten, and begins anew"


def test_the_local_node_is_not_refused() -> None:
    fixture = Fixture()
    for number in range(2 * COST_MAX // CLAIM_COST):
        fixture.receive(claim(LOCAL, number, stamp=number + 1), LOCAL, 1.0)
    assert fixture.counters.claims_refused == 0


def test_a_node_that_changes_a_thousand_subscriptions_a_second_is_never_refused() -> None:
    """The root answers in a millisecond, which is the worst case: each change is a claim of its own."""
    member, rates, rng = joined(), ClaimRates(), random.Random(1)
    claims = 0
    answer_at: float | None = None
    stamp = 0
    numbers: dict[int, None] = {}
    for step in range(10_000):
        now = 10.0 + step * 0.001
        if answer_at is not None and now >= answer_at:
            answer_at = None
            member.apply(stamp, now)
        numbers.setdefault(member.claim(packed(step), packed(max(0, step - rng.randrange(1, 100))), now))
        member.members.handle_timeout(now)
        for _, message in member.sent():
            assert isinstance(message, Claim)
            assert rates.take(message, now), f"refused after {claims} claims"
            claims += 1
            answer_at, stamp = now + 0.001, message.stamp
    assert 10 * 100 < claims < (OWN_COST_MAX + 10 * COST_PER_S) / (CLAIM_COST + 2)
    completed = member.completed()
    assert completed == [Claimed(T, number) for number in numbers][: len(completed)]
    assert len(completed) >= len(numbers) - 2, "but the claim in transit, and the changes that wait for it"


def test_changes_beyond_the_rate_wait_and_are_sent_together() -> None:
    member = MemberFixture()
    whole = entries.pack((number, 0, 0) for number in range(ENTRIES_MAX - 2))
    other = entries.pack((number, 0, 0) for number in range(ENTRIES_MAX, 2 * ENTRIES_MAX - 2))
    member.claim(whole)
    ((_, stamp, *_),) = member.claims(1.0)
    member.apply(stamp)
    member.claim(other, whole)
    ((_, stamp, *_),) = member.claims(1.0)
    member.apply(stamp)
    number = member.claim(packed(1))
    assert member.claim(packed(2)) == number
    assert member.claims(1.0) == []
    member.completed()
    when = member.members.deadline()
    assert when is not None
    assert 1.0 < when < 1.1
    assert member.claims(when - 0.001) == []
    assert [(added, removed) for *_, added, removed in member.claims(when)] == [(packed(1, 2), b"")]
    member.apply(number + 1, when)
    assert member.completed() == [Claimed(T, number)]
