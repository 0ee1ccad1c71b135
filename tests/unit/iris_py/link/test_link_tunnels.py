"""Chunks of tunnels on a link: their share of the bulk lane, and how many are under way."""

from __future__ import annotations

import struct

import pytest

from iris_py.link.events import CloseReason, LinkClosed
from iris_py.link.lanes import FRAGMENT_BYTES, RECORD_BYTES, TAKEN, TUNNEL, TUNNEL_SEALED, UNICAST
from iris_py.link.link import TAKEN_BYTES, Link, LinkState
from iris_py.link.pacing import UNDER_WAY_BYTES_MIN
from iris_py.testing.cores.pair import LinkPair
from iris_security import Keyring, Secret

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
ID = bytes(7) + b"\x01"
GROUP, NONCE = b"g" * 16, b"n" * 12


def opened() -> LinkPair:
    pair = LinkPair(KEYRING)
    pair.open()
    return pair


def arrived(pair: LinkPair) -> list[tuple[int, bytes, int]]:
    """Return (kind, group or tunnel, size) of what arrived at the responder, in order."""
    return [(kind, group, len(sealed)) for kind, group, _nonce, sealed in pair.responder.packets]


def give(pair: LinkPair, records: int) -> None:
    """Let the initiator write some records, which arrive."""
    for _ in range(records):
        for data in pair.initiator.link.data_to_send(1):
            pair.responder.receive(data, pair.now)
    pair.responder.take()


@pytest.mark.parametrize("kind", [TUNNEL, TUNNEL_SEALED])
def test_a_chunk_arrives_with_its_tunnel(kind: int) -> None:
    pair = opened()
    pair.initiator.link.send_tunnel(kind, ID, (b"sealed", b"sealed"), 12, pair.now)
    pair.drive()
    assert pair.responder.packets == [(kind, ID, b"", b"sealedsealed")]


def test_chunks_and_large_packets_take_turns() -> None:
    pair = opened()
    link = pair.initiator.link
    link.send_packet(UNICAST, GROUP, NONCE, bytes(10 * FRAGMENT_BYTES))
    for _ in range(3):
        link.send_tunnel(TUNNEL, ID, (bytes(31_000),), 31_000, pair.now)
    give(pair, 7)
    assert arrived(pair) == [(TUNNEL, ID, 31_000)] * 3
    pair.drive()
    assert arrived(pair)[3:] == [(UNICAST, GROUP, 10 * FRAGMENT_BYTES)]


def test_small_chunks_share_a_record() -> None:
    pair = opened()
    for _ in range(50):
        pair.initiator.link.send_tunnel(TUNNEL, ID, (bytes(200),), 200, pair.now)
    give(pair, 1)
    assert len(pair.responder.packets) == 50


def test_small_packets_pass_chunks_but_do_not_starve_them() -> None:
    pair = opened()
    link = pair.initiator.link
    for _ in range(20):
        link.send_tunnel(TUNNEL, ID, (bytes(31_000),), 31_000, pair.now)
    link.send_packet(UNICAST, GROUP, NONCE, bytes(100))
    give(pair, 1)
    assert arrived(pair)[0] == (UNICAST, GROUP, 100)
    for _ in range(100):
        for _ in range(3):
            link.send_packet(UNICAST, GROUP, NONCE, bytes(RECORD_BYTES - 1000))
        give(pair, 1)
    kinds = [kind for kind, _group, _size in arrived(pair)]
    assert 15 <= kinds.count(TUNNEL) <= 20


def test_no_more_is_under_way_than_the_peer_acknowledges() -> None:
    pair = opened()
    link = pair.initiator.link
    sent = 0
    for _ in range(50):
        while link.chunk_room:
            link.send_tunnel(TUNNEL, ID, (bytes(31_000),), 31_000, pair.now)
            sent += 1
        link.data_to_send(1 << 20)  # to nowhere
    assert UNDER_WAY_BYTES_MIN <= sent * 31_008 <= UNDER_WAY_BYTES_MIN + 31_008


def test_what_was_read_is_acknowledged() -> None:
    pair = opened()
    link, moved = pair.initiator.link, 0
    for _ in range(100):
        while link.chunk_room:
            link.send_tunnel(TUNNEL, ID, (bytes(31_000),), 31_000, pair.now)
            moved += 1
        pair.drive()
    assert len(pair.responder.packets) == moved >= 100
    assert link._pace.sent - link._pace.acknowledged < TAKEN_BYTES + 31_008


def test_so_many_bytes_are_acknowledged_as_soon_as_they_were_read() -> None:
    pair = opened()
    pace = pair.initiator.link._pace
    for times in (1, 2):
        pair.initiator.link.send_tunnel(TUNNEL, ID, (bytes(TAKEN_BYTES - len(ID)),), TAKEN_BYTES - len(ID), pair.now)
        pair.drive()
        assert pace.sent == pace.acknowledged == times * TAKEN_BYTES


def test_a_link_that_closes_takes_no_more_chunks_and_sends_those_that_it_has() -> None:
    pair = opened()
    link = pair.initiator.link
    link.send_tunnel(TUNNEL, ID, (bytes(1000),), 1000, pair.now)
    link.close(CloseReason.LEAVING, pair.now)
    assert not link.chunk_room
    link.send_tunnel(TUNNEL, ID, (bytes(1000),), 1000, pair.now)
    pair.drive()
    assert arrived(pair) == [(TUNNEL, ID, 1000)]
    assert link.state is LinkState.CLOSED


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (TUNNEL, bytes(7)),
        (TUNNEL, b""),
        (TUNNEL_SEALED, bytes(7)),
        (TAKEN, b""),
        (TAKEN, struct.pack(">Q", 1)),
        (TAKEN, struct.pack(">Q", 1 << 63)),
    ],
)
def test_malformed_frames_end_the_link(kind: int, content: bytes) -> None:
    pair = opened()
    link: Link = pair.initiator.link
    link._lanes.add_signal(kind, content)
    pair.drive()
    assert isinstance(pair.responder.events[-1], LinkClosed)
    assert not pair.responder.events[-1].clean


def test_a_chunk_before_the_link_is_open_ends_it() -> None:
    pair = LinkPair(KEYRING, confirms=False)
    for _ in range(4):
        pair.step()
    responder = pair.responder.link
    link = pair.initiator.link
    link._lanes.add_tunnel(TUNNEL, ID, (bytes(100),), 108)
    if link.state is LinkState.IDENTIFIED:
        link.confirm(pair.now)
    pair.drive()
    assert responder.state is LinkState.CLOSED
