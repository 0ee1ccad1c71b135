"""Misuse, noise and floods: nothing raises that should not, everything is bounded, and all of it can be repeated."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.detector.messages import Ack, encode_detector_message
from iris_overlay.errors import AddressError, InfoError, StateError, TooManyGroupsError
from iris_overlay.events import (
    Settled,
)
from iris_overlay.groups.messages import CAST_BYTES_MAX
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import GROUPS_PER_NODE_MAX, NodeInfo, encode_beacon
from iris_overlay.overlay import Overlay
from iris_overlay.peers.dial_back import PACKET_BYTES_MAX
from iris_overlay.peers.dialler import DIALS_MAX
from iris_overlay.ring.messages import Direct, LeafProbe, encode_ring_message
from iris_py.testing.cores.signer import NamedSigner
from tests.unit.overlay.overlays import (
    CONFIG,
    GROUP,
    ONE,
    TWO,
    make_info,
    new_overlay,
    relayed,
    started,
    with_leaf,
)


def test_misuse_raises_before_anything_changes() -> None:
    overlay = new_overlay()
    for seeds in (("good:1", "bad"), ("good:1",) * (CONFIG.seeds_max + 1)):
        with pytest.raises((AddressError, InfoError)):
            overlay.start(0.0, seeds, (), False)
    new_overlay().start(0.0, ("good:1",) * CONFIG.seeds_max, (), False)  # so many are no misuse
    overlay.start(0.0, (), ("junk in a file",), False)
    assert overlay.events_received() == [Settled()]
    before = overlay.table_sizes()
    with pytest.raises(StateError):
        overlay.start(0.0, (), (), False)
    for group, attributes in ((GroupId(b"short"), b""), (GROUP, b"a" * 257)):
        with pytest.raises(InfoError):
            overlay.join_group(group, attributes, 0.0)
    with pytest.raises(InfoError):
        overlay.watch_group(GroupId(b"short"), 0.0)
    for group, payload in ((GroupId(b"short"), b""), (GROUP, bytes(CAST_BYTES_MAX + 1))):
        with pytest.raises(InfoError):
            overlay.cast(group, payload, 0.0)
    for info, payload in ((ONE, bytes(PACKET_BYTES_MAX + 1)), (NodeInfo(NodeId(b"short"), ()), b"")):
        with pytest.raises(InfoError):
            overlay.send(info, payload, 0.0)
    with pytest.raises(InfoError):
        overlay.connect(NodeInfo(NodeId(b"short"), ()), 0.0)
    assert overlay.events_received() == []
    assert overlay.messages_to_send() == []
    assert overlay.table_sizes() == before
    for number in range(GROUPS_PER_NODE_MAX):
        overlay.join_group(GroupId(number.to_bytes(16, "big")), b"", 0.0)
    with pytest.raises(TooManyGroupsError):
        overlay.join_group(GROUP, b"", 0.0)
    with pytest.raises(InfoError):
        Overlay(NodeInfo(NodeId(b""), ()), CONFIG, random.Random(1), NamedSigner(NodeId(b"")))


@given(st.lists(st.binary(max_size=120), max_size=20), st.randoms(use_true_random=False))
def test_noise_of_a_peer_never_raises(noise: list[bytes], rng: random.Random) -> None:
    overlay = with_leaf()
    good = encode_ring_message(Direct(ONE, b"\x93\x01"))
    for number, data in enumerate(noise):
        for damaged in (data, good[: rng.randrange(len(good))] + data):
            overlay.link_opened(ONE, 0.0)
            overlay.receive_message(ONE.id, damaged, 0.0)
            overlay.receive_message(ONE.id, encode_ring_message(Direct(ONE, data)), 0.0)
            overlay.link_opened(ONE, 0.0)
            overlay.receive_message(ONE.id, relayed(Direct(TWO, data), ONE, number + 1), 0.0)
            overlay.link_lost(ONE.id, 0.0, is_closed=True)
    overlay.events_received()


@given(st.lists(st.binary(max_size=120), max_size=20))
def test_noise_of_strangers_never_raises(noise: list[bytes]) -> None:
    overlay = new_overlay()
    overlay.start(0.0, (), (), True)
    beacon = encode_beacon(ONE, wants_answer=True, peers=0) or b""
    ack = encode_detector_message(Ack(1, ONE.id, 0))
    for number, data in enumerate(noise):
        for good in (b"", beacon, ack):
            overlay.receive_datagram(ONE.id, good[: max(0, len(good) - len(data))] + data, ("192.0.2.1", 1), float(number))
            overlay.receive_datagram(ONE.id, data + good[len(data) :], ("192.0.2.1", 1), float(number))
    overlay.datagrams_to_send()


def test_the_same_inputs_give_the_same_outputs() -> None:
    def play() -> list[object]:
        overlay = started(seeds=("a:1", "b:1"), remembered=tuple(f"c:{number}" for number in range(1, 20)))
        for number in range(1, 40):
            overlay.link_opened(make_info(number), 0.1)
            overlay.receive_message(make_info(number).id, encode_ring_message(LeafProbe(make_info(number), [], True)), 0.2)
        overlay.join_group(GROUP, b"", 0.3)
        outputs: list[object] = []
        now = 0.3
        while now < 20.0:
            outputs += [overlay.messages_to_send(), overlay.datagrams_to_send(), overlay.events_received()]
            now = overlay.deadline() or 1e9
            overlay.handle_timeout(now)
        return outputs

    assert play() == play()


def test_every_table_is_bounded_under_a_flood() -> None:
    overlay = with_leaf()
    rng = random.Random(3)
    sizes: dict[str, int] = {}
    for number in range(1, 1200):
        now = number / 100
        info = NodeInfo(NodeId(rng.randbytes(16)), (f"203.0.113.{number % 250}:{number}",))
        # It names others, sends in their names, and they show up themselves.
        overlay.receive_message(ONE.id, encode_ring_message(LeafProbe(ONE, [info], True)), now)
        overlay.receive_message(ONE.id, relayed(LeafProbe(info, [], True), ONE, 2 * number), now)
        overlay.receive_message(ONE.id, relayed(Direct(info, b"\x01"), ONE, 2 * number + 1), now)
        beacon = encode_beacon(info, wants_answer=True, peers=0)
        assert beacon is not None
        overlay.receive_datagram(info.id, beacon, ("203.0.113.1", number), now)
        overlay.connect(info, now)
        overlay.link_opened(info, now)
        overlay.link_lost(info.id, now)
        if number % 50 == 0:
            overlay.handle_timeout(now)
        overlay.messages_to_send()
        overlay.datagrams_to_send()
        overlay.events_received()
        sizes = {name: max(size, sizes.get(name, 0)) for name, size in overlay.table_sizes().items()}
    assert sizes["leaves"] <= 16
    assert sizes["table"] <= 128
    assert sizes["open_links"] <= 2
    assert sizes["dials"] <= DIALS_MAX
    assert sizes["candidates"] <= CONFIG.candidates_max
    assert sizes["waited_for"] <= CONFIG.contacts.waiting_peers_max
    assert sizes["wanted"] <= 1024
    assert all(size <= 8192 for size in sizes.values()), sizes
