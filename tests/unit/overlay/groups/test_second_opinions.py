"""Second opinions: what is asked, what is believed, and for how long."""

from __future__ import annotations

import random

import msgspec
import pytest

from iris_overlay.events import Counters, GroupMember, ViewChanged
from iris_overlay.groups.io import Outbox
from iris_overlay.groups.messages import Look, MemberRecord, Seen, member_part, user_part
from iris_overlay.groups.second_opinions import LOOK_S, LOOKED_S, SEEN_S, SETTLED_S, Looks
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.testing.cores.signer import NamedSigner
from tests.unit.overlay.stub_ring import StubRing

LOCAL, ROOT, HEIR, ONE, TWO = (NodeInfo(NodeId(name.ljust(16)), ("192.0.2.1:1",)) for name in (b"l", b"r", b"h", b"1", b"2"))
G, H = GroupId(b"g" * 16), GroupId(b"h" * 16)
SIGNER = NamedSigner(LOCAL.id)
NOBODY = ViewChanged(G, {}, 0, True)


def record(info: NodeInfo, *, is_forged: bool = False) -> MemberRecord:
    bare = MemberRecord(info, b"attributes", 1)
    return msgspec.structs.replace(bare, permit=b"" if is_forged else SIGNER.permit(G, member_part(bare, info.id)))


def members(*infos: NodeInfo) -> dict[NodeId, GroupMember]:
    return {info.id: GroupMember(info, b"attributes") for info in infos}


class Fixture:
    """The second opinions of a node whose root says that nobody is there."""

    def __init__(self) -> None:
        self.outbox, self.ring, self.counters = Outbox(), StubRing(), Counters()
        self.ring.neighbours = [ROOT, HEIR]
        self.looks = Looks(LOCAL, random.Random(1), self.ring, self.outbox, self.counters, SIGNER)
        self.looks.doubt(G)

    def question(self) -> int:
        """Take the one question that was asked; returns its number."""
        ((key, around, look),) = self.outbox.detours
        self.outbox.detours = []
        assert isinstance(look, Look)
        assert (key, around, look.info, look.group) == (G, ROOT.id, LOCAL, G)
        assert look.permit == SIGNER.permit(G, user_part(LOCAL.id))
        return look.number

    def answer(self, number: int, *records: MemberRecord, source: NodeInfo = HEIR, now: float = 1.1) -> list[ViewChanged]:
        self.looks.seen(source.id, Seen(G, number, list(records)), now)
        return self.looks.views_changed()

    def judge(self, now: float = 1.0, event: ViewChanged = NOBODY) -> ViewChanged:
        return self.looks.judge(event, ROOT, now)


def judged(*infos: NodeInfo, is_known: bool = True) -> ViewChanged:
    return ViewChanged(G, members(*infos), len(infos), True, is_known, True)


def test_members_and_what_nobody_doubts_are_believed_at_once() -> None:
    fixture = Fixture()
    view = ViewChanged(G, members(ONE), 1, True)
    assert fixture.judge(event=view) is view
    other = ViewChanged(H, {}, 0, True)
    assert fixture.judge(event=other) is other
    fixture.looks.forget(G)
    assert fixture.judge() is NOBODY
    assert not fixture.outbox.detours


def test_that_nobody_is_there_is_believed_when_another_keeper_says_so() -> None:
    fixture = Fixture()
    assert fixture.judge() == judged(is_known=False)
    assert fixture.looks.views_changed() == []
    assert fixture.answer(fixture.question()) == [judged()]
    assert fixture.looks.deadline() is None


def test_members_that_another_keeper_names_count_if_they_have_permits() -> None:
    fixture = Fixture()
    fixture.judge()
    assert fixture.answer(fixture.question(), record(ONE), record(TWO, is_forged=True)) == [judged(ONE)]
    assert fixture.counters.permits_invalid == 1
    assert fixture.judge(1.2) == judged(ONE)  # the root says so again
    view = ViewChanged(G, members(TWO), 1, True)
    assert fixture.judge(1.3, view) is view
    assert fixture.judge(1.4) == judged(is_known=False)  # from the beginning
    assert fixture.answer(fixture.question(), record(ONE), now=1.5) == [judged(ONE)]


def test_a_keeper_that_says_nothing_leaves_the_word_of_the_root() -> None:
    fixture = Fixture()
    fixture.judge()
    number = fixture.question()
    assert fixture.looks.deadline() == 1.0 + LOOK_S
    fixture.looks.handle_timeout(1.0 + LOOK_S)
    assert fixture.looks.views_changed() == [judged()]
    assert fixture.answer(number, record(ONE)) == []  # too late


def test_members_that_the_root_does_not_name_are_asked_for_again_and_again() -> None:
    fixture = Fixture()
    fixture.judge()
    fixture.answer(fixture.question(), record(ONE))
    assert fixture.looks.deadline() == 1.1 + SEEN_S
    fixture.looks.handle_timeout(1.1 + SEEN_S)
    assert fixture.answer(fixture.question(), record(ONE), now=7.0) == []
    fixture.looks.handle_timeout(7.0 + SEEN_S)
    assert fixture.answer(fixture.question(), now=12.1) == [judged()]
    assert fixture.looks.deadline() is None


def test_who_has_just_gone_is_believed_to_be_there_only_when_it_is_said_again() -> None:
    fixture = Fixture()
    fixture.judge(event=ViewChanged(G, members(ONE), 1, True))
    assert fixture.judge(2.0) == judged(is_known=False)
    assert fixture.answer(fixture.question(), record(ONE), now=2.1) == []
    fixture.looks.use(G, 2.2)
    assert not fixture.outbox.detours
    assert fixture.judge(2.3) == judged(is_known=False)
    assert fixture.looks.deadline() == 2.0 + SETTLED_S
    fixture.looks.handle_timeout(2.0 + SETTLED_S)
    assert fixture.answer(fixture.question(), record(ONE), now=2.6) == [judged(ONE)]


def test_only_who_was_asked_can_answer_and_never_the_root() -> None:
    fixture = Fixture()
    fixture.judge()
    number = fixture.question()
    assert fixture.answer(number + 1) == []
    assert fixture.answer(number, source=ROOT) == []
    fixture.looks.seen(HEIR.id, Seen(H, number, []), 1.1)
    assert fixture.looks.views_changed() == []
    assert fixture.answer(number) == [judged()]
    assert fixture.answer(number, record(ONE)) == []  # once


@pytest.mark.parametrize("found", [(), (ONE,)])
def test_each_use_looks_again_after_a_while(found: tuple[NodeInfo, ...]) -> None:
    fixture = Fixture()
    fixture.looks.use(G, 0.5)  # nothing is known yet
    fixture.judge()
    fixture.answer(fixture.question(), *map(record, found))
    fixture.looks.use(G, 1.0 + 0.9 * LOOKED_S)
    assert not fixture.outbox.detours
    fixture.looks.use(G, 1.0 + LOOKED_S)
    assert fixture.looks.views_changed() == ([] if found else [judged(is_known=False)])
    number = fixture.question()
    fixture.looks.use(G, 1.5 + LOOKED_S)  # it is being asked
    assert not fixture.outbox.detours
    assert fixture.answer(number, *map(record, found)) == ([] if found else [judged()])
    fixture.looks.use(G, 9.0)
    assert fixture.answer(fixture.question(), record(TWO)) == [judged(TWO)]


def test_where_there_is_no_other_node_the_root_is_believed() -> None:
    fixture = Fixture()
    for neighbours in ([], [ROOT]):
        fixture.ring.neighbours = neighbours
        assert fixture.judge(float(len(neighbours) * 5)) == judged()
    assert fixture.looks.judge(NOBODY, LOCAL, 20.0) is NOBODY  # this node is the root
    assert not fixture.outbox.detours


def test_members_that_die_are_gone_and_another_look_is_taken_when_all_have() -> None:
    fixture = Fixture()
    fixture.judge()
    fixture.answer(fixture.question(), record(ONE), record(TWO))
    fixture.looks.peer_dead(ONE.id, 5.0)
    assert fixture.looks.views_changed() == [judged(TWO)]
    fixture.looks.peer_dead(ONE.id, 5.0)
    assert fixture.looks.views_changed() == []
    fixture.looks.peer_dead(TWO.id, 5.0)
    assert fixture.looks.views_changed() == [judged(is_known=False)]
    assert fixture.answer(fixture.question()) == [judged()]


def test_a_group_that_is_forgotten_says_nothing_more() -> None:
    fixture = Fixture()
    fixture.judge()
    number = fixture.question()
    fixture.looks.forget(G)
    assert fixture.answer(number, record(ONE)) == []
    fixture.looks.handle_timeout(9.0)
    assert fixture.looks.views_changed() == []
