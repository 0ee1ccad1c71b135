"""Tests of iris_py/peers/outbound.py and iris_py/peers/waiting_messages.py: each message has exactly one end."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.link.lanes import BODY, MULTICAST, UNICAST
from iris_py.peers import waiting_messages as held_module
from iris_py.peers.decrypted_message import Multicast, PeerMessage
from iris_py.peers.group import BODY_BYTES, Group
from iris_py.peers.member import KnownMember
from iris_py.peers.outbound import CONNECT_RETRY_S, HELD_S, HELD_S_MAX, Outbound
from iris_py.peers.peer import Peer
from iris_py.peers.waiting_messages import HELD_BYTES_HIGH
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, encode_headers
from iris_py.wire.packets import BROADCAST, CANCEL, MESSAGE, REPLY, REQUEST, ROUTED_BYTES_MAX, SURVEY
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from iris_py.link.link import Link
    from iris_security import GroupKeys

KEYS = Keyring(Secret(bytes(range(32))), network="test").cluster("cluster")
LOCAL, REMOTE = NodeId(bytes(16)), NodeId(b"r" * 16)


def broadcast_header(sequence: int, payload: bytes) -> bytes:
    return packets.MESSAGE.pack(packets.BROADCAST, 0, 0, len(payload), sequence, 0)


class FakeLink:
    """A link that remembers what it was given."""

    def __init__(self) -> None:
        self.is_open = True
        self.is_quiet = True
        self.is_idle_end = False
        self.congested = False
        self.clock_due = math.inf
        self.queued_bytes = 0
        self.shared: set[bytes] = set()
        self.offered: list[bytes] = []
        self.proofs = self
        self.woken_at: list[float] = []
        self.sent: list[tuple[Any, ...]] = []

    def send_packet(self, kind: int, group: bytes, nonce: bytes, sealed: bytes) -> None:
        assert self.is_open
        self.queued_bytes += len(sealed)
        self.sent.append((kind, nonce, sealed))

    def send_body(
        self, group: bytes, messages: list[bytes], size: int, *, is_ordered: bool, passes_large: bool = False
    ) -> None:
        assert self.is_open
        assert size == sum(map(len, messages))
        self.queued_bytes += size
        self.sent.append((BODY, is_ordered, b"".join(messages)))

    def offer(self, keys: GroupKeys) -> None:
        self.offered.append(keys.group_id)

    def send_control(self, message: bytes) -> None:
        assert self.is_open
        self.sent.append((message,))

    def wake(self, now: float) -> None:
        self.is_quiet = False
        self.woken_at.append(now)


class Sender:
    """The sending side of a node, and the receiving side of the node that it sends to."""

    def __init__(self) -> None:
        self.drops: Counter[str] = Counter()
        local = Peer(NodeInfo(LOCAL, ()), None, is_local=True)
        self.outbound = Outbound(local, lambda reason: self.drops.update([reason]))
        self.group = Group("cluster", KEYS, LOCAL, 1)
        self.theirs = Group("cluster", KEYS, REMOTE, 1)
        self.peer = Peer(NodeInfo(REMOTE, ("there:1",)), None)
        self.group.members = [KnownMember(self.peer), KnownMember(local)]
        self.group.size = 2

    def send(self, kind: int, message_id: int, payload: bytes = b"", now: float = 0.0, argument: int = 0) -> None:
        self.outbound.gather(PeerMessage(self.group, self.peer, kind, message_id, argument, payload), now)
        self.outbound.seal(now)

    def open(self, now: float = 1.0) -> FakeLink:
        link = FakeLink()
        self.peer.link = cast("Link", link)
        self.outbound.peer_opened(self.peer, now)
        self.outbound.seal(now)
        return link

    def messages(self, link: FakeLink) -> list[tuple[int, int, int, bytes]]:
        """Open what a link was given: (kind, id, argument, payload)."""
        sent, link.sent = link.sent, []
        return [message for kind, nonce, sealed in sent for message in self.unpack(kind, nonce, sealed)]

    def routed(self) -> list[tuple[int, int, int, bytes]]:
        """Open what was given to the ring."""
        messages = []
        self.outbound.seal(0.0)
        for info, packet in self.outbound.packets_to_route()[0]:
            assert info is self.peer.info
            assert len(packet) <= ROUTED_BYTES_MAX
            decoded = packets.decode_routed(packet)
            assert decoded is not None
            kind, group, nonce, sealed, _sent_at = decoded
            assert group == self.group.id
            messages += self.unpack(kind, nonce, sealed)
        return messages

    def unpack(self, kind: int, nonce: bytes, sealed: bytes) -> list[tuple[int, int, int, bytes]]:
        open_body = self.theirs.open_routed if kind == UNICAST else self.theirs.open_multicast
        body, messages = open_body(LOCAL, nonce, sealed), []
        while body:
            message_kind, _flags, _headers, length, message_id, argument = MESSAGE.unpack_from(body)
            messages.append((message_kind, message_id, argument, body[MESSAGE.size : MESSAGE.size + length]))
            body = body[MESSAGE.size + length :]
        return messages

    def returned(self) -> list[tuple[int, bool]]:
        return [(returned.id, returned.is_tried) for returned in self.outbound.requests_returned()]

    def check_empty(self) -> None:
        assert self.peer.held is None
        assert not self.peer.is_full
        assert self.outbound.deadline() is None


def test_what_waits_leaves_in_order_when_the_link_opens() -> None:
    sender = Sender()
    for number in range(5):
        sender.send(REQUEST, number, bytes(20_000), argument=5000)
        sender.outbound.add_broadcast(sender.group, broadcast_header(number, b"to all"), b"to all", 0.0)
        sender.outbound.seal(0.0)
    assert sender.outbound.links_wanted() == [sender.peer.info]  # once
    link = sender.open(now=1.0)
    messages = sender.messages(link)
    assert [message_id for kind, message_id, *_rest in messages if kind == REQUEST] == list(range(5))
    assert [message_id for kind, message_id, *_rest in messages if kind == BROADCAST] == list(range(5))
    assert {argument for kind, _id, argument, _payload in messages if kind == REQUEST} == {4000}
    assert link.woken_at
    assert sender.outbound.links_woken()
    sender.check_empty()
    assert not sender.drops


def test_a_packet_wakes_a_quiet_link_once() -> None:
    sender = Sender()
    link = sender.open()
    link.woken_at.clear()
    for number in range(5):
        sender.send(REQUEST, number, now=2.0)
    assert link.woken_at == [2.0]
    assert sender.outbound.has_events
    assert [*map(id, sender.outbound.links_woken())] == [id(link)]


@pytest.mark.parametrize("is_proved", [True, False])
def test_a_lone_message_has_the_same_way_as_two(is_proved: bool) -> None:
    for count in (1, 2):
        sender = Sender()
        link = sender.open()
        if is_proved:
            link.shared.add(sender.group.id)
        link.clock_due = math.inf
        messages = [PeerMessage(sender.group, sender.peer, REPLY, number, 0, b"reply") for number in range(count)]
        assert sender.outbound.gather_all(messages, 1.0) == []
        sender.outbound.seal(1.0)
        assert link.woken_at == [1.0]
        assert [*map(id, sender.outbound.touched)] == [id(link)]
        if is_proved:
            ((kind, is_ordered, body),) = link.sent
            assert (kind, is_ordered, body.count(b"reply")) == (BODY, False, count)
        else:
            assert len(sender.messages(link)) == count
            assert link.offered


def test_a_lone_message_does_not_overtake_what_is_collected_for_its_peer() -> None:
    sender = Sender()
    link = sender.open()
    link.shared.add(sender.group.id)
    sender.outbound.gather(PeerMessage(sender.group, sender.peer, REPLY, 1, 0, b"first"), 1.0)
    sender.outbound.gather_all([PeerMessage(sender.group, sender.peer, REPLY, 2, 0, b"second")], 1.0)
    sender.outbound.seal(1.0)
    ((_kind, _is_ordered, body),) = link.sent
    assert body.index(b"first") < body.index(b"second")


@pytest.mark.parametrize("is_proved", [True, False])
def test_a_lone_message_to_this_node_itself_stays_here(is_proved: bool) -> None:
    sender = Sender()
    if is_proved:
        sender.open().shared.add(sender.group.id)
    local = [member.peer for member in sender.group.members or () if member.peer.is_local]
    message = PeerMessage(sender.group, local[0], REPLY, 1, 0, b"reply")
    assert sender.outbound.gather_all([message], 1.0) == [message]


@pytest.mark.parametrize("kind", [REQUEST, REPLY])
def test_what_meets_a_closing_link_waits_for_the_next(kind: int) -> None:
    sender = Sender()
    link = sender.open()
    link.is_open = False
    sender.send(kind, 1)
    assert not sender.outbound.links_wanted()
    sender.peer.link = None
    sender.outbound.peer_closed(sender.peer, 1.0, is_clean=True)
    assert sender.outbound.links_wanted() == [sender.peer.info]
    assert [message[:2] for message in sender.messages(sender.open())] == [(kind, 1)]
    sender.check_empty()


def test_a_link_that_ends_between_gathering_and_sealing() -> None:
    sender = Sender()
    link = sender.open()
    sender.outbound.gather(PeerMessage(sender.group, sender.peer, REQUEST, 1, 5000, b"request"), 1.0)
    link.is_open = False
    sender.outbound.seal(1.0)
    assert not link.sent
    assert sender.outbound.unsent(sender.peer) == {1}
    assert sender.messages(sender.open()) == [(REQUEST, 1, 5000, b"request")]


def test_messages_of_the_overlay_wait_for_the_end_of_an_idle_link_only() -> None:
    sender = Sender()
    sender.outbound.send_control(sender.peer, b"no link", 0.0)
    link = sender.open()
    sender.outbound.send_control(sender.peer, b"open", 0.0)
    link.is_open = False
    sender.outbound.send_control(sender.peer, b"leaving", 0.0)
    link.is_idle_end = True
    sender.outbound.send_control(sender.peer, b"idle", 0.0)
    assert link.sent == [(b"open",)]
    sender.peer.link = None
    sender.outbound.peer_closed(sender.peer, 0.0, is_clean=True)
    assert sender.open().sent == [(b"idle",)]
    sender.check_empty()


def test_messages_of_the_overlay_die_with_a_broken_link() -> None:
    sender = Sender()
    link = sender.open()
    link.is_open, link.is_idle_end = False, True
    sender.outbound.send_control(sender.peer, b"idle", 0.0)
    sender.peer.link = None
    sender.outbound.peer_closed(sender.peer, 0.0, is_clean=False)
    sender.check_empty()
    assert sender.drops == {"control_on_lost_link": 1}
    assert not sender.outbound.links_wanted()


def test_a_cancelled_request_was_never_there() -> None:
    sender = Sender()
    sender.send(REQUEST, 1)
    sender.send(CANCEL, 1)
    sender.check_empty()
    sender.send(CANCEL, 2)  # it went with an earlier link, and is cancelled with that
    sender.check_empty()
    assert sender.drops == {"peer_gone": 1}


def test_without_a_link_the_ring_takes_what_fits() -> None:
    sender = Sender()
    fits = bytes(ROUTED_BYTES_MAX - packets.ROUTED_OVERHEAD_BYTES)
    sender.send(REQUEST, 1, fits)
    sender.send(REQUEST, 2, fits + b"x")
    sender.send(REPLY, 3)
    sender.send(REPLY, 4, fits + b"x")
    sender.outbound.add_broadcast(sender.group, broadcast_header(5, b"small"), b"small", 0.0)
    sender.outbound.seal(0.0)
    sender.outbound.connect_failed(sender.peer, 1.0)
    assert sorted(message[:2] for message in sender.routed()) == [(REQUEST, 1), (REPLY, 3), (BROADCAST, 5)]
    assert sender.returned() == [(2, True)]
    assert sender.drops == {"unreachable": 1}
    sender.check_empty()


def test_what_is_too_large_for_the_ring_asks_for_a_link_at_once() -> None:
    sender = Sender()
    sender.send(REQUEST, 1)
    sender.outbound.links_wanted()
    sender.outbound.connect_failed(sender.peer, 0.0)
    sender.send(REQUEST, 2, now=0.0)
    sender.outbound.links_wanted()
    sender.send(REQUEST, 3, now=1.0)
    assert sender.outbound.links_wanted() == [], "one was asked for just now"
    sender.send(REQUEST, 4, bytes(ROUTED_BYTES_MAX), now=1.0)
    assert sender.outbound.links_wanted() == [sender.peer.info]


def test_a_request_that_waited_says_what_is_left_and_when_it_was_sent_through_the_ring() -> None:
    sender = Sender()
    for number, kind in enumerate((REQUEST, REPLY), 1):
        sender.outbound.gather(PeerMessage(sender.group, sender.peer, kind, number, 1000), 10.0)
    sender.outbound.connect_failed(sender.peer, 10.4)
    sender.outbound.seal(10.4)
    ((_info, packet),) = sender.outbound.packets_to_route()[0]
    decoded = packets.decode_routed(packet)
    assert decoded is not None
    kind, _group, nonce, sealed, sent_at = decoded
    assert sent_at == 10_400
    assert [message[:3] for message in sender.unpack(kind, nonce, sealed)] == [(REQUEST, 1, 600), (REPLY, 2, 1000)]


def test_while_the_ring_is_the_way_a_link_is_asked_for_now_and_then() -> None:
    sender = Sender()
    sender.send(REQUEST, 1)
    sender.outbound.links_wanted()
    sender.outbound.connect_failed(sender.peer, 0.0)
    asked = 0
    for number in range(100):
        now = number * CONNECT_RETRY_S / 10
        sender.send(REQUEST, number, now=now)
        asked += len(sender.outbound.links_wanted())
    assert asked == 9
    assert len(sender.routed()) == 101
    assert len(sender.outbound.packets_to_route()[0]) == 0
    sender.send(CANCEL, 7, now=60.0)
    assert sender.routed() == [(CANCEL, 7, 0, b"")]
    link = sender.open()
    sender.send(REQUEST, 200)
    assert [message[1] for message in sender.messages(link)] == [200]
    assert not sender.routed()


def test_small_messages_share_a_packet_through_the_ring() -> None:
    sender = Sender()
    sender.peer.is_routed = True
    for number in range(100):
        sender.outbound.gather(PeerMessage(sender.group, sender.peer, REQUEST, number, 1000, bytes(1000)), 0.0)
    sender.outbound.seal(0.0)
    routed, requests = sender.outbound.packets_to_route()
    assert 2 <= len(routed) <= 3
    assert requests == list(range(100))


def test_nothing_goes_to_the_dead() -> None:
    sender = Sender()
    sender.send(REQUEST, 1)
    sender.send(REPLY, 2)
    sender.outbound.peer_died(sender.peer)
    assert sender.returned() == [(1, True)]
    assert sender.drops == {"peer_died": 1}
    sender.send(REQUEST, 3)
    sender.outbound.connect_failed(sender.peer, 1.0)
    assert sender.returned() == [(3, True)]
    assert not sender.routed()
    sender.check_empty()


def test_the_requests_of_a_member_that_left_are_returned_and_no_others() -> None:
    sender = Sender()
    another = Group("another", KEYS, LOCAL, 1)
    sender.send(REQUEST, 1)
    sender.outbound.gather(PeerMessage(another, sender.peer, REQUEST, 2), 0.0)
    sender.send(REPLY, 3)
    sender.outbound.member_removed(sender.group, sender.peer)
    assert sender.returned() == [(1, True)]
    assert sender.peer.held is not None
    assert len(sender.peer.held) == 2


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_module, "HELD_BYTES_MAX", 3_000_000)
    sender = Sender()
    sender.send(REQUEST, 1, bytes(HELD_BYTES_HIGH))
    assert sender.peer.is_congested
    sender.send(REQUEST, 2, bytes(HELD_BYTES_HIGH))
    sender.send(REQUEST, 3, bytes(HELD_BYTES_HIGH))
    sender.send(REPLY, 4, bytes(HELD_BYTES_HIGH))
    assert sender.returned() == [(3, False)]
    assert sender.drops == {"held_full": 1}
    sender.outbound.withdraw(sender.peer, 2)
    assert sender.peer.is_congested
    had_room = sender.outbound.has_room
    sender.outbound.withdraw(sender.peer, 1)
    assert (had_room, sender.outbound.has_room) == (False, True)
    sender.check_empty()


def test_what_waits_for_long_is_offered_and_at_last_given_up() -> None:
    sender = Sender()
    sender.send(REQUEST, 1, now=0.0)
    sender.send(REQUEST, 2, now=HELD_S / 2)
    assert sender.outbound.deadline() == HELD_S
    assert sender.outbound.overdue(HELD_S) == [(sender.peer, 1)]
    assert sender.outbound.overdue(2 * HELD_S) == [(sender.peer, 1), (sender.peer, 2)]
    assert sender.outbound.withdraw(sender.peer, 1)
    assert not sender.outbound.withdraw(sender.peer, 1)
    assert sender.outbound.overdue(HELD_S_MAX) == []
    assert [message[1] for message in sender.routed()] == [2]
    sender.check_empty()


def test_a_closed_node_holds_nothing() -> None:
    sender = Sender()
    sender.send(REQUEST, 1)
    sender.send(REPLY, 2)
    sender.outbound.close()
    sender.check_empty()
    sender.send(REPLY, 3)
    sender.check_empty()
    assert sender.drops == {"node_closed": 3}
    assert not sender.returned()


def test_each_message_has_one_end() -> None:
    """Whatever happens in whatever order, what went in comes out once, or is counted."""
    for seed in range(100):
        rng = random.Random(seed)
        sender, now, number, arrived, ended = Sender(), 0.0, 0, Counter[int](), 0
        link: FakeLink | None = None
        for _ in range(60):
            now += rng.choice((0.0, 0.1, 1.0))
            act = rng.randrange(9)
            if act < 4:
                number += 1
                size = rng.choice((0, 1000, 40_000, 300_000))
                sender.send(rng.choice((REQUEST, REPLY)), number, bytes(size), now, argument=60_000)
            elif act == 4 and link is None:
                link = sender.open(now)
            elif act == 5 and link is not None:
                if link.is_open:
                    link.is_open = False
                else:
                    arrived.update(message[1] for message in sender.messages(link))
                    sender.peer.link = link = None
                    sender.outbound.peer_closed(sender.peer, now, is_clean=rng.random() < 0.5)
            elif act == 6:
                sender.outbound.connect_failed(sender.peer, now)
            elif act == 7:
                sender.outbound.peer_died(sender.peer)
            else:
                sender.outbound.overdue(now)
            if link is not None:
                arrived.update(message[1] for message in sender.messages(link))
            arrived.update(message[1] for message in sender.routed())
            ended += len(sender.returned())
        waiting = len(sender.peer.held) if sender.peer.held is not None else 0
        assert set(arrived.values()) <= {1}, seed
        assert len(arrived) + ended + sender.drops.total() + waiting == number, seed
        sender.outbound.close()
        sender.check_empty()


def test_what_fills_more_than_a_packet_goes_in_several() -> None:
    sender = Sender()
    link = sender.open()
    for number in range(3):
        sender.outbound.gather(PeerMessage(sender.group, sender.peer, REPLY, number, 0, bytes(BODY_BYTES // 2)), 1.0)
    sender.outbound.gather(PeerMessage(sender.group, sender.peer, REPLY, 3, 0, bytes(2 * BODY_BYTES)), 1.0)
    sender.outbound.seal(1.0)
    assert len(link.sent) == 4
    assert [message_id for _kind, message_id, *_rest in sender.messages(link)] == [0, 1, 2, 3]


def test_a_link_without_room_takes_no_large_requests_and_everything_else() -> None:
    sender = Sender()
    link = sender.open()
    link.congested = True
    large = bytes(BODY_BYTES + 1)
    for number, (kind, payload) in enumerate([(REQUEST, b"small"), (REQUEST, large), (REPLY, b"small"), (REPLY, large)]):
        sender.outbound.gather(PeerMessage(sender.group, sender.peer, kind, number, 0, payload), 1.0)
    sender.outbound.gather(PeerMessage(sender.group, sender.peer, REQUEST, 4, 0, b"small"), 1.0)
    sender.outbound.gather(PeerMessage(sender.group, sender.peer, REQUEST, 5, 0, large), 1.0)
    sender.outbound.seal(1.0)
    assert all(sealed for _kind, _nonce, sealed in link.sent)
    assert len(link.sent) == 4, "and nothing is sent for what was returned"
    assert [message_id for _kind, message_id, *_rest in sender.messages(link)] == [0, 2, 3, 4]
    assert sender.returned() == [(1, False), (5, False)]


def test_links_are_asked_for_to_those_without_one_and_not_at_once_again() -> None:
    sender = Sender()
    linked = Peer(NodeInfo(NodeId(b"l" * 16), ()), cast("Link", FakeLink()))
    for now in (0.0, CONNECT_RETRY_S / 2):
        sender.outbound.connect([linked, sender.peer], now)
    assert sender.outbound.links_wanted() == [sender.peer.info]
    sender.outbound.connect([linked, sender.peer], CONNECT_RETRY_S)
    assert sender.outbound.links_wanted() == [sender.peer.info]


def test_what_is_for_several_is_sealed_once_and_waits_for_those_without_an_open_link() -> None:
    sender = Sender()
    link = sender.open()
    closing, unlinked = FakeLink(), Peer(NodeInfo(NodeId(b"u" * 16), ()), None)
    closing.is_open = False
    other = Peer(NodeInfo(NodeId(b"c" * 16), ()), cast("Link", closing))
    sender.outbound.send_multicast(Multicast(sender.group, [sender.peer, other, unlinked], SURVEY, 7, 5000, b"question"), 1.0)
    assert [kind for kind, _nonce, _sealed in link.sent] == [MULTICAST]
    assert sender.messages(link) == [(SURVEY, 7, 5000, b"question")]
    assert sender.outbound.unsent(other) == sender.outbound.unsent(unlinked) == {7}
    assert sender.outbound.casts_to_send() == []


def test_what_is_for_all_of_a_large_group_goes_down_its_tree_alone() -> None:
    sender = Sender()
    link = sender.open()
    sender.outbound.links_woken()
    sender.outbound.send_multicast(Multicast(sender.group, None, SURVEY, 7, 5000, b"question"), 1.0)
    assert [group_id for group_id, _piece in sender.outbound.casts_to_send()] == [sender.group.id]
    assert sender.outbound.has_events
    assert not link.sent


def test_a_broadcast_does_not_go_to_the_sender_itself() -> None:
    sender = Sender()
    link = sender.open()
    sender.outbound.add_broadcast(sender.group, broadcast_header(1, b"x"), b"x", 0.0)
    sender.outbound.seal(0.0)
    ((kind, _nonce, _sealed),) = link.sent
    assert kind == MULTICAST
    sender.check_empty()


def test_control_that_fills_a_link_is_noticed_until_there_is_room() -> None:
    sender = Sender()
    link = sender.open()
    assert not sender.outbound.is_control_full()
    link.congested = True
    sender.outbound.send_control(sender.peer, b"x", 0.0)
    assert sender.outbound.is_control_full()
    link.congested = False
    assert not sender.outbound.is_control_full()


def test_a_link_that_was_full_and_ended_is_forgotten() -> None:
    """Nobody may ever ask whether there is room: then each link that a peer filled and closed would stay."""
    sender = Sender()
    link = sender.open()
    link.congested = True
    sender.outbound.send_control(sender.peer, b"x", 0.0)
    link.congested = link.is_open = False
    sender.outbound.peer_closed(sender.peer, 0.0, is_clean=True)
    assert not sender.outbound._full_links


def heads(sender: Sender, packets_sent: list[tuple[int, bytes, bytes]]) -> list[tuple[int, bytes, bytes]]:
    """Open what was sent: (id, head, payload)."""
    found = []
    for kind, nonce, sealed in packets_sent:
        body = (sender.theirs.open_routed if kind == UNICAST else sender.theirs.open_multicast)(LOCAL, nonce, sealed)
        while body:
            _kind, _flags, size, length, message_id, _argument = MESSAGE.unpack_from(body)
            start = MESSAGE.size + size
            found.append((message_id, body[MESSAGE.size : start], body[start : start + length]))
            body = body[start + length :]
    return found


def test_headers_go_whatever_way_the_message_goes() -> None:
    headers = encode_headers({"a": 1})
    expected = [(1, headers.encoded, b"one"), (2, b"", b"two"), (3, headers.encoded, b"three")]

    def gather(sender: Sender) -> None:
        for (message_id, head, payload), kind in zip(expected, (REQUEST, REQUEST, REPLY), strict=True):
            given = headers if head else NO_HEADERS
            sender.outbound.gather(PeerMessage(sender.group, sender.peer, kind, message_id, 1000, payload, given), 0.0)

    held = Sender()  # until the link opens
    gather(held)
    assert held.peer.held is not None
    assert held.peer.held.bytes == 3 * held_module.ENTRY_BYTES + sum(len(head) + len(payload) for _, head, payload in expected)
    assert heads(held, held.open().sent) == expected
    held.check_empty()

    linked = Sender()
    link = linked.open()
    gather(linked)
    linked.outbound.seal(0.0)
    assert heads(linked, link.sent) == expected

    ended = Sender()  # between gathering and sealing
    link = ended.open()
    gather(ended)
    link.is_open = False
    ended.outbound.seal(0.0)
    assert heads(ended, ended.open().sent) == expected

    routed = Sender()
    gather(routed)
    routed.outbound.connect_failed(routed.peer, 0.0)
    routed.outbound.seal(0.0)
    decoded = [packets.decode_routed(packet) for _info, packet in routed.outbound.packets_to_route()[0]]
    assert heads(routed, [(each[0], each[2], each[3]) for each in decoded if each is not None]) == expected


def test_headers_count_for_what_fits_through_the_ring() -> None:
    room = ROUTED_BYTES_MAX - packets.ROUTED_OVERHEAD_BYTES
    headers = encode_headers({"a": 1})
    for size, fits in ((room - len(headers.encoded), True), (room - len(headers.encoded) + 1, False)):
        sender = Sender()
        sender.outbound.gather(PeerMessage(sender.group, sender.peer, REQUEST, 1, 1000, bytes(size), headers), 0.0)
        sender.outbound.connect_failed(sender.peer, 0.0)
        sender.outbound.seal(0.0)
        assert [len(packet) for _info, packet in sender.outbound.packets_to_route()[0]] == [ROUTED_BYTES_MAX] * fits
        assert [returned.id for returned in sender.outbound.requests_returned()] == [1] * (not fits)
