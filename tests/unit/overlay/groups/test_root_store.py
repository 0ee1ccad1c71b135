"""The directories that one node is the root of: what it refuses, whom it tells, and when it asks, hands over and forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_overlay.groups.directory import EPOCHS_COPIED_MAX, INCARNATIONS_BELIEVED, accusation_of
from iris_overlay.groups.memberships import INCARNATION_LAST
from iris_overlay.groups.messages import (
    FANOUT_MAX,
    PROBED_MEMBERS_MAX,
    STAMP_SHIFT,
    Accuse,
    Accused,
    Applied,
    CastTaken,
    CastUp,
    Change,
    Check,
    Copied,
    Copy,
    Doubt,
    Drop,
    Forgotten,
    GroupMessage,
    GroupRegistration,
    MemberRecord,
    Register,
    Told,
    Unregister,
    Unwatch,
    View,
    Watch,
    decode_group_message,
    encode_group_message,
    member_part,
    user_part,
)
from iris_overlay.groups.root_store import ACCUSED_S, RECHECK_S, REVIEW_S, WOKEN_S
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import SEQUENCE_MAX, NodeInfo
from iris_py.testing.cores.signer import NamedSigner
from tests.unit.overlay.groups.test_layer import LOCAL, OTHER, PEER, THIRD, Fixture, G, H, register

if TYPE_CHECKING:
    from iris_overlay.groups.layer import GroupLayer

ANOTHER, FURTHER = GroupId(b"a" * 16), GroupId(b"f" * 16)


def register_in(group: GroupId, info: NodeInfo = OTHER) -> Register:
    return Register(info, [GroupRegistration(group, b"", 1)])


def of_type(kind: type[GroupMessage], fixture: Fixture) -> list[tuple[object, GroupMessage]]:
    """Take what was sent, and return what is of a kind."""
    return [(target, message) for target, message in fixture.sent() if isinstance(message, kind)]


def infos(count: int) -> list[NodeInfo]:
    return [NodeInfo(NodeId(bytes([number]) * 16), ()) for number in range(1, count + 1)]


def take_over(fixture: Fixture, members: list[NodeInfo], watchers: list[NodeInfo], now: float = 2.0) -> None:
    """Let the node keep a copy, whose root then dies."""
    fixture.ring.is_mine = False
    fixture.receive(Copy(G, 0, 9, True, True, [MemberRecord(info, b"", 1) for info in members], [], watchers, []))
    fixture.ring.is_mine = True
    fixture.layer.peer_dead(PEER.id, now)
    fixture.layer.leaves_changed([], [PEER.id], now)


def pass_time(layer: GroupLayer, until: float) -> None:
    while (deadline := layer.deadline()) is not None and deadline <= until:
        layer.handle_timeout(deadline)


def test_groups_are_bounded_and_each_refusal_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_overlay.groups.root_store.GROUPS_MAX", 1)
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(register_in(ANOTHER), OTHER)
    assert fixture.counters.registrations_refused == 1
    fixture.receive(Copy(FURTHER, 0, 9, True, True, [], [], [], []), PEER)
    assert fixture.counters.registrations_refused == 2
    assert fixture.layer.directory_of(ANOTHER) is None
    assert fixture.layer.table_sizes()["copies"] == 0
    fixture.receive(register(THIRD), THIRD)
    assert set(fixture.layer.directory_of(G) or ()) == {OTHER.id, THIRD.id}, "a group that it has takes more members"


@pytest.mark.parametrize("version", [EPOCHS_COPIED_MAX << STAMP_SHIFT, SEQUENCE_MAX])
@pytest.mark.parametrize("is_mine", [False, True])
def test_a_copy_that_nobody_could_take_over_is_not_kept(version: int, is_mine: bool) -> None:
    fixture = Fixture()
    fixture.ring.is_mine = is_mine
    fixture.receive(Copy(G, 0, version, True, True, [MemberRecord(OTHER, b"", 1)], [], [THIRD], []), PEER)
    assert fixture.counters.registrations_refused == 1
    assert fixture.layer.table_sizes()["copies"] == 0
    assert not fixture.layer.directory_of(G)


def test_whoever_takes_over_the_last_copy_that_is_kept_says_nothing_that_others_refuse() -> None:
    fixture = Fixture()
    fixture.ring.is_mine = False
    version = (EPOCHS_COPIED_MAX << STAMP_SHIFT) - 1
    fixture.receive(Copy(G, 0, version, True, True, [MemberRecord(OTHER, b"", 1)], [], [THIRD], []), PEER)
    fixture.ring.is_mine = True
    fixture.layer.peer_dead(PEER.id, 2.0)
    fixture.layer.leaves_changed([], [PEER.id], 2.0)
    fixture.receive(register(THIRD), THIRD)
    pass_time(fixture.layer, 5.0)
    sent = fixture.sent()
    assert [message for _, message in sent if isinstance(message, View)]
    for _, message in sent:
        assert decode_group_message(encode_group_message(message)) == message


def test_members_of_a_full_group_are_refused_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_overlay.groups.directory.MEMBERS_MAX", 1)
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(register(THIRD), THIRD)
    assert fixture.counters.registrations_refused == 1
    assert set(fixture.layer.directory_of(G) or ()) == {OTHER.id}


def test_an_accusation_makes_no_directory() -> None:
    fixture = Fixture()
    fixture.receive(Accuse(OTHER.id, 1, G))
    assert fixture.layer.table_sizes()["directories"] == 0
    assert fixture.layer.deadline() is None


@pytest.mark.parametrize(
    ("watching", "is_told"),
    [
        pytest.param(0, True, id="an incarnation that is not known"),
        pytest.param(1, False, id="the incarnation that is accused"),
        pytest.param(accusation_of(1), False, id="the last word of that incarnation"),
        pytest.param(accusation_of(1) + 1, True, id="a later incarnation"),
    ],
)
def test_a_member_that_is_accused_watches_no_more(watching: int, is_told: bool) -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(Watch(OTHER, watching, [(G, 0, b"")]), OTHER)
    ((_, view),) = of_type(View, fixture)
    assert isinstance(view, View)
    fixture.receive(Told(G, view.version), OTHER)
    fixture.receive(Accuse(OTHER.id, 1, G))
    assert [target for target, _ in of_type(Change, fixture)] == ([OTHER] if is_told else [])


@pytest.mark.parametrize("lie", [INCARNATIONS_BELIEVED, INCARNATION_LAST])
def test_an_accusation_of_an_incarnation_that_can_hardly_have_been_counts_for_the_one_that_is_known(lie: int) -> None:
    fixture = Fixture()
    fixture.ring.foreign = {OTHER.id}
    fixture.receive(register(OTHER), OTHER)
    fixture.sent()
    fixture.receive(Accuse(OTHER.id, (lie << STAMP_SHIFT) + 7, G))
    assert not fixture.layer.directory_of(G)
    ((_, told),) = of_type(Accused, fixture)
    assert told == Accused(OTHER.id, accusation_of(1))  # which it can overtake
    fixture.receive(Register(OTHER, [GroupRegistration(G, b"", accusation_of(1) + 1)]), OTHER)
    assert set(fixture.layer.directory_of(G) or ()) == {OTHER.id}
    fixture.receive(Accuse(THIRD.id, (lie << STAMP_SHIFT) + 7, G))  # who is no member leaves no trace
    fixture.receive(register(THIRD), THIRD)
    assert set(fixture.layer.directory_of(G) or ()) == {OTHER.id, THIRD.id}


def test_a_cast_that_comes_again_is_acknowledged_at_once() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(Watch(OTHER, 0, [(G, 0, b"")]), OTHER)  # holds the cast up until it knows of the member
    fixture.sent()
    cast = CastUp(PEER, G, 7, 7, b"payload")
    fixture.receive(cast)
    first = of_type(CastTaken, fixture)
    fixture.receive(cast)
    again = of_type(CastTaken, fixture)
    assert again == [(PEER, CastTaken(G, 7))]
    assert len(first) <= 1


def test_an_end_of_watching_concerns_the_groups_that_are_here() -> None:
    fixture = Fixture()
    fixture.receive(Watch(PEER, 0, [(G, 0, b"")]))
    ((_, view),) = fixture.sent()
    assert isinstance(view, View)
    fixture.receive(Told(G, view.version))
    fixture.receive(Unwatch(PEER.id, [ANOTHER, G]))
    fixture.receive(register(OTHER), OTHER)
    assert [target for target, _ in fixture.sent()] == [OTHER], "its own acknowledgement"
    assert not fixture.layer.needs(PEER.id)


def test_an_acknowledgement_of_a_view_that_is_not_kept_fresh_is_answered() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(Watch(PEER, 0, [(G, 0, b"")]))
    ((_, view),) = of_type(View, fixture)
    assert isinstance(view, View)
    fixture.receive(Told(G, view.version))
    assert of_type(Forgotten, fixture) == []
    fixture.receive(Told(G, view.version), THIRD)
    assert of_type(Forgotten, fixture) == [(THIRD, Forgotten(G))]
    fixture.receive(Copied(G, view.version), THIRD)
    assert of_type(Forgotten, fixture) == [], "a copy asks nothing of it"


def test_watchers_that_are_taken_over_are_told_for_as_long_as_if_they_had_just_asked() -> None:
    fixture = Fixture()
    take_over(fixture, [OTHER], [THIRD])
    fixture.ring.foreign = {OTHER.id}
    ((_, view),) = of_type(View, fixture)
    assert isinstance(view, View)
    fixture.receive(Told(G, view.version), THIRD, now=2.5)
    fixture.layer.handle_timeout(30.0)
    fixture.sent()
    fixture.receive(register(PEER), PEER, now=31.0)
    assert [target for target, _ in of_type(Change, fixture)] == [THIRD]


@pytest.mark.parametrize("count", [2, PROBED_MEMBERS_MAX, PROBED_MEMBERS_MAX + 1])
def test_members_of_a_small_group_hear_at_once_who_its_root_is_now(count: int) -> None:
    fixture = Fixture()
    members = infos(count)
    take_over(fixture, members, [])
    told = {target for target, _ in of_type(Applied, fixture)}
    assert told == (set(members) if count <= PROBED_MEMBERS_MAX else set())


def test_members_of_a_small_group_that_was_taken_over_are_looked_for_twice() -> None:
    fixture = Fixture()
    members = infos(PROBED_MEMBERS_MAX)
    take_over(fixture, members, [])
    fixture.ring.foreign = {info.id for info in members}  # the questions go to other nodes
    fixture.sent()
    pass_time(fixture.layer, 2.0 + REVIEW_S)
    assert {target for target, _ in of_type(Check, fixture)} == {info.id for info in members}
    pass_time(fixture.layer, 2.0 + REVIEW_S + RECHECK_S)
    assert {target for target, _ in of_type(Check, fixture)} == {info.id for info in members}


def test_members_of_a_large_group_that_was_taken_over_are_not_looked_for() -> None:
    fixture = Fixture()
    members = infos(PROBED_MEMBERS_MAX + 1)
    take_over(fixture, members, [])
    fixture.ring.foreign = {info.id for info in members}
    fixture.sent()
    pass_time(fixture.layer, 2.0 + REVIEW_S)
    # Those that have to pass casts on, and are silent, are doubted for that.
    assert len(of_type(Check, fixture)) < PROBED_MEMBERS_MAX / 2


def test_a_directory_that_the_new_root_does_not_acknowledge_is_sent_again_after_a_while() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.sent()
    fixture.ring.is_mine = False
    fixture.ring.neighbours = [PEER]
    fixture.layer.handover_wanted(PEER, 2.0)
    fixture.layer.outputs_to_send()
    resend_s = 1.5
    fixture.layer.handle_timeout(2.0 + resend_s / 2)
    assert fixture.sent() == []
    fixture.layer.handle_timeout(2.0 + resend_s)
    assert [target for target, _ in of_type(Copy, fixture)] == [PEER]


def test_copies_are_refreshed_when_it_is_time_and_not_at_each_sweep() -> None:
    fixture = Fixture()
    fixture.ring.neighbours = [PEER]
    fixture.receive(register(OTHER), OTHER)
    ((_, copy),) = of_type(Copy, fixture)
    assert isinstance(copy, Copy)
    fixture.receive(Copied(G, copy.version))
    fixture.sent()
    pass_time(fixture.layer, 55.0)
    assert of_type(Copy, fixture) == []
    pass_time(fixture.layer, 75.0)
    ((target, copy),) = of_type(Copy, fixture)
    assert target == PEER
    assert isinstance(copy, Copy)
    fixture.receive(Copied(G, copy.version), now=75.0)
    pass_time(fixture.layer, 115.0)
    assert of_type(Copy, fixture) == []


def test_a_directory_with_nothing_in_it_is_forgotten_and_so_are_its_copies() -> None:
    fixture = Fixture()
    fixture.ring.neighbours = [PEER]
    fixture.receive(Watch(OTHER, 0, [(G, 0, b"")]), OTHER)
    fixture.sent()
    fixture.layer.handle_timeout(20.0)
    assert fixture.layer.table_sizes()["directories"] == 1, "it is watched"
    assert of_type(Drop, fixture) == []
    fixture.receive(Unwatch(OTHER.id, [G]), OTHER, now=21.0)
    fixture.layer.handle_timeout(40.0)
    assert fixture.layer.table_sizes()["directories"] == 0
    assert of_type(Drop, fixture) == [(PEER, Drop(G))]


def test_what_is_known_of_the_dead_outlives_the_last_member() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(Accuse(OTHER.id, 1, G))
    fixture.layer.handle_timeout(20.0)
    assert fixture.layer.table_sizes()["directories"] == 1
    fixture.receive(register(OTHER), OTHER, now=21.0)
    assert fixture.layer.directory_of(G) == {}, "an old registration does not bring it back"


def test_a_node_is_told_at_once_of_all_the_groups_that_it_registered_in() -> None:
    fixture = Fixture()
    fixture.receive(Register(OTHER, [GroupRegistration(group, b"", 1) for group in (G, ANOTHER, FURTHER)]), OTHER)
    assert fixture.sent() == [(OTHER, Applied(LOCAL, [(group, 1, 1, True) for group in (G, ANOTHER, FURTHER)]))]


def test_each_registration_waits_no_longer_than_its_own_bound() -> None:
    fixture = Fixture()
    fixture.receive(Watch(PEER, 0, [(G, 0, b"")]))  # is silent
    fixture.receive(register(OTHER), OTHER, now=2.0)
    fixture.receive(register(THIRD), THIRD, now=2.5)
    pass_time(fixture.layer, 3.0)
    assert [target for target, _ in of_type(Applied, fixture)] == [OTHER]
    pass_time(fixture.layer, 3.5)
    assert [target for target, _ in of_type(Applied, fixture)] == [THIRD]


def test_links_to_the_children_of_a_root_are_kept_and_to_no_other_members() -> None:
    fixture = Fixture()
    members = infos(FANOUT_MAX + 3)
    for info in members:
        fixture.receive(register(info), info)
    assert [fixture.layer.needs(info.id) for info in members] == [True] * FANOUT_MAX + [False] * 3
    assert not fixture.layer.needs(PEER.id)


def test_a_watcher_that_there_is_no_room_for_is_answered_the_way_that_it_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_overlay.groups.root.WATCHERS_MAX", 0)
    fixture = Fixture()
    fixture.layer.delivered(G, encode_group_message(Watch(PEER, 0, [(G, 0, b"")])), PEER, (PEER.id, OTHER.id), 1.0)
    fixture.receive(Watch(PEER, 0, [(G, 0, b"")]))
    views = of_type(View, fixture)
    assert [target for target, _ in views] == [(PEER.id, OTHER.id), PEER]
    assert all(isinstance(view, View) and not view.is_watched for _, view in views)


def test_a_root_that_stood_still_gives_its_copies_some_time() -> None:
    fixture = Fixture()
    fixture.ring.neighbours = [PEER]
    fixture.receive(register(OTHER), OTHER)
    fixture.layer.resume(6.0)
    fixture.receive(Watch(OTHER, 0, [(G, 0, b"")]), OTHER, now=6.1)
    pass_time(fixture.layer, 6.0 + WOKEN_S / 2)
    assert of_type(View, fixture) == []


def test_sweeps_come_a_period_after_one_another() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER, now=50.0)
    before, waits = 50.0, []
    for _ in range(12):
        deadline = fixture.layer.deadline()
        assert deadline is not None
        fixture.layer.handle_timeout(deadline)
        waits.append(deadline - before)
        before = deadline
    assert all(9.0 <= wait <= 11.0 for wait in waits)


def test_an_accused_node_is_told_so_for_a_while() -> None:
    fixture = Fixture()
    fixture.ring.foreign = {OTHER.id}
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(Accuse(OTHER.id, 1, G))
    fixture.sent()
    pass_time(fixture.layer, 1.0 + ACCUSED_S)
    assert {target for target, _ in of_type(Accused, fixture)} == {OTHER.id}
    pass_time(fixture.layer, 4 * ACCUSED_S)
    assert of_type(Accused, fixture) == []
    assert fixture.layer.table_sizes()["directories"] == 1, "though it is still remembered"


def handed_over(fixture: Fixture, to: NodeInfo, neighbours: list[NodeInfo]) -> Copied:
    """Let the directory be on its way to another node, and return how that one acknowledges it."""
    fixture.ring.is_mine = False
    fixture.ring.neighbours = [to, *neighbours]
    fixture.layer.leaves_changed([to], [], 2.0)
    ((_, copy),) = [(target, copy) for target, copy in of_type(Copy, fixture) if target == to]
    assert isinstance(copy, Copy)
    return Copied(G, copy.version)


def test_who_kept_copies_of_a_directory_that_was_handed_over_is_told_to_drop_them() -> None:
    fixture = Fixture()
    fixture.ring.neighbours = [PEER, THIRD]
    fixture.receive(register(OTHER), OTHER)
    fixture.sent()
    fixture.receive(handed_over(fixture, THIRD, [PEER]), THIRD, now=2.1)
    assert of_type(Drop, fixture) == [(PEER, Drop(G))], "the new root keeps what it has"


def test_what_was_handed_over_is_kept_as_a_copy_until_it_expires() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    fixture.receive(handed_over(fixture, THIRD, []), THIRD, now=2.1)
    pass_time(fixture.layer, 100.0)
    assert fixture.layer.table_sizes()["copied_members"] == 1
    pass_time(fixture.layer, 250.0)
    assert fixture.layer.table_sizes()["copied_members"] == 0


def test_what_was_handed_over_is_added_to_the_copy_of_another_root_that_does_not_undo_it() -> None:
    fixture = Fixture()
    fixture.receive(register(OTHER), OTHER)
    acknowledgement = handed_over(fixture, THIRD, [])
    fixture.receive(Copy(G, 0, 9, True, True, [MemberRecord(PEER, b"", 1)], [], [], []))
    assert fixture.layer.table_sizes()["copied_members"] == 1
    fixture.receive(acknowledgement, THIRD, now=2.1)
    assert fixture.layer.table_sizes()["copied_members"] == 2
    fixture.receive(Drop(G))
    assert fixture.layer.table_sizes()["copied_members"] == 2


@pytest.mark.parametrize("is_known", [True, False])
def test_a_watcher_that_was_taken_over_watches_on_if_it_is_accused_as_a_member(is_known: bool) -> None:
    """Which of its incarnations watches only the dead root knew."""
    fixture = Fixture()
    if is_known:
        fixture.receive(register(THIRD), THIRD)
    take_over(fixture, [OTHER], [OTHER])
    fixture.receive(Accuse(OTHER.id, 1, G), now=3.0)
    assert OTHER.id not in (fixture.layer.directory_of(G) or {})
    assert fixture.layer.watchers_of(G) == [OTHER.id]


# -- permits


def strict() -> Fixture:
    """Return a root to which a permit means something."""
    return Fixture(signer=NamedSigner(LOCAL.id))


def permitted(info: NodeInfo, stamp: int = 1, attributes: bytes = b"") -> GroupRegistration:
    said = GroupRegistration(G, attributes, stamp)
    return GroupRegistration(G, attributes, stamp, NamedSigner(info.id).permit(G, member_part(said, info.id)))


def test_a_member_has_a_permit_for_all_that_it_registers() -> None:
    fixture = strict()
    item = permitted(OTHER, 5, b"light")
    for wrong in (
        GroupRegistration(G, b"light", 5),
        GroupRegistration(G, b"heavy", 5, item.permit),
        GroupRegistration(G, b"light", 6, item.permit),
        GroupRegistration(H, b"light", 5, item.permit),
        GroupRegistration(G, b"light", 5, permitted(PEER, 5, b"light").permit),
        GroupRegistration(G, b"light", 5, NamedSigner(OTHER.id).permit(G, user_part(OTHER.id))),
    ):
        fixture.receive(Register(OTHER, [wrong]), OTHER)
    assert fixture.counters.permits_invalid == 6
    assert fixture.layer.table_sizes()["directories"] == 0, "nobody without the keys makes a table grow"
    fixture.receive(Register(OTHER, [item]), OTHER)
    assert fixture.layer.directory_of(G) == {OTHER.id: b"light"}


def test_what_is_known_is_looked_at_once() -> None:
    fixture = strict()
    fixture.receive(Register(OTHER, [permitted(OTHER)]), OTHER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NamedSigner, "is_permitted", lambda *_: pytest.fail("a renewal costs no signature"))
        fixture.receive(Register(OTHER, [permitted(OTHER)]), OTHER)
        fixture.receive(Unwatch(OTHER.id, [G]), OTHER)
        fixture.receive(Watch(OTHER, 1, [(G, 0, b"")]), OTHER)
    fixture.receive(Register(OTHER, [GroupRegistration(G, b"", 1)]), OTHER)
    assert fixture.counters.permits_invalid == 1, "what is kept and passed on has its permit"


def test_whoever_watches_or_casts_has_a_permit_or_is_known() -> None:
    fixture = strict()
    fixture.receive(Register(OTHER, [permitted(OTHER)]), OTHER)
    fixture.receive(Watch(PEER, 1, [(G, 0, b"")]), PEER)
    fixture.receive(Watch(PEER, 1, [(G, 0, NamedSigner(PEER.id).permit(G, user_part(OTHER.id)))]), PEER)
    fixture.receive(CastUp(PEER, G, 7, 7, b"payload"), PEER)
    assert fixture.counters.permits_invalid == 3
    assert fixture.layer.watchers_of(G) == []
    fixture.receive(Watch(PEER, 1, [(G, 0, NamedSigner(PEER.id).permit(G, user_part(PEER.id)))]), PEER)
    assert fixture.layer.watchers_of(G) == [PEER.id]
    fixture.receive(CastUp(PEER, G, 7, 7, b"payload"), PEER)
    assert fixture.counters.permits_invalid == 3


def test_a_copy_holds_members_with_permits_alone() -> None:
    fixture = strict()
    fixture.ring.is_mine = False
    item = permitted(OTHER)
    genuine = MemberRecord(OTHER, b"", 1, item.permit)
    invented = MemberRecord(THIRD, b"", 1, item.permit)
    fixture.receive(Copy(G, 0, 5, True, True, [genuine, invented], [], [], []))
    assert fixture.counters.permits_invalid == 1
    assert fixture.layer.table_sizes()["copied_members"] == 0
    fixture.receive(Copy(G, 0, 5, True, True, [genuine], [], [], []))
    assert fixture.layer.table_sizes()["copied_members"] == 1


def test_nothing_is_to_be_asked_of_nodes_that_are_gone() -> None:
    """Ever new ids watch and register, are doubted, and are gone: no timer stays behind of any of them."""
    fixture = Fixture()
    fixture.receive(register(THIRD), THIRD)
    timers = fixture.layer._roots._timers
    before = len(timers)
    for info in infos(50):
        fixture.receive(Watch(info, 1, [(G, 0, b"")]), info)
        fixture.receive(register(info), info)
        fixture.receive(Doubt(G, info.id), THIRD)
        assert len(timers) > before
        fixture.receive(Unwatch(info.id, [G]), info)
        fixture.receive(Unregister(info, [(G, 1)]), info)
        assert len(timers) <= before + 1, "the group's own, that nothing waits for any more"


def test_a_cast_that_goes_before_its_time_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_overlay.groups.root.HELD_MAX", 1)
    fixture = Fixture()
    for info in infos(FANOUT_MAX + 2):
        fixture.receive(register(info), info)
    for number in range(3):
        fixture.receive(CastUp(OTHER, G, number, 0, b"", b"", b"", 0), OTHER)
    assert fixture.counters.casts_hurried == 2


def test_registrations_that_wait_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that acknowledges nothing holds up every registration, each of another id of the same insider."""
    monkeypatch.setattr("iris_overlay.groups.followers.PENDINGS_MAX", 3)
    fixture = Fixture()
    fixture.receive(Watch(THIRD, 1, [(G, 0, b"")]), THIRD)
    fixture.sent()
    for info in infos(5):
        fixture.receive(register(info), info)
    assert [to for to, _ in of_type(Applied, fixture)] == infos(2)
    assert fixture.counters.changes_unconfirmed == 2
