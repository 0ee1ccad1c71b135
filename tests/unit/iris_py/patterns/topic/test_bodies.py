"""Bodies of publications: casts to the groups of promoted entries, few and large under load."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.patterns.topic.bodies import CAST_BODY_BYTES, CASTS_IN_FLIGHT_MAX, Bodies, PublicationBatch
from iris_py.patterns.topic.outgoing_flows import OutgoingFlow
from iris_py.patterns.topic.shared_slices import SliceBatch
from iris_py.patterns.topic.targets import CastTarget, PublicationRoute, PublicationTarget
from iris_py.patterns.topic.unheard_batches import UnheardBatch
from iris_py.peers.group import BODY_BYTES, Group
from iris_py.wire import packets
from iris_py.wire.flows import encode_cast, encode_flow, encode_moved
from tests.unit.iris_py.patterns.topic.test_deliveries import KEYRING, LOCAL, REMOTE

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRY = bytes(12) + (7).to_bytes(8, "big")


class Sender:
    """Bodies of a node, and what leaves it."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.casts: list[bytes] = []
        self.sent: list[bytes] = []
        outbound: Any = self
        self.bodies = Bodies(outbound, lambda _group: self.in_flight)
        keys = KEYRING.realm()
        self.bodies.group = Group(">", keys, LOCAL, 1, is_realm=True)
        group = Group(">", keys.entry_group(ENTRY), LOCAL, 2)
        group.entry = ENTRY
        self.cast_target = CastTarget(ENTRY, 7, 3)
        self.cast_target.group = group
        peer: Any = type("Peer", (), {"id": REMOTE})
        self.node = PublicationTarget(peer, OutgoingFlow(REMOTE, 0))
        self.route = PublicationRoute((self.cast_target,))
        self.both = PublicationRoute((self.node, self.cast_target))
        for route in (self.route, self.both):
            route.refresh(1)

    def cast(self, group: Group, body: bytes) -> None:
        assert group is self.cast_target.group
        self.casts.append(body)
        self.in_flight += 1

    def send_body(self, group: Group, peer: Any, parts: list[bytes], size: int, now: float, **_options: bool) -> None:
        assert group is self.bodies.group
        assert peer is self.node.peer
        self.sent.append(b"".join(parts))
        assert len(self.sent[-1]) == size

    def add(self, message: bytes, count: int = 1, route: PublicationRoute | None = None) -> None:
        route = route or self.route
        self.bodies.used_bytes(route, len(message), 0.0)
        for flow in route.flows:
            flow.count += count
        self.bodies.add(route, [message], len(message), count)


def test_a_body_to_a_group_begins_with_its_count_and_the_last_direct_number() -> None:
    sender = Sender()
    sender.add(b"one")
    sender.add(b"more", count=5)
    sender.bodies.send_all(0.0)
    sender.cast_target.direct = 9
    sender.add(b"last")
    sender.bodies.send_all(0.0)
    assert sender.casts == [encode_cast(3, 0) + b"onemore", encode_cast(9, 6) + b"last"]


def test_a_message_to_nodes_and_a_group_is_in_both_bodies() -> None:
    sender = Sender()
    sender.add(b"alone")
    sender.add(b"both", route=sender.both)
    sender.bodies.send_all(0.0)
    assert sender.casts == [encode_cast(3, 0) + b"aloneboth"]
    assert sender.sent == [encode_flow(0, 0) + b"both"]


def test_moved_follows_what_was_gathered_for_the_node() -> None:
    sender = Sender()
    sender.add(b"both", route=sender.both)
    sender.bodies.tell(sender.node, [encode_moved(7, 1)], 0.0)
    sender.add(b"more", route=sender.both)
    sender.bodies.send_all(0.0)
    assert sender.sent == [
        encode_flow(0, 0) + b"both",
        encode_flow(0, 1) + encode_moved(7, 1),
        encode_flow(0, 1) + b"more",
    ]


def test_while_casts_are_in_flight_the_next_ones_are_gathered() -> None:
    sender = Sender()
    for number in range(20):
        sender.add(b"%2d" % number)
        sender.bodies.send_all(0.0)
    assert len(sender.casts) == CASTS_IN_FLIGHT_MAX
    sender.in_flight -= 1
    sender.bodies.send_all(0.0)
    assert sender.casts[-1] == encode_cast(3, 4) + b"".join(b"%2d" % number for number in range(4, 20))
    sender.bodies.send_all(0.0)
    assert len(sender.casts) == CASTS_IN_FLIGHT_MAX + 1


def test_a_cast_has_a_bounded_size_and_more_wait_for_room() -> None:
    sender = Sender()
    sender.in_flight = CASTS_IN_FLIGHT_MAX
    message = bytes(10_000)
    while sender.bodies.has_room(sender.cast_target):
        sender.add(message)
        sender.bodies.send_all(0.0)
    sender.add(bytes(500_000))
    sender.add(message)
    sender.in_flight = 0
    sender.bodies.send_all(0.0)
    sizes = [len(body) - packets.MESSAGE_BYTES for body in sender.casts]
    assert sum(sizes[:-2]) >= CAST_BODY_BYTES
    assert all(size <= CAST_BODY_BYTES for size in sizes[:-2])
    assert sizes[-2:] == [500_000, 10_000]
    assert all(packets.is_body_sane(body, 0, len(body)) for body in sender.casts[:-2])
    assert sender.bodies.has_room(sender.cast_target)
    assert sender.cast_target.gathered_bytes == 0


def test_a_group_that_gets_no_more_messages_is_sent_all_that_was_gathered_and_the_end() -> None:
    sender = Sender()
    sender.in_flight = CASTS_IN_FLIGHT_MAX
    sender.add(b"one")
    sender.bodies.send_all(0.0)
    sender.add(b"two")
    sender.bodies.end(sender.cast_target, 9)
    assert sender.casts == [encode_cast(3, 0) + b"onetwo", encode_cast(3, 2) + encode_moved(9, 2)]
    sender.bodies.send_all(0.0)
    assert len(sender.casts) == 2


def test_a_group_that_got_no_messages_is_told_nothing() -> None:
    sender = Sender()
    sender.bodies.end(sender.cast_target, 9)
    assert sender.casts == []


@pytest.mark.parametrize("make", [PublicationBatch, partial(SliceBatch, messages_max=100), lambda *_values: UnheardBatch()])
@pytest.mark.parametrize("size", [1, 1000, 20_000, BODY_BYTES])
def test_a_batch_is_full_where_it_takes_no_further_publication(make: Callable[..., PublicationBatch], size: int) -> None:
    batch = make(b"topic", bytes(size), 0, 1)
    taken, is_full = 1, batch.ends_full(bytes(size))
    while taken < 2 * packets.RUN_MESSAGES_MAX and batch.append(bytes(size)):
        assert not is_full
        taken, is_full = taken + 1, batch.ends_full(bytes(size))
    assert is_full is (1 < taken < 2 * packets.RUN_MESSAGES_MAX), "a lone publication fills none"
    if not batch.is_unheard:
        assert 0 <= batch.size - sum(map(len, batch.payloads)) <= 100 + packets.RUN_MESSAGE_COST * taken
