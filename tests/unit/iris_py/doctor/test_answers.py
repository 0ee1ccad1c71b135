"""The checks of what other nodes say: versions, and rings as overlays make them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from iris_py.doctor.answers import clock, find_gaps, ring, stalls, versions
from iris_py.doctor.check import Finding, FindingStatus, Subject
from iris_py.doctor.prober_node import ring_node
from iris_py.doctor.surroundings import RingNode, RingReport
from iris_py.wire.facts import TOPIC_VERSION
from tests.unit.iris_py.doctor.made_up import MadeUp, node
from tests.unit.overlay.overlays import Owners, make_info

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iris_overlay.node_info import NodeInfo


def ring_of(owners: Owners) -> RingReport:
    """Return the ring as its nodes see it."""
    return RingReport(
        tuple(
            ring_node(peer.hex(), [info.id.hex() for info in overlay.leaves()])
            for peer, overlay in owners.nodes.items()
            if owners.is_running(peer)
        )
    )


def rings(*rings_: list[NodeInfo]) -> Owners:
    """Start nodes; those of each list find each other, and nobody else."""
    owners = Owners()
    for infos in rings_:
        owners.add(infos[0])
        for info in infos[1:]:
            owners.add(info, infos[0])
    owners.advance(3.0)
    return owners


def test_two_rings_of_one_network_are_told_from_one() -> None:
    first, second = ([make_info(number) for number in range(start, 240, 60)] for start in (10, 40))
    assert find_gaps(ring_of(rings([*first, *second]))) == []
    assert len(find_gaps(ring_of(rings(first, second)))) == len(first) + len(second)


def test_a_ring_closes_again_where_a_node_has_died() -> None:
    infos = [make_info(number) for number in range(10, 240, 40)]
    owners = rings(infos)
    owners.kill(infos[2])
    owners.advance(5.0)
    assert find_gaps(ring_of(owners)) == []


def test_a_node_that_has_not_answered_is_no_gap() -> None:
    whole = MadeUp().ring_found
    assert whole is not None
    for left_out in whole.nodes:
        assert find_gaps(RingReport(tuple(each for each in whole.nodes if each != left_out))) == []


def test_a_node_that_knows_nobody_is_a_gap() -> None:
    whole = MadeUp().ring_found
    assert whole is not None
    assert len(find_gaps(RingReport((RingNode(whole.nodes[0].id, "", ""), *whole.nodes[1:])))) == 2
    assert find_gaps(RingReport((RingNode("00" * 16, "", ""),))) == []


def see(made_up: MadeUp, check: Callable[[Subject], Coroutine[Any, Any, Finding]]) -> Finding:
    return asyncio.run(check(Subject(made_up)))


def test_a_clock_that_differs_from_all_is_the_one_here() -> None:
    made_up = MadeUp()
    nodes = tuple(replace(each, clock_offset_s=-90.0) for each in made_up.statuses_found.nodes)
    made_up.statuses_found = replace(made_up.statuses_found, nodes=nodes)
    finding = see(made_up, clock)
    assert finding.status is FindingStatus.FAULT
    assert finding.cause == "the clock of this machine is 90 s ahead of all 3 others"


def test_lateness_between_the_bounds_is_a_warning() -> None:
    made_up = MadeUp()
    node(made_up, lateness_s=0.99)
    assert see(made_up, stalls).status is FindingStatus.WARNING


def test_nodes_with_older_topics_are_named() -> None:
    made_up = MadeUp()
    node(made_up, topic_version=TOPIC_VERSION - 1)
    finding = see(made_up, versions)
    assert finding.status is FindingStatus.WARNING  # nobody subscribes
    older = made_up.statuses_found.nodes[0].address
    assert finding.cause == (
        "publications do not pass between nodes with different versions of topics: "
        f"{TOPIC_VERSION - 1} at 1, {TOPIC_VERSION} at 2; older: {older}"
    )
    node(made_up, subscriptions=1)
    assert see(made_up, versions).status is FindingStatus.FAULT


def test_commands_with_other_topics_than_all_nodes_are_a_warning() -> None:
    made_up = MadeUp()
    nodes = tuple(replace(each, topic_version=TOPIC_VERSION + 1) for each in made_up.statuses_found.nodes)
    made_up.statuses_found = replace(made_up.statuses_found, nodes=nodes)
    finding = see(made_up, versions)
    assert finding.status is FindingStatus.WARNING
    assert f"{TOPIC_VERSION + 1} at 3, and {TOPIC_VERSION} here" in finding.cause


def test_nodes_that_say_nothing_are_skipped() -> None:
    made_up = MadeUp(ring_found=None)
    made_up.statuses_found = replace(made_up.statuses_found, nodes=())
    assert see(made_up, ring).status is see(made_up, clock).status is FindingStatus.SKIPPED
