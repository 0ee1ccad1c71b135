"""When a hop that did not acknowledge is given up: RFC 6298, in numbers."""

from __future__ import annotations

import random

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.ring.config import PastryConfig
from iris_overlay.ring.hops import HOP_TIMES_MAX, PENDING_MAX, Hops, PendingHop
from iris_overlay.ring.messages import ACKNOWLEDGEMENTS_MAX, Got, Routed, RoutedKind, decode_ring_message
from iris_overlay.ring.state import Ring, Timer
from iris_py.testing.cores.signer import NamedSigner

CONFIG = PastryConfig()


def node(number: int) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), (f"192.0.2.{number % 250}:1",))


LOCAL, PEER = node(1), node(2)


class Watcher:
    """Forwards messages to one hop, which acknowledges each after a while."""

    def __init__(self) -> None:
        self.ring = Ring(LOCAL, CONFIG, random.Random(1), NamedSigner(LOCAL.id))
        self.hops = Hops(self.ring)

    def forward(self, now: float, attempts: int = 0, hop: NodeInfo = PEER) -> int:
        pending = PendingHop(Routed(1, RoutedKind.PAYLOAD, bytes(16), LOCAL, 1, (LOCAL.id,), (), b""))
        pending.attempts = attempts
        sequence = self.hops.next_sequence()
        self.hops.watch(pending, hop, sequence, now)
        return sequence

    def timeout_s(self, attempts: int = 0) -> float:
        """Return for how long a message would be waited for now."""
        sequence = self.forward(0.0, attempts)
        assert (Timer.HOP, sequence) in self.ring.timers
        deadline = self.ring.timers.deadline()
        assert deadline is not None
        self.hops.take(sequence)
        return deadline

    def measure(self, time_s: float) -> None:
        sequence = self.forward(10.0)
        self.hops.receive_got(PEER.id, Got([sequence]), 10.0 + time_s)
        assert len(self.hops) == 0


def test_of_an_unknown_hop_the_default_is_taken_and_doubled_with_each_attempt() -> None:
    watcher = Watcher()
    assert [watcher.timeout_s(attempts) for attempts in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_it_follows_the_measured_times_and_their_deviation() -> None:
    watcher = Watcher()
    watcher.measure(0.4)  # mean 0.4, deviation 0.2
    assert watcher.timeout_s() == pytest.approx(1.2)
    watcher.measure(0.4)  # mean 0.4, deviation 0.15
    assert watcher.timeout_s() == pytest.approx(1.0)
    watcher.measure(0.8)  # mean 0.45, deviation 0.2125
    assert watcher.timeout_s() == pytest.approx(0.45 + 4 * 0.2125)


def test_a_quick_hop_gets_a_minimum_and_a_slow_one_a_maximum() -> None:
    watcher = Watcher()
    for _ in range(100):
        watcher.measure(0.001)
    assert watcher.timeout_s() == CONFIG.hop_timeout_s_min
    for _ in range(100):
        watcher.measure(5.0)
    assert watcher.timeout_s() == CONFIG.hop_timeout_s_max


def test_the_round_trip_time_from_elsewhere_counts_only_until_something_is_measured() -> None:
    watcher = Watcher()
    watcher.hops.expect(PEER.id, 0.35)  # and as long as acknowledgements are collected for
    assert watcher.timeout_s() == pytest.approx(0.4 + 4 * 0.2)
    watcher.hops.expect(PEER.id, 0.0)
    assert watcher.timeout_s() == pytest.approx(1.2)
    watcher.hops.forget(PEER.id)
    assert watcher.timeout_s() == CONFIG.hop_timeout_s


def test_the_hop_that_was_not_used_for_longest_is_forgotten() -> None:
    watcher = Watcher()
    watcher.measure(0.4)
    for number in range(HOP_TIMES_MAX):
        watcher.hops.expect(node(100 + number).id, 0.1)
    assert watcher.timeout_s() == CONFIG.hop_timeout_s


def test_acknowledgements_are_collected_until_their_time_or_until_they_are_many() -> None:
    watcher = Watcher()
    watcher.ring.links[PEER.id] = PEER
    for sequence in range(ACKNOWLEDGEMENTS_MAX - 1):
        watcher.hops.note(PEER.id, sequence, 1.0)
    assert watcher.ring.take_messages() == []
    assert watcher.ring.timers.deadline() == 1.0 + CONFIG.acknowledgement_delay_s
    watcher.hops.note(PEER.id, ACKNOWLEDGEMENTS_MAX - 1, 1.0)
    ((_, data),) = watcher.ring.take_messages()
    assert decode_ring_message(data) == Got(list(range(ACKNOWLEDGEMENTS_MAX)))
    watcher.hops.flush()
    assert watcher.ring.take_messages() == []


def test_of_too_many_messages_the_oldest_is_watched_over_no_more_and_counted() -> None:
    watcher = Watcher()
    sequences = [watcher.forward(0.0) for _ in range(PENDING_MAX)]
    assert watcher.ring.counters.pending_dropped == 0
    watcher.forward(0.0)
    assert len(watcher.hops) == PENDING_MAX
    assert watcher.ring.counters.pending_dropped == 1
    assert watcher.hops.take(sequences[0]) is None
    assert watcher.hops.take(sequences[1]) is not None
