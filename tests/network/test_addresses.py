"""Nodes that listen on every address: what they tell others, with and without a default route, and on several networks."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.network.lab import PORT
from tests.network.test_doctor import examine

if TYPE_CHECKING:
    from tests.network.lab import Lab, Member

CLUSTER = "works"
HOSTS = ("a1", "a2", "a3")
WILDCARD = "0.0.0.0"


def start(lab: Lab, host: str, listen: str = WILDCARD, seeds: str = "", **environment: str) -> Member:
    environment |= {"IRIS_SEEDS": seeds, "IRIS_LISTEN": f"{listen}:{PORT}"}
    member = lab.run_member(host, host, "member", [CLUSTER], **environment)
    member.wait_for("serving")
    return member


def knows(lab: Lab, host: str, others: frozenset[str]) -> bool:
    return lab.names(lab.members[host].do("nodes", do="nodes")["ids"]) == others


def address_of(lab: Lab, host: str) -> str:
    return str(lab.members[host].wait_for("connected")["address"])


def add_private_network(lab: Lab, hosts: tuple[str, ...]) -> dict[str, str]:
    """Give hosts a second network, without a router; return their addresses there."""
    router = lab._sites["a"]
    router.configure("link add private type bridge mcast_snooping 0", "link set private up")
    addresses = {}
    for number, host in enumerate(hosts, start=1):
        namespace = lab.hosts[host].namespace
        router.configure(
            f"link add p{host} type veth peer name eth1 netns {namespace.name}",
            f"link set p{host} master private",
            f"link set p{host} up",
        )
        addresses[host] = f"10.78.0.{number}"
        namespace.configure(f"address add {addresses[host]}/24 dev eth1", "link set eth1 up")
    return addresses


@pytest.mark.parametrize("has_route", [True, False], ids=["a default route", "no default route"])
@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_nodes_on_one_switch_find_and_keep_each_other(lab: Lab, family: str, has_route: bool) -> None:
    for number, host in enumerate(HOSTS, start=1):
        namespace = lab.hosts[host].namespace
        if family == "IPv6":
            namespace.configure(
                f"address add fd77::{number}/64 dev eth0 nodad", f"address delete 10.77.1.1{number}/24 dev eth0"
            )
        if family == "IPv6" and has_route:
            namespace.configure("route add default via fd77::ff dev eth0")
        if family == "IPv4" and not has_route:
            namespace.configure("route delete default")
    for host in HOSTS:
        start(lab, host, WILDCARD if family == "IPv4" else "[::]")
    for number, host in enumerate(HOSTS, start=1):
        lab.until(partial(knows, lab, host, frozenset(HOSTS)), f"{host} knows all")
        expected = lab.hosts[host].address if family == "IPv4" else f"[fd77::{number}]"
        assert address_of(lab, host) == f"{expected}:{PORT}"
    first, second, _third = (lab.members[host] for host in HOSTS)
    second.tell(do="watch", cluster=CLUSTER)
    lab.until(lambda: second.view(CLUSTER) == frozenset(HOSTS), "all serve")
    assert second.request(CLUSTER, 200, 4)["failures"] == {}
    first.tell(do="leave")
    assert first.wait() == 0
    found = second.request(CLUSTER, 400, 4)
    assert found["failures"] == {}
    assert set(found["answers"]) == {"a2", "a3"}


def test_a_machine_with_nothing_but_loopback_says_so_and_does_not_start(lab: Lab) -> None:
    lab.hosts["a1"].namespace.configure("link set eth0 down")
    node = lab.run("node", "a1", [sys.executable, "-m", "iris_py.cli", "node"], IRIS_LISTEN=f"{WILDCARD}:{PORT}")
    assert node.wait() == 2
    assert "only loopback addresses" in node.errors()
    assert "127.0.0.1:7400" not in node.errors()


def test_nodes_meet_on_the_network_that_both_are_on_and_not_where_a_firewall_drops(lab: Lab) -> None:
    hosts = ("a1", "b1", "b2")
    private = add_private_network(lab, hosts)
    for host in hosts:  # the default route leads through eth0, and nobody gets in there
        rules = f"iifname eth0 tcp dport {PORT} counter drop; iifname eth0 udp dport {PORT} drop;"
        lab.hosts[host].namespace.filter(
            f"table inet shut {{ chain input {{ type filter hook input priority 0; {rules} }} ; }}"
        )
    # The last hears of the first from the one between.
    seeds = {"a1": "", "b1": f"{private['a1']}:{PORT}", "b2": f"{private['b1']}:{PORT}"}
    for host in hosts:
        start(lab, host, seeds=seeds[host], IRIS_DISCOVERY="false")
    for host in hosts:
        lab.until(partial(knows, lab, host, frozenset(hosts)), f"{host} knows all")
    assert address_of(lab, "a1") == f"{lab.hosts['a1'].address}:{PORT}", "it has no seed, so the default route decides"
    assert address_of(lab, "b1") == f"{private['b1']}:{PORT}", "it has one"
    assert lab.members["b2"].request(CLUSTER, 100)["failures"] == {}
    for host in hosts:
        listed = lab.hosts[host].namespace.filter("list table inet shut")
        assert re.findall(r"counter packets (\d+)", listed) == ["0"], f"somebody has dialled {host} at the wrong address"


def test_a_node_on_two_networks_is_reached_from_each(lab: Lab) -> None:
    private = add_private_network(lab, HOSTS)
    lab.hosts["a2"].namespace.configure("link set eth1 down")
    lab.hosts["a3"].namespace.configure("link set eth0 down")
    for host in HOSTS:
        start(lab, host)
    lab.until(partial(knows, lab, "a1", frozenset(HOSTS)), "the node between knows both")
    assert address_of(lab, "a3") == f"{private['a3']}:{PORT}"
    for host in ("a2", "a3"):
        lab.until(partial(knows, lab, host, frozenset(HOSTS)), f"{host} knows all")
        assert lab.members[host].request(CLUSTER, 50)["failures"] == {}


def test_a_node_of_both_families_joins_those_of_one(lab: Lab) -> None:
    for number, host in enumerate(HOSTS, start=1):
        lab.hosts[host].namespace.configure(f"address add fd77::{number}/64 dev eth0 nodad", "route delete default")
    lab.hosts["a1"].namespace.configure(f"address delete {lab.hosts['a1'].address}/24 dev eth0")
    lab.hosts["a3"].namespace.configure("address delete fd77::3/64 dev eth0")
    for host, listen in (("a1", "[::]"), ("a2", "[::]"), ("a3", WILDCARD)):
        start(lab, host, listen)
    for host in HOSTS:
        lab.until(partial(knows, lab, host, frozenset(HOSTS)), f"{host} knows all")
    assert address_of(lab, "a2") == f"[fd77::2]:{PORT}"
    for host in HOSTS:  # the first and the last have no way to each other but through the one between
        found = lab.members[host].request(CLUSTER, 100)
        assert found["failures"] == {}
    echoes = examine(lab, "a3", "--only", "udp", IRIS_SEEDS="", IRIS_LISTEN=f"{WILDCARD}:0")
    assert echoes["udp"]["status"] == "ok", echoes
