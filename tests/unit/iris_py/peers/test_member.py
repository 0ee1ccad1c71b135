"""Tests of iris_py/peers/member.py: what a member registers with."""

from __future__ import annotations

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.peers.member import RANK_MAX, WEIGHT, KnownMember, facts_of, membership_attributes, rank_of, weight_of
from iris_py.peers.peer import Peer
from iris_py.wire.facts import NAME, encode_facts, named
from iris_security import Keyring, Secret
from iris_security.keyring import PROOF_BYTES

KEYS = Keyring(Secret(bytes(range(32))), network="test").cluster("cluster")
NODE = NodeId(bytes(16))


def test_what_is_usual_is_left_out() -> None:
    assert membership_attributes(KEYS, NODE, 1.0) == KEYS.proof(NODE, b"")
    assert membership_attributes(KEYS, NODE, 1.0, takes_overflow=True) == KEYS.proof(NODE, b"")
    assert membership_attributes(KEYS, NODE, 2.5)[PROOF_BYTES:] == WEIGHT.pack(250)


@pytest.mark.parametrize("weight", [1.0, 2.5])
@pytest.mark.parametrize("rank", range(1, RANK_MAX + 1))
def test_a_rank_stands_behind_the_weight_and_the_proof_covers_it(rank: int, weight: float) -> None:
    for takes_overflow in (False, True):
        attributes = membership_attributes(KEYS, NODE, weight, rank, takes_overflow=takes_overflow)
        statement = WEIGHT.pack(round(weight * 100)) + bytes([rank + 128 * takes_overflow])
        assert attributes == KEYS.proof(NODE, statement) + statement
        assert (rank_of(attributes), weight_of(attributes)) == ((rank, takes_overflow), weight)
        assert rank_of(attributes + b"of a newer version") == (rank, takes_overflow)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_facts_stand_behind_the_rank_and_the_proof_covers_them(rank: int, weight: float) -> None:
    facts = encode_facts({200: b"of a newer version", NAME: b"web-1/orders.py"})
    attributes = membership_attributes(KEYS, NODE, weight, rank, facts=facts)
    statement = WEIGHT.pack(round(weight * 100)) + bytes([rank]) + facts
    assert attributes == KEYS.proof(NODE, statement) + statement
    assert (rank_of(attributes), weight_of(attributes)) == ((rank, False), weight)
    assert facts_of(attributes) == facts
    assert facts_of(membership_attributes(KEYS, NODE, weight, rank)) == b""


def test_a_member_without_a_link_is_called_as_it_has_registered() -> None:
    member = KnownMember(Peer(NodeInfo(NODE, ()), None))
    member.register(membership_attributes(KEYS, NODE, 1.0, facts=named("web-1/orders.py")))
    assert member.peer.label == "web-1/orders.py"
    local = KnownMember(Peer(NodeInfo(NODE, ()), None, is_local=True, label="own"))
    local.register(membership_attributes(KEYS, NODE, 1.0, facts=named("of an older registration")))
    assert local.peer.label == "own"


@pytest.mark.parametrize(
    ("statement", "rank"),
    [
        (b"", (0, False)),
        (b"\x00d", (0, False)),  # a weight and nothing behind it
        (b"\x00d\x00", (0, False)),
        (b"\x00d\x80", (0, False)),  # an ordinary member takes what it takes
        (b"\x00d\x78", (0, False)),  # bits of a newer version
        (b"\x00d\x7f", (7, False)),
        (b"\x00d\xff", (7, True)),
    ],
)
def test_a_rank_that_nobody_could_have_chosen(statement: bytes, rank: tuple[int, bool]) -> None:
    assert rank_of(bytes(PROOF_BYTES) + statement) == rank
