"""Tests of iris_py/link/proofs.py: who shares a group with whom, and from when on."""

from __future__ import annotations

import pytest

from iris_py.link import proofs as proofs_module
from iris_py.link.lanes import FRAME, GENERATION, SHARE, Lanes
from iris_py.link.proofs import CLAIM, SHARED, Proofs
from iris_security import GroupKeys, Keyring, Secret

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
KEYS, OTHER = KEYRING.cluster("cluster"), KEYRING.cluster("other")
HASH = bytes(range(32))


class Side:
    """One side of a link: what it has proved, and the keys that it holds."""

    def __init__(self, *keys: GroupKeys, initiator: bool = False, handshake_hash: bytes = HASH) -> None:
        self.lanes = Lanes()
        self.proofs = Proofs(self.lanes, initiator=initiator)
        self.proofs.begin(handshake_hash, KEYRING.primary.key_id)
        self.keys = {each.group_id: each for each in keys}

    def frames(self) -> list[tuple[int, bytes]]:
        """Take what it says."""
        data, frames = b"".join(self.lanes.take_record()), []
        while data:
            kind, length = FRAME.unpack_from(data)
            frames.append((kind, data[FRAME.size : FRAME.size + length]))
            data = data[FRAME.size + length :]
        return frames

    def receive(self, frames: list[tuple[int, bytes]]) -> list[bool]:
        """Hear what the other side says."""
        assert all(kind == SHARE for kind, _body in frames)
        return [self.proofs.receive_share(body, self.keys.get(SHARED.unpack(body)[1])) for _kind, body in frames]


def talk(one: Side, other: Side) -> None:
    """Let both hear each other until nobody says anything more."""
    for _ in range(4):
        assert all(other.receive(one.frames()))
        assert all(one.receive(other.frames()))
    assert not one.frames() + other.frames()


def test_both_share_a_group_when_each_has_proved_its_key() -> None:
    one, other = Side(KEYS, initiator=True), Side(KEYS)
    one.proofs.offer(KEYS)
    one.proofs.offer(KEYS)  # harmless
    offers = one.frames()
    assert len(offers) == 1
    assert one.proofs.shared == other.proofs.shared == set()
    assert other.receive(offers) == [True]
    assert other.proofs.shared == {KEYS.group_id}
    assert one.receive(other.frames()) == [True]
    assert one.proofs.shared == {KEYS.group_id}
    assert not one.frames()
    other.proofs.offer(KEYS)  # it has proved it already
    assert not other.frames()


def test_offers_may_cross() -> None:
    one, other = Side(KEYS, initiator=True), Side(KEYS)
    one.proofs.offer(KEYS)
    other.proofs.offer(KEYS)
    crossing, offer = one.frames(), other.frames()
    assert one.receive(offer) == other.receive(crossing) == [True]
    talk(one, other)
    assert one.proofs.shared == other.proofs.shared == {KEYS.group_id}


def test_who_lacks_the_key_offers_when_it_has_it() -> None:
    one, other = Side(KEYS, initiator=True), Side()
    one.proofs.offer(KEYS)
    assert other.receive(one.frames()) == [False]
    assert not other.frames()
    other.keys[KEYS.group_id] = KEYS
    other.proofs.offer(KEYS)
    talk(one, other)
    assert one.proofs.shared == other.proofs.shared == {KEYS.group_id}


def test_an_answer_is_right_though_the_group_was_forgotten_meanwhile() -> None:
    """Whoever answers sends bodies from then on, and the group may be used here again before they come."""
    one, other = Side(KEYS, initiator=True), Side(KEYS)
    one.proofs.offer(KEYS)
    other.receive(one.frames())
    one.keys.clear()
    assert one.receive(other.frames()) == [True]
    assert one.proofs.shared == {KEYS.group_id}


def test_a_forgotten_group_is_not_shared_by_an_offer() -> None:
    """It could not be answered, and the peer would refuse what comes once the group is used again."""
    one, other = Side(initiator=True), Side(KEYS)
    one.proofs.offer(KEYS)  # while it had the group; the peer had not yet
    one.frames()
    other.proofs.offer(KEYS)
    assert one.receive(other.frames()) == [False]
    assert one.proofs.shared == other.proofs.shared == set()


@pytest.mark.parametrize("is_answer", [False, True])
def test_a_proof_is_of_one_side_of_one_link_and_of_one_group(is_answer: bool) -> None:
    def share(keys: GroupKeys, proof: bytes) -> list[tuple[int, bytes]]:
        return [(SHARE, SHARED.pack(is_answer, keys.group_id, proof))]

    side = Side(KEYS, OTHER)
    side.proofs.offer(KEYS)
    side.proofs.offer(OTHER)
    mine = side.frames()
    wrong = [
        share(KEYS, KEYS.prove(HASH, initiator=False)),  # its own, said back to it
        share(KEYS, KEYS.prove(HASH[::-1], initiator=True)),  # of another link
        share(KEYS, OTHER.prove(HASH, initiator=True)),  # of another group
        share(OTHER, KEYS.prove(HASH, initiator=True)),
        share(KEYS, bytes(16)),
        [(SHARE, bytes((is_answer,)) + body[1:]) for _kind, body in mine],
    ]
    for frames in wrong:
        assert not any(side.receive(frames))
    assert side.proofs.shared == set()
    assert not side.frames()
    assert side.receive(share(KEYS, KEYS.prove(HASH, initiator=True))) == [True]
    assert side.proofs.shared == {KEYS.group_id}


def test_an_answer_that_nobody_asked_for_counts_for_nothing() -> None:
    """Bodies that come next would be accepted, and this side has not proved anything."""
    side = Side(KEYS)
    assert side.receive([(SHARE, SHARED.pack(True, KEYS.group_id, KEYS.prove(HASH, initiator=True)))]) == [False]
    assert side.proofs.shared == set()


def test_an_offer_is_answered_once() -> None:
    """Or a peer that offers and never reads would fill the lane with answers."""
    side = Side(KEYS)
    offer = [(SHARE, SHARED.pack(False, KEYS.group_id, KEYS.prove(HASH, initiator=True)))]
    assert side.receive(offer * 1000) == [True] * 1000
    assert len(side.frames()) == 1


def test_there_are_only_so_many_groups_and_the_rest_stays_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs_module, "GROUPS_PROVEN_MAX", 3)
    keys = [KEYRING.cluster(f"cluster {number}") for number in range(6)]
    one, other = Side(*keys, initiator=True), Side(*keys)
    for each in keys[:2]:
        one.proofs.offer(each)
    for each in keys[2:4]:
        other.proofs.offer(each)
    talk_one, talk_other = one.frames(), other.frames()
    assert other.receive(talk_one) == [True, False]  # the second would be its fourth
    assert one.receive(talk_other) == [True, False]
    assert all(one.receive(other.frames()))
    assert all(other.receive(one.frames()))
    for each in keys:
        one.proofs.offer(each)
        other.proofs.offer(each)
    assert not one.frames() + other.frames()
    assert one.proofs.shared == other.proofs.shared == {keys[0].group_id, keys[2].group_id}


def test_generations_are_proved_for_this_link() -> None:
    newer = Keyring(Secret(b"n" * 32), network="test").primary
    one, other, third = Side(initiator=True), Side(), Side(handshake_hash=HASH[::-1])
    one.proofs.claim(newer)
    ((kind, body),) = one.frames()
    assert kind == GENERATION
    is_answer, key_id, proof = CLAIM.unpack(body)
    assert (is_answer, key_id) == (False, newer.key_id)
    assert not third.proofs.accept_claim(newer, proof)
    assert not one.proofs.accept_claim(newer, proof)
    assert other.proofs.accept_claim(newer, proof)
    assert other.proofs.generations == {KEYRING.primary.key_id, newer.key_id}
    assert one.proofs.generations == third.proofs.generations == {KEYRING.primary.key_id}
