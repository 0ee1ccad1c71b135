"""Revocations: all doors have the same ones, whatever the order, and remember each until its tokens have ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.doors.revocations import (
    PAGE_REVOCATIONS,
    TOKEN_KEPT_S,
    Revocation,
    RevocationTable,
    SubjectRevocation,
    TokenRevocation,
    TotalRevocation,
)
from iris_py.doors.rights import CLOCK_SKEW_S_MAX, LIFETIME_S_MAX, Grant

NOW = 1_700_000_000.0
IDS = [f"{number:032x}" for number in range(4)]
SUBJECTS = ["ann", "bob", "all", "token"]

times = st.integers(-LIFETIME_S_MAX, CLOCK_SKEW_S_MAX).map(lambda seconds: NOW + seconds)
revocations = st.one_of(
    st.builds(TokenRevocation, st.sampled_from(IDS), st.integers(-5, LIFETIME_S_MAX).map(lambda seconds: NOW + seconds)),
    st.builds(SubjectRevocation, st.sampled_from(SUBJECTS), times),
    st.builds(TotalRevocation, times),
)
grants = st.builds(
    lambda subject, token_id, made_at: Grant(subject, (), float("inf"), token_id, made_at),
    st.sampled_from(SUBJECTS),
    st.sampled_from([*IDS, ""]),
    times,
)


def covers(revocation: Revocation, grant: Grant) -> bool:
    if isinstance(revocation, TokenRevocation):
        return revocation.id == grant.token_id
    if isinstance(revocation, SubjectRevocation) and revocation.subject != grant.subject:
        return False
    return grant.made_at <= revocation.made_until


def table_of(given: list[Revocation], places: int = 100) -> RevocationTable:
    table = RevocationTable(places)
    for each in given:
        assert table.add(each, NOW) in ("added", "known", "ended")
    return table


@given(st.lists(revocations, max_size=12), st.lists(grants, max_size=8))
def test_a_token_is_revoked_if_one_revocation_covers_it(given: list[Revocation], clients: list[Grant]) -> None:
    table = table_of(given)
    for grant in clients:
        assert table.includes(grant) == any(covers(each, grant) for each in given if each.until > NOW)


@given(st.lists(revocations, max_size=12), st.data())
def test_the_order_and_repetitions_do_not_matter(given: list[Revocation], data: st.DataObject) -> None:
    once = table_of(given)
    again = table_of(data.draw(st.permutations(given * 2)))
    assert (again.digest, set(again.page(0))) == (once.digest, set(once.page(0)))
    taken = table_of(list(once.page(0)))
    assert taken.digest == once.digest


@given(st.lists(revocations, max_size=12), st.integers(0, LIFETIME_S_MAX + 2 * CLOCK_SKEW_S_MAX))
def test_a_revocation_is_forgotten_when_its_tokens_have_ended(given: list[Revocation], later_s: int) -> None:
    table = table_of(given)
    table.expire(NOW + later_s)
    fresh = RevocationTable()
    for each in given:
        if each.until > NOW:
            fresh.add(each, NOW)
    assert all(each.until > NOW + later_s for each in table.page(0))
    kept = RevocationTable()
    for each in fresh.page(0):
        if each.until > NOW + later_s:
            kept.add(each, NOW)
    assert (len(table), table.digest) == (len(kept), kept.digest)


def test_different_tables_have_different_digests() -> None:
    tables = [table_of([]), table_of([TotalRevocation(NOW)]), table_of([TotalRevocation(NOW - 1)])]
    tables += [table_of([SubjectRevocation(subject, NOW)]) for subject in SUBJECTS]
    tables += [table_of([TokenRevocation(each, NOW + 5)]) for each in IDS]
    assert len({each.digest for each in tables}) == len(tables)


def test_a_full_table_refuses_all_but_the_revocation_of_all() -> None:
    table = RevocationTable(2)
    assert table.add(TokenRevocation(IDS[0], NOW + 10), NOW) == "added"
    assert table.add(SubjectRevocation("ann", NOW), NOW) == "added"
    assert table.add(TokenRevocation(IDS[1], NOW + 10), NOW) == "full"
    assert table.add(SubjectRevocation("ann", NOW + 1), NOW) == "added"
    assert table.add(TotalRevocation(NOW), NOW) == "added"
    assert table.includes(Grant("eve", (), token_id=IDS[1], made_at=NOW))
    assert table.add(TokenRevocation(IDS[1], NOW + 40), NOW + 20) == "full"
    assert len(table) == 2  # the first one has ended
    assert table.add(TotalRevocation(NOW + 1), NOW) == "added"


@pytest.mark.parametrize(
    "revocation",
    [
        TokenRevocation(IDS[0], NOW + TOKEN_KEPT_S + 2 * CLOCK_SKEW_S_MAX + 1),
        SubjectRevocation("ann", NOW + 2 * CLOCK_SKEW_S_MAX + 1),
        TotalRevocation(NOW + 2 * CLOCK_SKEW_S_MAX + 1),
    ],
)
def test_a_clock_that_is_far_ahead_revokes_nothing(revocation: Revocation) -> None:
    table = RevocationTable()
    assert table.add(revocation, NOW) == "ahead"
    assert len(table) == 0
    assert table.add(revocation, NOW + 1) == "added"


def test_pages_have_all_entries() -> None:
    table = RevocationTable()
    for number in range(PAGE_REVOCATIONS + 7):
        table.add(TokenRevocation(f"{number:032x}", NOW + 5), NOW)
    pages = [table.page(0), table.page(PAGE_REVOCATIONS), table.page(PAGE_REVOCATIONS + 7)]
    assert [len(page) for page in pages] == [PAGE_REVOCATIONS, 7, 0]
    assert len({*pages[0], *pages[1]}) == len(table)
    assert len(table.page(0, 3)) == 3
