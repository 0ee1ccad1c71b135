from __future__ import annotations

import itertools
import random

import pytest

from overlay.config import OverlayConfig
from overlay.counters import Counters
from overlay.events import Departed, GroupJoined, GroupLeft, PeerJoined, PeerLost, ProtocolViolated
from overlay.groups import Directory
from overlay.ids import GroupId, NodeId
from overlay.membership import COMMANDS_MAX, RESEND_DELAY_S_MAX, PeerTable
from overlay.messages import (
    ADDRESSES_MAX,
    GROUPS_PER_NODE_MAX,
    MESSAGE_BYTES_MAX,
    Joined,
    Leaving,
    Left,
    LinkMessage,
    Membership,
    NodeInfo,
    Told,
    Welcome,
    decode_message,
)

CONFIG = OverlayConfig()
LOCAL = NodeInfo(NodeId(b"l" * 16), ("192.0.2.1:7000",))
GROUP = GroupId(b"g" * 16)
OTHER = GroupId(b"o" * 16)


def peer(number: int) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), (f"198.51.100.{number % 250}:7000",))


ONE, TWO = peer(1), peer(2)


class Harness:
    def __init__(self, config: OverlayConfig = CONFIG, *, is_released: bool = True) -> None:
        self.counters = Counters()
        self.directory = Directory(10)
        self.table = PeerTable(LOCAL, config, random.Random(1), self.directory, self.counters)
        if is_released:
            self.table.release(0.0)

    def sent(self) -> list[tuple[NodeId, LinkMessage]]:
        return [(node, decode_message(data)) for node, data in self.table.messages_to_send()]

    def open(self, info: NodeInfo, now: float = 0.0) -> None:
        """Open a link and exchange welcomes."""
        self.table.open(info, now)
        self.receive(info, Welcome([], [], 0), now)
        self.receive(info, Told(self.table._sequence), now)
        self.sent()

    def receive(self, info: NodeInfo, message: LinkMessage, now: float = 0.0) -> None:
        self.table.receive_message(info.id, message, now)


def test_a_link_starts_with_a_welcome() -> None:
    harness = Harness()
    harness.table.join_group(GROUP, b"a", 0.0)
    harness.open(ONE)
    harness.table.open(TWO, 0.0)
    assert harness.sent() == [(TWO.id, Welcome([ONE], [Membership(GROUP, b"a")], 1))]
    assert harness.table.events == [PeerJoined(ONE), PeerJoined(TWO)]


def test_a_second_link_tells_everything_again_and_is_no_second_peer() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.table.open(ONE, 1.0)
    assert harness.sent() == [(ONE.id, Welcome([], [], 0))]
    assert harness.table.events == [PeerJoined(ONE)]


def test_what_an_earlier_link_acknowledged_counts_for_nothing_on_the_next() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.table.open(ONE, 1.0)
    harness.table.leave_group(GROUP, 1.0)
    assert harness.table.completions == []
    harness.receive(ONE, Told(0), 1.1)
    assert harness.table.completions == [GroupLeft(GROUP)]


def test_joining_completes_when_all_have_acknowledged() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.open(TWO)
    harness.table.join_group(GROUP, b"a", 0.0)
    assert harness.sent() == [(ONE.id, Joined(1, GROUP, b"a")), (TWO.id, Joined(1, GROUP, b"a"))]
    harness.receive(ONE, Told(1))
    assert harness.table.completions == []
    harness.receive(TWO, Told(0))
    assert harness.table.completions == []
    harness.receive(TWO, Told(1))
    assert harness.table.completions == [GroupJoined(GROUP)]
    assert harness.counters.changes_unconfirmed == 0


def test_commands_complete_in_order_by_one_acknowledgement() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.table.join_group(GROUP, b"", 0.0)
    harness.table.leave_group(GROUP, 0.0)
    harness.table.leave(0.0)
    harness.receive(ONE, Told(3))
    assert harness.table.completions == [GroupJoined(GROUP), GroupLeft(GROUP), Departed()]


def test_a_lost_peer_counts_as_told() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.table.join_group(GROUP, b"", 0.0)
    harness.table.close(ONE.id, 0.1)
    assert harness.table.completions == [GroupJoined(GROUP)]
    assert harness.table.events[-1] == PeerLost(ONE.id)


def test_a_peer_that_comes_while_joining_is_waited_for() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.table.join_group(GROUP, b"", 0.0)
    harness.table.open(TWO, 0.1)
    harness.receive(ONE, Told(1), 0.2)
    assert harness.table.completions == []
    harness.receive(TWO, Told(1), 0.3)
    assert harness.table.completions == [GroupJoined(GROUP)]


def test_the_bound_completes_a_join_and_is_counted() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.table.join_group(GROUP, b"", 5.0)
    harness.table.handle_timeout(5.9)
    assert harness.table.completions == []
    assert harness.table.deadline() == 6.0
    harness.table.handle_timeout(6.0)
    assert harness.table.completions == [GroupJoined(GROUP)]
    assert harness.counters.changes_unconfirmed == 1


def test_nothing_completes_before_the_search_is_over() -> None:
    harness = Harness(is_released=False)
    harness.table.join_group(GROUP, b"", 0.0)
    harness.table.handle_timeout(100.0)
    assert harness.table.completions == []
    harness.table.release(100.0)
    assert harness.table.completions == [GroupJoined(GROUP)]


def test_leaving_a_group_of_others_completes() -> None:
    harness = Harness()
    harness.table.leave_group(GROUP, 0.0)
    assert harness.table.completions == [GroupLeft(GROUP)]


def test_waiting_commands_are_bounded() -> None:
    harness = Harness()
    harness.open(ONE)
    for _ in range(COMMANDS_MAX + 1):
        harness.table.join_group(GROUP, b"", 0.0)
    assert harness.table.commands_count == COMMANDS_MAX
    assert len(harness.table.completions) == 1


def test_who_does_not_acknowledge_is_told_again_ever_more_rarely() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.table.join_group(GROUP, b"", 0.0)
    harness.sent()
    times = []
    while (harness.table.deadline() or 1e9) < 300.0:
        now = harness.table.deadline() or 0.0
        harness.table.handle_timeout(now)
        times += [now for _, message in harness.sent() if message == Welcome([], [Membership(GROUP, b"")], 1)]
    assert times[:4] == [1.0, 3.0, 7.0, 15.0]
    harness.receive(ONE, Told(1), 300.0)
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= RESEND_DELAY_S_MAX


def test_an_old_acknowledgement_does_not_end_the_telling() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.table.join_group(GROUP, b"", 0.0)
    harness.sent()
    harness.receive(ONE, Told(0), 0.5)
    harness.table.handle_timeout(1.0)
    assert harness.sent() == [(ONE.id, Welcome([], [Membership(GROUP)], 1))]


def test_a_closed_link_takes_the_acknowledgements_under_way() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.receive(ONE, Joined(1, GROUP, b""))
    harness.table.close(ONE.id, 0.0)
    assert harness.sent() == []


def test_a_quiet_peer_is_refreshed_now_and_then() -> None:
    harness = Harness()
    harness.open(ONE)
    assert harness.table.deadline() == CONFIG.refresh_interval_s
    harness.table.handle_timeout(CONFIG.refresh_interval_s)
    assert harness.sent() == [(ONE.id, Welcome([], [], 0))]
    harness.table.close(ONE.id, 40.0)
    assert harness.table.deadline() is None


def test_changes_are_applied_once_and_in_order() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.receive(ONE, Joined(1, GROUP, b"a"))
    harness.receive(ONE, Joined(1, GROUP, b"b"))  # A repetition changes nothing.
    assert harness.directory.memberships(ONE.id) == [Membership(GROUP, b"a")]
    assert harness.sent() == [(ONE.id, Told(1))]
    harness.receive(ONE, Left(2, OTHER))  # Of a group that it was not in.
    harness.receive(ONE, Left(3, GROUP))
    assert harness.directory.memberships(ONE.id) == []
    assert harness.sent() == [(ONE.id, Told(3))]


def test_a_gap_is_neither_applied_nor_acknowledged() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.receive(ONE, Joined(2, GROUP, b""))
    assert harness.directory.memberships(ONE.id) == []
    assert harness.sent() == []
    assert harness.counters.messages_unexpected == 1
    harness.receive(ONE, Welcome([], [Membership(GROUP)], 2))
    assert harness.sent() == [(ONE.id, Told(2))]


def test_a_change_before_the_first_welcome_waits_for_it() -> None:
    harness = Harness()
    harness.table.open(ONE, 0.0)
    harness.sent()
    harness.receive(ONE, Joined(0, GROUP, b""))
    harness.receive(ONE, Left(1, GROUP))
    assert harness.sent() == []


def test_an_old_snapshot_does_not_undo_newer_changes() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.receive(ONE, Joined(1, GROUP, b""))
    harness.receive(ONE, Welcome([TWO], [], 0))
    assert harness.directory.is_member(ONE.id, GROUP)
    assert harness.sent() == [(ONE.id, Told(1))]


def test_a_snapshot_replaces() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.receive(ONE, Joined(1, GROUP, b""))
    harness.receive(ONE, Welcome([], [Membership(OTHER)], 5))
    assert harness.directory.memberships(ONE.id) == [Membership(OTHER)]


def test_a_peer_that_leaves_is_in_no_view_and_named_to_nobody() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.receive(ONE, Joined(1, GROUP, b""))
    harness.receive(ONE, Leaving(2))
    assert not harness.directory.is_member(ONE.id, GROUP)
    assert harness.sent() == [(ONE.id, Told(2))]
    harness.receive(ONE, Joined(3, GROUP, b""))
    assert not harness.directory.is_member(ONE.id, GROUP)
    harness.table.open(TWO, 0.0)
    assert harness.sent() == [(TWO.id, Welcome([], [], 0))]
    lost = harness.table.close(ONE.id, 1.0)
    assert lost is not None
    assert lost.is_leaving


def test_a_link_that_opens_while_leaving_hears_of_it() -> None:
    harness = Harness()
    harness.table.join_group(GROUP, b"", 0.0)
    harness.table.leave(0.0)
    harness.table.open(ONE, 0.0)
    assert harness.sent() == [(ONE.id, Leaving(2))]


def test_an_acknowledgement_of_what_was_never_said_is_a_violation() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.receive(ONE, Joined(1, GROUP, b""))
    harness.receive(ONE, Told(1))
    assert isinstance(harness.table.events[-1], ProtocolViolated)
    assert not harness.directory.is_member(ONE.id, GROUP)
    assert harness.sent() == []


def test_too_many_memberships_are_a_violation() -> None:
    harness = Harness()
    harness.open(ONE)
    for number in range(GROUPS_PER_NODE_MAX + 1):
        harness.receive(ONE, Joined(number + 1, GroupId(number.to_bytes(16, "big")), b""))
    assert isinstance(harness.table.events[-1], ProtocolViolated)


def test_nobody_waits_for_a_violator() -> None:
    harness = Harness()
    harness.open(ONE)
    harness.table.join_group(GROUP, b"", 0.0)
    harness.table.violate(ONE.id, "nonsense", 0.0)
    assert harness.table.completions == [GroupJoined(GROUP)]
    harness.sent()
    harness.table.join_group(OTHER, b"", 0.0)
    assert harness.sent() == []
    assert harness.table.completions == [GroupJoined(GROUP), GroupJoined(OTHER)]


def test_links_beyond_the_bound_are_refused() -> None:
    harness = Harness(OverlayConfig(peers_max=1))
    assert harness.table.open(ONE, 0.0)
    assert not harness.table.open(TWO, 0.0)
    assert harness.table.open(ONE, 0.0)
    assert harness.counters.links_refused == 1
    assert harness.table.events == [PeerJoined(ONE), ProtocolViolated(TWO.id, "more than 1 peers")]


@pytest.mark.parametrize("length", [20, 255])
def test_a_welcome_always_fits(length: int) -> None:
    harness = Harness()
    addresses = tuple("h" * length + f":{1000 + number}" for number in range(ADDRESSES_MAX))
    for number in range(1023):
        harness.table.open(NodeInfo(peer(number).id, addresses, "z" * 64), 0.0)
        harness.table.messages.clear()
    for number in range(GROUPS_PER_NODE_MAX):
        harness.directory.add_member(LOCAL, GroupId(number.to_bytes(16, "big")), b"a" * 256)
    harness.table.open(peer(2000), 0.0)
    ((_, data),) = harness.table.messages_to_send()
    assert len(data) <= MESSAGE_BYTES_MAX
    welcome = decode_message(data)
    assert isinstance(welcome, Welcome)
    assert len(welcome.peers) == 1023 if length == 20 else 0 < len(welcome.peers) < 1023
