"""Tests of iris_py/patterns/broadcast.py."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.broadcast import Broadcaster
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.registration import BroadcastReceived, Registration
from iris_py.patterns.request.service import RequestService
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.peers.group import DIRECT_MEMBERS_MAX, Group
from iris_py.peers.member import KnownMember
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, encode_headers
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from iris_py.link.link import Link
    from iris_py.peers.outbound import Outbound

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
LOCAL = NodeId(bytes(16))


class FakeOutbound:
    """Notes what it is to carry."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self.is_full = False

    def add_broadcast(self, _group: Group, header: bytes, payload: bytes, _now: float) -> None:
        self.sent.append((header, payload))

    def is_control_full(self) -> bool:
        return self.is_full


class Sender:
    """A broadcaster, and the cluster that it tells."""

    def __init__(self, members: int | None = 2, *, serves: bool = False) -> None:
        self.local = Peer(NodeInfo(LOCAL, ()), None, is_local=True)
        self.outbound = FakeOutbound()
        self.service = RequestService(Losses(bytes(16)))
        self.drops: Counter[str] = Counter()
        self.broadcaster = Broadcaster(
            cast("Outbound", self.outbound), self.service, self.local, lambda reason: self.drops.update([reason])
        )
        self.group = Group("cluster", KEYRING.cluster("cluster"), LOCAL, 1)
        self.links: list[SimpleNamespace] = []
        if members is not None:
            others = [KnownMember(self.peer(number)) for number in range(1, members + 1)]
            self.group.members = ([KnownMember(self.local)] if serves else []) + others
            self.group.size = members + serves
        if serves:
            self.service.register(Registration(self.group, 1, 1))

    def peer(self, number: int) -> Peer:
        self.links.append(SimpleNamespace(congested=False, is_busy=False, is_open=True))
        return Peer(NodeInfo(NodeId(number.to_bytes(16, "big")), ()), cast("Link", self.links[-1]))

    def broadcast(self) -> int | None:
        return self.broadcaster.broadcast(self.group, b"all", 0.0, NO_HEADERS)

    def handled(self) -> list[tuple[Peer, int, bytes]]:
        events = [event for event in self.service.events_received() if isinstance(event, BroadcastReceived)]
        return [(event.source, event.sequence, event.payload) for event in events]

    def receive(self, peer: Peer, number: int) -> None:
        self.broadcaster.receive(PeerMessage(self.group, peer, packets.BROADCAST, number, 0, b"told"), 0.0)


def test_a_broadcast_is_handed_over_once_with_its_number_and_headers() -> None:
    sender = Sender(3)
    headers = encode_headers({"a": 1})
    for number in (1, 2):
        assert sender.broadcaster.broadcast(sender.group, b"all", 0.0, headers) == 3
        header, payload = sender.outbound.sent.pop()
        size = len(headers.encoded)
        assert packets.MESSAGE.unpack_from(header) == (packets.BROADCAST, 0, size, 3, number, 0)
        assert header[packets.MESSAGE_BYTES :] == headers.encoded
        assert payload == b"all"
    assert not sender.outbound.sent
    assert not sender.handled()


def test_a_member_tells_its_own_handlers_too() -> None:
    sender = Sender(2, serves=True)
    assert sender.broadcast() == 3
    assert sender.handled() == [(sender.local, 1, b"all")]
    assert len(sender.outbound.sent) == 1


def test_the_only_member_sends_nothing() -> None:
    sender = Sender(0, serves=True)
    assert sender.broadcast() == 1
    assert sender.handled() == [(sender.local, 1, b"all")]
    assert not sender.outbound.sent


def test_the_only_member_is_another_node() -> None:
    sender = Sender(1)
    assert sender.broadcast() == 1
    assert len(sender.outbound.sent) == 1


def test_nobody_is_told_before_the_view_is_known_and_none_of_none() -> None:
    assert Sender(None).broadcast() is None
    sender = Sender(0)
    assert sender.broadcast() == 0
    assert sender.group.sequence == 0
    assert not sender.outbound.sent


@pytest.mark.parametrize("full", [0, 1, 2])
def test_one_member_without_room_holds_it_back_for_all(full: int) -> None:
    sender = Sender(3, serves=True)
    sender.links[full].congested = True
    assert sender.broadcast() is None
    assert not sender.outbound.sent
    assert not sender.handled()
    assert sender.group.sequence == 0  # no number is missed
    sender.links[full].congested = False
    assert sender.broadcast() == 4


def test_a_large_group_is_told_down_its_tree_and_counted_as_a_whole() -> None:
    sender = Sender(2)
    sender.group.size = DIRECT_MEMBERS_MAX + 1
    sender.links[0].congested = True  # nothing is sent over it
    assert sender.broadcast() == DIRECT_MEMBERS_MAX + 1
    sender.outbound.is_full = True
    assert sender.broadcast() is None
    assert len(sender.outbound.sent) == 1


def test_what_comes_is_handled_once_and_in_order() -> None:
    sender = Sender(1, serves=True)
    assert sender.group.members is not None
    other = sender.group.members[1].peer
    for number in (1, 3, 2, 3, 4):
        sender.receive(other, number)
    assert sender.handled() == [(other, 1, b"told"), (other, 3, b"told"), (other, 4, b"told")]
    assert sender.drops == {"late_broadcast": 2}


def test_what_comes_to_a_node_that_is_no_member_is_counted() -> None:
    sender = Sender(1)
    assert sender.group.members is not None
    sender.receive(sender.group.members[0].peer, 1)
    assert not sender.handled()
    assert sender.drops == {"broadcast_to_no_member": 1}


def test_a_stand_in_is_told_nothing_and_not_counted() -> None:
    sender = Sender(2)
    assert sender.group.members is not None
    ordinary, stand_in = sender.group.members
    stand_in.rank = 1
    sender.group.members = [ordinary, stand_in]
    sender.links[1].congested = True  # nothing is sent over it
    assert sender.broadcast() == 1
    assert [member.peer for member in sender.group.targets] == [ordinary.peer]
    sender.group.members = [stand_in]
    assert sender.broadcast() == 0
    assert len(sender.outbound.sent) == 1


def test_a_stand_in_that_is_told_down_a_tree_or_tells_others_handles_nothing() -> None:
    sender = Sender(1)
    assert sender.group.members is not None
    (ordinary,) = sender.group.members
    sender.service.register(Registration(sender.group, 1, 1, rank=1))
    sender.receive(ordinary.peer, 1)
    assert sender.broadcast() == 1
    assert not sender.handled()
    assert not sender.drops
    assert len(sender.outbound.sent) == 1
