"""The check of a cluster: members that are slow, stuck or full of tunnels, and those that are merely busy."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.doctor.check import Finding, FindingStatus, Subject
from iris_py.doctor.cluster import cluster
from tests.unit.iris_py.doctor.made_up import PEERS, MadeUp

if TYPE_CHECKING:
    from iris_py.doctor.surroundings import ClusterMember

FAST = MadeUp().members


def look(*members: ClusterMember) -> Finding:
    return asyncio.run(cluster(Subject(MadeUp(members=members), "databases")))


def first(**values: Any) -> tuple[ClusterMember, ...]:
    """Return members of which the first says something else."""
    return (replace(FAST[0], **values), *FAST[1:])


def test_a_member_that_was_asked_once_and_is_avoided_since_is_slow() -> None:
    found = look(*first(handler_s=0.5, executed=1, failed=0))
    assert found.status is FindingStatus.WARNING
    assert f"one is slow: {FAST[0].address} takes 500 ms where others take 2 ms" in found.cause


def test_times_of_any_size_are_told_in_their_unit() -> None:
    members = (replace(FAST[0], handler_s=2.0), *(replace(each, handler_s=0.0002) for each in FAST[1:]))
    assert "takes 2 s where others take 200 us" in look(*members).cause


def test_a_member_that_answers_as_fast_as_others_or_was_never_asked_is_well() -> None:
    assert look(*first(handler_s=0.009)).status is FindingStatus.OK
    assert look(*first(handler_s=None, executed=0, failed=0)).status is FindingStatus.OK


def members_of(held: int, handled: int, handler_s: float) -> tuple[ClusterMember, ...]:
    return first(held_lately=held, running=held) + tuple(
        replace(each, handled_lately=handled, handler_s=handler_s) for each in FAST[1:2]
    )


def test_a_member_that_goes_on_with_nothing_while_others_answer_is_stuck() -> None:
    found = look(*members_of(held=3, handled=40, handler_s=0.002))
    assert found.status is FindingStatus.WARNING
    assert f"one is stuck: {FAST[0].address} has held 3 requests for 1 s at least" in found.cause
    assert "others answer within 2 ms" in found.cause


@pytest.mark.parametrize(
    ("held", "handled", "handler_s"), [(0, 40, 0.002), (3, 0, 0.002), (3, 4, 0.3)], ids=["goes on", "all wait", "all are long"]
)
def test_members_with_long_requests_are_not_stuck(held: int, handled: int, handler_s: float) -> None:
    assert "stuck" not in look(*members_of(held, handled, handler_s)).cause


def tunnels(*opened: int) -> tuple[ClusterMember, ...]:
    holders = (PEERS[2].id, "ee" * 16)
    return tuple(
        replace(each, tunnels=count, tunnels_max=10, tunnel_holders=((holders[0], count - 1), (holders[1], 1)))
        for each, count in zip(FAST, opened, strict=False)
    )


def test_members_full_of_tunnels_are_a_fault_that_names_the_holders() -> None:
    found = look(*tunnels(10, 10))
    assert found.status is FindingStatus.FAULT
    assert found.cause == (
        f"20 of 20 tunnels are open at 2 of 2 members: {PEERS[2].address} has 18, {'ee' * 4} has 2 of them, and no member "
        "accepts another one"
    )
    assert "Close tunnels" in found.advice


def test_one_member_full_of_tunnels_is_a_warning_and_nearly_all_likewise() -> None:
    found = look(*tunnels(10, 3))
    assert found.status is FindingStatus.WARNING
    assert f"10 of 10 tunnels are open at {FAST[0].address}: {PEERS[2].address} has 9, {'ee' * 4} has 1 of them" in found.cause
    assert look(*tunnels(9, 9)).status is FindingStatus.WARNING


def test_tunnels_that_are_open_are_no_fault_and_counted() -> None:
    found = look(*tunnels(8, 3))
    assert found.status is FindingStatus.OK
    assert "11 tunnels open" in found.cause
    assert look(*first(tunnels=0, tunnels_max=0)).status is FindingStatus.OK


def test_names_stand_beside_addresses_and_ids() -> None:
    assert (
        f"one is slow: {FAST[0].address} (web-1/orders.py) takes" in look(*first(handler_s=0.5, name="web-1/orders.py")).cause
    )
    nameless = first(handler_s=0.5, address="", name="web-1/orders.py")
    assert f"one is slow: {FAST[0].id[:8]} (web-1/orders.py) takes" in look(*nameless).cause
