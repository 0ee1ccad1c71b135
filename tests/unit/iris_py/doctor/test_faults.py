"""Each fault is named, alone and beside each other one; a healthy node is never blamed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_overlay.events import DialOutcome
from iris_py.config import Config
from iris_py.doctor.check import FindingStatus, Subject
from iris_py.doctor.examination import CHECKS, Examined, examine
from iris_py.doctor.surroundings import (
    ClusterMember,
    Dialled,
    Echoes,
    Limits,
    Listening,
    NodeStatus,
    Port,
    ProbedPeer,
    Processor,
    RingReport,
    SecretFile,
    Seed,
    SeedOutcome,
    State,
    Statuses,
)
from iris_py.files.secrets import Exposure
from iris_py.wire.facts import TOPIC_VERSION
from tests.unit.iris_py.doctor.made_up import FAULTS, NEW_SEALS, NODES, SEALS, MadeUp, ring_of
from tests.unit.iris_py.net.machines import interface

NAMES = [check.name for check in CHECKS]
#: Faults that exclude each other: who has no seed, has none that is silent.
IMPOSSIBLE = frozenset(
    {
        frozenset({"discovery", "listen"}),
        frozenset({"discovery", "seeds"}),
        frozenset({"discovery", "seed-secret"}),
    }
)


def look(made_up: MadeUp, cluster: str | None = "databases") -> dict[str, Examined]:
    """Make all checks."""

    async def main() -> dict[str, Examined]:
        return {each.check.name: each async for each in examine(Subject(made_up, cluster), NAMES)}

    return asyncio.run(main())


def statuses(made_up: MadeUp, cluster: str | None = "databases") -> dict[str, FindingStatus]:
    return {name: each.finding.status for name, each in look(made_up, cluster).items()}


def test_every_check_has_a_fault_and_every_need_stands_before_it() -> None:
    assert list(FAULTS) == list(NAMES)
    assert len(NAMES) == 25
    for place, check in enumerate(CHECKS):
        assert set(check.needs) <= set(NAMES[:place]), check.name


def test_a_healthy_node_is_well() -> None:
    assert set(statuses(MadeUp()).values()) == {FindingStatus.OK}


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in FAULTS.items() for kind in kinds])
def test_each_fault_alone_is_named_and_no_other(name: str, kind: str) -> None:
    made_up = MadeUp()
    FAULTS[name][kind](made_up)
    found = look(made_up)
    faults = [check for check, each in found.items() if each.finding.status is FindingStatus.FAULT]
    assert faults == [name]
    assert found[name].finding.cause
    assert found[name].finding.advice.endswith((".", "?")) or "Run: chmod" in found[name].finding.advice
    assert not [check for check, each in found.items() if each.finding.status is FindingStatus.WARNING]
    for each in found.values():
        assert each.because in ("", name)
        assert (each.finding.status is FindingStatus.SKIPPED) <= (each.because == name or bool(each.finding.cause))


@pytest.mark.parametrize(
    ("state", "is_own", "status"),
    [
        (State(None), True, FindingStatus.OK),
        (State(Path("/state"), "Read-only file system"), True, FindingStatus.WARNING),
        (State(Path("/state"), "Read-only file system"), False, FindingStatus.FAULT),
    ],
)
def test_a_node_with_a_secret_of_its_own_needs_no_state_directory(state: State, is_own: bool, status: FindingStatus) -> None:
    made_up = MadeUp(state_found=state)
    if not is_own:  # the network of one user on one machine, whose nodes find each other there
        made_up.config = Config(state_directory=Path("/state"))
    assert statuses(made_up)["state"] is status


HOLDS_BOTH = {"seals": SEALS, "accepts": (NEW_SEALS,)}
#: For each state of three nodes and of the settings here what the doctor says.
ROTATIONS: Any = {
    "all": ([HOLDS_BOTH] * 3, HOLDS_BOTH, FindingStatus.OK, "a rotation is under way, and all have taken its step"),
    "one missed it": (
        [HOLDS_BOTH, HOLDS_BOTH, {}],
        HOLDS_BOTH,
        FindingStatus.WARNING,
        "2 nodes seal with 541ea8b2 and accept 362c335a; 1 node (10.0.0.4:7400) seals with 541ea8b2 alone",
    ),
    "settings here": (
        [HOLDS_BOTH] * 3,
        {"seals": SEALS},
        FindingStatus.WARNING,
        "; the settings here seal with 541ea8b2 alone",
    ),
    "rotated": (
        [{"seals": NEW_SEALS, "accepts": (SEALS,)}, HOLDS_BOTH, HOLDS_BOTH],
        HOLDS_BOTH,
        FindingStatus.WARNING,
        "1 node (10.0.0.2:7400) seals with 362c335a and accepts 541ea8b2",
    ),
    "retired too soon": ([{"seals": NEW_SEALS}, HOLDS_BOTH, {}], HOLDS_BOTH, FindingStatus.FAULT, "seals with 362c335a alone"),
    "older versions": ([{"seals": ""}] * 3, HOLDS_BOTH, FindingStatus.SKIPPED, "no node reports which secret it seals with"),
}


@pytest.mark.parametrize("name", ROTATIONS)
def test_a_rotation_is_judged_by_what_nodes_hold(name: str) -> None:
    held, own, status, says = ROTATIONS[name]
    nodes = tuple(replace(node, **each) for node, each in zip(NODES, held, strict=True))
    made_up = MadeUp()
    found = replace(made_up.statuses_found, nodes=nodes, own_seals=own["seals"], own_accepts=own.get("accepts", ()))
    made_up.statuses_found = found
    finding = look(made_up)["generations"].finding
    assert finding.status is status
    assert says in finding.cause


PAIRS = [pair for pair in combinations(NAMES, 2) if frozenset(pair) not in IMPOSSIBLE]


@pytest.mark.parametrize(("accepts", "status"), [((), FindingStatus.OK), (("0123456789abcdef",), FindingStatus.WARNING)])
def test_a_node_that_does_not_answer_may_have_missed_a_rotation_that_is_under_way(
    accepts: tuple[str, ...], status: FindingStatus
) -> None:
    nodes = tuple(replace(node, accepts=accepts) for node in NODES)
    made_up = MadeUp()
    made_up.statuses_found = replace(
        made_up.statuses_found, asked=len(nodes) + 1, nodes=nodes, own_seals=nodes[0].seals, own_accepts=accepts
    )
    finding = look(made_up)["generations"].finding
    assert finding.status is status
    assert (f"1 of {len(nodes) + 1} nodes do not answer" in finding.cause) is bool(accepts)


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
def test_two_faults_are_both_named_or_one_is_why_the_other_cannot_be(one: str, other: str) -> None:
    made_up = MadeUp()
    for name in (one, other):
        next(iter(FAULTS[name].values()))(made_up)
    found = look(made_up)
    faults = {check for check, each in found.items() if each.finding.status is FindingStatus.FAULT}
    assert faults
    assert faults <= {one, other}
    for name in {one, other} - faults:
        assert found[name].finding.status is FindingStatus.SKIPPED
        assert found[name].because in faults or found[name].finding.cause
    assert {each.because for each in found.values()} <= {"", one, other}


# -- what is healthy

ids = st.lists(st.binary(min_size=16, max_size=16).map(bytes.hex), min_size=2, max_size=9, unique=True)
versions = st.sampled_from(["0.1.0", "0.1.3", "0.1.0rc1"])


@st.composite
def healthy(draw: st.DrawFn) -> MadeUp:
    """Make up a healthy node of some network: on one machine or many, with and without seeds, idle or busy."""
    own, *others = draw(ids)
    is_local, has_seeds = draw(st.booleans()), draw(st.booleans())
    host = "127.0.0.1" if is_local else "10.0.0.1"
    peers = tuple(
        ProbedPeer(each, f"{host if is_local else f'10.0.0.{place}'}:{7400 + place}") for place, each in enumerate(others, 2)
    )
    seeds = tuple(Seed(peer.address, SeedOutcome.REACHED) for peer in peers[:2]) if has_seeds else ()
    version = draw(versions)
    busy = draw(st.integers(0, 30))
    is_running = draw(st.booleans())  # a node of this network on this very address
    asked = min(len(peers), 3)
    return MadeUp(
        config=Config(
            listen=f"{host}:{draw(st.sampled_from([0, 7400]))}",
            seeds=tuple(seed.address for seed in seeds),
            zone=draw(st.sampled_from(["", "eu/a"])),
            discovery=True if not has_seeds else draw(st.booleans()),
            state_directory=Path("/state"),
        ),
        files=draw(st.sampled_from([(), (SecretFile(Path("/s"), Exposure.NONE),)])),
        interfaces_up=draw(
            st.sampled_from(
                [
                    (),
                    (interface("lo", "127.0.0.1/8", mtu=65536), interface("eth0", "10.0.0.1/24")),
                    (interface("lo", "127.0.0.1/8", mtu=65536), interface("wg0", "10.0.0.1/24", mtu=1420)),
                ]
            )
        ),
        port_found=Port(Listening.OURS, "Address already in use", "Address already in use") if is_running else Port(),
        state_found=State(Path("/state"), remembered=draw(st.integers(0, 64))),
        limits_found=Limits(draw(st.integers(5, 600)), 1024, draw(st.integers(1, 600)), draw(st.sampled_from([0, 1000])), "x"),
        processor_found=draw(st.sampled_from([None, Processor(0.0, 0.0, 0.0), Processor(0.01, 0.02, 3.0)])),
        seeds=seeds,
        peers=peers,
        strangers=draw(st.sampled_from([(), ("10.0.0.200",)])),
        echoes_found=Echoes(asked, tuple(others[:asked]), tuple(others[:asked])),
        dialled_found=Dialled(asked, ((f"{host}:7400", DialOutcome.REACHED),) * asked, is_own_port=not is_running),
        statuses_found=Statuses(
            len(peers),
            tuple(
                NodeStatus(
                    peer.id,
                    peer.address,
                    version,
                    draw(st.floats(-5.0, 5.0)),
                    draw(st.floats(0.0, 0.09)),
                    draw(st.integers(0, 800)),
                    1024,
                    SEALS,
                    topic_version=TOPIC_VERSION,
                    subscriptions=draw(st.integers(0, 1)),
                )
                for peer in peers
            ),
            version,
            draw(st.floats(0.0, 0.09)),
            SEALS,
        ),
        ring_found=RingReport(ring_of(own, *others)),
        members=tuple(
            ClusterMember(
                peer.id,
                peer.address,
                draw(st.integers(0, 1000)),
                1024,
                min(busy, 32),
                32,
                1000,
                draw(st.integers(0, 40)),
                draw(st.floats(0.001, 0.0049)),
            )
            for peer in peers
        ),
    )


@settings(max_examples=100)
@given(healthy(), st.sampled_from([None, "databases"]))
def test_no_healthy_node_is_blamed(made_up: MadeUp, cluster: str | None) -> None:
    found = look(made_up, cluster)
    blamed = {
        name: each.finding
        for name, each in found.items()
        if each.finding.status in (FindingStatus.FAULT, FindingStatus.WARNING)
    }
    assert blamed == {}


def test_the_first_node_of_a_network_is_not_blamed_for_being_alone() -> None:
    made_up = MadeUp(peers=(), seeds=(), config=replace(MadeUp().config, seeds=(), listen="127.0.0.1:0"))
    found = statuses(made_up, None)
    assert not {FindingStatus.FAULT, FindingStatus.WARNING} & set(found.values())
    assert found["udp"] is found["ring"] is found["dial-back"] is FindingStatus.SKIPPED


def test_two_users_of_one_machine_are_two_networks_and_no_fault() -> None:
    made_up = MadeUp(peers=(), seeds=(), strangers=("127.0.0.1",), config=Config(listen="127.0.0.1:0"))
    assert statuses(made_up, None)["other-network"] is FindingStatus.WARNING


@pytest.mark.parametrize("listener", [Listening.NOBODY, Listening.OURS])
def test_a_port_of_outgoing_connections_is_warned_of(listener: Listening) -> None:
    made_up = MadeUp()
    made_up.port_found = Port(listener, outgoing=range(32768, 61000))
    finding = look(made_up)["port"].finding
    assert finding.status is FindingStatus.WARNING
    assert "gives ports 32768 to 60999 to outgoing connections" in finding.cause
    assert "reserve" in finding.advice


def test_a_port_that_something_else_has_is_a_fault_whatever_connections_may_get() -> None:
    made_up = MadeUp()
    made_up.port_found = Port(Listening.OTHER, tcp_error="Address already in use", outgoing=range(32768, 61000))
    assert statuses(made_up)["port"] is FindingStatus.FAULT
