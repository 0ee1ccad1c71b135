"""The watch side: views, changes, renewals, and roots that come and go."""

from __future__ import annotations

import random

import pytest

from iris_overlay.errors import TooManyGroupsError
from iris_overlay.events import ViewChanged
from iris_overlay.groups.config import GroupConfig
from iris_overlay.groups.io import Outbox
from iris_overlay.groups.messages import Change, Doubt, GroupMessage, MemberRecord, Told, Unwatch, View, Watch
from iris_overlay.groups.watches import BELIEVE_S, HIDDEN_ASKED_S, MASK_S, MASKED_MAX, TWO_ROOTS_S, Watches
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.testing.cores.signer import TrustingSigner

LOCAL = NodeInfo(NodeId(b"local".ljust(16)), ("192.0.2.1:1",))
ROOT = NodeInfo(NodeId(b"root".ljust(16)), ("192.0.2.2:1",))
HEIR = NodeInfo(NodeId(b"heir".ljust(16)), ("192.0.2.3:1",))
A, B = GroupId(b"a" * 16), GroupId(b"b" * 16)
#: The largest whole view here.
BOUND = 32
CONFIG = GroupConfig(groups_watched_max=2, view_members_max=BOUND)
ASK = (A, Watch(LOCAL, 0, [(A, 0, b"")]))


def record(number: int, stamp: int = 1) -> MemberRecord:
    return MemberRecord(NodeInfo(NodeId(number.to_bytes(2, "big") * 8), ()), b"", stamp)


def view(version: int, *members: MemberRecord, root: NodeInfo = ROOT, is_watched: bool = True, size: int | None = None) -> View:
    return View(root, A, version, len(members) if size is None else size, is_watched, list(members))


class Fixture:
    """A watch side and what it sends."""

    def __init__(self, local: NodeInfo = LOCAL) -> None:
        self.outbox = Outbox()
        self.watches = Watches(local, CONFIG, random.Random(1), self.outbox, TrustingSigner(local.id))
        self.watches.activate(0.0)

    def sent(self) -> list[tuple[object, GroupMessage]]:
        posts, self.outbox.posts = self.outbox.posts, []
        return list(posts)

    def seen(self) -> list[set[int]]:
        return [{int.from_bytes(node[:2], "big") for node in event.members} for event in self.watches.views_changed()]


def watching(*members: MemberRecord, **options: object) -> Fixture:
    fixture = Fixture()
    fixture.watches.watch(A, 0.0)
    fixture.watches.view(view(5, *members, **options), 0.1)  # type: ignore[arg-type]
    fixture.watches.views_changed()
    fixture.sent()
    return fixture


def test_a_watch_is_routed_answered_and_acknowledged() -> None:
    fixture = Fixture()
    fixture.watches.watch(A, 0.0)
    fixture.watches.watch(A, 0.0)
    assert fixture.sent() == [ASK]
    assert fixture.seen() == []
    fixture.watches.view(view(5), 0.1)
    assert fixture.sent() == [(ROOT, Told(A, 5))]
    assert fixture.watches.views_changed() == [ViewChanged(A, {}, 0, True)]
    assert fixture.watches.needs(ROOT.id)


def test_a_root_is_asked_again_if_there_can_be_no_link_to_it() -> None:
    hidden, hidden_root = NodeInfo(LOCAL.id, ()), NodeInfo(ROOT.id, ())
    for local, root, is_asked in ((hidden, hidden_root, True), (LOCAL, hidden_root, False), (hidden, ROOT, False)):
        fixture = Fixture(local)
        fixture.watches.watch(A, 0.0)
        fixture.watches.view(view(5, root=root), 0.1)
        fixture.sent()
        for _ in range(3):
            fixture.watches.handle_timeout(fixture.watches.deadline() or 0.0)
            asked = [message for target, message in fixture.sent() if target == A]
            assert asked == ([Watch(local, 0, [(A, 0, b"")])] if is_asked else [])
            if not is_asked:
                break
            fixture.watches.view(view(5, root=root), 1.0)
            fixture.sent()
            assert fixture.watches.deadline() == 1.0 + HIDDEN_ASKED_S


def test_who_answers_with_less_than_another_root_told_is_asked_again() -> None:
    fixture = watching(record(1))
    fixture.watches.lose_root(ROOT.id, 1.0)
    fixture.watches.handle_timeout(2.0)
    assert fixture.sent() == [ASK]
    fixture.watches.view(view(3, root=HEIR), 1.0)
    fixture.sent()
    fixture.watches.view(view(3, root=HEIR), 2.0)
    assert fixture.seen() == [set()]
    assert fixture.sent() == [(HEIR, Told(A, 3))]
    fixture.watches.view(view(3, root=HEIR), 3.0)  # again: datagrams and ways through the ring repeat
    fixture.sent()
    fixture.watches.handle_timeout(2.0 + TWO_ROOTS_S)
    assert fixture.sent() == [ASK]
    fixture.watches.view(view(3, root=HEIR), 8.0)
    fixture.sent()
    fixture.watches.handle_timeout(8.0 + TWO_ROOTS_S)
    assert fixture.sent() == []


def test_an_answer_that_comes_late_is_not_asked_for_again_at_a_time_that_has_passed() -> None:
    fixture = watching(record(1))
    fixture.watches.lose_root(ROOT.id, 1.0)
    fixture.watches.view(view(3, record(1), root=HEIR), 2.0)  # by a younger root: to be asked for again
    fixture.watches.ask_all(30.0)  # the node stood still meanwhile
    fixture.watches.view(view(3, record(1), root=HEIR), 30.0)
    deadline = fixture.watches.deadline()
    assert deadline is not None
    assert deadline > 30.0


def test_changes_apply_to_the_version_that_they_change() -> None:
    fixture = watching(record(1), record(2))
    change = Change(A, 5, 7, 2, [record(3)], [record(1).info.id])
    fixture.watches.change(ROOT, change, 1.0)
    assert fixture.seen() == [{2, 3}]
    assert fixture.sent() == [(ROOT, Told(A, 7))]
    fixture.watches.change(ROOT, change, 1.0)
    assert fixture.seen() == []
    assert fixture.sent() == [(ROOT, Told(A, 7))]
    fixture.watches.change(HEIR, Change(A, 7, 8, 0, [], []), 1.0)
    assert fixture.sent() == []
    fixture.watches.change(ROOT, Change(A, 8, 9, 3, [record(4)], []), 1.0)
    assert fixture.seen() == []
    assert fixture.sent() == [(ROOT, Told(A, 0))], "one change is missing: the root sends everything"


def test_an_unanswered_watch_is_asked_again() -> None:
    fixture = Fixture()
    fixture.watches.watch(A, 0.0)
    fixture.sent()
    assert fixture.watches.deadline() == CONFIG.resend_s
    fixture.watches.handle_timeout(CONFIG.resend_s)
    assert fixture.sent() == [ASK]
    assert fixture.watches.deadline() == 2 * CONFIG.resend_s
    fixture.watches.handle_timeout(2 * CONFIG.resend_s)
    assert fixture.sent() == [ASK]
    assert fixture.watches.deadline() == 4 * CONFIG.resend_s


def test_a_root_that_is_none_any_more_is_ignored() -> None:
    fixture = watching(record(1))
    fixture.watches.view(view(1 << 32, record(2), root=HEIR), 1.0)
    assert fixture.seen() == [{2}]
    fixture.sent()
    fixture.watches.view(view(9, record(1), root=ROOT), 1.0)
    assert fixture.seen() == []
    assert fixture.sent() == []


@pytest.mark.parametrize("how", ["dead", "unreachable", "forgotten"])
def test_watchers_of_a_lost_root_ask_the_ring(how: str) -> None:
    fixture = watching(record(1))
    if how == "forgotten":
        fixture.watches.forgotten(ROOT.id, A, 5.0)
    elif how == "dead":
        fixture.watches.peer_dead(ROOT.id, 5.0)
    else:
        fixture.watches.lose_root(ROOT.id, 5.0)
    fixture.watches.handle_timeout(5.0 + CONFIG.repair_jitter_s)
    assert fixture.sent() == [ASK]
    # A new root that knows nothing has a lower version. It is asked twice, for it may be about to learn more.
    fixture.watches.view(view(2, root=HEIR), 5.5)
    fixture.watches.view(view(2, root=HEIR), 5.6)
    assert fixture.seen() == []
    fixture.watches.handle_timeout(5.5 + BELIEVE_S)
    assert fixture.sent() == [ASK]
    fixture.watches.view(view(2, root=HEIR), 5.5 + BELIEVE_S)
    assert fixture.seen() == [set()]


def test_what_a_returning_root_learns_is_believed_at_once() -> None:
    fixture = watching(record(1))
    fixture.watches.lose_root(ROOT.id, 5.0)
    fixture.watches.view(view(2, root=HEIR), 5.5)
    assert fixture.seen() == []
    fixture.watches.view(view(1 << 32, record(1), record(2), root=HEIR), 5.6)
    assert fixture.seen() == [{1, 2}]
    assert fixture.sent() == [(HEIR, Told(A, 1 << 32))]


def test_a_root_that_was_alone_is_asked_again_before_it_is_believed() -> None:
    fixture = watching(record(1), record(2), record(3))
    fixture.watches.view(view(1 << 32, record(1), root=HEIR), 1.0)
    assert fixture.seen() == []
    fixture.watches.handle_timeout(1.0 + BELIEVE_S)
    assert fixture.sent() == [ASK]
    fixture.watches.view(view(1 << 32, record(1), root=HEIR), 1.0 + BELIEVE_S)
    assert fixture.seen() == [{1}]
    assert fixture.sent() == [(HEIR, Told(A, 1 << 32))]


def test_each_dead_member_is_left_out_for_its_own_time() -> None:
    fixture = watching(record(1), record(2))
    fixture.watches.peer_dead(record(1).info.id, 1.0)
    fixture.watches.peer_dead(record(2).info.id, 3.0)
    assert fixture.seen() == [set()]
    fixture.watches.handle_timeout(1.0 + MASK_S)
    assert fixture.seen() == [{1}]
    fixture.watches.handle_timeout(3.0 + MASK_S)
    assert fixture.seen() == [{1, 2}]


def test_a_broken_link_makes_it_ask() -> None:
    fixture = watching(record(1))
    fixture.watches.link_lost(ROOT.id, 5.0)
    fixture.watches.handle_timeout(5.0 + CONFIG.repair_jitter_s)
    assert fixture.sent() == [ASK]


def test_renewals_go_to_the_root_with_the_version() -> None:
    fixture = watching(record(1))
    fixture.watches.handle_timeout(66.0)
    assert fixture.sent() == [(ROOT, Watch(LOCAL, 0, [(A, 5, b"")]))]
    fixture.watches.change(ROOT, Change(A, 5, 5, 1, [], []), 66.1)
    assert fixture.seen() == []
    deadline = fixture.watches.deadline()
    assert deadline is not None
    assert deadline >= 120.0


def test_a_member_that_is_dead_from_here_is_left_out_and_reported() -> None:
    fixture = watching(record(1), record(2))
    fixture.watches.peer_dead(record(1).info.id, 1.0)
    assert fixture.seen() == [{2}]
    assert fixture.sent() == [(ROOT, Doubt(A, record(1).info.id))]
    fixture.watches.view(view(1 << 32, record(1), record(2), root=HEIR), 2.0)
    assert (HEIR, Doubt(A, record(1).info.id)) in fixture.sent()
    fixture.watches.handle_timeout(1.0 + MASK_S)
    assert fixture.seen()[-1] == {1, 2}


def test_a_new_registration_is_a_sign_of_life() -> None:
    fixture = watching(record(1))
    fixture.watches.peer_dead(record(1).info.id, 1.0)
    assert fixture.seen() == [set()]
    fixture.watches.change(ROOT, Change(A, 5, 6, 1, [record(1, stamp=1 << 32)], []), 2.0)
    assert fixture.seen() == [{1}]


def test_a_view_that_nobody_keeps_fresh_is_asked_for_when_used() -> None:
    fixture = watching(record(1), is_watched=False)
    fixture.watches.use(A, 0.5)
    assert fixture.sent() == []
    fixture.watches.use(A, 1.2)
    fixture.watches.use(A, 1.3)
    assert fixture.sent() == [ASK]
    fixture.watches.use(B, 1.3)
    assert not fixture.watches.needs(ROOT.id)


def test_the_size_of_a_sample_is_that_of_the_group() -> None:
    fixture = Fixture()
    fixture.watches.watch(A, 0.0)
    fixture.watches.view(view(5, *(record(number) for number in range(32)), size=1000), 0.1)
    (event,) = fixture.watches.views_changed()
    assert (event.size, len(event.members)) == (1000, 32)


def test_unwatching_ends_everything() -> None:
    fixture = watching(record(1))
    fixture.watches.unwatch(A)
    fixture.watches.unwatch(B)
    assert fixture.sent() == [(ROOT, Unwatch(LOCAL.id, [A]))]
    assert fixture.watches.deadline() is None
    fixture.watches.view(view(9, record(1)), 1.0)
    fixture.watches.change(ROOT, Change(A, 9, 10, 1, [], []), 1.0)
    assert fixture.sent() == [(ROOT, Unwatch(LOCAL.id, [A]))] * 2
    assert fixture.seen() == []


def test_watches_are_bounded() -> None:
    fixture = Fixture()
    fixture.watches.watch(A, 0.0)
    fixture.watches.watch(B, 0.0)
    with pytest.raises(TooManyGroupsError):
        fixture.watches.watch(GroupId(b"c" * 16), 0.0)


@pytest.mark.parametrize("goes_by", ["change", "view"])
def test_a_dead_member_that_went_is_not_believed_in_again_though_an_old_root_names_it(goes_by: str) -> None:
    fixture = watching(record(1), record(2))
    if goes_by == "change":
        fixture.watches.change(ROOT, Change(A, 5, 6, 1, [], [record(1).info.id]), 1.0)
    else:
        fixture.watches.view(view(6, record(2)), 1.0)
    fixture.watches.peer_dead(record(1).info.id, 1.1)  # its death is heard of after that
    fixture.watches.views_changed()
    fixture.watches.view(view(7, record(1), record(2), root=HEIR), 1.2)
    assert [list(event.members) for event in fixture.watches.views_changed()] == [[record(2).info.id]]
    fixture.watches.view(view(8, record(1, stamp=2), record(2), root=HEIR), 1.3)
    assert [len(event.members) for event in fixture.watches.views_changed()] == [2]  # a new registration is a sign of life
    fixture.watches.view(view(9, record(1), record(2), root=HEIR), 1.1 + MASK_S)
    fixture.watches.handle_timeout(1.1 + MASK_S)
    assert [len(event.members) for event in fixture.watches.views_changed()] == [2]  # the ring knows by then


def test_a_dead_member_stays_left_out_when_it_goes_and_an_old_root_names_it_again() -> None:
    fixture = watching(record(1), record(2))
    fixture.watches.peer_dead(record(1).info.id, 1.0)
    fixture.watches.views_changed()
    fixture.watches.view(view(6, record(2)), 1.1)
    fixture.watches.views_changed()
    fixture.watches.view(view(7, record(1), record(2), root=HEIR), 1.2)
    assert all(list(event.members) == [record(2).info.id] for event in fixture.watches.views_changed())


def test_a_dead_member_is_not_believed_in_again_while_no_root_answers() -> None:
    fixture = watching(record(1), record(2))
    fixture.watches.peer_dead(record(1).info.id, 1.0)
    fixture.watches.lose_root(ROOT.id, 1.1)  # it died, too, with all who knew
    fixture.watches.views_changed()
    fixture.watches.handle_timeout(1.0 + MASK_S)
    assert not any(record(1).info.id in event.members for event in fixture.watches.views_changed())
    fixture.watches.view(view(6, record(1), record(2), root=HEIR), 1.1 + MASK_S)
    fixture.watches.views_changed()
    fixture.watches.handle_timeout(1.0 + MASK_S + BELIEVE_S)
    assert [len(event.members) for event in fixture.watches.views_changed()] == [2]


@pytest.mark.parametrize("size", [BOUND, BOUND + 1])
def test_who_went_is_remembered_unless_the_view_is_a_sample(size: int) -> None:
    """Of a sample nobody knows who went: it shows others each time."""
    members = [record(number) for number in range(1, BOUND + 1)]
    fixture = watching(*members, size=BOUND)
    fixture.watches.view(view(6, *members[1:], size=size), 1.0)
    assert (members[0].info.id in fixture.watches.groups[A].gone) == (size <= BOUND)


def test_a_view_of_the_same_root_and_version_is_taken_again() -> None:
    """The root says what it has said: the acknowledgement was lost."""
    fixture = watching(record(1))
    fixture.watches.view(view(5, record(1)), 0.2)
    assert fixture.sent() == [(ROOT, Told(A, 5))]
    assert fixture.watches.views_changed() == []
    fixture.watches.handle_timeout(0.2 + 2 * TWO_ROOTS_S)
    assert fixture.sent() == [], "it is not asked again, as one of two roots would be"


def test_a_view_of_another_root_has_to_be_newer() -> None:
    fixture = watching(record(1), record(2))
    fixture.watches.view(view(5, record(1), record(2), record(3), root=HEIR), 0.2)
    assert fixture.watches.root_of(A) == ROOT
    assert fixture.seen() == []
    fixture.watches.handle_timeout(0.2 + CONFIG.repair_jitter_s)
    assert fixture.sent() == [ASK]
    fixture = watching(record(1), record(2))
    fixture.watches.view(view(6, record(1), record(2), record(3), root=HEIR), 0.2)
    assert fixture.watches.root_of(A) == HEIR
    assert fixture.seen() == [{1, 2, 3}]


@pytest.mark.parametrize("how", ["lost", "link"])
def test_watchers_of_a_lost_root_ask_at_random_times_within_the_jitter(how: str) -> None:
    fixture = watching(record(1))
    if how == "lost":
        fixture.watches.lose_root(ROOT.id, 1.0)
    else:
        fixture.watches.link_lost(ROOT.id, 1.0)
    deadline = fixture.watches.deadline()
    assert deadline is not None
    assert 1.0 < deadline <= 1.0 + CONFIG.repair_jitter_s


def test_watches_are_renewed_after_about_the_configured_time() -> None:
    for seed in range(20):
        watches = Watches(LOCAL, CONFIG, random.Random(seed), Outbox(), TrustingSigner(LOCAL.id))
        watches.activate(0.0)
        watches.watch(A, 0.0)
        watches.view(view(5), 0.1)
        deadline = watches.deadline()
        assert deadline is not None
        assert 0.9 * CONFIG.renew_s <= deadline <= 1.1 * CONFIG.renew_s


def test_the_end_of_watching_is_routed_while_the_root_is_unknown() -> None:
    fixture = Fixture()
    fixture.watches.watch(A, 0.0)
    fixture.sent()
    fixture.watches.unwatch(A)
    assert fixture.sent() == [(A, Unwatch(LOCAL.id, [A]))]


def test_nobody_is_told_that_a_view_which_was_not_kept_fresh_is_watched_no_more() -> None:
    fixture = watching(record(1), is_watched=False)
    fixture.watches.unwatch(A)
    assert fixture.sent() == []


def test_only_the_root_can_say_that_it_does_not_know_the_watcher() -> None:
    fixture = watching(record(1))
    fixture.watches.forgotten(HEIR.id, A, 0.2)
    fixture.watches.forgotten(ROOT.id, B, 0.2)
    assert fixture.sent() == []
    assert fixture.watches.root_of(A) == ROOT
    fixture.watches.forgotten(ROOT.id, A, 0.2)
    assert fixture.sent() == [ASK]
    fixture.watches.forgotten(ROOT.id, A, 0.3)
    assert fixture.sent() == [], "it is asked already"


def test_a_later_incarnation_of_a_dead_member_can_die_too() -> None:
    fixture = watching(record(1))
    node = record(1).info.id
    fixture.watches.peer_dead(node, 1.0)
    assert fixture.seen() == [set()]
    fixture.watches.change(ROOT, Change(A, 5, 6, 1, [record(1, stamp=2)], []), 1.1)
    assert fixture.seen() == [{1}]
    fixture.sent()
    fixture.watches.peer_dead(node, 1.2)
    assert fixture.seen() == [set()]
    assert (ROOT, Doubt(A, node)) in fixture.sent()


def test_the_size_of_a_sample_counts_no_dead_members() -> None:
    fixture = watching(*(record(number) for number in range(1, BOUND + 1)), size=100)
    fixture.watches.peer_dead(record(1).info.id, 1.0)
    (event,) = fixture.watches.views_changed()
    assert (len(event.members), event.size) == (BOUND - 1, 99)


def test_nothing_is_lacking_in_a_view_before_the_first_one() -> None:
    fixture = Fixture()
    fixture.watches.watch(A, 0.0)
    assert not fixture.watches.lacks(A, LOCAL.id)
    fixture.watches.view(view(1, record(1)), 0.1)
    assert fixture.watches.lacks(A, LOCAL.id)
    assert not fixture.watches.lacks(A, record(1).info.id)
    assert not fixture.watches.lacks(B, LOCAL.id)


def test_a_new_size_alone_is_reported() -> None:
    fixture = watching(*(record(number) for number in range(1, BOUND + 1)), size=100)
    fixture.watches.change(ROOT, Change(A, 5, 6, 101, [], []), 1.0)
    assert [event.size for event in fixture.watches.views_changed()] == [101]
    fixture.watches.change(ROOT, Change(A, 6, 7, 101, [], []), 1.0)
    assert fixture.watches.views_changed() == []


def test_all_watches_of_a_root_are_renewed_in_one_message() -> None:
    fixture = watching()
    fixture.watches.watch(B, 0.2)
    fixture.watches.view(View(ROOT, B, 7, 0, True, []), 0.3)
    fixture.sent()
    fixture.watches.ask_all(1.0)
    assert fixture.sent() == [(ROOT, Watch(LOCAL, 0, [(A, 5, b""), (B, 7, b"")]))]


@pytest.mark.parametrize(("size", "is_believed"), [(2, True), (1, False)])
def test_another_root_is_believed_at_once_unless_it_knows_less_than_half(size: int, is_believed: bool) -> None:
    fixture = watching(*(record(number) for number in range(1, 4)))
    fixture.watches.lose_root(ROOT.id, 1.0)
    fixture.watches.view(view(6, *(record(number) for number in range(1, size + 1)), root=HEIR), 1.1)
    assert fixture.seen() == ([set(range(1, size + 1))] if is_believed else [])


def test_the_root_that_was_asked_is_none_any_more() -> None:
    fixture = watching(record(1))
    fixture.watches.moved(A, HEIR.id, 1.0)
    fixture.watches.moved(B, ROOT.id, 1.0)
    assert fixture.sent() == [], "another node was asked, and for another group"
    fixture.watches.moved(A, ROOT.id, 1.0)
    assert fixture.sent() == [ASK]
    assert fixture.watches.root_of(A) is None
    assert fixture.seen() == [], "what is known stays known until there is an answer"
    fixture.watches.moved(A, ROOT.id, 1.0)
    assert fixture.sent() == [], "it asks through the ring already"


def test_a_root_that_dies_with_the_last_member_is_not_taken_for_nobody() -> None:
    member = MemberRecord(ROOT, b"", 1)
    fixture = watching(member)
    fixture.watches.peer_dead(ROOT.id, 1.0)
    assert fixture.seen() == [], "who was the root may have known of others"
    fixture.watches.handle_timeout(1.0 + CONFIG.repair_jitter_s)
    assert fixture.sent() == [ASK]
    fixture.watches.view(view(9, member, record(2), root=HEIR), 1.2)
    assert fixture.seen() == [{2}]


def test_nobody_is_known_after_a_while_though_no_root_says_so() -> None:
    fixture = watching(MemberRecord(ROOT, b"", 1))
    fixture.watches.peer_dead(ROOT.id, 1.0)
    fixture.watches.handle_timeout(1.0 + BELIEVE_S - 0.01)
    assert fixture.seen() == []
    fixture.watches.handle_timeout(1.0 + BELIEVE_S)
    assert fixture.seen() == [set()]


def test_a_root_that_dies_beside_members_that_live_is_out_of_the_view_at_once() -> None:
    fixture = watching(MemberRecord(ROOT, b"", 1), record(2))
    fixture.watches.peer_dead(ROOT.id, 1.0)
    assert fixture.seen() == [{2}]


def test_a_change_with_more_members_than_a_view_can_have_does_not_apply() -> None:
    """A lying root may name new members in each change. The watcher asks for the whole view, as an honest root would send."""
    fixture = watching(*(record(number) for number in range(1, BOUND + 1)))
    more = Change(A, 5, 6, BOUND + 1, [record(100)], [])
    assert not fixture.watches.change(ROOT, more, 0.2)
    assert fixture.sent() == [(ROOT, Told(A, 0))]
    assert fixture.seen() == []
    exchanged = Change(A, 5, 6, BOUND, [record(100)], [record(1).info.id])
    assert fixture.watches.change(ROOT, exchanged, 0.2)
    assert fixture.seen() == [{*range(2, BOUND + 1), 100}]


def test_a_view_with_more_members_than_the_bound_of_this_node_is_cut() -> None:
    """Its root lies, or has another bound: what a watcher holds stays within its own."""
    fixture = watching(*(record(number) for number in range(1, BOUND + 2)))
    assert len(fixture.watches.groups[A].members) == BOUND


def test_the_dead_that_are_left_out_of_a_view_are_bounded() -> None:
    """A root that lies names ever new members, who then say that they leave: the first of them are believed again."""
    fixture = watching(record(1))
    numbers = list(range(1, MASKED_MAX + 3))
    for version, number in enumerate(numbers, 6):
        fixture.watches.view(view(version, record(number)), 0.2)
        fixture.watches.peer_dead(record(number).info.id, 0.2)
    assert len(fixture.watches.groups[A].masked) == MASKED_MAX
    fixture.watches.views_changed()
    last = [record(number) for number in numbers[2:][-BOUND + 1 :]]
    fixture.watches.view(view(1000, record(numbers[0]), *last), 0.3)
    assert fixture.seen() == [{numbers[0]}]
