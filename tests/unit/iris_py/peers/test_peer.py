"""Tests of iris_py/peers/peer.py."""

from __future__ import annotations

from iris_overlay.ids import NodeId
from iris_py.observe.node_name import NodeName
from iris_py.peers.peer import KNOWN_NODES_MAX, KnownNodes
from tests.unit.iris_py.identities import node_id


def test_a_node_is_as_it_has_last_described_itself() -> None:
    known = KnownNodes()
    one = node_id(1)
    assert known.find(one) == NodeName(one.hex())
    known.learn(one, NodeName(one.hex(), "10.0.0.1:1", "eu", "web"))
    known.learn(one, NodeName(one.hex(), "10.0.0.2:1", "us", ""))
    assert known.find(one) == NodeName(one.hex(), "10.0.0.2:1", "us", "")


def test_of_too_many_nodes_the_one_that_was_heard_longest_ago_is_forgotten() -> None:
    known = KnownNodes()
    ids = [NodeId(number.to_bytes(16)) for number in range(KNOWN_NODES_MAX + 1)]
    for id_ in ids[:-1]:
        known.learn(id_, NodeName(id_.hex(), name="n"))
    known.learn(ids[0], NodeName(ids[0].hex(), name="n"))
    known.learn(ids[-1], NodeName(ids[-1].hex(), name="n"))
    assert [known.find(id_).name for id_ in (ids[0], ids[1], ids[2], ids[-1])] == ["n", "", "n", "n"]


def test_texts_have_the_name_behind_the_first_digits_of_the_id() -> None:
    assert NodeName("ab" * 16, name="web-1/orders.py").short == "abababab (web-1/orders.py)"
    assert NodeName("ab" * 16).short == "abababab"
