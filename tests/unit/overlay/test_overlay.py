from __future__ import annotations

import random

import pytest

from overlay.config import OverlayConfig
from overlay.errors import AddressError, InfoError, StateError, TooManyGroupsError
from overlay.events import (
    Departed,
    DialRequested,
    Event,
    GroupJoined,
    GroupLeft,
    GroupMember,
    PeerJoined,
    PeerLost,
    ProtocolViolated,
    Settled,
    ViewChanged,
)
from overlay.ids import GroupId, NodeId
from overlay.messages import (
    GROUPS_PER_NODE_MAX,
    Joined,
    Leaving,
    Membership,
    NodeInfo,
    Told,
    Welcome,
    decode_message,
    encode_beacon,
    encode_message,
)
from overlay.overlay import Overlay

CONFIG = OverlayConfig()
LOCAL = NodeInfo(NodeId(b"l" * 16), ("192.0.2.1:7000",))
ONE = NodeInfo(NodeId(b"1" * 16), ("198.51.100.1:7000",))
TWO = NodeInfo(NodeId(b"2" * 16), ("198.51.100.2:7000",))
GROUP = GroupId(b"g" * 16)


def new_overlay(config: OverlayConfig = CONFIG) -> Overlay:
    return Overlay(LOCAL, config, random.Random(1))


def started(*, seeds: tuple[str, ...] = (), remembered: tuple[str, ...] = (), beacons: bool = False) -> Overlay:
    overlay = new_overlay()
    overlay.start(0.0, seeds, remembered, beacons, remembered_is_complete=True)
    return overlay


def welcome(overlay: Overlay, info: NodeInfo, *peers: NodeInfo, now: float = 0.0) -> None:
    overlay.link_opened(info, now)
    overlay.receive_message(info.id, encode_message(Welcome(list(peers), [], 0)), now)
    overlay.receive_message(info.id, encode_message(Told(0)), now)


def completions(overlay: Overlay) -> list[Event]:
    return [event for event in overlay.events_received() if isinstance(event, Settled | GroupJoined | GroupLeft | Departed)]


def dials(overlay: Overlay) -> list[str]:
    return [event.address for event in overlay.events_received() if isinstance(event, DialRequested)]


def test_alone_and_sure_of_it() -> None:
    overlay = started()
    overlay.join_group(GROUP, b"", 0.0)
    assert overlay.events_received() == [Settled(), GroupJoined(GROUP)]
    assert overlay.deadline() is None


def test_the_search_follows_what_the_first_welcomes_name() -> None:
    overlay = started(seeds=("seed:1",), remembered=("old:1",))
    assert dials(overlay) == ["seed:1", "old:1"]
    overlay.dial_failed("old:1", 0.01)
    overlay.dial_succeeded("seed:1", ONE.id, 0.01)
    overlay.link_opened(ONE, 0.01)
    assert completions(overlay) == []
    overlay.receive_message(ONE.id, encode_message(Welcome([TWO, LOCAL, ONE], [], 0)), 0.02)
    assert overlay.events_received() == [DialRequested(TWO.addresses[0], TWO.id)]
    overlay.dial_succeeded(TWO.addresses[0], TWO.id, 0.03)
    assert completions(overlay) == []
    welcome(overlay, TWO, now=0.04)
    assert completions(overlay) == [Settled()]


def test_the_search_ends_with_the_last_failure() -> None:
    overlay = started(seeds=("seed:1",))
    overlay.dial_failed("seed:1", 0.5)
    assert completions(overlay) == [Settled()]


def test_the_search_ends_when_a_link_breaks_before_its_welcome() -> None:
    overlay = started(seeds=("seed:1",))
    overlay.dial_succeeded("seed:1", ONE.id, 0.1)
    assert completions(overlay) == []
    overlay.link_lost(ONE.id, 0.2)  # It never was open.
    assert completions(overlay) == [Settled()]


def test_the_search_ends_at_the_bound() -> None:
    overlay = started(seeds=("hole:1",))
    assert overlay.deadline() == CONFIG.settle_timeout_s
    overlay.handle_timeout(1.0)
    assert completions(overlay) == [Settled()]


def test_a_seed_that_is_ourselves_is_an_outcome() -> None:
    overlay = started(seeds=("name:7000", LOCAL.addresses[0]))
    assert dials(overlay) == ["name:7000"]
    overlay.dial_succeeded("name:7000", LOCAL.id, 0.1)
    assert completions(overlay) == [Settled()]


def test_joining_before_settling_is_told_but_not_reported() -> None:
    overlay = started(seeds=("seed:1",))
    overlay.join_group(GROUP, b"a", 0.0)
    overlay.dial_succeeded("seed:1", ONE.id, 0.0)
    overlay.link_opened(ONE, 0.0)
    ((_, data),) = overlay.messages_to_send()
    assert decode_message(data) == Welcome([], [Membership(GROUP, b"a")], 1)
    overlay.receive_message(ONE.id, encode_message(Told(1)), 0.01)
    assert completions(overlay) == []
    overlay.receive_message(ONE.id, encode_message(Welcome([], [], 0)), 0.02)
    assert completions(overlay) == [Settled(), GroupJoined(GROUP)]


def test_views_come_before_what_completes() -> None:
    overlay = started(seeds=("seed:1",))
    overlay.watch_group(GROUP, 0.0)
    overlay.join_group(GROUP, b"a", 0.0)
    overlay.events_received()
    overlay.link_opened(ONE, 0.0)
    overlay.receive_message(ONE.id, encode_message(Welcome([TWO], [Membership(GROUP, b"b")], 3)), 0.0)
    overlay.dial_failed("seed:1", 0.0)
    overlay.dial_failed(TWO.addresses[0], 0.0)
    overlay.receive_message(ONE.id, encode_message(Told(1)), 0.0)
    members = {LOCAL.id: GroupMember(LOCAL, b"a"), ONE.id: GroupMember(ONE, b"b")}
    expected = [
        PeerJoined(ONE),
        DialRequested(TWO.addresses[0], TWO.id),
        ViewChanged(GROUP, members),
        Settled(),
        GroupJoined(GROUP),
    ]
    assert overlay.events_received() == expected
    assert overlay.events_received() == []


def test_a_lost_link_changes_views_at_once_and_is_dialled_again() -> None:
    overlay = started()
    welcome(overlay, ONE)
    overlay.watch_group(GROUP, 0.0)
    overlay.receive_message(ONE.id, encode_message(Joined(1, GROUP, b"")), 0.0)
    overlay.events_received()
    overlay.link_lost(ONE.id, 10.0)
    assert overlay.events_received() == [PeerLost(ONE.id), ViewChanged(GROUP, {})]
    overlay.handle_timeout(10.1)
    assert dials(overlay) == [ONE.addresses[0]]


def test_who_left_is_not_dialled_again() -> None:
    overlay = started()
    welcome(overlay, ONE)
    overlay.receive_message(ONE.id, encode_message(Leaving(1)), 0.0)
    assert overlay.peers() == []
    overlay.link_lost(ONE.id, 0.1)
    overlay.handle_timeout(100.0)
    assert dials(overlay) == []
    assert overlay.deadline() is None


def test_leaving() -> None:
    overlay = started(seeds=("seed:1",), beacons=True)
    overlay.events_received()
    overlay.link_opened(ONE, 0.0)
    overlay.messages_to_send()
    overlay.leave(0.1)
    overlay.leave(0.1)
    assert overlay.datagrams_to_send() == []
    assert [decode_message(data) for _, data in overlay.messages_to_send()] == [Leaving(1)]
    assert completions(overlay) == [Settled()]
    overlay.receive_message(ONE.id, encode_message(Told(1)), 0.2)
    assert completions(overlay) == [Departed()]
    overlay.link_lost(ONE.id, 0.3)
    overlay.handle_timeout(100.0)
    assert dials(overlay) == []
    with pytest.raises(StateError):
        overlay.join_group(GROUP, b"", 0.4)
    with pytest.raises(StateError):
        overlay.start(0.5, (), (), False)


def test_leaving_before_anything_else() -> None:
    overlay = new_overlay()
    overlay.leave(0.0)
    assert overlay.events_received() == [Settled(), Departed()]


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x92\x03\xff", encode_message(Told(1)), encode_message(Welcome([ONE] * 1025, [], 0))],
    ids=["empty", "junk", "negative", "unknown sequence", "too many peers"],
)
def test_a_violation_asks_for_the_end_of_the_link_once(data: bytes) -> None:
    overlay = started()
    welcome(overlay, ONE)
    overlay.events_received()
    overlay.receive_message(ONE.id, data, 0.0)
    overlay.receive_message(ONE.id, data, 0.0)
    (event,) = overlay.events_received()
    assert isinstance(event, ProtocolViolated)
    assert event.peer == ONE.id
    assert (overlay.counters.messages_invalid, overlay.counters.messages_unexpected) == (1, 1)
    overlay.link_lost(ONE.id, 0.1)
    overlay.handle_timeout(10.0)
    assert overlay.events_received() == [PeerLost(ONE.id)]


def test_many_named_peers_fill_a_bounded_table() -> None:
    overlay = new_overlay(OverlayConfig(candidates_max=100))
    overlay.start(0.0, (), (), False)
    infos = [NodeInfo(NodeId(number.to_bytes(16, "big")), (f"203.0.113.7:{number + 1}",)) for number in range(1024)]
    welcome(overlay, ONE, *infos)
    assert overlay.table_sizes()["candidates"] == 100
    assert overlay.counters.candidates_refused == 924
    assert len(dials(overlay)) == CONFIG.dials_max


def test_what_comes_from_strangers_is_counted() -> None:
    overlay = started()
    overlay.receive_message(ONE.id, encode_message(Told(0)), 0.0)
    overlay.link_lost(ONE.id, 0.0)
    overlay.dial_failed("nobody:1", 0.0)
    overlay.dial_succeeded("nobody:1", ONE.id, 0.0)
    overlay.receive_datagram(b"junk", ("192.0.2.9", 1), 0.0)
    assert overlay.events_received() == [Settled()]
    assert overlay.counters.messages_unexpected == 1


def test_a_link_to_ourselves_or_to_somebody_impossible_is_refused() -> None:
    overlay = started()
    overlay.events_received()
    overlay.link_opened(LOCAL, 0.0)
    overlay.link_opened(NodeInfo(ONE.id, ("a:1",) * 9), 0.0)
    assert [type(event) for event in overlay.events_received()] == [ProtocolViolated, ProtocolViolated]
    assert overlay.peers() == []


def test_beacons_find_strangers() -> None:
    overlay = new_overlay()
    overlay.start(0.0, (), (), True)
    ((destination, _),) = overlay.datagrams_to_send()
    assert destination is None
    answer = encode_beacon(ONE, wants_answer=False, peers=0)
    assert answer is not None
    overlay.receive_datagram(answer, ("198.51.100.1", 9), 0.01)
    assert overlay.events_received() == [DialRequested(ONE.addresses[0], ONE.id)]
    overlay.handle_timeout(CONFIG.beacon_wait_s)
    assert overlay.events_received() == []  # It was found by a beacon, and is part of the search.
    welcome(overlay, ONE, now=0.06)
    assert completions(overlay) == [Settled()]


def test_misuse_raises_before_anything_changes() -> None:
    overlay = new_overlay()
    for seeds in (("good:1", "bad"), ("good:1",) * 65):
        with pytest.raises((AddressError, InfoError)):
            overlay.start(0.0, seeds, (), False)
    overlay.start(0.0, (), ("junk in a file",), False)
    assert overlay.events_received() == [Settled()]
    with pytest.raises(StateError):
        overlay.start(0.0, (), (), False)
    with pytest.raises(InfoError):
        overlay.join_group(GroupId(b"short"), b"", 0.0)
    with pytest.raises(InfoError):
        overlay.join_group(GROUP, b"a" * 257, 0.0)
    with pytest.raises(InfoError):
        overlay.watch_group(GroupId(b"short"), 0.0)
    for number in range(GROUPS_PER_NODE_MAX):
        overlay.join_group(GroupId(number.to_bytes(16, "big")), b"", 0.0)
    with pytest.raises(TooManyGroupsError):
        overlay.join_group(GROUP, b"", 0.0)
    overlay.unwatch_group(GROUP, 0.0)
    with pytest.raises(InfoError):
        Overlay(NodeInfo(NodeId(b""), ()), CONFIG, random.Random(1))
    with pytest.raises(InfoError):
        Overlay(LOCAL, OverlayConfig(peers_max=2000), random.Random(1))


def test_leaving_a_group() -> None:
    overlay = started()
    overlay.join_group(GROUP, b"", 0.0)
    overlay.leave_group(GROUP, 0.0)
    overlay.watch_group(GROUP, 0.0)
    assert overlay.events_received() == [ViewChanged(GROUP, {}), Settled(), GroupJoined(GROUP), GroupLeft(GROUP)]
