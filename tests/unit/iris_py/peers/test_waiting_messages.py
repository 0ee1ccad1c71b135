"""Messages that wait for a link, and how much they count."""

from __future__ import annotations

from iris_overlay.ids import NodeId
from iris_py.link.lanes import CONTROL, UNICAST
from iris_py.peers.group import Group
from iris_py.peers.waiting_messages import ENTRY_BYTES, HELD_BYTES_MAX, HeldMessages, WaitingMessage
from iris_py.wire import packets
from iris_py.wire.headers import encode_headers
from iris_security import Keyring, Secret

GROUP = Group("cluster", Keyring(Secret(bytes(range(32))), network="test").cluster("cluster"), NodeId(bytes(16)), 1)


def request(number: int, size: int = 0, held_at: float = 0.0) -> WaitingMessage:
    return WaitingMessage(held_at, UNICAST, GROUP, packets.REQUEST, number, payload=bytes(size))


def test_what_waits_is_taken_in_order_and_counts_no_more() -> None:
    held = HeldMessages(1.0)
    assert (held.since, held.bytes, len(held)) == (1.0, 0, 0)
    headers = encode_headers({"a": 1})
    entries = [
        request(7, 10),
        WaitingMessage(0.0, CONTROL, None, payload=b"overlay"),
        WaitingMessage(0.0, UNICAST, GROUP, packets.REPLY, 8, payload=b"reply", headers=headers),
    ]
    for entry in entries:
        held.add(entry)
    assert held.bytes == 3 * ENTRY_BYTES + 10 + len(b"overlay") + len(b"reply") + len(headers.encoded)
    assert list(held.requests) == [7]
    assert held.take() == entries
    assert (held.bytes, len(held), held.requests) == (0, 0, {})
    held.add(request(9, 1))
    assert held.bytes == ENTRY_BYTES + 1


def test_a_request_that_is_not_to_be_sent_any_more_is_forgotten() -> None:
    held = HeldMessages(0.0)
    for number in (1, 2, 3):
        held.add(request(number, number))
    assert held.remove_request(2)
    assert not held.remove_request(2)
    assert held.bytes == 2 * ENTRY_BYTES + 4
    assert held.request(3).size == 3
    assert [entry.id for entry in held.take()] == [1, 3]


def test_messages_of_the_overlay_can_go_before_the_others() -> None:
    held = HeldMessages(0.0)
    held.add(request(1, 5))
    for payload in (b"first", b"second"):
        held.add(WaitingMessage(0.0, CONTROL, None, payload=payload))
    assert [entry.payload for entry in held.take_control()] == [b"first", b"second"]
    assert held.bytes == ENTRY_BYTES + 5
    assert held.take_control() == []
    assert [entry.id for entry in held.take()] == [1]


def test_requests_that_have_waited_since_before_a_time() -> None:
    held = HeldMessages(0.0)
    for number, held_at in ((1, 1.0), (2, 2.0), (3, 3.0)):
        held.add(request(number, held_at=held_at))
    assert held.overdue(2.0) == [1, 2]


def test_what_waits_is_bounded_but_for_the_first() -> None:
    held = HeldMessages(0.0)
    assert held.has_room(request(1, HELD_BYTES_MAX + 1))
    held.add(request(1))
    room = HELD_BYTES_MAX - 2 * ENTRY_BYTES
    assert held.has_room(request(2, room))
    assert not held.has_room(request(2, room + 1))
