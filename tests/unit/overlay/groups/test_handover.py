"""Directories on their way from one root to the next: nobody is answered by who was not told yet."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from iris_overlay.events import Counters, Departed
from iris_overlay.groups.config import GroupConfig
from iris_overlay.groups.io import HandoverDone, SendTo
from iris_overlay.groups.layer import GroupLayer
from iris_overlay.groups.messages import (
    Applied,
    Copied,
    Copy,
    Drop,
    GroupMessage,
    GroupRegistration,
    MemberRecord,
    Register,
    View,
    Watch,
    decode_group_message,
    encode_group_message,
)
from iris_overlay.groups.root_store import UNSURE_S
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.testing.cores.signer import TrustingSigner
from tests.unit.overlay.stub_ring import StubRing

if TYPE_CHECKING:
    from collections.abc import Sequence

# In the order of their distance to the group: each is the heir of the one behind it.
G = GroupId(bytes([40]) * 16)
NEAREST, LOCAL, OLD, FAR, MEMBER = (NodeInfo(NodeId(bytes([40 + step]) * 16), ()) for step in range(1, 6))
RECORD = MemberRecord(MEMBER, b"x", 1)
CONFIG = GroupConfig()


class Fixture:
    """A layer on a ring of the test's making."""

    def __init__(self, neighbours: Sequence[NodeInfo] = (), *, is_root: bool = True, is_active: bool = True) -> None:
        self.ring = StubRing()
        self.ring.neighbours = list(neighbours)
        self.ring.is_mine = is_root
        self.layer = GroupLayer(LOCAL, CONFIG, random.Random(1), self.ring, Counters(), TrustingSigner(LOCAL.id))
        if is_active:
            self.layer.activated(0.0)

    def receive(self, message: GroupMessage, source: NodeInfo, now: float = 1.0) -> None:
        self.layer.received(source, encode_group_message(message), now)

    def ask(self, source: NodeInfo, now: float = 1.0) -> None:
        self.layer.delivered(G, encode_group_message(Watch(source, 0, [(G, 0, b"")])), source, (source.id,), now)

    def sent(self) -> list[GroupMessage]:
        outputs = self.layer.outputs_to_send()
        return [decode_group_message(output.payload) for output in outputs if not isinstance(output, HandoverDone)]

    def sent_to(self, peer: NodeInfo) -> list[GroupMessage]:
        outputs = self.layer.outputs_to_send()
        direct = [output for output in outputs if isinstance(output, SendTo)]
        return [decode_group_message(output.payload) for output in direct if output.info == peer]


def directory(*members: MemberRecord, version: int = 9, is_passed_on: bool = False) -> Copy:
    return Copy(G, 0, version, True, True, list(members), [], [], [], is_passed_on)


def views(messages: list[GroupMessage]) -> list[list[MemberRecord]]:
    return [message.members for message in messages if isinstance(message, View)]


# -- empty is not unknown


def test_a_new_root_that_knows_nothing_asks_its_neighbours_before_it_says_so() -> None:
    fixture = Fixture([OLD, FAR])
    fixture.ask(MEMBER)
    asked = fixture.sent()
    assert [type(message) for message in asked] == [Copy, Copy]
    version = asked[0].version  # type: ignore[union-attr]
    fixture.receive(Copied(G, version), OLD)
    assert views(fixture.sent()) == []
    fixture.receive(Copied(G, version), FAR)
    assert views(fixture.sent()) == [[]]


def test_what_a_neighbour_knows_is_in_the_first_answer() -> None:
    fixture = Fixture([OLD])
    fixture.ask(FAR)
    (asked,) = fixture.sent()
    assert isinstance(asked, Copy)
    fixture.receive(directory(RECORD, is_passed_on=True), OLD)
    fixture.receive(Copied(G, asked.version), OLD)
    told = fixture.sent()
    while not views(told):  # the merged directory is a new epoch, which the neighbour acknowledges as well
        copies = [message for message in told if isinstance(message, Copy)]
        fixture.receive(Copied(G, copies[-1].version), OLD)
        told = fixture.sent()
    assert views(told) == [[RECORD]]


def test_neighbours_that_do_not_answer_are_waited_for_within_a_bound() -> None:
    fixture = Fixture([OLD])
    fixture.ask(FAR)
    fixture.layer.handle_timeout(1.0 + CONFIG.told_timeout_s * 0.9)
    assert views(fixture.sent()) == []
    fixture.layer.handle_timeout(1.0 + CONFIG.told_timeout_s)
    assert views(fixture.sent()) == [[]]


def test_a_neighbour_that_dies_is_not_waited_for() -> None:
    fixture = Fixture([OLD])
    fixture.ask(FAR)
    fixture.sent()
    fixture.layer.peer_dead(OLD.id, 1.1)
    assert views(fixture.sent()) == [[]]


def test_at_rest_nobody_is_asked() -> None:
    fixture = Fixture([OLD])
    fixture.ask(FAR, now=UNSURE_S)
    assert views(fixture.sent()) == [[]]
    fixture.layer.leaves_changed([NEAREST], [], 10.0)
    fixture.layer.delivered(
        bytes(16), encode_group_message(Watch(FAR, 0, [(GroupId(bytes(16)), 0, b"")])), FAR, (FAR.id,), 10.0 + UNSURE_S / 2
    )
    assert views(fixture.sent()) == []


def test_a_root_that_has_a_directory_answers_at_once() -> None:
    fixture = Fixture([OLD])
    fixture.receive(directory(RECORD), OLD)
    fixture.sent()
    fixture.ask(FAR)
    assert views(fixture.sent()) == [[RECORD]]


@pytest.mark.parametrize("nearest", [NEAREST, FAR])
def test_a_neighbour_says_what_it_knows_before_it_acknowledges(nearest: NodeInfo) -> None:
    """Also if it believes another node to be the root, which may be dead."""
    fixture = Fixture([nearest], is_root=False)
    fixture.receive(directory(RECORD), FAR)
    fixture.sent()
    fixture.receive(directory(version=2), OLD)
    known, acknowledged = fixture.sent_to(OLD)
    assert isinstance(known, Copy)
    assert known.members == [RECORD]
    assert acknowledged == Copied(G, 2)


def test_what_a_root_does_not_know_is_not_dropped_for_its_sake() -> None:
    fixture = Fixture([FAR], is_root=False)
    fixture.receive(directory(RECORD), FAR)
    fixture.receive(directory(version=2), OLD)
    fixture.receive(Drop(G), OLD)
    assert fixture.layer.table_sizes()["copied_members"] == 1
    fixture.receive(directory(RECORD, version=3), OLD)  # it knows now
    fixture.receive(Drop(G), OLD)
    assert fixture.layer.table_sizes()["copies"] == 0


# -- handing over to a node that joins


def test_a_joining_node_acknowledges_a_directory_when_it_answers_for_it() -> None:
    fixture = Fixture([OLD], is_root=False, is_active=False)
    fixture.receive(directory(RECORD), OLD)
    assert fixture.sent() == []
    fixture.ring.is_mine = True
    fixture.layer.activated(2.0)
    assert Copied(G, 9) in fixture.sent_to(OLD)
    assert fixture.layer.directory_of(G) == {MEMBER.id: b"x"}


def test_it_passes_the_directory_on_if_another_one_is_nearer_by_then() -> None:
    fixture = Fixture([OLD], is_root=False, is_active=False)
    fixture.receive(directory(RECORD), OLD)
    fixture.ring.neighbours = [NEAREST, OLD]
    fixture.layer.activated(2.0)
    passed, acknowledged = fixture.sent()
    assert isinstance(passed, Copy)
    assert passed.members == [RECORD]
    assert acknowledged == Copied(G, 9)


def test_copies_are_acknowledged_by_nodes_that_join_too() -> None:
    """A member that registers does not wait until they are active."""
    fixture = Fixture([NEAREST], is_root=False, is_active=False)
    fixture.receive(directory(RECORD), NEAREST)
    assert fixture.sent() == [Copied(G, 9)]


def test_the_dead_get_no_acknowledgement() -> None:
    fixture = Fixture([OLD], is_root=False, is_active=False)
    fixture.receive(directory(RECORD), OLD)
    fixture.ring.is_mine = True
    fixture.layer.peer_dead(OLD.id, 1.5)
    fixture.layer.activated(2.0)
    assert Copied(G, 9) not in fixture.sent()


def test_who_leaves_waits_until_its_directories_are_taken_over() -> None:
    fixture = Fixture()
    fixture.receive(Register(MEMBER, [GroupRegistration(G, b"x", 1)]), MEMBER)
    assert fixture.sent() == [Applied(LOCAL, [(G, 1, 1, True)])]
    fixture.ring.is_mine = False
    fixture.ring.neighbours = [NEAREST]
    fixture.layer.handover_wanted(NEAREST, 2.0)
    (handed_over,) = fixture.sent()
    assert isinstance(handed_over, Copy)
    fixture.layer.leave(2.0)
    assert fixture.layer.events_received() == []
    fixture.receive(Copied(G, handed_over.version), NEAREST, now=2.1)
    assert fixture.layer.events_received() == [Departed()]


def test_but_not_for_longer_than_the_bound() -> None:
    fixture = Fixture()
    fixture.receive(Register(MEMBER, [GroupRegistration(G, b"x", 1)]), MEMBER)
    fixture.ring.is_mine = False
    fixture.ring.neighbours = [NEAREST]
    fixture.layer.handover_wanted(NEAREST, 2.0)
    fixture.layer.leave(2.0)
    fixture.layer.handle_timeout(2.0 + CONFIG.told_timeout_s)
    assert fixture.layer.events_received() == [Departed()]


def test_directories_that_come_early_are_acknowledged_later_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that lies hands over one after the other, and takes it back. What there is no room for is not acknowledged."""
    monkeypatch.setattr("iris_overlay.groups.handover.GROUPS_MAX", 2)
    fixture = Fixture([NEAREST, OLD], is_root=False, is_active=False)
    groups = [GroupId(bytes([40, number]) + bytes(14)) for number in range(5)]
    for group in groups:
        fixture.receive(Copy(group, 0, 9, True, True, [RECORD], [], [], []), FAR)
        fixture.receive(Drop(group), FAR)
    assert fixture.sent() == []
    fixture.layer.activated(2.0)
    assert [message.group for message in fixture.sent() if isinstance(message, Copied)] == groups[:2]
