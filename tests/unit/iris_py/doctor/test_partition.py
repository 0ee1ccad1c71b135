"""The check for a network in parts: deaths of whole sites, and those that say nothing of the network."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from iris_py.doctor.check import Finding, FindingStatus, Subject
from iris_py.doctor.network_surroundings import DEATHS_S, deaths_of
from iris_py.doctor.partition import TOGETHER_S, parts
from iris_py.doctor.surroundings import Death, Deaths, ProbedPeer
from iris_py.observe.journal import EventRecord
from iris_py.observe.node_name import NodeName
from iris_py.observe.queries import About
from iris_py.observe.reports import NodeReport
from iris_py.observe.statistics import Statistics
from tests.unit.iris_py.doctor.made_up import PEERS, SITE, MadeUp

if TYPE_CHECKING:
    from collections.abc import Sequence


def look(*deaths: Death, asked: int = 3, peers: Sequence[ProbedPeer] = PEERS) -> Finding:
    ordered = tuple(sorted(deaths, key=lambda death: death.s_ago))
    return asyncio.run(parts(Subject(MadeUp(peers=tuple(peers), deaths_found=Deaths(asked, ordered)))))


def test_a_site_that_fell_silent_is_a_fault_that_names_it_and_claims_no_more_than_is_known() -> None:
    found = look(*SITE)
    assert found.status is FindingStatus.FAULT
    assert found.cause.startswith(
        "3 nodes fell silent within 1 s, 40 s ago, and are not back: 10.0.1.1:7400, 10.0.1.2:7400, 10.0.1.3:7400, "
        "all nodes of the zone 'b'. About 4 nodes are left here."
    )
    assert "Those machines are down, or the network is partitioned" in found.cause
    assert "ping -c 3 10.0.1.1" in found.hints


def test_no_zone_is_named_that_lives_or_that_is_not_the_only_one() -> None:
    assert "zone" not in look(*SITE, peers=[replace(PEERS[0], zone="b"), *PEERS[1:]]).cause
    assert "zone" not in look(*SITE[:2], replace(SITE[2], zone="c")).cause
    assert "zone" not in look(*(replace(death, zone="") for death in SITE)).cause


def test_deaths_one_by_one_are_no_part_of_the_network() -> None:
    apart = [replace(death, s_ago=100.0 + place * (TOGETHER_S + 1)) for place, death in enumerate(SITE)]
    found = look(*apart)
    assert found.status is FindingStatus.OK
    assert found.cause == "3 nodes on other hosts died within the last hour, but not together"
    assert look(SITE[0]).status is FindingStatus.OK
    assert look().cause == "no host is missing"


def test_the_largest_of_several_groups_counts() -> None:
    later = [replace(SITE[0], id="ee" * 16, address="10.0.2.1:7400", s_ago=5.0)]
    assert look(*later, *SITE).cause.startswith("3 nodes fell silent")


def test_a_few_of_many_are_no_part_of_the_network() -> None:
    many = [ProbedPeer(f"{number:032x}", f"10.1.0.{number}:7400") for number in range(1, 14)]
    assert look(*SITE, peers=many).status is FindingStatus.OK
    assert look(*SITE, peers=many[:11]).status is FindingStatus.FAULT


def test_processes_that_end_where_others_live_are_not_cut_off() -> None:
    host = PEERS[0].address.rpartition(":")[0]
    assert (
        look(*(replace(death, address=f"{host}:{place}") for place, death in enumerate(SITE, 9000))).status is FindingStatus.OK
    )


def test_addresses_that_a_liar_tells_do_no_harm() -> None:
    liars = [replace(death, address=text) for death, text in zip(SITE, ("", "nonsense", "[::1"), strict=True)]
    assert look(*liars).status in (FindingStatus.OK, FindingStatus.FAULT)


def test_nodes_that_tell_nothing_leave_the_check_undone() -> None:
    assert look(asked=0).status is FindingStatus.SKIPPED


# -- what nodes tell


def told(*events: EventRecord, now_s: float = 1000.0) -> NodeReport:
    name = NodeName("ab" * 16, "10.0.0.2:7400")
    about = About(now_s=now_s)
    return NodeReport(node=name, about=about, statistics=Statistics(), round_trip_s=0.0, received_unix_s=5000.0, events=events)


def died(node: str, at_s: float, kind: str = "died") -> EventRecord:
    return EventRecord(
        number=1, at_s=at_s, kind=kind, node=node * 16, node_address=f"10.0.1.{int(node, 16)}:7400", node_zone="b"
    )


def test_each_death_counts_once_from_when_it_was_found_first() -> None:
    found = deaths_of([told(died("01", 990.0), died("02", 995.0)), told(died("01", 980.0, "died"))], [], 5000.0)
    assert found == (
        Death("02" * 16, "10.0.1.2:7400", "b", 5.0),
        Death("01" * 16, "10.0.1.1:7400", "b", 20.0),
    )


def test_nodes_that_are_back_other_events_and_old_deaths_do_not_count() -> None:
    report = told(died("01", 990.0), died("02", 990.0, "suspected"), died("03", 990.0 - DEATHS_S), now_s=1000.0)
    assert deaths_of([report], ["01" * 16], 5000.0) == ()
