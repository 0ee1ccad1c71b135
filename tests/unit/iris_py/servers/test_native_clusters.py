"""Members of a cluster that are no doors."""

from __future__ import annotations

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.peers.member import KnownMember
from iris_py.peers.peer import Peer
from iris_py.servers.nats.native_clusters import has_native_member

DOOR, NATIVE, STAND_IN = (NodeId(bytes([number]) * 16) for number in range(3))


def member(node: NodeId) -> KnownMember:
    known = KnownMember(Peer(NodeInfo(node, ("127.0.0.1:1",), ""), None))
    known.rank = int(node == STAND_IN)
    return known


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ((), False),
        ((DOOR,), False),
        ((DOOR, NATIVE), True),
        ((NATIVE,), True),
        ((DOOR, STAND_IN), False),
        ((STAND_IN,), True),
    ],
)
def test_native_members_are_those_that_get_requests_and_are_no_doors(nodes: tuple[NodeId, ...], expected: bool) -> None:
    assert has_native_member([member(node) for node in nodes], {DOOR}) is expected
