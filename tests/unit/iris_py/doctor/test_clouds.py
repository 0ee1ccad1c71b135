"""The checks of other clouds: lines that are lost, rules that match nothing, gateways that differ, and the way to a name."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from iris_py import NodeName, NodeReport, NodeReports
from iris_py.doctor.check import Finding, FindingStatus, Subject
from iris_py.doctor.clouds import clouds
from iris_py.doctor.cluster import cluster
from iris_py.doctor.network_surroundings import without_gateways
from iris_py.doctor.surroundings import (
    AuditStatus,
    CloudStatus,
    FarDial,
    FarLine,
    Gateways,
    GatewayStatus,
    GoneGateway,
    UnmatchedImport,
    WayOut,
    Ways,
    WayStep,
)
from iris_py.errors import IrisError
from iris_py.observe.departures import Departure
from iris_py.observe.queries import About
from iris_py.observe.statistics import FarStatistics, Statistics
from tests.unit.iris_py.doctor.made_up import DOWN, EU, GATEWAYS, WAYS, MadeUp

ONE, OTHER = EU.bundles
HERE, BESIDE = "10.0.0.2:7400", "10.0.0.3:7400"


def look(*gateways: GatewayStatus, missing: int = 0) -> Finding:
    return asyncio.run(clouds(Subject(MadeUp(gateways_found=Gateways(gateways, missing)))))


def look_at(*views: CloudStatus) -> Finding:
    """Look at the cloud eu, which each of the gateways here sees so."""
    return look(*(structs.replace(gateway, clouds={"eu": eu}) for gateway, eu in zip(GATEWAYS, views, strict=False)))


def eu(**values: Any) -> CloudStatus:
    return structs.replace(EU, **values)


def test_all_lines_work() -> None:
    found = look(*GATEWAYS)
    assert found.status is FindingStatus.OK
    assert found.cause == "2 gateways; 'eu' over 4 cloud links, round trip 81.2 ms"


def look_without_gateways(last: GoneGateway | None = None, *asked: str) -> Finding:
    return asyncio.run(clouds(Subject(MadeUp(gateways_found=Gateways(last=last, asked=asked)))))


LAST = GoneGateway("a" * 32, "10.0.0.2:7400", "gw1/iris", 200.0, has_left=False, reason="it does not answer")


def test_a_network_without_gateways_is_well() -> None:
    assert look().status is FindingStatus.OK


def test_a_network_whose_last_gateway_died_is_a_fault_with_its_name_and_time() -> None:
    found = look_without_gateways(LAST)
    assert (found.status, found.cause) == (
        FindingStatus.FAULT,
        "no gateway runs in this network: the last one, 10.0.0.2:7400 (gw1/iris), died 3 minutes ago (it does not answer), "
        "so no other cloud is reached",
    )
    assert "iris nodes --gone" in found.hints


def test_a_network_whose_last_gateway_left_as_intended_is_a_warning() -> None:
    found = look_without_gateways(replace(LAST, has_left=True, reason="the node leaves the network"), "works@eu")
    assert found.status is FindingStatus.WARNING
    assert "(gw1/iris), left 3 minutes ago, so no" in found.cause


def test_a_network_that_asks_other_clouds_and_remembers_no_gateway_is_a_fault_with_the_names() -> None:
    found = look_without_gateways(None, "works@eu", "a@eu", "b@eu", "c@asia")
    assert found.status is FindingStatus.FAULT
    assert "nodes here use other clouds (works@eu, a@eu, b@eu, 1 more)" in found.cause


def test_a_way_without_gateways_names_the_last_one() -> None:
    surroundings = MadeUp(ways_found=Ways(), gateways_found=Gateways(last=LAST))
    found = asyncio.run(cluster(Subject(surroundings, "databases@eu")))
    assert found.status is FindingStatus.FAULT
    assert "no gateway runs here, the last one, 10.0.0.2:7400 (gw1/iris), died 3 minutes ago" in found.cause


@pytest.mark.parametrize(
    ("kind", "is_gateway", "s_ago", "is_found"),
    [("died", True, 60.0, True), ("left", True, 60.0, True), ("died", False, 60.0, False), ("died", True, 90_000.0, False)],
)
def test_the_last_gateway_is_found_in_the_departures_of_a_day(
    kind: str, is_gateway: bool, s_ago: float, is_found: bool
) -> None:
    """It is enough if one of the nodes that saw it go has met it as a gateway."""
    seen = Departure(node="d" * 32, at_s=100_000.0 - s_ago, kind=kind, name="gw", address="10.0.0.2:1")
    older = Departure(node="e" * 32, at_s=100_000.0 - s_ago - 5.0, kind=kind, is_gateway=is_gateway)
    now = 1_700_000_000.0
    reports = [
        NodeReport(
            node=NodeName(letter * 32),
            about=About(now_s=100_000.0),
            statistics=Statistics(far_requests={f"works@{letter}": FarStatistics()}),
            round_trip_s=0.0,
            received_unix_s=now,
            departures=departures,
        )
        for letter, departures in (("a", (seen,)), ("b", (older, structs.replace(seen, is_gateway=is_gateway))), ("c", ()))
    ]
    found = without_gateways(NodeReports(reports=tuple(reports)), now)
    assert found.asked == ("works@a", "works@b", "works@c")
    assert not found.gateways
    if is_found:
        assert found.last == GoneGateway("d" * 32, "10.0.0.2:1", "gw", s_ago, has_left=kind == "left", reason="")
    else:
        assert found.last is None


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (DOWN, "gw1.eu:7450: nobody answers there; gw2.eu:7450: nobody answers there"),
        (eu(is_up=False, bundles=(structs.replace(ONE, is_suspect=True, heard_s_ago=4.2),)), "gw1.eu:7450 is silent for 4 s"),
        (eu(is_up=False, bundles=(structs.replace(ONE, is_going=True),)), "gw1.eu:7450 leaves"),
        (CloudStatus(), "nobody there has dialled this cloud"),
        (CloudStatus(dials=(FarDial(address="gw1.eu:7450"),)), "it is being dialled"),
    ],
    ids=["dials fail", "silent", "leaves", "not dialled", "being dialled"],
)
def test_a_cloud_that_no_gateway_reaches_is_a_fault_with_its_reason(view: CloudStatus, says: str) -> None:
    found = look_at(view, view)
    assert found.status is FindingStatus.FAULT
    assert found.cause == f"the cloud 'eu' cannot be reached from any of 2 gateways: {says}"
    assert "firewall" in found.advice
    assert "iris federation status" in found.hints


def test_one_cloud_of_two_that_is_down_is_a_fault_and_the_other_is_not_named() -> None:
    found = look(*(structs.replace(each, clouds={"asia": DOWN, "eu": EU}) for each in GATEWAYS))
    assert found.status is FindingStatus.FAULT
    assert "'asia'" in found.cause
    assert "'eu'" not in found.cause


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (
            eu(bundles=(ONE,), dials=(EU.dials[0], FarDial(address="gw2.eu:7450", error="nobody listens there"))),
            f"{HERE} has 1 of 2 cloud links to 'eu': gw2.eu:7450: nobody listens there",
        ),
        (
            eu(bundles=(ONE, structs.replace(OTHER, is_suspect=True, heard_s_ago=3.5))),
            f"{HERE} has 1 of 2 cloud links to 'eu': gw2.eu:7450 is silent for 4 s",
        ),
        (DOWN, f"{HERE} has no cloud link to 'eu' (gw1.eu:7450: nobody answers there"),
    ],
    ids=["dial fails", "silent", "no line of one gateway"],
)
def test_one_of_two_lines_that_is_gone_is_a_warning(view: CloudStatus, says: str) -> None:
    found = look_at(view, EU)
    assert found.status is FindingStatus.WARNING
    assert says in found.cause


def test_a_second_dial_that_finds_the_same_gateway_is_no_lost_line_and_one_that_fails_is() -> None:
    def with_dial(error: str) -> Finding:  # one name may have the addresses of several gateways
        dials = (EU.dials[0], FarDial(address="gw1.eu:7450", error=error))
        return look_at(eu(bundles=(ONE,), dials=dials))

    assert with_dial("").status is FindingStatus.OK
    found = with_dial("nobody listens there")
    assert found.status is FindingStatus.WARNING
    assert "has 1 of 2 cloud links to 'eu': gw1.eu:7450: nobody listens there" in found.cause


def test_an_import_that_matches_nothing_is_named_with_its_line() -> None:
    rules = (UnmatchedImport(kind="cluster", outside="db", line=7), UnmatchedImport(kind="topic", outside="news.>", line=9))
    found = look_at(eu(unmatched_imports=rules), eu(unmatched_imports=rules))
    assert found.status is FindingStatus.WARNING
    assert found.cause == "'eu' exports nothing for the imports of the cluster 'db' (line 7), the topic 'news.>' (line 9)"


@pytest.mark.parametrize("is_between_gateways", [True, False])
def test_gateways_of_another_cloud_that_export_different_things(is_between_gateways: bool) -> None:
    other = structs.replace(OTHER, catalogue_digest="d2")
    views = (eu(bundles=(ONE,)), eu(bundles=(other,))) if is_between_gateways else (eu(bundles=(ONE, other)), EU)
    found = look_at(*views)
    assert found.status is FindingStatus.WARNING
    assert "the gateways of 'eu' export different things" in found.cause


def test_a_gateway_that_does_not_know_a_cloud_which_others_know() -> None:
    found = look(GATEWAYS[0], structs.replace(GATEWAYS[1], clouds={}))
    assert found.status is FindingStatus.WARNING
    assert f"{BESIDE} has no [cloud.eu]" in found.cause


def test_gateways_that_do_not_answer() -> None:
    found = look(GATEWAYS[0], missing=1)
    assert found.status is FindingStatus.WARNING
    assert "1 gateway did not answer" in found.cause
    assert look(missing=2).status is FindingStatus.FAULT


@pytest.mark.parametrize(
    ("audit", "status", "says"),
    [
        (
            AuditStatus(file="/audit", problem="No space left on device", unwritten=7),
            FindingStatus.FAULT,
            f"{HERE} cannot write its audit /audit (No space left on device): 7 records missing",
        ),
        (
            AuditStatus(file="/audit", free_bytes=3 << 20),
            FindingStatus.WARNING,
            f"{HERE} has 3.0 MiB left for its audit /audit",
        ),
        (AuditStatus(file="/audit", free_bytes=1 << 30, unwritten=7), FindingStatus.OK, "2 gateways"),
        (AuditStatus(), FindingStatus.OK, "2 gateways"),
    ],
)
def test_an_audit_that_cannot_be_written(audit: AuditStatus, status: FindingStatus, says: str) -> None:
    found = look(structs.replace(GATEWAYS[0], audit=audit), GATEWAYS[1])
    assert found.status is status
    assert says in found.cause


def test_gateways_that_cannot_be_asked_leave_the_check_undone() -> None:
    class Mute(MadeUp):
        async def gateways(self) -> Gateways:
            raise IrisError("too late")

        async def ways(self, name: str) -> Ways:
            raise IrisError("too late")

    assert asyncio.run(clouds(Subject(Mute()))).status is FindingStatus.SKIPPED
    assert asyncio.run(cluster(Subject(Mute(), "db@eu"))).status is FindingStatus.SKIPPED


# -- the way to a name


def look_at_way(*gateways: WayOut, missing: int = 0, name: str = "db@eu") -> Finding:
    return asyncio.run(cluster(Subject(MadeUp(ways_found=Ways(gateways, missing)), name)))


def steps(**values: Any) -> tuple[WayStep, ...]:
    return tuple(structs.replace(step, **values) for step in WAYS[0].ways)


def stopped(reason: str, *ways: WayStep) -> WayOut:
    imports = () if "[" in reason else WAYS[0].imports
    return structs.replace(WAYS[0], goes=False, reason=reason, ways=ways, imports=imports)


def test_a_way_that_works_is_described() -> None:
    found = look_at_way(*WAYS)
    assert found.status is FindingStatus.OK
    assert found.cause == (
        "2 gateways would forward a request over 4 cloud links, round trip 81.2 ms; 3 members there; nothing was executed"
    )


def test_a_way_whose_members_are_not_told_is_well_and_says_so() -> None:
    found = look_at_way(*(structs.replace(gateway, ways=steps(members=None)) for gateway in WAYS))
    assert found.status is FindingStatus.OK
    assert "the number of members there is withheld" in found.cause


@pytest.mark.parametrize(
    ("gateways", "says", "advises"),
    [
        ((), "no gateway runs here", "Start a gateway"),
        ((stopped('no [[import]] from "eu" matches this name'),), "no [[import]]", "Correct the file"),
        (
            (
                stopped(
                    "gateway aa: it does not export this name to this cloud",
                    *steps(obstacle="it does not export this name to this cloud"),
                ),
            ),
            "it does not export this name",
            "export",
        ),
        (
            (stopped("there is no connection to the cloud 'eu': gw1.eu:7450: nobody answers there"),),
            "gw1.eu:7450: nobody answers",
            "firewall",
        ),
        ((structs.replace(WAYS[0], ways=steps(members=0)),), "nobody serves it there", "operators"),
    ],
    ids=["no gateway", "no import", "no export", "no line", "no member"],
)
def test_what_stops_a_request_on_its_way_is_a_fault(gateways: tuple[WayOut, ...], says: str, advises: str) -> None:
    found = look_at_way(*gateways)
    assert found.status is FindingStatus.FAULT
    assert says in found.cause
    assert advises in found.advice


def test_gateways_and_lines_that_carry_nothing_beside_others_are_a_warning() -> None:
    obstacle = "nothing was heard from it for 4.0 s, and it gets nothing new"
    one_line = structs.replace(WAYS[0], ways=(structs.replace(WAYS[0].ways[0], obstacle=obstacle), WAYS[0].ways[1]))
    found = look_at_way(one_line)
    assert found.status is FindingStatus.WARNING
    assert f"1 of 2 cloud links would carry no request: gw1.eu:7450: {obstacle}" in found.cause
    found = look_at_way(WAYS[1], stopped("this gateway has no [cloud.eu]; it knows: none"))
    assert found.status is FindingStatus.WARNING
    assert f"{HERE} forwards nothing to 'db@eu'" in found.cause
    assert look_at_way(*WAYS, missing=1).status is FindingStatus.WARNING


def test_a_name_that_is_none_is_a_fault() -> None:
    found = look_at_way(*WAYS, name="@eu")
    assert found.status is FindingStatus.FAULT
    assert "lacks a name" in found.cause


def test_no_line_is_named_twice() -> None:
    line = FarLine(gateway="cc" * 16, address="gw3.eu:7450", is_suspect=True, heard_s_ago=5.0)
    dials = (FarDial(address="gw4.eu:7450", error="nothing heard for 10 s"), FarDial(address="gw4.eu:7450", error="gone"))
    found = look_at(structs.replace(EU, bundles=(ONE, line), dials=dials))
    assert found.cause.count("gw4.eu:7450") == 1
    assert "1 of 3 cloud links" in found.cause
