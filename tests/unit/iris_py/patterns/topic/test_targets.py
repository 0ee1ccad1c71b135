"""The targets of a publisher: a node with entries in several tables is one target."""

from __future__ import annotations

import pytest

from iris_overlay.groups.entries import pack
from iris_overlay.ids import GroupId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.topic import targets
from iris_py.patterns.topic.outgoing_flows import OutgoingFlow
from iris_py.patterns.topic.targets import PublicationTarget
from iris_py.peers.peer import Peer
from tests.unit.iris_py.identities import node_id

TOP, CHILD, OTHER = (GroupId(name.ljust(16)) for name in (b"top", b"child", b"other"))


def packed(*numbers: int) -> bytes:
    return pack((number, 0, 0) for number in numbers)


def make() -> PublicationTarget:
    return PublicationTarget(Peer(NodeInfo(node_id(1), ()), None), OutgoingFlow(node_id(1), 0))


@pytest.fixture(params=[0, 100], ids=["many", "few"], autouse=True)
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with both ways to find entries in other tables."""
    monkeypatch.setattr(targets, "FEW_ENTRIES", request.param)


def test_an_entry_that_moves_is_neither_added_nor_removed() -> None:
    target = make()
    assert target.change(TOP, packed(1, 2), b"") == (packed(1, 2), b"")
    assert target.change(CHILD, packed(2, 3), b"") == (packed(3), b"")
    assert target.entries == packed(1, 2, 3)
    assert target.change(TOP, b"", packed(1, 2)) == (b"", packed(1))
    assert target.change(CHILD, b"", packed(2)) == (b"", packed(2))
    assert target.entries == packed(3)


def test_a_node_is_lost_when_all_tables_with_entries_of_it_have_lost_it() -> None:
    target = make()
    target.change(TOP, packed(1), b"")
    target.change(CHILD, packed(2), b"")
    target.change(OTHER, b"", b"")
    assert (target.lose(TOP), target.is_lost) == (True, False)
    assert (target.lose(CHILD), target.is_lost) == (True, True)
    assert target.entries == packed(1, 2)
    assert target.change(TOP, packed(1, 4), b"") == (packed(4), b""), "all are told anew"
    assert (target.is_in(CHILD), target.is_lost) == (True, False)
    assert target.drop(CHILD, is_lost=True) == packed(2)
    assert target.drop(TOP, is_lost=True) == b"", "it is back"
    assert target.entries == packed(1, 4)
    assert target.lose(TOP)
    assert target.drop_lost() == packed(1, 4)
    assert (target.entries, target.is_gone) == (b"", False)
    assert (target.lose(OTHER), target.is_gone) == (False, True)


def test_a_table_that_is_given_up_takes_the_entries_that_are_in_no_other() -> None:
    target = make()
    target.change(TOP, packed(1, 2), b"")
    target.change(CHILD, packed(2, 3), b"")
    assert target.drop(CHILD) == packed(3)
    assert not target.is_in(CHILD)
    assert target.drop(CHILD) == b""
    assert target.drop(TOP) == packed(1, 2)
    assert target.is_gone
