"""Which links a node can do without, and what becomes of newcomers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_overlay.overlay import Overlay
from iris_py.link.link import LinkState
from iris_py.node.spare_links import CROWDED_IDLE_S
from tests.unit.iris_py.nodes import Net

if TYPE_CHECKING:
    from iris_py.node.core import NodeCore


@pytest.fixture(autouse=True)
def large_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """No neighbours: in a ring as small as those here, everybody is one."""
    monkeypatch.setattr(Overlay, "needs_link", lambda _self, _peer: False)
    monkeypatch.setattr(Overlay, "wants_link", lambda _self, _peer: False)


def crowded(idle_s: float) -> tuple[Net, NodeCore, NodeCore]:
    """Return a node that has all the links that it takes, and the peer with which it last spoke; both some time later."""
    net = Net(3)
    first, _second, third = net.cores.nodes.values()
    net.cores.drive()
    first.peers.links_max = 2
    assert linked(first) == 2
    net.join(third)
    net.watch(first)
    net.request(first)
    net.cores.drive_until(net.now + 1.0)
    net.serve(third)
    net.cores.drive_until(net.now + idle_s)
    return net, first, third


def linked(core: NodeCore) -> int:
    return sum(link.state is LinkState.OPEN for link in core.peers.links())


def test_the_link_that_is_unused_the_longest_makes_room() -> None:
    net, first, third = crowded(CROWDED_IDLE_S + 8.0)
    newcomer = net.add()
    net.cores.drive_until(net.now + 1.0)
    assert first.peers.find(newcomer.info.id) is not None
    assert first.peers.find(third.info.id) is not None
    assert linked(first) == 2


def test_a_link_that_was_used_a_moment_ago_stays_and_the_newcomer_is_turned_away() -> None:
    net, first, _third = crowded(0.1)
    for link in first.peers.links():
        link.active_at = net.now
    before = {link.id for link in first.peers.links()}
    newcomer = net.add()
    net.cores.drive_until(net.now + 0.5)
    assert first.peers.find(newcomer.info.id) is None
    assert {link.id for link in first.peers.links()} == before


@pytest.mark.parametrize("use", ["awaited", "needed"])
def test_a_link_that_something_needs_stays(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, first, _third = crowded(CROWDED_IDLE_S + 8.0)
    for info in first.overlay.peers():
        peer = first.peers.find(info.id)
        assert peer is not None
        if use == "awaited":
            peer.awaited += 1
    if use == "needed":
        monkeypatch.setattr(Overlay, "needs_link", lambda _self, _peer: True)
    before = {link.id for link in first.peers.links()}
    newcomer = net.add()
    net.cores.drive_until(net.now + 0.5)
    assert first.peers.find(newcomer.info.id) is None
    assert {link.id for link in first.peers.links()} == before


def test_a_neighbour_is_admitted_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    net, first, _third = crowded(0.1)
    first.peers.links_max = 2
    monkeypatch.setattr(Overlay, "needs_link", lambda _self, _peer: True)
    monkeypatch.setattr(Overlay, "wants_link", lambda _self, _peer: True)
    newcomer = net.add()
    net.cores.drive_until(net.now + 0.5)
    assert first.peers.find(newcomer.info.id) is not None
    assert linked(first) == 3
