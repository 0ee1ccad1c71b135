"""`iris doctor` names what firewalls, narrow paths and wrong addresses do to a node."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.network.lab import FAR, PORT
from tests.network.wire import Condition

if TYPE_CHECKING:
    from tests.network.lab import Lab

#: The nodes that run while the doctor looks from a3.
RUNNING = ("a1", "a2", "b1")
#: Checks of the machine itself: a busy one lets event loops stand still, and one that is bought by the hour may get less of it.
OF_THE_MACHINE = ("processor", "stalls")


def examine(lab: Lab, host: str, *arguments: str, **environment: str) -> dict[str, dict[str, Any]]:
    """Run the command on a host; return its lines by check."""
    command = [sys.executable, "-m", "iris_py.cli", "doctor", "--json", *arguments]
    doctor = lab.run("doctor", host, command, **environment)
    lab.until(lambda: doctor.has_ended, "the doctor is done")
    lines = {said["check"]: said for said in doctor.said if said.get("kind") == "check"}
    assert doctor.wait() == (8 if any(line["status"] == "FAULT" for line in lines.values()) else 0), doctor.errors()
    return lines


def faults(lines: dict[str, dict[str, Any]]) -> list[str]:
    """Return the faults of the network: what the machine of all hosts is short of is none."""
    return [name for name, line in lines.items() if line["status"] == "FAULT" and name not in OF_THE_MACHINE]


@pytest.fixture
def running(lab: Lab) -> Lab:
    for host in RUNNING:
        lab.start(host, "databases")
    for host in RUNNING:
        lab.members[host].wait_for("serving")
    return lab


def test_a_healthy_network_is_well(running: Lab) -> None:
    lines = examine(running, "a3", "databases")
    assert faults(lines) == [], lines
    for name in ("port", "seeds", "udp", "mtu", "dial-back", "clock", "versions", "ring", "cluster"):
        assert lines[name]["status"] == "ok", lines[name]


def test_datagrams_that_a_firewall_drops(running: Lab) -> None:
    running.hosts["a3"].namespace.filter(
        "table inet deaf { chain input { type filter hook input priority 0; iifname eth0 meta l4proto udp drop; } ; }"
    )
    lines = examine(running, "a3")
    assert faults(lines) == ["udp"]
    assert lines["mtu"]["because"] == "udp"


def test_a_firewall_that_lets_nobody_in(running: Lab) -> None:
    # Tracked, so that answers to its own datagrams and dials pass.
    running.shield("a3")
    lines = examine(running, "a3")
    assert faults(lines) == ["dial-back"]
    assert "silent" in lines["dial-back"]["cause"]


def test_an_address_that_others_have_no_way_to(running: Lab) -> None:
    running.hosts["a3"].namespace.configure("address add 192.168.99.1/32 dev lo")
    lines = examine(running, "a3", "--only", "dial-back", IRIS_LISTEN=f"192.168.99.1:{PORT}")
    assert "dial-back" in faults(lines)
    assert f"192.168.99.1:{PORT}" in lines["dial-back"]["cause"]


def test_a_path_that_loses_large_datagrams(running: Lab) -> None:
    running._sites["a"].configure("link set a3 mtu 900")
    lines = examine(running, "a3", "--only", "udp,mtu")
    assert faults(lines) == ["mtu"], lines


def test_a_seed_that_a_firewall_hides(lab: Lab) -> None:
    lab.hosts["a1"].namespace.filter(
        "table inet closed { chain input { type filter hook input priority 0; iifname eth0 tcp dport 7400 drop; } ; }"
    )
    lab.start("a1")
    lab.members["a1"].wait_for("serving")
    lines = examine(lab, "a3", "--no-discovery", "--only", "seeds,udp", IRIS_SEEDS=f"{lab.hosts['a1'].address}:{PORT}")
    assert faults(lines) == ["seeds"]
    assert "is silent" in lines["seeds"]["cause"]
    assert lines["udp"]["because"] == "seeds"


def test_two_networks_on_one_segment(lab: Lab) -> None:
    lab.start("a1")
    lab.members["a1"].wait_for("serving")
    other = lab.make_secret("other")
    lines = examine(lab, "a3", "--only", "other-network", IRIS_SEEDS="", IRIS_SECRET_FILE=other)
    assert faults(lines) == ["other-network"]
    assert lab.hosts["a1"].address in lines["other-network"]["cause"]


def test_no_multicast_and_no_seeds(lab: Lab) -> None:
    lab.hosts["a3"].namespace.filter(
        "table inet still { chain output { type filter hook output priority 0; ip daddr 224.0.0.0/4 drop; } ; }"
    )
    lines = examine(lab, "a3", "--only", "discovery,ring", IRIS_SEEDS="")
    assert faults(lines) == ["discovery"]
    assert lines["ring"]["because"] == "discovery"


def count(lab: Lab, host: str) -> int:
    """Return how many nodes the one of a host knows, itself among them."""
    return len(lab.members[host].do("nodes", do="nodes")["ids"])


def test_a_network_in_halves(running: Lab) -> None:
    running.start("b2", "databases").wait_for("serving")
    running.until(lambda: count(running, "a1") == 4, "all are one network")
    running.set_wire(Condition(is_cut=True))
    running.until(lambda: count(running, "a1") == 2, "the other half is given up")
    lines = examine(running, "a3", "--only", "parts,seeds")
    assert lines["parts"]["status"] == "FAULT", lines
    assert "2 nodes fell silent within" in lines["parts"]["cause"]
    for host in ("b1", "b2"):
        assert f"{running.hosts[host].address}:{PORT}" in lines["parts"]["cause"]
    assert f"{running.hosts['b1'].address}:{PORT} is silent" in lines["seeds"]["cause"]
    running.set_wire(FAR)
    running.until(lambda: count(running, "a1") == 4, "it is one network again")
    for _attempt in range(5):
        lines = examine(running, "a3", "--only", "parts")
        if lines["parts"]["status"] == "ok":
            return
    raise AssertionError(lines)
