"""Casts: at the source until a root took them, at inner nodes down to their children, at members in order."""

from __future__ import annotations

from msgspec import structs

from iris_overlay.environment import WallClock
from iris_overlay.events import Cast, CastsTaken, Counters
from iris_overlay.groups.casts import ATTEMPTS_MAX, OUTGOING_MAX, TARGETS_MAX, Casts
from iris_overlay.groups.config import GroupConfig
from iris_overlay.groups.io import Outbox
from iris_overlay.groups.messages import (
    STAMP_SHIFT,
    Adopted,
    CastDown,
    CastTaken,
    CastUp,
    Children,
    Doubt,
    GroupMessage,
    Later,
    MemberRecord,
    cast_part,
    member_part,
)
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.testing.cores.signer import NamedSigner, TrustingSigner

LOCAL = NodeInfo(NodeId(b"local".ljust(16)), ("192.0.2.1:1",))
ROOT = NodeInfo(NodeId(b"root".ljust(16)), ("192.0.2.2:1",))
CHILDREN = [NodeInfo(NodeId(bytes([number]) * 16), ()) for number in range(1, 4)]
SOURCE = NodeId(b"source".ljust(16))
G = GroupId(b"g" * 16)


class Fixture:
    """The casts of a node, and what they send."""

    def __init__(self, *, is_active: bool = True, signer: NamedSigner | None = None) -> None:
        self.outbox = Outbox()
        self.counters = Counters()
        signer = signer or TrustingSigner(LOCAL.id)
        self.casts = Casts(LOCAL, GroupConfig(), self.outbox, self.counters, signer, WallClock())
        if is_active:
            self.casts.activate(0.0)
        self.casts.joined(G, 0)

    def sent(self) -> list[tuple[object, GroupMessage]]:
        posts, self.outbox.posts = self.outbox.posts, []
        return list(posts)

    def payloads(self) -> list[bytes]:
        events = [event for event in self.casts.events if isinstance(event, Cast)]
        self.casts.events = []
        assert all(event == Cast(G, SOURCE, event.payload) for event in events)
        return [event.payload for event in events]


def up(sequence: int, base: int, payload: bytes, at: int = 0) -> CastUp:
    said = cast_part(G, sequence, at, payload)
    return CastUp(LOCAL, G, sequence, base, payload, NamedSigner(LOCAL.id).sign(said), at=at)


def down(sequence: int, *, is_replay: bool = False, base: int = 0, at: int = 0) -> CastDown:
    payload = b"%d" % sequence
    signature = NamedSigner(SOURCE).sign(cast_part(G, sequence, at, payload))
    return CastDown(G, SOURCE, sequence, is_replay, base, payload, signature, at)


def test_casts_take_one_way_until_all_were_taken() -> None:
    fixture = Fixture()
    fixture.casts.cast(G, b"0", None, 0.0)
    fixture.casts.cast(G, b"1", ROOT, 0.1)
    assert fixture.sent() == [(G, up(0, 0, b"0")), (G, up(1, 0, b"1", 100))]
    fixture.casts.taken(CastTaken(G, 1))
    assert fixture.casts.deadline() is None
    fixture.casts.cast(G, b"2", ROOT, 0.2)
    assert fixture.sent() == [(ROOT, up(2, 2, b"2", 200))]


def test_the_owner_is_told_when_fewer_casts_are_in_flight() -> None:
    fixture = Fixture()
    assert fixture.casts.in_flight(G) == 0
    for number in range(3):
        fixture.casts.cast(G, b"%d" % number, ROOT, 0.0)
    assert fixture.casts.in_flight(G) == 3
    fixture.casts.taken(CastTaken(G, 1))
    fixture.casts.taken(CastTaken(G, 1))
    assert fixture.casts.in_flight(G) == 1
    assert fixture.casts.events == [CastsTaken(G)], "a repeated acknowledgement says nothing new"


def test_what_no_root_took_is_repeated_and_given_up() -> None:
    fixture = Fixture()
    fixture.casts.cast(G, b"0", ROOT, 0.0)
    sent = fixture.sent()
    while (deadline := fixture.casts.deadline()) is not None:
        fixture.casts.handle_timeout(deadline)
        sent += fixture.sent()
    assert sent == [(ROOT, up(0, 0, b"0"))] + [(G, up(0, 0, b"0"))] * (ATTEMPTS_MAX - 1)
    assert fixture.counters.casts_lost == 1


def test_a_dead_root_is_left_at_once() -> None:
    fixture = Fixture()
    fixture.casts.cast(G, b"0", ROOT, 0.0)
    fixture.sent()
    fixture.casts.peer_lost(ROOT.id, 0.5)
    fixture.casts.handle_timeout(0.5)
    assert fixture.sent() == [(G, up(0, 0, b"0"))]


def test_casts_wait_for_the_ring() -> None:
    fixture = Fixture(is_active=False)
    fixture.casts.cast(G, b"0", None, 0.0)
    assert fixture.sent() == []
    fixture.casts.activate(5.0)
    assert fixture.sent() == [(G, up(0, 0, b"0"))]


def test_what_is_kept_is_bounded() -> None:
    fixture = Fixture()
    for _ in range(OUTGOING_MAX + 3):
        fixture.casts.cast(G, b"", None, 0.0)
    assert fixture.counters.casts_lost == 3
    for number in range(TARGETS_MAX):
        fixture.casts.cast(GroupId(number.to_bytes(16, "big")), b"", None, 0.0)
    assert len(fixture.casts) == TARGETS_MAX
    assert fixture.counters.casts_lost == 3 + OUTGOING_MAX
    fixture.sent()
    fixture.casts.cast(G, b"again", None, 0.0)
    ((_, message),) = fixture.sent()
    assert isinstance(message, CastUp)
    assert message.sequence == (TARGETS_MAX + 1) << STAMP_SHIFT


def test_an_inner_node_passes_each_cast_on_once() -> None:
    fixture = Fixture()
    fixture.casts.adopt(Children(ROOT, G, 5, CHILDREN))
    assert fixture.sent() == [(ROOT, Adopted(G, 5))]
    fixture.casts.receive(ROOT, down(7), 0.0)
    assert fixture.sent() == [(child, down(7)) for child in CHILDREN]
    fixture.casts.receive(ROOT, down(7), 0.0)
    assert fixture.sent() == []
    fixture.casts.receive(ROOT, down(7, is_replay=True), 0.0)
    assert fixture.sent() == [(child, down(7)) for child in CHILDREN]
    assert fixture.payloads() == [b"7"]
    assert fixture.casts.needs(CHILDREN[0].id)
    assert fixture.casts.needs(ROOT.id)


def test_older_children_do_not_replace_newer_ones() -> None:
    fixture = Fixture()
    fixture.casts.adopt(Children(ROOT, G, 5, CHILDREN))
    fixture.casts.adopt(Children(ROOT, G, 4, []))
    assert fixture.casts.copies(G) == 3
    fixture.casts.adopt(Children(ROOT, G, 6, []))
    assert fixture.casts.copies(G) == 0


def test_who_is_no_member_becomes_no_inner_node_whatever_it_is_told() -> None:
    fixture = Fixture()
    for number in range(100):
        group = GroupId(number.to_bytes(16, "big"))
        fixture.casts.adopt(Children(ROOT, group, 5, CHILDREN))
        signature = NamedSigner(SOURCE).sign(cast_part(group, 1, 0, b""))
        fixture.casts.receive(ROOT, CastDown(group, SOURCE, 1, False, 0, b"", signature), 0.0)
    assert len(fixture.casts) == 0
    assert fixture.sent() == []
    fixture.casts.adopt(Children(ROOT, G, 5, CHILDREN))
    fixture.casts.left(G)
    fixture.casts.adopt(Children(ROOT, G, 6, CHILDREN[:1]))  # it has left, and is needed until all know
    assert fixture.casts.copies(G) == 1
    assert fixture.sent() == [(ROOT, Adopted(G, 5)), (ROOT, Adopted(G, 6))]
    fixture.casts.adopt(Children(ROOT, G, 7, []))
    assert fixture.sent() == [(ROOT, Adopted(G, 7))]


def test_a_lost_child_is_reported() -> None:
    fixture = Fixture()
    fixture.casts.adopt(Children(ROOT, G, 5, CHILDREN))
    fixture.sent()
    fixture.casts.peer_lost(CHILDREN[1].id, 0.0)
    fixture.casts.peer_lost(SOURCE, 0.0)
    assert fixture.sent() == [(ROOT, Doubt(G, CHILDREN[1].id))]


def test_casts_are_delivered_in_order_and_gaps_are_counted() -> None:
    fixture = Fixture()
    for sequence in (1, 3, 2, 5):
        fixture.casts.receive(ROOT, down(sequence), 0.0)
    assert fixture.payloads() == [b"1", b"2", b"3"]
    assert fixture.casts.deadline() == 1.0
    fixture.casts.handle_timeout(1.0)
    assert fixture.payloads() == [b"5"]
    assert fixture.counters.casts_skipped == 1


def test_nobody_waits_for_what_the_root_never_sent() -> None:
    fixture = Fixture()
    fixture.casts.receive(ROOT, down(1), 0.0)
    fixture.casts.receive(ROOT, down(4), 0.0)
    fixture.casts.receive(ROOT, down(7, base=6), 0.1)
    assert fixture.payloads() == [b"1", b"4"]
    fixture.casts.receive(ROOT, down(6, base=6), 0.2)
    assert fixture.payloads() == [b"6", b"7"]
    assert fixture.casts.deadline() is None


def test_who_is_no_member_receives_nothing_but_passes_on() -> None:
    fixture = Fixture()
    fixture.casts.left(G)
    fixture.casts.receive(ROOT, down(1), 0.0)
    fixture.casts.joined(G, 0)
    fixture.casts.adopt(Children(ROOT, G, 5, CHILDREN[:1]))
    fixture.sent()
    fixture.casts.left(G)
    fixture.casts.receive(ROOT, down(2), 0.0)
    assert fixture.sent() == [(CHILDREN[0], down(2))]
    assert fixture.payloads() == []
    fixture.casts.forget(G)
    assert len(fixture.casts) == 0


def test_what_a_root_took_is_not_repeated_and_the_rest_is_repeated_as_if_it_were_new() -> None:
    fixture = Fixture()
    for payload in (b"0", b"1", b"2"):
        fixture.casts.cast(G, payload, None, 0.0)
    assert fixture.sent() == [(G, up(0, 0, b"0")), (G, up(1, 0, b"1")), (G, up(2, 0, b"2"))]
    for now in (1.5, 3.0):
        fixture.casts.handle_timeout(now)
    fixture.casts.taken(CastTaken(G, 0))
    fixture.sent()
    sent = []
    while (deadline := fixture.casts.deadline()) is not None:
        fixture.casts.handle_timeout(deadline)
        sent += fixture.sent()
    assert sent == [(G, up(1, 0, b"1")), (G, up(2, 0, b"2"))] * ATTEMPTS_MAX
    assert fixture.counters.casts_lost == 2


def test_repetitions_leave_the_root_some_time() -> None:
    fixture = Fixture()
    fixture.casts.cast(G, b"0", None, 0.0)
    times = []
    while (deadline := fixture.casts.deadline()) is not None:
        times.append(deadline)
        fixture.casts.handle_timeout(deadline)
    assert times == [1.5, 3.0, 6.0, 12.0, 24.0]


def test_what_a_root_that_is_none_any_more_did_not_take_goes_through_the_ring() -> None:
    fixture = Fixture()
    fixture.casts.cast(G, b"0", ROOT, 0.0)
    fixture.casts.cast(G, b"1", ROOT, 0.0)
    fixture.casts.taken(CastTaken(G, 0))
    fixture.sent()
    fixture.casts.moved(G, SOURCE, 0.1)
    fixture.casts.handle_timeout(0.1)
    assert fixture.sent() == [], "another node was asked"
    fixture.casts.moved(G, ROOT.id, 0.1)
    fixture.casts.handle_timeout(0.1)
    assert fixture.sent() == [(G, up(1, 0, b"1"))]


def test_a_root_that_is_none_any_more_took_everything() -> None:
    fixture = Fixture()
    fixture.casts.cast(G, b"0", ROOT, 0.0)
    fixture.casts.taken(CastTaken(G, 0))
    fixture.sent()
    fixture.casts.moved(G, ROOT.id, 0.1)
    assert fixture.casts.deadline() is None
    fixture.casts.cast(G, b"1", None, 0.2)
    assert fixture.sent() == [(G, up(1, 1, b"1", 200))]


def test_nobody_in_the_tree_makes_or_changes_a_cast() -> None:
    fixture = Fixture()
    fixture.casts.adopt(Children(ROOT, G, 1, CHILDREN))
    fixture.sent()
    genuine = down(5)
    forged = NamedSigner(ROOT.id).sign(cast_part(G, 5, 0, genuine.payload))
    for wrong in (
        structs.replace(genuine, payload=b"another"),
        structs.replace(genuine, sequence=6),
        structs.replace(genuine, signature=b""),
        structs.replace(genuine, signature=forged),
        structs.replace(genuine, source=ROOT.id),
        structs.replace(genuine, base=6),
        structs.replace(genuine, at=1000),
    ):
        fixture.casts.receive(ROOT, wrong, 0.0)
    assert fixture.payloads() == []
    assert fixture.sent() == []
    assert fixture.counters.casts_invalid == 7
    fixture.casts.receive(ROOT, genuine, 0.0)
    assert fixture.payloads() == [b"5"], "its number is not used up"
    assert fixture.sent() == [(child, genuine) for child in CHILDREN]


def test_a_newcomer_does_not_take_what_was_cast_before_it_joined() -> None:
    fixture = Fixture()
    fixture.casts.joined(G, 1000)
    fixture.casts.adopt(Children(ROOT, G, 1, CHILDREN))
    fixture.sent()
    fixture.casts.receive(ROOT, down(5, at=999), 5.0)
    assert fixture.payloads() == []
    assert fixture.counters.casts_early == 1
    assert fixture.sent() == [(child, down(5, at=999)) for child in CHILDREN], "others may have joined earlier"
    fixture.casts.receive(ROOT, down(6, at=1000), 5.0)
    assert fixture.payloads() == [b"6"]


def member(since: int) -> MemberRecord:
    record = MemberRecord(CHILDREN[0], b"", 1, since=since)
    return structs.replace(record, permit=NamedSigner(CHILDREN[0].id).permit(G, member_part(record, CHILDREN[0].id)))


def test_a_source_with_a_slow_clock_says_the_time_of_the_last_member_from_then_on() -> None:
    fixture = Fixture()
    fixture.casts.cast(G, b"0", ROOT, 0.0)
    fixture.casts.cast(G, b"1", ROOT, 0.1)
    fixture.casts.taken(CastTaken(G, 0))
    fixture.sent()
    fixture.casts.later(Later(G, member(5000)), 0.2)
    assert fixture.sent() == [(ROOT, up(1, 0, b"1", 5000))]
    fixture.casts.later(Later(G, member(5000)), 0.2)
    fixture.casts.later(Later(G, member(4000)), 0.2)
    assert fixture.sent() == [], "that is known"
    fixture.casts.cast(G, b"2", ROOT, 0.3)
    fixture.casts.cast(G, b"3", ROOT, 6.0)
    assert [message.at for _, message in fixture.sent() if isinstance(message, CastUp)] == [5000, 6000]


def test_a_root_may_ask_for_later_times_without_end() -> None:
    """Each time with a member that joined a moment later. Nothing raises, and the cast is given up in the end."""
    fixture = Fixture()
    fixture.casts.cast(G, b"0", ROOT, 0.0)
    for since in range(5000, 7000):
        fixture.casts.later(Later(G, member(since)), 0.1)
    deadline = fixture.casts.deadline()
    assert deadline is not None
    fixture.casts.handle_timeout(deadline)
    assert fixture.counters.casts_lost == 1


def test_a_member_that_nobody_permitted_moves_no_time() -> None:
    fixture = Fixture(signer=NamedSigner(LOCAL.id))
    fixture.casts.cast(G, b"0", ROOT, 0.0)
    fixture.sent()
    fixture.casts.later(Later(G, structs.replace(member(4000), since=5000)), 0.2)
    assert fixture.sent() == []
    assert fixture.counters.permits_invalid == 1
    fixture.casts.later(Later(G, member(5000)), 0.2)
    assert len(fixture.sent()) == 1
