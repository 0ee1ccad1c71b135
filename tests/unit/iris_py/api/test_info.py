"""Nodes as others see them."""

from __future__ import annotations

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.api.info import describe

ID = NodeId(bytes(range(16)))


def test_a_member_shows_the_first_of_its_addresses() -> None:
    member = describe(NodeInfo(ID, ("192.0.2.1:1", "192.0.2.2:2", "192.0.2.3:3"), "eu/a"), 0.25)
    assert (member.id, member.address, member.zone, member.failed) == (ID.hex(), "192.0.2.1:1", "eu/a", 0.25)


def test_a_member_that_nobody_can_dial_shows_no_address() -> None:
    assert describe(NodeInfo(ID, ())).address == ""
