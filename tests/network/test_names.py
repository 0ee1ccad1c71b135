"""One name is the only seed of a service, as in Kubernetes: of its addresses some are dead, and one is the node's own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.network.lab import PORT

if TYPE_CHECKING:
    from tests.network.lab import Lab, Member

NAME = "iris.test"
CLUSTER = "works"
#: The hosts of the service. The others of its addresses: a host where nobody listens, one that is cut off, and no host at all.
SERVICE = ("a1", "a2", "a3", "b1")
REFUSING, SILENT, NO_HOST = "b2", "b3", "10.77.1.99"


def start(lab: Lab, host: str) -> Member:
    seeds = {"IRIS_SEEDS": f"{NAME}:{PORT}", "IRIS_DISCOVERY": "no"}
    return lab.run_member(host, host, "member", [CLUSTER], **seeds)


def serve_name(lab: Lab) -> None:
    """Let the name be known everywhere, with the dead before the living."""
    dead = [NO_HOST, lab.hosts[REFUSING].address, lab.hosts[SILENT].address]
    server = lab.hosts["a1"].address
    lab.cut_off(SILENT)
    for host in SERVICE:
        lab.use_name_server(host, server)
    addresses = ",".join([*dead, *(lab.hosts[host].address for host in SERVICE)])
    lab.run_module("names", "a1", "names", server, NAME, addresses).wait_for("ready")


#: Nodes that start at the same moment may form two rings. Each dials the name again after 30 s, and comes to the other ring by
#: chance; this is nine such rounds.
HEALING_S = 285.0


def is_whole(lab: Lab) -> bool:
    return all(lab.names(member.do("nodes", do="nodes")["ids"]) == frozenset(SERVICE) for member in lab.members.values())


@pytest.mark.timeout(HEALING_S + 60.0)
def test_a_service_that_starts_at_once_is_one_network(lab: Lab) -> None:
    serve_name(lab)
    members = [start(lab, host) for host in SERVICE]
    for member in members:
        member.wait_for("serving")
    lab.until(partial(is_whole, lab), "every node knows the others", within_s=HEALING_S)
    assert members[-1].request(CLUSTER, 20)["failures"] == {}


def test_the_first_of_a_service_starts_though_the_name_means_it_alone(lab: Lab) -> None:
    serve_name(lab)
    first = start(lab, "a1")
    first.wait_for("serving")
    assert first.request(CLUSTER, 1)["answers"] == {"a1": 1}
    for host in SERVICE[1:]:
        start(lab, host).wait_for("serving")
    lab.until(partial(is_whole, lab), "every node knows the others")
