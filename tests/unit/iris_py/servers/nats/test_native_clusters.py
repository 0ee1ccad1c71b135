"""The clusters with native members: a door looks at no cluster without need, and at few names at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iris_overlay.ids import NodeId
from iris_py.doors.nats.inbox_messages import INBOXES
from iris_py.servers.nats import native_clusters
from iris_py.servers.nats.native_clusters import ANSWER_S, NAMES_BURST, NAMES_MAX, NAMES_PER_S, NativeClusters

DOOR, NATIVE = NodeId(b"d" * 16), NodeId(b"n" * 16)


def member(node: NodeId) -> SimpleNamespace:
    return SimpleNamespace(rank=0, peer=SimpleNamespace(id=node))


class Network:
    """The network, as the node of a door knows it.

    Attributes:
        now: The time.
        nodes: The other nodes; None for a network too large to know them all.
        members: The members of each cluster; None for those not known yet.
        looks: The clusters that the door has looked at, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.nodes: list[NodeId] | None = [DOOR]
        self.members: dict[str, list[SimpleNamespace] | None] = {INBOXES: [member(DOOR)]}
        self.looks: list[str] = []
        overlay = SimpleNamespace(
            others=lambda: None if self.nodes is None else [SimpleNamespace(id=each) for each in self.nodes]
        )
        runtime: Any = SimpleNamespace(
            loop=SimpleNamespace(time=lambda: self.now),
            core=SimpleNamespace(overlay=overlay, group_to_ask=self._group_to_ask),
            wake=lambda: None,
        )
        monkeypatch.setattr(native_clusters, "runtime_of", lambda _node: runtime)
        node: Any = None
        self.clusters = NativeClusters(node)

    def _group_to_ask(self, cluster: str, _payload: bytes, _now: float) -> SimpleNamespace:
        if cluster != INBOXES:
            self.looks.append(cluster)
        return SimpleNamespace(members=self.members.setdefault(cluster, []))

    def find(self, cluster: str) -> bool | None:
        """Ask once more, when no earlier answer holds."""
        self.now += ANSWER_S
        return self.clusters.find(cluster)


def test_among_doors_alone_no_cluster_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch)
    assert [network.find(f"users.{number}") for number in range(2 * NAMES_MAX)] == [False] * 2 * NAMES_MAX
    network.nodes = []  # a single door
    assert network.find("users") is False
    assert network.looks == []


@pytest.mark.parametrize("nodes", [[DOOR, NATIVE], None])
def test_with_another_node_or_in_a_large_network_names_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, nodes: list[NodeId] | None
) -> None:
    network = Network(monkeypatch)
    assert network.find("upper") is False
    network.nodes, network.members["upper"] = nodes, None
    assert network.find("upper") is None
    network.members["upper"] = [member(DOOR), member(NATIVE)]
    assert network.find("upper") is True
    assert network.find("lower") is False
    assert network.looks == ["upper", "upper", "lower"]


def test_a_door_not_known_as_such_may_be_a_native_member(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch)
    network.members[INBOXES] = None
    network.find("upper")
    network.members[INBOXES] = []
    network.find("upper")
    assert network.looks == ["upper", "upper"]


def test_few_names_are_looked_at_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch)
    network.nodes = None
    for number in range(3 * NAMES_BURST):
        assert network.clusters.find(f"users.{number}") is False
    assert len(network.looks) == NAMES_BURST
    for second in range(1, 4):
        network.now += 1.0
        for number in range(3 * NAMES_BURST):
            assert network.clusters.find(f"users.{second}.{number}") is False
        assert len(network.looks) == NAMES_BURST + second * NAMES_PER_S
