"""One overlay by hand: what its owner may rely on, whatever owner and peers do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from iris_overlay.detector.messages import Ping, encode_detector_message
from iris_overlay.errors import StateError
from iris_overlay.events import (
    Cast,
    CastsTaken,
    Departed,
    DialRequested,
    Event,
    GroupJoined,
    GroupLeft,
    GroupMember,
    LinkReleased,
    PacketReceived,
    PeerDied,
    ProtocolViolated,
    Settled,
    ViewChanged,
)
from iris_overlay.groups.messages import Watch, encode_group_message, user_part
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo, decode_beacon, encode_beacon
from iris_overlay.overlay import CONTACTS_ENOUGH, TO_MERGE_MAX
from iris_overlay.peers.dialler import DIAL_FORGOTTEN_S
from iris_overlay.ring.messages import (
    Direct,
    LeafAck,
    LeafProbe,
    Leaving,
    Routed,
    RoutedKind,
    decode_ring_message,
    encode_ring_message,
)
from iris_py.testing.cores.signer import NamedSigner
from tests.unit.overlay.overlays import (
    CONFIG,
    GROUP,
    LOCAL,
    ONE,
    TWO,
    add_leaf,
    make_info,
    new_overlay,
    relayed,
    started,
    with_leaf,
)

if TYPE_CHECKING:
    from iris_overlay.overlay import Overlay


def completions(overlay: Overlay) -> list[Event]:
    return [event for event in overlay.events_received() if isinstance(event, Settled | GroupJoined | GroupLeft | Departed)]


def dials(overlay: Overlay) -> list[str]:
    return [event.address for event in overlay.events_received() if isinstance(event, DialRequested)]


def run(overlay: Overlay, now: float, until: float) -> list[Event]:
    """Let time pass while nobody answers; return what happened."""
    happened = overlay.events_received()
    while (due := overlay.deadline()) is not None and due <= until:
        now = max(now, due)
        overlay.handle_timeout(now)
        happened += overlay.events_received()
    return happened


def sought(overlay: Overlay) -> list[NodeId]:
    """Return whom the overlay asks whether it is in the same ring."""
    messages = [(peer, decode_ring_message(data)) for peer, data in overlay.messages_to_send()]
    return [peer for peer, message in messages if isinstance(message, Routed) and message.kind is RoutedKind.SEEK]


def meet(overlay: Overlay, stranger: NodeInfo, now: float) -> None:
    """Let the beacon of a stranger arrive."""
    data = encode_beacon(stranger, wants_answer=False, peers=0)
    assert data is not None
    overlay.receive_datagram(stranger.id, data, ("198.51.100.9", 7000), now)


# The start


def test_alone_and_sure_of_it() -> None:
    overlay = started()
    overlay.join_group(GROUP, b"", 0.0)
    assert overlay.events_received() == [Settled(), GroupJoined(GROUP)]
    assert overlay.is_active()
    assert overlay.size_estimate() == 1
    assert overlay.peers() == []


def test_the_search_ends_with_the_last_failure() -> None:
    overlay = started(seeds=("seed:1",), remembered=("old:1",))
    assert dials(overlay) == ["seed:1", "old:1"]
    overlay.dial_failed("old:1", 0.4)
    assert completions(overlay) == []
    overlay.dial_failed("seed:1", 0.5)
    assert completions(overlay) == [Settled()]


def test_the_search_ends_when_a_link_breaks_before_it_opened() -> None:
    overlay = started(seeds=("seed:1",))
    overlay.dial_succeeded("seed:1", ONE.id, 0.1)
    assert completions(overlay) == []
    overlay.link_lost(ONE.id, 0.2)
    assert completions(overlay) == [Settled()]


def test_the_search_ends_at_the_bound() -> None:
    overlay = started(seeds=("hole:1",))
    assert overlay.deadline() == CONFIG.settle_timeout_s
    overlay.handle_timeout(1.0)
    assert completions(overlay) == [Settled()]


def test_a_contact_that_says_nothing_is_waited_for_and_then_given_up() -> None:
    overlay = started(seeds=("seed:1",))
    overlay.dial_succeeded("seed:1", ONE.id, 0.1)
    overlay.link_opened(ONE, 0.1)
    overlay.join_group(GROUP, b"", 0.2)
    assert not [event for event in run(overlay, 0.2, CONFIG.join_timeout_s - 0.1) if isinstance(event, Settled | GroupJoined)]
    overlay.messages_to_send()
    late = run(overlay, CONFIG.join_timeout_s - 0.1, CONFIG.join_timeout_s)
    assert late[-2:] == [Settled(), GroupJoined(GROUP)]
    assert sought(overlay) == [ONE.id]  # It may answer later: its ring is to be merged with.


def test_a_seed_that_is_ourselves_is_an_outcome() -> None:
    overlay = started(seeds=("name:7000", LOCAL.addresses[0]))
    assert dials(overlay) == ["name:7000"]
    overlay.dial_succeeded("name:7000", LOCAL.id, 0.1)
    assert completions(overlay) == [Settled()]


def test_beacons_find_strangers() -> None:
    overlay = new_overlay()
    overlay.start(0.0, (), (), True)
    ((destination, _),) = overlay.datagrams_to_send()
    assert destination is None
    answer = encode_beacon(ONE, wants_answer=False, peers=0)
    assert answer is not None
    overlay.receive_datagram(ONE.id, answer, ("198.51.100.1", 9), 0.01)
    assert overlay.events_received() == [DialRequested(ONE.addresses[0], ONE.id)]
    overlay.handle_timeout(CONFIG.beacon_wait_s)
    assert overlay.events_received() == []  # It was found by a beacon, and is part of the search.


@pytest.mark.parametrize("neighbours", [0, 1])
def test_a_beacon_tells_how_many_peers_there_are(neighbours: int) -> None:
    overlay = started(beacons=True)
    for info in (ONE,)[:neighbours]:
        add_leaf(overlay, info, 0.0)
    overlay.datagrams_to_send()
    overlay.handle_timeout(1.2 * CONFIG.beacon_interval_s)
    beacons = [decode_beacon(data) for destination, data in overlay.datagrams_to_send() if destination is None]
    assert {(beacon.peers, beacon.wants_answer) for beacon in beacons} == {(neighbours, neighbours == 0)}


def test_a_stranger_that_belongs_next_to_this_node_is_dialled_and_most_others_are_not() -> None:
    overlay = started(beacons=True)
    overlay.handle_timeout(CONFIG.settle_timeout_s)
    for distance in range(1, 41):
        add_leaf(overlay, make_info(100 + distance), 1.0)
        add_leaf(overlay, make_info(100 - distance), 1.0)
    overlay.events_received()
    near = [NodeInfo(NodeId(LOCAL.id[:15] + bytes([last])), (f"192.0.2.{last}:7000",)) for last in range(2, 12)]
    far = [make_info(number) for number in range(200, 210)]
    for stranger in near + far:
        meet(overlay, stranger, 1.0)
    overlay.handle_timeout(1.0 + CONFIG.beacon_dial_jitter_s)
    dialled = dials(overlay)
    assert {info.addresses[0] for info in near} <= set(dialled)
    assert len(dialled) < len(near) + len(far) / 2


def test_few_are_dialled_at_once_until_a_ring_is_found() -> None:
    overlay = started(seeds=tuple(f"seed:{number}" for number in range(1, 41)))
    assert len(dials(overlay)) == CONFIG.search_dials_max
    overlay.handle_timeout(CONFIG.settle_timeout_s)
    assert overlay.is_active()
    assert len(dials(overlay)) == CONFIG.dials_max - CONFIG.search_dials_max


def test_a_search_with_enough_contacts_dials_nobody_else_and_a_ring_dials_strangers() -> None:
    overlay = started(seeds=tuple(f"seed:{number}" for number in range(1, 41)))
    assert len(dials(overlay)) == CONFIG.search_dials_max
    for number in range(1, CONTACTS_ENOUGH):
        overlay.link_opened(make_info(number), 0.1)
    overlay.dial_failed("seed:1", 0.1)
    assert dials(overlay) == ["seed:5"]
    overlay.link_opened(make_info(CONTACTS_ENOUGH), 0.1)
    overlay.dial_failed("seed:2", 0.1)
    assert dials(overlay) == []
    overlay.receive_message(ONE.id, encode_ring_message(LeafProbe(ONE, [], True)), 0.2)
    happened = run(overlay, 0.2, CONFIG.join_timeout_s)
    assert overlay.is_active()
    assert "seed:6" in [event.address for event in happened if isinstance(event, DialRequested)]


def test_who_answered_a_dial_is_remembered_until_its_link_opens() -> None:
    """As many as there is room for: then the oldest are forgotten, to be found again."""
    others = [NodeInfo(NodeId(bytes([200, number]) + b"\x01" * 14), ()) for number in range(TO_MERGE_MAX + 1)]
    overlay = started(seeds=tuple(f"seed:{number}" for number in range(1, TO_MERGE_MAX + 1)), remembered=("old:1",))
    overlay.handle_timeout(CONFIG.settle_timeout_s)
    assert overlay.is_active()
    left = list(others)
    now = CONFIG.settle_timeout_s
    while left:
        for address in dials(overlay):
            overlay.dial_succeeded(address, left.pop().id, now)
        overlay.handle_timeout(now)
    overlay.messages_to_send()
    for info in reversed(others):
        overlay.link_opened(info, now)
    assert sought(overlay) == [info.id for info in reversed(others[:-1])]


def test_what_comes_before_the_start_is_handled() -> None:
    overlay = new_overlay()
    question = encode_beacon(ONE, wants_answer=True, peers=0)
    assert question is not None
    overlay.receive_datagram(ONE.id, question, ("198.51.100.1", 7000), 0.0)
    overlay.receive_datagram(ONE.id, encode_detector_message(Ping(1, ONE.id, LOCAL.id, None)), ("198.51.100.1", 7000), 0.0)
    overlay.receive_datagram(ONE.id, b"junk", ("198.51.100.1", 7000), 0.0)
    assert [address for address, _ in overlay.datagrams_to_send()] == [("198.51.100.1", 7000)]  # It lives.
    assert overlay.events_received() == []
    overlay.join_group(GROUP, b"", 0.0)
    overlay.watch_group(GROUP, 0.0)
    overlay.cast(GROUP, b"early", 0.0)
    overlay.handle_timeout(0.5)
    overlay.start(0.5, (), (), False)
    expected = [
        ViewChanged(GROUP, {LOCAL.id: GroupMember(LOCAL, b"")}, 1, True),
        Cast(GROUP, LOCAL.id, b"early"),
        Settled(),
        CastsTaken(GROUP),
        GroupJoined(GROUP),
    ]
    assert overlay.events_received() == expected


# Links


def test_nothing_raises_for_what_was_never_there() -> None:
    overlay = started()
    overlay.receive_message(ONE.id, encode_ring_message(Leaving()), 0.0)
    overlay.link_lost(ONE.id, 0.0)
    overlay.link_lost(ONE.id, 0.0, is_closed=True)
    overlay.dial_failed("nobody:1", 0.0)
    overlay.dial_failed("nobody:1", 0.0, is_refused=True)
    overlay.dial_succeeded("nobody:1", ONE.id, 0.0)
    overlay.unwatch_group(GROUP, 0.0)
    overlay.use_group(GROUP, 0.0)
    overlay.receive_datagram(ONE.id, b"junk", ("192.0.2.9", 1), 0.0)
    assert overlay.events_received() == [Settled()]
    assert overlay.counters.messages_unexpected == 1
    assert overlay.counters.datagrams_invalid == 1


def test_a_link_to_ourselves_or_to_somebody_impossible_is_refused() -> None:
    overlay = started()
    overlay.events_received()
    overlay.link_opened(LOCAL, 0.0)
    overlay.link_opened(NodeInfo(ONE.id, ("a:1",) * 9), 0.0)
    assert [type(event) for event in overlay.events_received()] == [ProtocolViolated, ProtocolViolated]
    assert overlay.peers() == []
    overlay.link_lost(ONE.id, 0.1)
    assert run(overlay, 0.1, 20.0) == []


def test_a_link_that_opens_twice_is_one_link() -> None:
    overlay = with_leaf()
    overlay.link_opened(ONE, 1.0)
    overlay.link_opened(ONE, 1.0)
    overlay.link_lost(ONE.id, 2.0, is_closed=True)
    assert overlay.table_sizes()["open_links"] == 0


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x92\x10\xff", encode_ring_message(LeafProbe(TWO, [], True)), encode_ring_message(Direct(ONE, b"junk"))],
    ids=["empty", "junk", "no message", "in the name of another", "no message of a group"],
)
def test_a_violation_asks_for_the_end_of_the_link_once(data: bytes) -> None:
    overlay = with_leaf()
    overlay.receive_message(ONE.id, data, 0.0)
    overlay.receive_message(ONE.id, data, 0.0)
    (event,) = overlay.events_received()
    assert isinstance(event, ProtocolViolated)
    assert event.peer == ONE.id
    assert (overlay.counters.messages_invalid, overlay.counters.messages_unexpected) == (1, 1)
    overlay.link_lost(ONE.id, 0.1)
    assert dials(overlay) == []  # It is no sign of death.
    overlay.link_opened(ONE, 0.2)
    overlay.receive_message(ONE.id, encode_ring_message(LeafProbe(ONE, [], True)), 0.2)
    assert overlay.counters.messages_unexpected == 1


def test_what_groups_send_to_nobody_and_packets_to_nobody_are_counted_apart() -> None:
    overlay, hidden = started(), make_info(50, is_dialable=False)
    overlay.link_opened(hidden, 0.0)
    permit = NamedSigner(hidden.id).permit(GROUP, user_part(hidden.id))
    watch = encode_group_message(Watch(hidden, 1, [(GROUP, 0, permit)]))
    overlay.receive_message(hidden.id, encode_ring_message(Direct(hidden, watch)), 0.0)
    assert overlay.watchers_of(GROUP) == [hidden.id]
    overlay.link_lost(hidden.id, 0.1, is_closed=True)
    overlay.join_group(GROUP, b"", 0.2)
    overlay.handle_timeout(0.5)
    assert (overlay.counters.messages_undeliverable, overlay.counters.packets_undeliverable) == (1, 0)
    overlay.send(hidden, b"lost", 0.5)
    assert (overlay.counters.messages_undeliverable, overlay.counters.packets_undeliverable) == (1, 1)


def test_nobody_without_a_link_is_a_violator() -> None:
    overlay = with_leaf()
    for number in range(1, 200):
        liar = NodeInfo(NodeId(number.to_bytes(16, "big")), ())
        overlay.receive_message(ONE.id, relayed(Direct(liar, b"junk"), ONE, number), 0.0)
    assert overlay.events_received() == []
    assert overlay.counters.messages_invalid == 199


def test_a_clean_end_is_no_sign_of_death_and_a_break_is_looked_into() -> None:
    clean, broken = with_leaf(), with_leaf()
    clean.link_lost(ONE.id, 0.5, is_closed=True)
    assert dials(clean) == []
    broken.link_lost(ONE.id, 0.5)
    assert dials(broken) == [ONE.addresses[0]]
    broken.dial_failed(ONE.addresses[0], 0.6, is_refused=True)
    assert broken.events_received() == [PeerDied(ONE.id, is_silent=False)]
    assert broken.size_estimate() == 1


def test_who_still_listens_while_it_ends_is_dead_a_moment_later() -> None:
    overlay = with_leaf()
    overlay.link_lost(ONE.id, 0.5)
    assert dials(overlay) == [ONE.addresses[0]]
    overlay.dial_failed(ONE.addresses[0], 0.5, is_broken=True)
    assert run(overlay, 0.5, 0.6) == [DialRequested(ONE.addresses[0], ONE.id)]
    overlay.dial_failed(ONE.addresses[0], 0.6, is_refused=True)
    assert overlay.events_received() == [PeerDied(ONE.id, is_silent=False)]


def test_a_break_of_a_living_peer_changes_nothing() -> None:
    overlay = with_leaf()
    overlay.link_lost(ONE.id, 0.5)
    assert dials(overlay) == [ONE.addresses[0]]
    overlay.dial_succeeded(ONE.addresses[0], ONE.id, 0.6)
    overlay.link_opened(ONE, 0.6)
    assert overlay.leaves() == [ONE]
    assert PeerDied(ONE.id) not in run(overlay, 0.6, 1.0)


def test_a_silent_peer_dies_once() -> None:
    overlay = with_leaf()
    happened = run(overlay, 0.0, 60.0)
    assert [event for event in happened if isinstance(event, PeerDied)] == [PeerDied(ONE.id)]
    overlay.link_lost(ONE.id, 60.0)  # The owner broke it.
    assert not [event for event in run(overlay, 60.0, 80.0) if isinstance(event, PeerDied)]


def test_a_link_to_somebody_who_was_buried_brings_it_back() -> None:
    overlay = with_leaf()
    overlay.link_lost(ONE.id, 1.0)
    overlay.dial_failed(ONE.addresses[0], 1.0, is_refused=True)
    assert PeerDied(ONE.id, is_silent=False) in overlay.events_received()
    assert overlay.leaves() == []
    add_leaf(overlay, ONE, 2.0)
    assert overlay.leaves() == [ONE]
    overlay.link_lost(ONE.id, 2.5)
    overlay.dial_failed(ONE.addresses[0], 2.6, is_refused=True)
    assert PeerDied(ONE.id, is_silent=False) in overlay.events_received()  # That is another death.


def test_who_answers_through_the_ring_alone_lives() -> None:
    overlay = with_leaf()
    overlay.receive_message(ONE.id, relayed(LeafProbe(TWO, [], True), ONE), 0.0)
    assert {info.id for info in overlay.leaves()} == {ONE.id, TWO.id}
    now, number = 0.0, 1
    while now < 10.0:
        now, number = overlay.deadline() or 1e9, number + 1
        overlay.handle_timeout(now)
        overlay.receive_message(ONE.id, encode_ring_message(LeafAck(ONE, [], True, True)), now)
        overlay.receive_message(ONE.id, relayed(LeafAck(TWO, [], True, True), ONE, number), now)
    assert not [event for event in overlay.events_received() if isinstance(event, PeerDied)]
    assert {info.id for info in overlay.leaves()} == {ONE.id, TWO.id}


def test_who_left_is_neither_dialled_nor_dead() -> None:
    overlay = with_leaf()
    overlay.receive_message(ONE.id, encode_ring_message(Leaving()), 1.0)
    overlay.link_lost(ONE.id, 1.1)
    assert overlay.peers() == []
    assert run(overlay, 1.1, 60.0) == []


def test_idle_links_are_released_unless_they_are_needed() -> None:
    overlay = with_leaf()
    overlay.link_opened(TWO, 0.0)
    overlay.connect(TWO, 0.0)  # There is one.
    happened = []
    now = 0.0
    while now < 100.0:
        now = overlay.deadline() or 1e9
        overlay.handle_timeout(now)
        # The leaf answers everything.
        overlay.receive_message(ONE.id, encode_ring_message(LeafAck(ONE, [], True, True)), now)
        happened += [(now, event) for event in overlay.events_received() if isinstance(event, LinkReleased)]
    assert happened == [(CONFIG.contacts.link_idle_s, LinkReleased(TWO.id))]


# Dials


def test_a_dial_that_is_never_reported_on_is_forgotten() -> None:
    overlay = started()
    overlay.events_received()
    for number in range(1, 240):
        overlay.connect(make_info(number), float(number))
        overlay.handle_timeout(float(number))
    assert overlay.table_sizes()["dials"] <= DIAL_FORGOTTEN_S + 2
    overlay.connect(TWO, 300.0)
    assert TWO.addresses[0] in dials(overlay)


def test_an_address_is_dialled_once_at_a_time_whoever_wants_it() -> None:
    overlay = started(seeds=(ONE.addresses[0],))
    overlay.connect(ONE, 0.0)
    assert dials(overlay) == [ONE.addresses[0]]
    overlay.dial_failed(ONE.addresses[0], 0.1)
    assert completions(overlay) == [Settled()]
    overlay.handle_timeout(CONFIG.redial_delay_s_min + 0.1)
    assert dials(overlay) == [ONE.addresses[0]]


def test_a_seed_is_dialled_at_once_when_the_dial_of_somebody_made_up_at_its_address_was_not_made() -> None:
    overlay = started(seeds=("seed.example:1",))
    assert overlay.events_received() == [DialRequested("seed.example:1", None, is_proven=True)]
    overlay.dial_failed("seed.example:1", 0.0)
    overlay.connect(NodeInfo(NodeId(b"m" * 16), ("seed.example:1",)), 0.0)
    assert dials(overlay) == ["seed.example:1"]
    seed_due = CONFIG.redial_delay_s_min
    overlay.handle_timeout(seed_due)
    assert dials(overlay) == [], "its dial is the one that is under way"
    overlay.dial_rested("seed.example:1", seed_due)
    assert overlay.events_received() == [DialRequested("seed.example:1", None, is_proven=True)]
    assert overlay.counters.dials_rested == 1
    assert overlay.table_sizes()["dials"] == 1


@pytest.mark.parametrize("is_link_first", [True, False])
def test_the_dial_and_the_link_may_be_reported_in_any_order(is_link_first: bool) -> None:
    overlay = started()
    overlay.events_received()
    overlay.connect(ONE, 0.0)
    assert dials(overlay) == [ONE.addresses[0]]
    if is_link_first:
        overlay.link_opened(ONE, 0.1)
        overlay.dial_succeeded(ONE.addresses[0], ONE.id, 0.1)
    else:
        overlay.dial_succeeded(ONE.addresses[0], ONE.id, 0.1)
        overlay.link_opened(ONE, 0.1)
    assert overlay.events_received() == []
    assert overlay.table_sizes()["wanted"] == overlay.table_sizes()["waited_for"] == overlay.table_sizes()["dials"] == 0


# Leaving


def test_leaving() -> None:
    overlay = with_leaf()
    overlay.join_group(GROUP, b"", 0.0)
    overlay.messages_to_send()
    overlay.leave(0.1)
    overlay.leave(0.1)
    happened = run(overlay, 0.1, 5.0)
    assert [event for event in happened if isinstance(event, GroupLeft | Departed)] == [GroupLeft(GROUP), Departed()]
    assert (ONE.id, encode_ring_message(Leaving())) in overlay.messages_to_send()
    overlay.link_lost(ONE.id, 5.0, is_closed=True)
    with pytest.raises(StateError):
        overlay.join_group(GROUP, b"", 5.0)
    with pytest.raises(StateError):
        overlay.start(5.0, (), (), False)


def test_a_search_that_is_over_is_not_over_once_more_when_the_node_leaves() -> None:
    overlay = with_leaf()
    overlay.leave(0.1)
    assert Settled() not in run(overlay, 0.1, 5.0)


def test_leaving_before_anything_else() -> None:
    overlay = new_overlay()
    overlay.leave(0.0)
    assert overlay.events_received() == [Settled(), Departed()]
    with pytest.raises(StateError):
        overlay.start(0.5, (), (), False)


def test_leaving_in_the_middle_of_joining() -> None:
    overlay = started(seeds=("seed:1",), beacons=True)
    overlay.join_group(GROUP, b"", 0.0)
    overlay.dial_succeeded("seed:1", ONE.id, 0.1)
    overlay.link_opened(ONE, 0.1)
    overlay.events_received()
    overlay.messages_to_send()
    overlay.leave(0.2)
    assert overlay.datagrams_to_send() == []
    happened = run(overlay, 0.2, 30.0)
    assert [event for event in happened if not isinstance(event, PeerDied)][-1] == Departed()
    assert not [event for event in happened if isinstance(event, DialRequested)]
    assert (ONE.id, encode_ring_message(Leaving())) in overlay.messages_to_send()
    assert not overlay.is_active()
    overlay.dial_failed("seed:1", 31.0)
    overlay.link_opened(TWO, 31.0)
    assert not overlay.is_active()


def test_events_of_a_batch_come_in_the_promised_order() -> None:
    overlay = new_overlay()
    overlay.watch_group(GROUP, 0.0)
    overlay.join_group(GROUP, b"", 0.0)
    overlay.cast(GROUP, b"hello", 0.0)
    overlay.start(0.0, (), (), False)
    overlay.send(LOCAL, b"to myself", 0.0)
    overlay.connect(ONE, 0.0)
    overlay.leave_group(GROUP, 0.0)
    kinds = [type(event) for event in overlay.events_received()]
    assert kinds == [DialRequested, ViewChanged, Cast, PacketReceived, Settled, CastsTaken, GroupJoined, GroupLeft]
    overlay.watch_group(GroupId(b"h" * 16), 0.0)
    overlay.unwatch_group(GroupId(b"h" * 16), 0.0)
    assert overlay.events_received() == []


def test_a_ring_that_is_found_over_a_link_that_is_there_is_merged_with() -> None:
    """Another address of a node that opened a link itself: what it belongs to is asked all the same."""
    overlay = started(seeds=("seed:1",))
    assert dials(overlay) == ["seed:1"]
    overlay.dial_failed("seed:1", 0.1)
    assert overlay.is_active()
    now = 0.1
    while "seed:1" not in dials(overlay):
        due = overlay.deadline()
        assert due is not None
        now = due
        overlay.handle_timeout(now)
    overlay.link_opened(ONE, now)
    overlay.messages_to_send()
    overlay.dial_succeeded("seed:1", ONE.id, now)
    sought = [decode_ring_message(data) for to, data in overlay.messages_to_send() if to == ONE.id]
    assert [message.kind for message in sought if isinstance(message, Routed)] == [RoutedKind.SEEK]


# Stalls


@pytest.mark.parametrize("first", ["timer", "datagram", "message", "end of a link"])
def test_a_stall_is_noticed_whatever_comes_first_after_it(first: str) -> None:
    overlay = with_leaf()
    overlay.join_group(GroupId(ONE.id), b"", 0.0)
    due = overlay.deadline()
    assert due is not None
    overlay.messages_to_send()
    now = due + CONFIG.stall_s + 0.1
    if first == "timer":
        overlay.handle_timeout(now)
    elif first == "datagram":
        overlay.receive_datagram(ONE.id, encode_detector_message(Ping(1, ONE.id, LOCAL.id, None)), ("198.51.100.1", 7000), now)
    elif first == "message":
        overlay.receive_message(ONE.id, encode_ring_message(LeafProbe(ONE, [], True)), now)
    else:
        add_leaf(overlay, TWO, 0.0)
        overlay.deadline()
        overlay.link_lost(TWO.id, now)
    new_stamp = msgspec.msgpack.encode((1 << 32) + 1)
    assert any(new_stamp in data for _, data in overlay.messages_to_send())  # it says that it lives, as another incarnation
    overlay.deadline()
    overlay.handle_timeout(now)
    assert not any(msgspec.msgpack.encode((2 << 32) + 1) in data for _, data in overlay.messages_to_send())


def test_a_node_that_stood_still_during_its_search_does_not_begin_alone_at_once() -> None:
    overlay = started(seeds=("seed:1",))
    overlay.deadline()
    overlay.handle_timeout(12.0)
    assert not overlay.is_active()
    assert overlay.counters.dials_timed_out == 0
    overlay.deadline()
    overlay.handle_timeout(12.0 + CONFIG.settle_timeout_s)
    assert overlay.is_active()


def test_what_a_violator_sends_is_counted_once() -> None:
    overlay = with_leaf()
    overlay.receive_message(ONE.id, b"\xff", 1.0)
    overlay.receive_message(ONE.id, b"\xff", 1.0)
    assert (overlay.counters.messages_invalid, overlay.counters.messages_unexpected) == (1, 1)


def test_it_settles_once() -> None:
    overlay = started()
    events = run(overlay, 0.0, 60.0)
    add_leaf(overlay, ONE, 61.0)
    events += run(overlay, 61.0, 120.0)
    assert events.count(Settled()) == 1
