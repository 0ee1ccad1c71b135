"""The groups layer of one node: errors of the owner, bytes of peers, and what a root does without a network."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec
import pytest

from iris_overlay.errors import InfoError, StateError, TooManyGroupsError
from iris_overlay.events import (
    Cast,
    CastsTaken,
    Counters,
    Departed,
    GroupJoined,
    GroupLeft,
    GroupMember,
    ProtocolViolated,
    ViewChanged,
)
from iris_overlay.groups.config import GroupConfig
from iris_overlay.groups.handover import ANSWER_S
from iris_overlay.groups.io import AnswerTo, HandoverDone, RouteTo, SendTo
from iris_overlay.groups.layer import GroupLayer
from iris_overlay.groups.memberships import ROUTED_MAX
from iris_overlay.groups.messages import (
    BATCH_MAX,
    CAST_BYTES_MAX,
    SAMPLE_MAX,
    Accuse,
    Accused,
    Applied,
    CastDown,
    CastUp,
    Change,
    Check,
    Children,
    Copied,
    Copy,
    Doubt,
    Entrust,
    Forgotten,
    GroupMessage,
    GroupRegistration,
    Look,
    MemberRecord,
    Moved,
    Register,
    Seen,
    Told,
    Unregister,
    Unwatch,
    View,
    Watch,
    cast_part,
    decode_group_message,
    encode_group_message,
    member_part,
    user_part,
)
from iris_overlay.groups.root_store import RECHECK_S, REVIEW_S, WOKEN_S
from iris_overlay.groups.second_opinions import LOOK_S
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import GROUPS_PER_NODE_MAX, NodeInfo
from iris_py.testing.cores.signer import NamedSigner, TrustingSigner
from tests.unit.overlay.stub_ring import StubRing

if TYPE_CHECKING:
    from iris_overlay.environment import Signer

LOCAL = NodeInfo(NodeId(b"local".ljust(16)), ("192.0.2.1:1",))
PEER = NodeInfo(NodeId(b"peer".ljust(16)), ("192.0.2.2:1",))
OTHER = NodeInfo(NodeId(b"other".ljust(16)), ("192.0.2.3:1",))
THIRD = NodeInfo(NodeId(b"third".ljust(16)), ("192.0.2.4:1",))
G, H = GroupId(b"g" * 16), GroupId(b"h" * 16)


#: The largest whole view in the layers here: as large as a sample, so that groups stay small.
BOUND = SAMPLE_MAX


class Fixture:
    """A layer on a ring of the test's making."""

    def __init__(self, local: NodeInfo = LOCAL, signer: Signer | None = None) -> None:
        self.ring = StubRing()
        self.counters = Counters()
        self.layer = GroupLayer(
            local,
            GroupConfig(view_members_max=BOUND),
            random.Random(1),
            self.ring,
            self.counters,
            signer or TrustingSigner(local.id),
        )
        self.layer.activated(0.0)

    def receive(self, message: GroupMessage, source: NodeInfo = PEER, now: float = 1.0) -> None:
        self.layer.received(source, encode_group_message(message), now)

    def sent(self) -> list[tuple[object, GroupMessage]]:
        targets: list[tuple[object, GroupMessage]] = []
        for output in self.layer.outputs_to_send():
            assert not isinstance(output, HandoverDone)
            message = decode_group_message(output.payload)
            if isinstance(output, SendTo):
                targets.append((output.info, message))
            elif isinstance(output, RouteTo):
                targets.append((output.key, message))
            else:
                assert isinstance(output, AnswerTo)
                targets.append((output.path, message))
        return targets


def register(info: NodeInfo, stamp: int = 1, attributes: bytes = b"") -> Register:
    return Register(info, [GroupRegistration(G, attributes, stamp)])


def test_a_root_that_is_member_and_watcher_sends_nothing() -> None:
    fixture = Fixture()
    layer = fixture.layer
    layer.watch_group(G, 0.0)
    assert layer.events_received() == [ViewChanged(G, {}, 0)]
    layer.join_group(G, b"x", 0.0)
    events = layer.events_received()
    assert [type(event) for event in events] == [ViewChanged, GroupJoined]
    layer.cast(G, b"payload", 0.0)
    assert layer.events_received() == [Cast(G, LOCAL.id, b"payload"), CastsTaken(G)]
    layer.leave_group(G, 0.0)
    assert [type(event) for event in layer.events_received()] == [ViewChanged, GroupLeft]
    assert layer.outputs_to_send() == []
    layer.leave(0.0)
    assert layer.events_received() == [Departed()]


def test_nothing_in_use_means_no_timer() -> None:
    fixture = Fixture()
    assert fixture.layer.deadline() is None
    fixture.layer.handle_timeout(5.0)
    fixture.layer.leaves_changed([PEER], [], 5.0)
    fixture.layer.peer_dead(PEER.id, 5.0)
    fixture.layer.link_lost(PEER.id, 5.0)
    assert fixture.layer.deadline() is None
    assert fixture.sent() == []


def test_errors_of_the_owner_raise() -> None:
    layer = Fixture().layer
    with pytest.raises(InfoError):
        layer.join_group(GroupId(b"short"), b"", 0.0)
    with pytest.raises(InfoError):
        layer.watch_group(GroupId(b"short"), 0.0)
    with pytest.raises(InfoError):
        layer.cast(G, bytes(CAST_BYTES_MAX + 1), 0.0)
    for number in range(GROUPS_PER_NODE_MAX):
        layer.join_group(GroupId(number.to_bytes(16, "big")), b"", 0.0)
    with pytest.raises(TooManyGroupsError):
        layer.join_group(G, b"", 0.0)
    layer.leave(0.0)
    layer.leave(0.0)
    with pytest.raises(StateError):
        layer.join_group(G, b"", 0.0)


def test_malformed_messages_are_violations() -> None:
    fixture = Fixture()
    fixture.layer.received(PEER, b"\xff", 0.0)
    fixture.layer.delivered(G, b"", PEER, (PEER.id,), 0.0)
    events = fixture.layer.events_received()
    assert [type(event) for event in events] == [ProtocolViolated] * 2
    assert fixture.counters.messages_invalid == 2


def test_a_watch_is_answered_along_its_path_and_changes_are_sent_directly() -> None:
    fixture = Fixture()
    watch = encode_group_message(Watch(PEER, 0, [(G, 0, b"")]))
    fixture.layer.delivered(G, watch, PEER, (PEER.id, OTHER.id), 0.0)
    ((path, view),) = fixture.sent()
    assert path == (PEER.id, OTHER.id)
    assert isinstance(view, View)
    assert view.members == []
    fixture.receive(register(OTHER), OTHER)
    assert fixture.sent() == []  # The view is under way; nothing overtakes it.
    fixture.receive(Told(G, view.version))
    ((target, change),) = fixture.sent()
    assert target == PEER
    assert isinstance(change, Change)
    assert (change.base, change.members) == (view.version, [MemberRecord(OTHER, b"", 1)])
    fixture.receive(Told(G, change.version))
    assert fixture.sent() == [(OTHER, Applied(LOCAL, [(G, 1, 1, True)]))]
    assert fixture.layer.needs(PEER.id)


def test_a_silent_watcher_holds_up_a_join_for_the_bound() -> None:
    fixture = Fixture()
    fixture.receive(Watch(PEER, 0, [(G, 0, b"")]))
    fixture.receive(register(OTHER), OTHER, now=2.0)
    fixture.sent()
    deadline = fixture.layer.deadline()
    while deadline is not None and deadline <= 3.0:
        fixture.layer.handle_timeout(deadline)
        deadline = fixture.layer.deadline()
    assert (OTHER, Applied(LOCAL, [(G, 1, 1, True)])) in fixture.sent()
    assert fixture.counters.changes_unconfirmed == 1
    for second in range(3, 80):
        fixture.layer.handle_timeout(float(second))
    assert not fixture.layer.needs(PEER.id)


def test_whoever_asks_a_node_that_is_not_the_root_is_told_so() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    for message in (register(OTHER), Unregister(OTHER, [(G, 1)]), Watch(OTHER, 0, [(G, 0, b"")]), CastUp(OTHER, G, 0, 0, b"x")):
        fixture.receive(message, OTHER)
        assert fixture.sent() == [(OTHER, Moved([G]))]
    assert fixture.layer.directory_of(G) is None


def test_many_groups_that_moved_are_told_in_parts() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    groups = [GroupId(number.to_bytes(16, "big")) for number in range(BATCH_MAX)]
    fixture.receive(Register(OTHER, [GroupRegistration(group, b"", 1) for group in groups]), OTHER)
    assert fixture.sent() == [(OTHER, Moved(groups))]


def test_an_accusation_for_another_root_is_passed_on() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.receive(Accuse(OTHER.id, 1, G))
    assert fixture.sent() == [(G, Accuse(OTHER.id, 1, G))]


@pytest.mark.parametrize(
    "message",
    [
        register(OTHER),
        Unregister(OTHER, [(G, 1)]),
        Watch(OTHER, 0, [(G, 0, b"")]),
        Unwatch(OTHER.id, [G]),
        CastUp(OTHER, G, 0, 0, b"x"),
        Applied(OTHER, [(G, 1, 0, False)]),
        Check(OTHER, Accuse(THIRD.id, 1, G)),
        View(OTHER, G, 9, 0, True, []),
        Children(OTHER, G, 9, [THIRD]),
    ],
    ids=lambda message: type(message).__name__,
)
@pytest.mark.parametrize("is_routed", [False, True])
def test_nobody_speaks_in_the_name_of_another_node(message: GroupMessage, is_routed: bool) -> None:
    fixture = Fixture()
    fixture.layer.join_group(G, b"", 0.0)
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(Watch(OTHER, 0, [(G, 0, b"")]), OTHER)
    fixture.layer.events_received()
    before = fixture.sent(), fixture.layer.directory_of(G), fixture.layer.watchers_of(G), fixture.layer.table_sizes()
    if is_routed:
        fixture.layer.delivered(G, encode_group_message(message), PEER, (PEER.id,), 1.0)
    else:
        fixture.receive(message)
    assert fixture.layer.events_received() == [ProtocolViolated(PEER.id, "a message in the name of another node")]
    after = fixture.sent(), fixture.layer.directory_of(G), fixture.layer.watchers_of(G), fixture.layer.table_sizes()
    assert after == ([], *before[1:])
    assert fixture.counters.messages_invalid == 1


def test_a_member_whose_root_moved_asks_through_the_ring() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.layer.join_group(G, b"", 0.0)
    fixture.layer.watch_group(G, 0.0)
    fixture.receive(Applied(PEER, [(G, 1, 1, True)]))
    fixture.receive(View(PEER, G, 5, 1, True, [MemberRecord(LOCAL, b"", 1)]))
    fixture.sent()
    fixture.layer.cast(G, b"x", 1.0)
    cast = CastUp(LOCAL, G, 0, 0, b"x", NamedSigner(LOCAL.id).sign(cast_part(G, 0, 1000, b"x")), at=1000)
    assert fixture.sent() == [(PEER, cast)]
    fixture.receive(Moved([G, H]), OTHER)
    assert fixture.sent() == [], "it is not the root that was asked"
    fixture.receive(Moved([G, H]))
    fixture.layer.handle_timeout(1.0)
    routed = [register(LOCAL), Watch(LOCAL, 0, [(G, 0, b"")]), cast]
    assert sorted(fixture.sent(), key=str) == sorted(((G, message) for message in routed), key=str)
    fixture.receive(Moved([G, H]))
    assert fixture.sent() == [], "nobody is made to ask again and again"


def test_copies_are_kept_at_two_neighbours_and_joins_wait_for_them() -> None:
    fixture = Fixture()
    fixture.ring.neighbours = [PEER, OTHER]
    member = NodeInfo(NodeId(b"member".ljust(16)), ())
    fixture.receive(register(member), member)
    sent = fixture.sent()
    assert [target for target, _ in sent] == [PEER, OTHER]
    assert all(isinstance(copy, Copy) and len(copy.members) == 1 for _, copy in sent)
    for peer, copy in zip((PEER, OTHER), (copy for _, copy in sent), strict=True):
        assert isinstance(copy, Copy)
        assert fixture.sent() == []
        fixture.receive(Copied(G, copy.version), peer)
    assert fixture.sent() == [(member, Applied(LOCAL, [(G, 1, 1, True)]))]


def test_a_copy_becomes_the_directory_when_the_root_dies() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    record = MemberRecord(OTHER, b"x", 1)
    fixture.receive(Copy(G, 0, 9, True, True, [record], [], [OTHER], []))
    assert fixture.sent() == [(PEER, Copied(G, 9))]
    fixture.ring.is_mine = True
    fixture.layer.peer_dead(PEER.id, 2.0)
    fixture.layer.leaves_changed([], [PEER.id], 2.0)
    assert fixture.layer.directory_of(G) == {OTHER.id: b"x"}
    ((target, view),) = fixture.sent()
    assert target == OTHER
    assert isinstance(view, View)
    assert view.version >> 32 == 1
    assert view.members == [record]
    # The copy may not know that a member left.
    fixture.receive(Told(G, view.version), OTHER, now=2.1)
    fixture.sent()
    # The ring of this test takes the question to this node, which is not the member: that one is gone.
    fixture.layer.handle_timeout(2.0 + REVIEW_S)
    assert fixture.layer.directory_of(G) == {}


def test_a_large_directory_that_is_taken_over_is_looked_through_when_it_has_become_small() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    infos = [NodeInfo(NodeId(bytes([number]) * 16), ()) for number in range(1, BOUND + 9)]
    fixture.receive(Copy(G, 0, 9, True, True, [MemberRecord(info, b"", 1) for info in infos], [], [], []))
    fixture.ring.is_mine = True
    fixture.layer.peer_dead(PEER.id, 2.0)
    fixture.layer.leaves_changed([], [PEER.id], 2.0)
    for info in infos[10:]:  # the other side of a partition, as far as this one has heard of their deaths
        fixture.receive(Accuse(info.id, 1, G), now=3.0)
    assert len(fixture.layer.directory_of(G) or {}) == 10
    fixture.sent()
    # The ring of this test takes each question to this node, which is not the member: that one is gone.
    fixture.layer.handle_timeout(2.0 + REVIEW_S)
    assert fixture.layer.directory_of(G) == {}


def test_a_late_acknowledgement_of_a_sample_is_not_taken_for_one_of_everything() -> None:
    fixture = Fixture()
    infos = [NodeInfo(NodeId(bytes([number]) * 16), ()) for number in range(1, BOUND + 9)]
    for info in infos:
        fixture.receive(register(info), info)
    fixture.receive(Watch(PEER, 0, [(G, 0, b"")]))
    ((_, sample),) = [post for post in fixture.sent() if isinstance(post[1], View)]
    assert isinstance(sample, View)
    assert len(sample.members) == BOUND
    for info in infos[20:]:
        fixture.receive(Accuse(info.id, 1, G))
    fixture.receive(Watch(PEER, 0, [(G, 0, b"")]))  # it asks again, and is sent everything, which takes its time
    ((_, whole),) = [post for post in fixture.sent() if isinstance(post[1], View)]
    assert isinstance(whole, View)
    assert {record.info.id for record in whole.members} == {info.id for info in infos[:20]}
    fixture.receive(Accuse(infos[0].id, 1, G))
    fixture.receive(Told(G, sample.version))
    assert [post for post in fixture.sent() if isinstance(post[1], View | Change) and post[0] == PEER] == []
    fixture.receive(Told(G, whole.version))
    ((_, change),) = [post for post in fixture.sent() if isinstance(post[1], View | Change) and post[0] == PEER]
    assert isinstance(change, Change)
    assert (change.base, change.removed) == (whole.version, [infos[0].id])


def test_a_doubted_member_is_looked_for_once_more() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.ring.is_mine = False  # from now on questions go to other nodes
    fixture.sent()
    check = (OTHER.id, Check(LOCAL, Accuse(OTHER.id, 1, G)))
    for now in (2.0, 2.1):
        fixture.receive(Doubt(G, OTHER.id), now=now)
    assert [post for post in fixture.sent() if isinstance(post[1], Check)] == [check]
    fixture.layer.handle_timeout(3.0)
    assert not any(isinstance(message, Check) for _, message in fixture.sent())
    fixture.layer.handle_timeout(2.0 + RECHECK_S)
    assert [post for post in fixture.sent() if isinstance(post[1], Check)] == [check]
    fixture.layer.handle_timeout(2.0 + 3 * RECHECK_S)
    assert not any(isinstance(message, Check) for _, message in fixture.sent())


def test_a_watcher_that_was_found_dead_is_told_in_case_it_lives() -> None:
    fixture = Fixture()
    fixture.receive(Watch(PEER, 0, [(G, 0, b"")]))
    fixture.receive(register(OTHER), OTHER)
    fixture.ring.is_mine = False  # of the watcher's id
    fixture.sent()
    fixture.layer.peer_dead(PEER.id, 2.0)
    assert [post for post in fixture.sent() if isinstance(post[1], Forgotten)] == [(PEER.id, Forgotten(G))]
    fixture.layer.peer_dead(PEER.id, 3.0)
    assert not any(isinstance(message, Forgotten) for _, message in fixture.sent())


def test_a_root_that_nobody_can_dial_answers_watchers_directly() -> None:
    fixture = Fixture(NodeInfo(LOCAL.id, ()))
    fixture.layer.delivered(G, encode_group_message(Watch(PEER, 0, [(G, 0, b"")])), PEER, (PEER.id, OTHER.id), 1.0)
    ((target, view),) = fixture.sent()
    assert target == PEER, "so it dials, and there is a link whose end tells that it is gone"
    assert isinstance(view, View)


def test_a_directory_is_handed_over_before_it_is_said_to_be() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.sent()
    fixture.ring.is_mine = False
    fixture.ring.neighbours = [PEER]
    fixture.layer.handover_wanted(PEER, 2.0)
    outputs = fixture.layer.outputs_to_send()
    assert isinstance(outputs[-1], HandoverDone)
    assert isinstance(outputs[0], SendTo)
    copy = decode_group_message(outputs[0].payload)
    assert isinstance(copy, Copy)
    assert fixture.layer.directory_of(G) is None
    fixture.layer.handle_timeout(4.0)
    assert [target for target, _ in fixture.sent()] == [PEER]
    fixture.receive(Copied(G, copy.version), PEER, now=5.0)
    assert fixture.layer.table_sizes()["copies"] == 1
    assert fixture.layer.table_sizes()["directories"] == 0


def test_a_handover_ends_when_the_node_is_the_root_again() -> None:
    """The node that was to be the root is gone before it had the directory: it is not sent there again and again."""
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.ring.is_mine = False
    fixture.ring.neighbours = [PEER]
    fixture.layer.handover_wanted(PEER, 2.0)
    fixture.layer.outputs_to_send()
    fixture.ring.is_mine = True
    fixture.ring.neighbours = []
    fixture.receive(register(PEER), PEER, now=2.5)
    fixture.sent()
    directory = fixture.layer.directory_of(G)
    assert directory is not None
    assert set(directory) == {OTHER.id, PEER.id}
    for now in (4.0, 6.0, 8.0):
        fixture.layer.handle_timeout(now)
        assert [target for target, message in fixture.sent() if isinstance(message, Copy)] == []


def test_a_registration_in_the_name_of_this_node_is_ended_by_it() -> None:
    """Whoever holds the secret can say that it was; with a stamp beyond all of this node's, it must not be ended in vain."""
    fixture = Fixture()
    fixture.receive(Copy(G, 0, 1, True, True, [MemberRecord(LOCAL, b"", 1 << 40)], [], [], []), OTHER)
    assert fixture.sent() == [(OTHER, Copied(G, 1))]
    assert not fixture.layer.directory_of(G)


def test_both_halves_of_a_split_are_put_together_and_the_dead_are_asked() -> None:
    fixture = Fixture()
    ids = [NodeId(bytes([number]) * 16) for number in range(1, 4)]
    infos = [NodeInfo(node, ()) for node in ids]
    for info in infos[:2]:
        fixture.receive(register(info), info)
    fixture.receive(Accuse(ids[1], 1, G))
    fixture.layer.outputs_to_send()
    records = [MemberRecord(info, b"", 1) for info in infos[1:]]
    fixture.receive(Copy(G, 0, 9, True, True, records, [(ids[0], (1 << 32) - 1)], [], []))
    assert set(fixture.layer.directory_of(G) or {}) == {ids[0], ids[2]}
    # Who was a member here has the time to answer.
    fixture.layer.handle_timeout(1.0 + ANSWER_S)
    assert set(fixture.layer.directory_of(G) or {}) == {ids[2]}
    fixture.ring.is_mine = True
    # Both who are dead on one side only are asked; the ring of this test takes every question back to this node, which is
    # not the one that is asked for. They say that they live by a new incarnation.
    for info in infos[:2]:
        fixture.receive(register(info, stamp=1 << 32), info)
    assert set(fixture.layer.directory_of(G) or {}) == set(ids)


def test_who_answers_after_a_split_was_a_member_all_the_time() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(Copy(G, 0, 9, True, True, [], [(OTHER.id, (1 << 32) - 1)], [], []))
    fixture.receive(register(OTHER, stamp=1 << 32), OTHER)
    fixture.layer.handle_timeout(1.0 + ANSWER_S)
    assert set(fixture.layer.directory_of(G) or {}) == {OTHER.id}


def test_a_join_waits_for_watchers_that_come_from_another_root() -> None:
    fixture = Fixture()
    third = NodeInfo(NodeId(b"third".ljust(16)), ())
    fixture.receive(Watch(PEER, 0, [(G, 0, b"")]))
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(Copy(G, 0, 9, True, True, [], [], [third], []))
    told: dict[object, int] = {}
    for _ in range(4):  # What was under way, and then what changed.
        sent = fixture.sent()
        told |= {target: message.version for target, message in sent if isinstance(message, View | Change)}
        assert not any(isinstance(message, Applied) for _, message in sent)
        fixture.receive(Told(G, told[PEER]))
    fixture.receive(Told(G, told[third]), third)
    assert any(target == OTHER and isinstance(message, Applied) for target, message in fixture.sent())


def test_who_is_not_there_when_it_is_looked_for_is_accused() -> None:
    fixture = Fixture()
    accusation = Accuse(OTHER.id, 1, G)
    fixture.layer.delivered(OTHER.id, encode_group_message(Check(PEER, accusation)), PEER, (PEER.id,), 0.0)
    assert fixture.sent() == [(PEER, accusation)]
    own = Accuse(LOCAL.id, 1, G)
    fixture.layer.delivered(LOCAL.id, encode_group_message(Check(PEER, own)), PEER, (PEER.id,), 0.0)
    assert fixture.sent() == []


def test_a_node_that_stood_still_registers_anew() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.layer.join_group(G, b"", 0.0)
    fixture.receive(Applied(PEER, [(G, 1, 1, True)]))
    fixture.sent()
    fixture.layer.resume(5.0)
    # Through the ring: the root that it knew may be none any more.
    assert (G, register(LOCAL, stamp=(1 << 32) + 1)) in fixture.sent()


def test_a_node_in_many_groups_that_stood_still_asks_the_roots_that_it_knew_in_batches() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    groups = [GroupId(number.to_bytes(16, "big")) for number in range(ROUTED_MAX + 1)]
    for group in groups:
        fixture.layer.join_group(group, b"", 0.0)
    fixture.receive(Applied(PEER, [(group, stamp, 1, True) for stamp, group in enumerate(groups, 1)]))
    fixture.sent()
    fixture.layer.resume(5.0)
    ((target, message),) = fixture.sent()
    assert target == PEER
    assert isinstance(message, Register)
    assert len(message.items) == len(groups)
    # The link is dead: what was sent through it goes through the ring.
    fixture.layer.link_lost(PEER.id, 5.1)
    fixture.layer.handle_timeout(5.1)
    assert [target for target, _ in fixture.sent()] == groups


def test_a_member_that_sees_a_view_without_itself_registers_at_once_through_the_ring() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.layer.join_group(G, b"", 0.0)
    fixture.layer.watch_group(G, 0.0)
    fixture.receive(Applied(PEER, [(G, 1, 1, True)]))
    member = MemberRecord(LOCAL, b"", 1)
    fixture.receive(View(PEER, G, 1, 1, True, [member]))
    fixture.sent()
    fixture.receive(Change(G, 1, 2, 0, [], [LOCAL.id]), now=2.0)
    assert (G, register(LOCAL)) in fixture.sent()
    fixture.receive(View(PEER, G, 3, 0, True, []), now=2.1)
    assert [message for _, message in fixture.sent()] == [Told(G, 3)]  # it did so a moment ago
    fixture.receive(View(PEER, G, 4, 0, True, []), now=2.5)
    assert (G, register(LOCAL)) in fixture.sent()
    fixture.receive(View(PEER, G, 5, 1, True, [member]), now=3.0)
    assert [message for _, message in fixture.sent()] == [Told(G, 5)]
    fixture.receive(View(PEER, G, 6, BOUND + 1, True, []), now=4.0)
    assert [message for _, message in fixture.sent()] == [Told(G, 6)]  # a sample says nothing about those who are not in it


def test_what_was_told_through_a_link_that_ended_is_told_again_at_once() -> None:
    fixture = Fixture()
    fixture.layer.delivered(G, encode_group_message(Watch(PEER, 0, [(G, 0, b"")])), PEER, (PEER.id,), 0.0)
    ((_, view),) = fixture.sent()
    fixture.layer.link_lost(PEER.id, 0.1)
    assert fixture.sent() == [(PEER, view)]
    assert isinstance(view, View)
    fixture.receive(Told(G, view.version), now=0.2)
    fixture.layer.link_lost(PEER.id, 0.3)
    assert fixture.sent() == []


def test_an_accused_member_leaves_the_directory_until_it_says_that_it_lives() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(Accuse(OTHER.id, 1, G))
    assert fixture.layer.directory_of(G) == {}
    fixture.layer.outputs_to_send()
    fixture.receive(register(OTHER), OTHER)
    assert fixture.sent() == [(OTHER, Accused(OTHER.id, (1 << 32) - 1))]
    fixture.receive(register(OTHER, stamp=1 << 32), OTHER)
    assert fixture.layer.directory_of(G) == {OTHER.id: b""}
    fixture.receive(Accuse(OTHER.id, 1, G))
    assert fixture.layer.directory_of(G) == {OTHER.id: b""}


def test_soft_state_expires_and_takes_its_timers_along() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(Watch(PEER, 0, [(G, 0, b"")]))
    now = 1.0
    for _ in range(200):
        deadline = fixture.layer.deadline()
        if deadline is None:
            break
        now = deadline
        fixture.layer.handle_timeout(now)
    assert fixture.layer.deadline() is None
    assert now < 450.0
    assert set(fixture.layer.table_sizes().values()) == {0}


def test_an_accused_member_is_told_at_once() -> None:
    """It may live: then it says so, before its users have noticed that it is gone."""
    fixture = Fixture()
    fixture.ring.foreign.add(OTHER.id)
    fixture.receive(register(OTHER), OTHER)
    fixture.layer.outputs_to_send()
    fixture.receive(Accuse(OTHER.id, 1, G))
    assert fixture.sent() == [(OTHER.id, Accused(OTHER.id, (1 << 32) - 1))]
    fixture.receive(Accuse(OTHER.id, 1, G))
    assert fixture.sent() == []  # It is no member any more, and was told.


def test_an_accused_member_that_the_ring_does_not_have_yet_is_told_as_soon_as_it_does() -> None:
    """Rings merge: the root cannot reach a member, asks the ring, and the nearest node there is another one, or the root."""
    fixture = Fixture()
    accused = Accused(OTHER.id, (1 << 32) - 1)
    fixture.layer.delivered(OTHER.id, encode_group_message(accused), PEER, (PEER.id,), 1.0)
    assert fixture.sent() == []
    fixture.layer.leaves_changed([OTHER], [], 1.1)
    assert fixture.sent() == [(OTHER, accused)]


def test_a_directory_that_is_handed_to_a_node_that_is_no_root_is_passed_on() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.ring.neighbours = [OTHER]  # which is nearer to the group than the sender
    record = MemberRecord(LOCAL, b"", 1)
    fixture.receive(Copy(G, 0, 9, True, True, [record], [], [], []))
    sent = fixture.sent()
    passed = [message for target, message in sent if target == OTHER and isinstance(message, Copy)]
    assert [message.members for message in passed] == [[record]]
    assert (PEER, Copied(G, 9)) in sent
    # What only changes a copy is no directory that looks for its root.
    fixture.receive(Copy(G, 9, 10, True, True, [MemberRecord(PEER, b"", 1)], [], [], []))
    assert fixture.sent() == [(PEER, Copied(G, 10))]


def test_every_sweep_comes_after_one_period() -> None:
    """A member that renews until the third sweep expires with the first sweep after its time, not nine periods later."""
    config = GroupConfig()
    fixture = Fixture()
    now = 1.0
    until = now + 3 * config.sweep_s
    while now < until:
        fixture.receive(register(OTHER), OTHER, now)
        now += config.sweep_s / 4
        fixture.layer.handle_timeout(now)
    expires = now - config.sweep_s / 4 + config.expiry_s
    while (deadline := fixture.layer.deadline()) is not None and deadline <= expires + 1.1 * config.sweep_s:
        now = max(now, deadline)
        fixture.layer.handle_timeout(now)
        assert fixture.layer.directory_of(G) or now >= expires
    assert not fixture.layer.directory_of(G)


def test_the_samples_of_watchers_are_exchanged_only_for_those_who_came_late() -> None:
    """Each exchange costs the watcher a view; where all members are used alike, a renewal costs nothing."""
    fixture = Fixture()
    members = [NodeInfo(NodeId(number.to_bytes(16, "big")), ("192.0.2.9:1",)) for number in range(1, 2 * BOUND + 1)]
    for info in members:
        fixture.receive(register(info), info)
    watchers = [
        NodeInfo(NodeId(b"w%d" % number + bytes(14)), ("192.0.2.8:1",)) for number in range(3)
    ]  # each member is used once or twice
    fixture.sent()
    versions = {}
    for watcher in watchers:
        fixture.receive(Watch(watcher, 1, [(G, 0, b"")]), watcher)
        (view,) = (message for target, message in fixture.sent() if target == watcher and isinstance(message, View))
        assert len(view.members) == BOUND
        versions[watcher.id] = view.version
        fixture.receive(Told(G, view.version), watcher)
    for watcher in watchers:
        fixture.receive(Watch(watcher, 1, [(G, versions[watcher.id], b"")]), watcher)
        assert not [message for target, message in fixture.sent() if target == watcher and isinstance(message, View)]


# Directories of processes that stood still


def test_a_root_that_stood_still_answers_when_its_copies_have_said_what_they_know() -> None:
    fixture = Fixture()
    fixture.ring.neighbours = [PEER]
    dead = NodeInfo(NodeId(b"dead".ljust(16)), ("192.0.2.9:1",))
    for info in (OTHER, dead):
        fixture.receive(register(info), info)
    (copy,) = [message for target, message in fixture.sent() if target == PEER]
    assert isinstance(copy, Copy)
    fixture.receive(Copied(G, copy.version), now=1.1)
    while asked := [message for target, message in fixture.sent() if target == PEER]:
        assert isinstance(asked[-1], Copy)
        fixture.receive(Copied(G, asked[-1].version), now=1.2)
    fixture.layer.resume(6.0)
    ((target, asked_copy),) = fixture.sent()
    assert target == PEER
    assert isinstance(asked_copy, Copy)
    assert asked_copy.base  # nothing but a question, if the other one still has the copy
    watch = encode_group_message(Watch(OTHER, 0, [(G, 0, b"")]))
    fixture.layer.delivered(G, watch, OTHER, (OTHER.id,), 6.1)
    assert not any(isinstance(message, View) for _, message in fixture.sent())
    # The other one was the root meanwhile, and knows that a member died.
    fixture.receive(
        Copy(G, 0, 9 << 32, True, True, [MemberRecord(OTHER, b"", 1)], [(dead.id, (1 << 32) - 1)], [], [], True), now=6.2
    )
    assert set(fixture.layer.directory_of(G) or {}) == {OTHER.id}  # believed at once
    now, views = 6.3, []
    for _ in range(4):
        sent = fixture.sent()
        views += [message for _, message in sent if isinstance(message, View)]
        for message in [message for target, message in sent if target == PEER and isinstance(message, Copy)]:
            fixture.receive(Copied(G, message.version), now=now)
    assert [[record.info for record in view.members] for view in views] == [[OTHER]]


def test_a_root_that_stood_still_does_not_wait_long_for_its_copies() -> None:
    fixture = Fixture()
    fixture.ring.neighbours = [PEER]
    fixture.receive(register(OTHER), OTHER)
    fixture.layer.resume(6.0)
    fixture.receive(Watch(OTHER, 0, [(G, 0, b"")]), OTHER, now=6.1)
    assert not any(isinstance(message, View) for _, message in fixture.sent())
    fixture.layer.handle_timeout(6.0 + WOKEN_S)
    assert any(isinstance(message, View) for _, message in fixture.sent())


def test_a_copy_that_becomes_the_directory_after_a_stall_is_not_served_before_it_is_checked() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.receive(Copy(G, 0, 9, True, True, [MemberRecord(OTHER, b"", 1)], [], [OTHER], []))
    fixture.sent()
    fixture.layer.resume(5.0)
    fixture.ring.is_mine = True
    fixture.ring.neighbours = [PEER]
    fixture.layer.leaves_changed([], [PEER.id], 5.1)
    sent = [message for target, message in fixture.sent() if target in (OTHER, PEER)]
    assert [type(message) for message in sent] == [Copy]


def test_who_was_the_root_meanwhile_says_what_it_knows_before_it_acknowledges_a_copy() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(Accuse(OTHER.id, 1, G))
    fixture.sent()
    stale = Copy(G, 0, 9, True, True, [MemberRecord(OTHER, b"", 1)], [], [], [])
    fixture.receive(stale, now=2.0)
    sent = [message for target, message in fixture.sent() if target == PEER]
    told = next(message for message in sent if isinstance(message, Copy))
    assert told.is_passed_on
    assert [node for node, _ in told.removed] == [OTHER.id]
    assert isinstance(sent[-1], Copied)
    fixture.receive(Copy(G, 0, 10, True, True, [], told.removed, [], []), now=2.1)
    assert [type(message) for target, message in fixture.sent() if target == PEER] == [Copied]  # it knows by now


def test_a_cast_that_comes_before_an_earlier_one_is_sent_when_that_has_had_its_time() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.layer.outputs_to_send()
    fixture.receive(CastUp(PEER, G, 7, 6, b"later", NamedSigner(PEER.id).sign(cast_part(G, 7, 0, b"later"))), now=1.0)
    assert CastDown not in [type(message) for _to, message in fixture.sent()]
    due = 1.0 + GroupConfig().reorder_s
    deadline = fixture.layer.deadline()
    assert deadline is not None
    assert deadline <= due
    fixture.layer.handle_timeout(due)
    casts = [(to, message.payload) for to, message in fixture.sent() if isinstance(message, CastDown)]
    assert casts == [(OTHER, b"later")]


def test_those_who_do_not_renew_are_taken_out_of_the_tree_and_the_samples() -> None:
    fixture = Fixture()
    count = BOUND + 8
    for number in range(count):
        info = NodeInfo(NodeId(number.to_bytes(16, "big")), ("192.0.2.9:1",))
        fixture.receive(register(info), info, now=1.0 if number < 4 else 100.0)
    fixture.receive(Watch(PEER, 1, [(G, 0, b"")]), now=100.0)
    fixture.layer.outputs_to_send()
    root = fixture.layer._roots.roots[G]
    expires = min(member.expires for member in root.directory.members.values())
    assert expires < 100.0 + GroupConfig().renew_s * 3
    root.expire(expires)
    assert len(root.directory.members) == count - 4
    assert root._dealer is not None
    for number in range(4):
        node = NodeId(number.to_bytes(16, "big"))
        assert node not in root.tree
        assert all(node not in (watcher.sample or ()) for watcher in root.followers.members[0].values())


# What the parts tell each other


def joined(*groups: GroupId, neighbours: tuple[NodeInfo, ...] = ()) -> Fixture:
    """A member of groups whose root is the peer."""
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.ring.neighbours = list(neighbours)
    for group in groups:
        fixture.layer.join_group(group, b"", 0.0)
    fixture.receive(Applied(PEER, [(group, stamp, 1, True) for stamp, group in enumerate(groups, 1)]))
    fixture.layer.events_received()
    fixture.sent()
    return fixture


def test_neighbours_are_entrusted_when_there_is_a_ring() -> None:
    ring = StubRing()
    ring.is_mine = False
    ring.neighbours = [PEER]
    layer = GroupLayer(LOCAL, GroupConfig(), random.Random(1), ring, Counters(), TrustingSigner(LOCAL.id))
    layer.join_group(G, b"", 0.0)
    layer.resume(0.5)
    assert layer.outputs_to_send() == []
    layer.activated(1.0)
    assert SendTo(PEER, encode_group_message(Entrust(1, True, True, [G], []))) in layer.outputs_to_send()


def test_neighbours_hear_which_groups_a_node_joins_and_leaves() -> None:
    fixture = joined(G, neighbours=(OTHER,))
    fixture.layer.join_group(H, b"", 1.0)
    assert [message for target, message in fixture.sent() if target == OTHER] == [Entrust(2, True, False, [H], [])]
    fixture.layer.leave_group(G, 1.0)
    assert [message for target, message in fixture.sent() if target == OTHER] == [Entrust(3, True, False, [], [G])]
    fixture.layer.leave_group(G, 1.0)
    assert [message for target, message in fixture.sent() if target == OTHER] == []


def test_who_only_watches_entrusts_its_neighbours_too() -> None:
    fixture = joined(neighbours=(OTHER,))
    fixture.layer.watch_group(G, 1.0)
    assert (OTHER, Entrust(0, True, True, [], [])) in fixture.sent()


def test_a_node_that_was_declared_dead_says_everything_again_once() -> None:
    fixture = joined(G, neighbours=(OTHER,))
    fixture.layer.watch_group(G, 1.0)
    fixture.receive(View(PEER, G, 5, 1, True, [MemberRecord(LOCAL, b"", 1)]))
    fixture.sent()
    accused = Accused(LOCAL.id, (1 << 32) - 1)
    fixture.receive(accused, OTHER, now=2.0)
    stamp = (1 << 32) + 1
    assert fixture.sent() == [
        (PEER, register(LOCAL, stamp)),
        (OTHER, Entrust(stamp, True, True, [G], [])),
        (PEER, Watch(LOCAL, stamp, [(G, 5, b"")])),
    ]
    fixture.receive(accused, OTHER, now=2.1)
    assert fixture.sent() == []


def test_a_node_that_leaves_tells_all_roots_and_waits_for_them() -> None:
    fixture = joined(G)
    fixture.layer.watch_group(H, 1.0)
    fixture.receive(View(OTHER, H, 5, 0, True, []), OTHER)
    fixture.layer.events_received()
    fixture.sent()
    fixture.layer.leave(2.0)
    assert fixture.sent() == [(OTHER, Unwatch(LOCAL.id, [H])), (PEER, Unregister(LOCAL, [(G, 2)]))]
    assert fixture.layer.events_received() == []
    fixture.receive(Applied(PEER, [(G, 2, 0, False)]), now=2.1)
    assert fixture.layer.events_received() == [GroupLeft(G), Departed()]


def test_a_member_that_left_is_no_part_of_the_tree() -> None:
    fixture = joined(G)
    fixture.receive(
        CastDown(G, THIRD.id, 0, False, 0, b"payload", NamedSigner(THIRD.id).sign(cast_part(G, 0, 0, b"payload"))), OTHER
    )
    fixture.receive(Applied(PEER, [(G, 1, 1, True)]))
    assert fixture.layer.needs(OTHER.id), "it passes casts on to this node"
    fixture.layer.leave_group(G, 2.0)
    fixture.receive(Applied(PEER, [(G, 2, 0, False)]), now=2.1)
    assert not fixture.layer.needs(OTHER.id)


def test_casts_go_directly_to_a_root_that_is_known() -> None:
    fixture = joined(G)
    fixture.layer.watch_group(H, 1.0)
    fixture.receive(View(OTHER, H, 5, 0, True, []), OTHER)
    fixture.sent()
    for group in (G, H):
        fixture.layer.cast(group, b"payload", 2.0)
    assert [target for target, message in fixture.sent() if isinstance(message, CastUp)] == [PEER, OTHER]


def test_a_link_is_kept_to_the_root_of_a_group_that_the_node_is_in() -> None:
    fixture = joined(G)
    assert fixture.layer.needs(PEER.id)
    assert not fixture.layer.needs(OTHER.id)


def test_the_watchers_of_a_group_can_be_asked_for() -> None:
    fixture = Fixture()
    fixture.receive(Watch(PEER, 0, [(G, 0, b"")]))
    assert fixture.layer.watchers_of(G) == [PEER.id]
    assert fixture.layer.watchers_of(H) == []


def test_a_member_that_was_the_root_knows_whom_it_handed_the_directory_to() -> None:
    fixture = Fixture()
    fixture.layer.join_group(G, b"", 1.0)
    fixture.ring.is_mine = False
    fixture.ring.neighbours = [PEER]
    fixture.layer.leaves_changed([PEER], [], 2.0)
    (copy,) = [message for _, message in fixture.sent() if isinstance(message, Copy)]
    fixture.receive(Copied(G, copy.version), now=2.1)
    assert fixture.layer.roots() == [PEER]


def test_what_the_ring_could_not_deliver_is_counted() -> None:
    fixture = Fixture()
    fixture.layer.undeliverable(G, b"", 1.0)
    assert fixture.counters.messages_undeliverable == 1


def test_the_neighbours_that_report_a_death_hear_of_each_leave_once() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.ring.neighbours = [PEER, OTHER]
    fixture.layer.join_group(G, b"x", 0.0)
    entrusted = {target: message for target, message in fixture.sent() if isinstance(message, Entrust)}
    assert set(entrusted) == {PEER, OTHER}
    fixture.layer.leave_group(G, 1.0)
    again = [target for target, message in fixture.sent() if isinstance(message, Entrust)]
    assert set(again) == {PEER, OTHER}
    fixture.layer.leave_group(G, 2.0)
    assert not [message for _, message in fixture.sent() if isinstance(message, Entrust)]


@pytest.mark.parametrize("is_root", [True, False])
def test_whoever_keeps_a_directory_or_a_copy_tells_it_to_those_who_may_watch(is_root: bool) -> None:
    signer = NamedSigner(LOCAL.id)
    fixture = Fixture(signer=signer)
    fixture.ring.is_mine = is_root
    bare = MemberRecord(THIRD, b"x", 1)
    member = msgspec.structs.replace(bare, permit=signer.permit(G, member_part(bare, THIRD.id)))
    if is_root:
        fixture.receive(Register(THIRD, [GroupRegistration(G, b"x", 1, member.permit)]), THIRD)
    else:
        fixture.receive(Copy(G, 0, 5, True, True, [member], [], [], []), PEER)
    fixture.sent()
    permit = signer.permit(G, user_part(OTHER.id))
    fixture.receive(Look(OTHER, G, permit, 7), OTHER)
    assert fixture.sent() == [(OTHER, Seen(G, 7, [member]))]
    path = (OTHER.id, PEER.id)
    fixture.layer.delivered(G, encode_group_message(Look(OTHER, G, permit, 8)), OTHER, path, 1.0)
    assert fixture.sent() == [(path, Seen(G, 8, [member]))]
    fixture.receive(Look(OTHER, H, signer.permit(H, user_part(OTHER.id)), 9), OTHER)
    assert fixture.sent() == [(OTHER, Seen(H, 9, []))]
    fixture.receive(Look(OTHER, G, signer.permit(G, user_part(PEER.id)), 10), OTHER)
    assert fixture.sent() == []
    assert fixture.counters.permits_invalid == 1
    fixture.receive(Look(PEER, G, permit, 11), OTHER)
    assert any(isinstance(event, ProtocolViolated) for event in fixture.layer.events_received())


def test_a_group_that_is_doubted_is_looked_at_another_way() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    fixture.ring.neighbours = [PEER, OTHER]
    layer = fixture.layer
    layer.watch_group(G, 0.0, is_doubted=True)
    fixture.sent()
    fixture.receive(View(PEER, G, 5, 0, True, []))
    (event,) = layer.events_received()
    assert event == ViewChanged(G, {}, 0, True, is_known=False, is_doubted=True)
    ((key, look),) = [each for each in fixture.sent() if isinstance(each[1], Look)]
    assert key == G
    assert isinstance(look, Look)
    fixture.receive(Seen(G, look.number, [MemberRecord(THIRD, b"x", 1)]), OTHER)
    (event,) = layer.events_received()
    assert event == ViewChanged(G, {THIRD.id: GroupMember(THIRD, b"x")}, 1, True, is_doubted=True)
    layer.unwatch_group(G, 2.0)
    fixture.receive(Seen(G, look.number, []), OTHER)
    assert layer.events_received() == []
    assert layer.deadline() is None or layer.deadline() != 1.0 + LOOK_S
