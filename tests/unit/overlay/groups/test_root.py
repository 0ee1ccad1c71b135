"""The root of one group: what it tells watchers, copies and inner nodes of the tree, and when it tells it again."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from iris_overlay.groups.directory import EPOCHS_CLAIMED_MAX, Directory, Outcome, next_epoch
from iris_overlay.groups.followers import ATTEMPTS_MAX, FollowerKind
from iris_overlay.groups.io import Outbox
from iris_overlay.groups.messages import (
    COPY_MEMBERS_MAX,
    SAMPLE_MAX,
    STAMP_SHIFT,
    VIEW_MAX,
    WATCHERS_MAX,
    Accused,
    CastDown,
    CastTaken,
    Change,
    Children,
    Copy,
    GroupMessage,
    MemberRecord,
    View,
    decode_group_message,
    encode_group_message,
)
from iris_overlay.groups.root import HELD_BYTES_MAX, HELD_MAX, RECENT_MAX, SIZE_DRIFT, GroupRoot
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import SEQUENCE_MAX, NodeInfo

G = GroupId(b"g" * 16)
WATCHER, COPY, PARENT = FollowerKind.WATCHER, FollowerKind.COPY, FollowerKind.PARENT


def info(number: int) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), ("192.0.2.1:1",))


#: The largest whole view of the roots here, unless a test says otherwise: as large as a sample, so that groups stay small.
BOUND = SAMPLE_MAX

LOCAL, OTHER, THIRD = info(10_001), info(10_002), info(10_003)


def cast(number: int, payload: bytes) -> CastDown:
    return CastDown(G, OTHER.id, number, False, 0, payload)


class Group:
    """A root, and what it sends."""

    def __init__(self, members: int = 0, *, bound: int = BOUND) -> None:
        self.outbox = Outbox()
        self.root = GroupRoot(Directory(G, 1), LOCAL, random.Random(1), self.outbox, view_members_max=bound)
        for number in range(members):
            self.register(number)
        self.settle()

    def register(self, number: int, attributes: bytes = b"", stamp: int = 1, expires: float = 100.0) -> Outcome:
        return self.root.register(MemberRecord(info(number), attributes, stamp), expires)

    def watch(self, watcher: NodeInfo = OTHER, version: int = 0, expires: float = 100.0) -> bool:
        return self.root.watch(watcher, 1, version, expires, None)

    def sent(self) -> list[tuple[NodeId, GroupMessage]]:
        """Tell the followers, and take what was sent."""
        self.root.flush()
        posts, self.outbox.posts = self.outbox.posts, []
        found = []
        for target, message in posts:
            assert isinstance(target, NodeInfo)
            found.append((target.id, message))
        return found

    def settle(self) -> None:
        """Tell the followers until they know everything."""
        for _ in range(20):
            self.sent()
            if not self.root.followers.unsettled:
                return
            for kind, node in list(self.root.followers.unsettled):
                self.root.acknowledge(kind, node, self.root.directory.version)
        raise AssertionError("it does not settle")

    def told(self, watcher: NodeInfo = OTHER) -> View | Change:
        (message,) = [message for to, message in self.sent() if to == watcher.id]
        assert isinstance(message, View | Change)
        return message


def test_a_watcher_gets_a_view_and_then_the_changes() -> None:
    group = Group(members=2)
    group.watch()
    view = group.told()
    assert isinstance(view, View)
    assert (view.size, [record.info for record in view.members]) == (2, [info(0), info(1)])
    group.root.acknowledge(WATCHER, OTHER.id, view.version)
    assert group.sent() == []
    assert group.register(2) is Outcome.CHANGED
    assert group.register(2) is not Outcome.CHANGED, "a renewal changes nothing"
    group.root.remove(info(0).id, 1, 100.0)
    change = group.told()
    assert isinstance(change, Change)
    assert (change.size, [record.info for record in change.members], change.removed) == (2, [info(2)], [info(0).id])


def test_changes_wait_until_the_ones_before_are_acknowledged() -> None:
    group = Group()
    group.watch()
    first = group.told()
    group.register(1)
    group.register(2)
    assert group.sent() == []
    group.root.acknowledge(WATCHER, OTHER.id, first.version)
    change = group.told()
    assert isinstance(change, Change)
    assert {record.info.id for record in change.members} == {info(1).id, info(2).id}


def test_a_watcher_that_does_not_answer_is_told_everything_again_and_then_forgotten() -> None:
    group = Group(members=1)
    group.watch()
    for _ in range(ATTEMPTS_MAX - 1):
        assert isinstance(group.told(), View)
        assert group.root.note_silence(WATCHER, OTHER.id)
    assert isinstance(group.told(), View)
    assert group.root.note_silence(WATCHER, OTHER.id)
    assert OTHER.id not in group.root.followers.members[WATCHER]
    assert group.sent() == []
    assert not group.root.note_silence(WATCHER, OTHER.id)


def test_an_acknowledgement_ends_the_silence() -> None:
    group = Group(members=1)
    group.watch()
    group.told()
    group.root.note_silence(WATCHER, OTHER.id)
    view = group.told()
    group.root.acknowledge(WATCHER, OTHER.id, view.version)
    assert group.root.followers.members[WATCHER][OTHER.id].attempts == 0
    assert not group.root.note_silence(WATCHER, OTHER.id)


def test_what_was_under_way_when_a_link_ended_is_told_again() -> None:
    group = Group(members=1)
    group.watch()
    view = group.told()
    assert group.root.link_lost(OTHER.id)
    again = group.told()
    assert again == view
    group.root.acknowledge(WATCHER, OTHER.id, view.version)
    assert not group.root.link_lost(OTHER.id)
    assert not group.root.link_lost(THIRD.id)


def test_a_watcher_that_knows_a_later_version_begins_a_new_epoch() -> None:
    """It has it of another root, and would take ours for old."""
    group = Group(members=1)
    before = group.root.directory.version
    group.watch(version=before + 1000)
    assert group.told().version == next_epoch(before + 1000) + 1  # the watcher itself is a change for the copies


@pytest.mark.parametrize("claimed", [EPOCHS_CLAIMED_MAX << STAMP_SHIFT, SEQUENCE_MAX])
def test_a_watcher_that_knows_what_cannot_be_is_told_everything_and_changes_nothing(claimed: int) -> None:
    group = Group(2)
    before = group.root.directory.version
    for _ in range(3):
        group.watch(version=claimed)
        view = group.told()
        assert isinstance(view, View)
        assert decode_group_message(encode_group_message(view)) == view
        assert len(view.members) == 2
    assert group.root.directory.version < before + 10
    group.watch(THIRD, version=(EPOCHS_CLAIMED_MAX << STAMP_SHIFT) - 1)  # the last that is believed
    assert group.root.directory.version == (EPOCHS_CLAIMED_MAX << STAMP_SHIFT) + 1  # the watcher itself is a change


def test_watchers_are_bounded() -> None:
    group = Group(members=1)
    assert all(group.watch(info(1000 + number)) for number in range(WATCHERS_MAX))
    assert not group.watch(OTHER)
    assert group.watch(info(1000)), "it is one already"
    group.root.remove_watcher(info(1000).id)
    assert group.watch(OTHER)


@pytest.mark.parametrize("members", [3, 3 * BOUND])
def test_a_node_without_a_place_among_the_watchers_gets_a_view_all_the_same(members: int) -> None:
    group = Group(members)
    view = group.root.view_unwatched()
    assert not view.is_watched
    assert (view.size, len(view.members)) == (members, min(members, BOUND))
    assert len({record.info.id for record in view.members}) == len(view.members)
    seen = {record.info.id for _ in range(100) for record in group.root.view_unwatched().members}
    assert len(seen) == members, "of a large group it is another sample each time"


def test_watchers_of_a_large_group_get_samples_that_cover_it_evenly() -> None:
    members, watchers = 2 * BOUND, 8
    group = Group(members)
    for number in range(watchers):
        group.watch(info(1000 + number))
    views = [message for _to, message in group.sent() if isinstance(message, View)]
    assert [(view.size, len(view.members)) for view in views] == [(members, BOUND)] * watchers
    uses = Counter(record.info.id for view in views for record in view.members)
    assert len(uses) == members
    assert set(uses.values()) == {watchers * BOUND // members}


def test_a_member_of_a_sample_that_leaves_is_replaced_and_the_others_hear_nothing() -> None:
    group = Group(4 * BOUND)
    for number in range(2):
        group.watch(info(1000 + number))
    group.settle()
    samples = {node: set(watcher.sample or ()) for node, watcher in group.root.followers.members[WATCHER].items()}
    first = info(1000).id
    gone = next(node for node in samples[first] if node not in samples[info(1001).id])
    group.root.remove(gone, 1, 100.0)
    told = [to for to, message in group.sent() if isinstance(message, View | Change)]
    assert told == [first]
    sample = group.root.followers.members[WATCHER][first].sample
    assert sample is not None
    assert len(sample) == BOUND
    assert gone not in sample


def test_a_group_that_shrinks_is_shown_whole_again() -> None:
    group = Group(BOUND + 1)
    group.watch()
    group.settle()
    group.root.remove(info(0).id, 1, 100.0)
    view = group.told()
    assert isinstance(view, View)
    assert {record.info.id for record in view.members} == set(group.root.directory.members)


def test_a_new_size_is_told_when_it_has_changed_by_enough_or_at_the_sweep() -> None:
    members = 4 * SIZE_DRIFT
    group = Group(members)
    group.watch()
    group.settle()
    group.root._tell_size()
    group.settle()
    for number in range(members, members + 4):
        group.register(number)
        assert not [to for to, message in group.sent() if to == OTHER.id], "no more than one part in so many"
    group.register(members + 4)
    assert group.told().size == members + 5
    group.settle()
    group.register(members + 5)
    assert not [to for to, message in group.sent() if to == OTHER.id]
    group.root.expire(50.0)
    assert group.told().size == members + 6


def test_copies_are_sent_everything_and_then_what_changed() -> None:
    group = Group(members=1)
    group.watch()
    assert group.root.set_copies([THIRD]) == []
    (copy,) = [message for to, message in group.sent() if to == THIRD.id]
    assert isinstance(copy, Copy)
    assert (copy.base, [record.info for record in copy.members], copy.watchers) == (0, [info(0)], [OTHER])
    group.root.acknowledge(COPY, THIRD.id, copy.version)
    group.register(1)
    group.root.remove_watcher(OTHER.id)
    (change,) = [message for to, message in group.sent() if to == THIRD.id]
    assert isinstance(change, Copy)
    assert change.base == copy.version
    assert ([record.info for record in change.members], change.watchers, change.unwatched) == ([info(1)], [], [OTHER.id])
    assert group.root.set_copies([OTHER]) == [THIRD], "that one shall drop it"


def test_a_root_that_is_not_sure_tells_watchers_nothing_before_its_copies_have_answered() -> None:
    group = Group(members=1)
    group.root.set_copies([THIRD])
    group.settle()
    group.root.ask_copies()
    group.watch()
    asked = group.sent()
    assert [to for to, _message in asked] == [THIRD.id]
    group.root.acknowledge(COPY, THIRD.id, group.root.directory.version)
    assert [to for to, _message in group.sent()] == [OTHER.id]
    assert group.root.is_sure


def test_the_root_tells_inner_nodes_of_the_tree_their_children() -> None:
    group = Group()
    for number in range(BOUND + 2):
        group.register(number)
    children = {to: message for to, message in group.sent() if isinstance(message, Children)}
    assert children
    for to, message in children.items():
        assert {child.id for child in message.children} == set(group.root.tree.children(to))
    below = [child.id for message in children.values() for child in message.children]
    assert len(below) + len(list(group.root.tree.children(None))) == BOUND + 2


def test_a_cast_waits_until_the_inner_nodes_know_their_children_or_its_time_is_up() -> None:
    group = Group()
    for number in range(BOUND + 2):
        group.register(number)
    group.root.cast(OTHER, cast(7, b"payload"), 1.0, 0.5)
    group.root.release_casts(1.0, 5.0)
    assert not [message for _to, message in group.sent() if isinstance(message, CastDown)]
    group.root.release_casts(1.5, 5.0)
    posts = group.sent()
    assert {to for to, message in posts if isinstance(message, CastDown)} == set(group.root.tree.children(None))
    assert (OTHER.id, CastTaken(G, 7)) in posts
    group.settle()
    group.root.cast(OTHER, cast(8, b"payload"), 2.0, 0.5)
    group.root.release_casts(2.0, 5.0)
    assert [message for _to, message in group.sent() if isinstance(message, CastDown)], "at once, for all know their children"


@pytest.mark.parametrize("size", [1, HELD_BYTES_MAX // 100])
def test_casts_that_wait_for_the_tree_are_bounded_and_the_oldest_go_before_their_time(size: int) -> None:
    """An inner node that never says that it knows its children holds up every cast."""
    group, payload = Group(), bytes(size)
    for number in range(BOUND + 2):
        group.register(number)
    most = min(HELD_MAX, HELD_BYTES_MAX // size)
    for number in range(most + 3):
        group.root.cast(OTHER, cast(number, payload), 1.0, 0.5)
    assert [held.cast.sequence for held in group.root.held] == list(range(3, most + 3))
    assert group.root.hurried == 3
    taken = [message.sequence for to, message in group.sent() if isinstance(message, CastTaken)]
    assert taken == [0, 1, 2]
    group.root.release_casts(1.5, 5.0)
    assert not group.root.held
    assert group.root._held_bytes == 0


def test_casts_are_kept_to_be_repeated_within_bounds() -> None:
    group = Group(members=2)
    for number in range(RECENT_MAX + 10):
        group.root.cast(OTHER, cast(number, b"12345"), 1.0, 0.5)
    group.root.release_casts(1.0, 5.0)
    group.root.release_casts(1.0, 5.0)
    assert len(group.root._recent) == RECENT_MAX
    assert group.root._recent_bytes == 5 * RECENT_MAX
    group.root.release_casts(6.1, 5.0)
    assert len(group.root._recent) == group.root._recent_bytes == 0


def test_those_who_do_not_renew_are_forgotten() -> None:
    group = Group(members=1)
    group.register(1, expires=50.0)
    group.watch(expires=60.0)
    group.watch(THIRD, expires=100.0)
    group.settle()
    group.root.expire(50.0)
    assert list(group.root.directory.members) == [info(0).id]
    assert [to for to, _message in group.sent()] == [OTHER.id, THIRD.id]
    group.root.expire(60.0)
    assert list(group.root.followers.members[WATCHER]) == [THIRD.id]


def test_a_member_that_was_accused_elsewhere_stays_until_it_had_its_time() -> None:
    group = Group(members=2)
    group.root.accused[info(0).id] = (1, 100.0)
    assert info(0).id in group.root.directory.members
    group.root.believe_accusations()
    assert info(0).id not in group.root.directory.members
    assert group.root.accused == {}


@pytest.mark.parametrize(("since", "is_told"), [(50.0, True), (100.0, False)])
def test_accused_nodes_are_told_again_while_their_tombstones_are_young(since: float, is_told: bool) -> None:
    group = Group(members=2)
    assert group.root.accuse(info(0).id, 1, 100.0)
    group.root.remove(info(1).id, 1, 100.0)  # it left by itself, and knows
    group.sent()
    group.root.repeat_accusations(since)
    told = [(target, type(message)) for target, message in group.outbox.posts]
    assert told == ([(info(0).id, Accused)] if is_told else [])


def test_nothing_that_expires_is_no_news() -> None:
    group = Group(members=1)
    group.watch()
    group.root.set_copies([THIRD])
    group.settle()
    group.root.expire(50.0)
    assert group.sent() == []


def test_a_member_that_describes_itself_anew_is_described_to_those_who_have_it() -> None:
    group = Group(4 * BOUND)
    for number in range(2):
        group.watch(info(1000 + number))
    group.settle()
    samples = {node: set(watcher.sample or ()) for node, watcher in group.root.followers.members[WATCHER].items()}
    first, second = info(1000).id, info(1001).id
    member = next(number for number in range(4 * BOUND) if info(number).id in samples[first] - samples[second])
    group.register(member, b"other", stamp=2)
    views = [(to, message) for to, message in group.sent() if isinstance(message, View | Change)]
    assert [to for to, _message in views] == [first]
    (view,) = [message for _to, message in views]
    assert isinstance(view, View)
    assert [record.attributes for record in view.members if record.info.id == info(member).id] == [b"other"]


def test_an_inner_node_that_registers_anew_is_told_its_children_again() -> None:
    """Its process may have begun again, and know none."""
    group = Group()
    for number in range(BOUND + 2):
        group.register(number)
    group.settle()
    (inner,) = group.root.tree.inner_nodes()
    number = next(number for number in range(BOUND + 2) if info(number).id == inner)
    group.register(number, b"other", stamp=2)
    assert [to for to, message in group.sent() if isinstance(message, Children)] == [inner]
    child = next(number for number in range(BOUND + 2) if info(number).id in group.root.tree.children(inner))
    group.settle()
    group.register(child, b"other", stamp=2)
    assert [to for to, message in group.sent() if isinstance(message, Children)] == [inner], "it may have given the child up"


def test_who_takes_the_place_of_a_lost_inner_node_gets_the_latest_casts_again() -> None:
    group = Group()
    for number in range(BOUND + 6):
        group.register(number)
    group.settle()
    group.root.cast(OTHER, cast(7, b"payload"), 1.0, 0.5)
    group.root.release_casts(1.0, 5.0)
    group.sent()
    (inner,) = group.root.tree.inner_nodes()
    children = set(group.root.tree.children(inner))
    group.root.remove(inner, 1, 100.0)
    group.settle()
    group.root.release_casts(1.1, 5.0)
    replays = [(to, message.sequence) for to, message in group.sent() if isinstance(message, CastDown) and message.is_replay]
    assert len(replays) == 1
    assert replays[0][0] in children
    assert replays[0][1] == 7
    group.root.release_casts(1.2, 5.0)
    assert group.sent() == [], "once"


def test_an_inner_node_that_has_no_children_left_is_told_so_and_followed_no_longer() -> None:
    group = Group()
    for number in range(BOUND + 2):
        group.register(number)
    group.settle()
    (inner,) = group.root.tree.inner_nodes()
    for node in list(group.root.tree.children(inner)):
        group.root.remove(node, 1, 100.0)
    (children,) = [message for to, message in group.sent() if to == inner and isinstance(message, Children)]
    assert children.children == []
    assert group.root.acknowledge(PARENT, inner, children.version)
    assert inner not in group.root.followers.members[PARENT]


def test_a_group_that_outgrows_one_view_is_told_to_be_larger_at_once() -> None:
    group = Group(BOUND)
    group.watch()
    group.settle()
    group.register(BOUND)
    view = group.told()
    assert isinstance(view, View)
    assert (view.size, len(view.members)) == (BOUND + 1, BOUND)


def test_a_view_is_whole_up_to_its_bound_and_beyond_it_a_sample_of_a_few() -> None:
    group = Group(VIEW_MAX, bound=VIEW_MAX)
    group.watch()
    view = group.told()
    assert isinstance(view, View)
    assert (view.size, len(view.members)) == (VIEW_MAX, VIEW_MAX)
    assert len(group.root.view_unwatched().members) == VIEW_MAX
    group.root.acknowledge(WATCHER, OTHER.id, view.version)
    group.register(VIEW_MAX)
    view = group.told()
    assert isinstance(view, View)
    assert (view.size, len(view.members)) == (VIEW_MAX + 1, SAMPLE_MAX)
    assert len(group.root.view_unwatched().members) == SAMPLE_MAX


def test_the_sample_of_a_watcher_that_leaves_counts_no_more() -> None:
    group = Group(2 * BOUND)
    for number in range(4):
        group.watch(info(1000 + number))
    group.settle()
    dealer = group.root._dealer
    assert dealer is not None
    assert {dealer.uses(info(number).id) for number in range(2 * BOUND)} == {2}
    for number in range(4):
        group.root.remove_watcher(info(1000 + number).id)
    assert {dealer.uses(info(number).id) for number in range(2 * BOUND)} == {0}


def test_members_that_came_late_get_into_samples_when_watches_are_renewed() -> None:
    group = Group(BOUND + 1)
    watchers = [info(1000 + number) for number in range(8)]
    for watcher in watchers:
        group.watch(watcher)
    group.settle()
    for number in range(BOUND + 1, 2 * BOUND):
        group.register(number)
    group.settle()
    dealer = group.root._dealer
    assert dealer is not None
    assert dealer.uses(info(2 * BOUND - 1).id) == 0
    for _ in range(20):
        for watcher in watchers:
            told = group.root.followers.members[WATCHER][watcher.id].told
            group.watch(watcher, version=told)
        group.settle()
    uses = [dealer.uses(info(number).id) for number in range(2 * BOUND)]
    assert sum(uses) == 8 * BOUND
    assert max(uses) - min(uses) <= 1
    for watcher in watchers:
        sample = group.root.followers.members[WATCHER][watcher.id].sample
        assert sample is not None
        assert len(sample) == BOUND


def test_a_watcher_that_has_nothing_is_told_everything_and_one_that_is_up_to_date_only_that() -> None:
    group = Group(members=1)
    group.watch()
    group.settle()
    told = group.root.followers.members[WATCHER][OTHER.id].told
    group.watch(version=told)
    assert isinstance(group.told(), Change)
    group.root.acknowledge(WATCHER, OTHER.id, group.root.directory.version)
    group.watch(version=0)
    assert isinstance(group.told(), View)


def test_a_new_epoch_is_told_to_inner_nodes_as_if_they_knew_nothing() -> None:
    group = Group()
    for number in range(BOUND + 2):
        group.register(number)
    group.settle()
    (inner,) = group.root.tree.inner_nodes()
    group.root.begin_epoch()
    assert group.root.followers.members[PARENT][inner].told == -1
    assert [to for to, message in group.sent() if isinstance(message, Children)] == [inner]


@pytest.mark.parametrize(("changes", "messages"), [(COPY_MEMBERS_MAX, 1), (COPY_MEMBERS_MAX + 1, 2)])
def test_a_copy_gets_as_many_changes_in_one_message_as_that_holds_and_else_everything(changes: int, messages: int) -> None:
    group = Group()
    group.root.set_copies([THIRD])
    group.settle()
    before = group.root.directory.version
    for number in range(changes):
        group.register(number)
    copies = [message for to, message in group.sent() if to == THIRD.id and isinstance(message, Copy)]
    assert len(copies) == messages
    assert [copy.base for copy in copies] == ([before] if messages == 1 else [0, 0])
    assert (copies[0].is_first, copies[-1].is_last) == (True, True)


def test_a_watcher_of_a_sample_that_does_not_answer_is_sent_all_of_it_again() -> None:
    group = Group(members=BOUND + 1)
    group.watch()
    view = group.told()
    assert group.root.note_silence(WATCHER, OTHER.id)
    again = group.told()
    assert isinstance(view, View)
    assert isinstance(again, View)
    assert len(again.members) == BOUND
