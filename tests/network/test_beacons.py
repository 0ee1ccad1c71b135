"""Beacons between hosts that have no seeds: by IPv6, and through several interfaces of one host."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.network.lab import PORT

if TYPE_CHECKING:
    from tests.network.lab import Lab

CLUSTER = "works"


def start(lab: Lab, host: str, listen: str, *advertise: str) -> None:
    """Start a node that has nothing but beacons to find others by."""
    told = {"IRIS_LISTEN": f"{listen}:{PORT}", "IRIS_ADVERTISE": ",".join(advertise)}
    lab.run_member(host, host, "member", [CLUSTER], IRIS_SEEDS="", **told).wait_for("serving")


def knows(lab: Lab, host: str, others: frozenset[str]) -> bool:
    return lab.names(lab.members[host].do("nodes", do="nodes")["ids"]) == others


def test_nodes_find_each_other_by_ipv6(lab: Lab) -> None:
    hosts = frozenset({"a1", "a2", "a3"})
    for number, host in enumerate(sorted(hosts), start=1):
        lab.hosts[host].namespace.configure(f"address add fd77::{number}/64 dev eth0 nodad")
    start(lab, "a1", "[fd77::1]")
    start(lab, "a2", "[::]", "fd77::2")
    start(lab, "a3", "[::]", "fd77::3")
    for host in hosts:
        lab.until(partial(knows, lab, host, hosts), f"{host} knows all")
    assert lab.members["a3"].request(CLUSTER, 10)["failures"] == {}


def test_a_node_is_found_on_every_interface_that_it_listens_on(lab: Lab) -> None:
    first, far = lab.hosts["a1"].namespace, lab.hosts["b1"].namespace
    first.configure(
        f"link add eth1 type veth peer name eth1 netns {far.name}", "address add 10.78.0.1/24 dev eth1", "link set eth1 up"
    )
    far.configure("address add 10.78.0.2/24 dev eth1", "link set eth1 up")
    start(lab, "a1", "0.0.0.0", lab.hosts["a1"].address, "10.78.0.1")
    start(lab, "a2", lab.hosts["a2"].address)
    start(lab, "b1", "10.78.0.2")
    lab.until(partial(knows, lab, "a1", frozenset({"a1", "a2", "b1"})), "a1 knows those on both sides")
    assert lab.members["a1"].request(CLUSTER, 10)["failures"] == {}
