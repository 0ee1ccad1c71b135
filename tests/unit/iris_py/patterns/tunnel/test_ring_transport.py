"""The way of a tunnel through the ring: what is lost is sent again, and no sooner than it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.tunnel.end import TunnelEnd, TunnelTerms
from iris_py.patterns.tunnel.ring_transport import (
    CHUNKS_MAX,
    HEADER,
    NONE,
    PROBE,
    PROBE_S,
    REPEATED_ACKS,
    RESEND_S,
    RESEND_S_MAX,
    SILENCE_S,
    RingWay,
)
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_security import Keyring, Secret, TransportKeys

if TYPE_CHECKING:
    from iris_py.patterns.tunnel.duplex import Way

GROUP = Group("cluster", Keyring(Secret(bytes(range(32))), network="test").cluster("cluster"), NodeId(bytes(16)), 1)
KEYS = TransportKeys(bytes(32), b"\x01" * 32)


class OneWay:
    """A way, of which the other side is the test."""

    def __init__(self) -> None:
        ready: dict[Way[TunnelEnd], None] = {}
        self.way = RingWay(ready, 0.0)
        peer = Peer(NodeInfo(NodeId(bytes(15) + b"\x01"), ()), None)
        terms = TunnelTerms(group=GROUP, peer=peer, keys=KEYS, window_bytes=1 << 20, credit_bytes=1 << 20)
        self.end = TunnelEnd(7, terms, way=self.way, changed={})
        self.way.end = self.end

    def write(self, chunks: int) -> None:
        for _ in range(chunks):
            self.end.write(b"x" * 20_000, is_last=True)

    def sent(self, now: float = 0.0) -> list[tuple[int, int]]:
        """Return (number of the chunk, number that is expected next) of the packets that it sends."""
        return [HEADER.unpack_from(packet)[2:] for packet in self.way.packets_to_send(now)]


def test_so_many_chunks_are_under_way_at_once() -> None:
    one = OneWay()
    one.write(3 * CHUNKS_MAX)
    assert one.sent() == [(number, 1) for number in range(1, CHUNKS_MAX + 1)]
    assert not one.way.has_output
    one.way.receive(NONE, 3, b"", 0.1)  # two have arrived
    assert one.sent(0.1) == [(CHUNKS_MAX + 1, 1), (CHUNKS_MAX + 2, 1)]


def test_the_first_chunk_goes_again_at_the_third_acknowledgement_without_progress_and_only_then() -> None:
    one = OneWay()
    one.write(CHUNKS_MAX)
    one.sent()
    for _ in range(REPEATED_ACKS - 1):
        one.way.receive(NONE, 1, b"", 0.1)
        assert not one.way.has_output, "two may be reordering"
    one.way.receive(NONE, 1, b"", 0.1)
    assert one.sent(0.1) == [(1, 1)]
    one.way.receive(NONE, 1, b"", 0.1)
    assert not one.way.has_output, "once"


def test_acknowledgements_before_progress_do_not_count_after_it() -> None:
    one = OneWay()
    one.write(CHUNKS_MAX)
    one.sent()
    for _ in range(REPEATED_ACKS - 1):
        one.way.receive(NONE, 1, b"", 0.1)
    one.way.receive(NONE, 2, b"", 0.1)
    one.way.receive(NONE, 2, b"", 0.1)
    assert not one.way.has_output


def test_a_chunk_that_is_not_acknowledged_goes_again_ever_more_rarely() -> None:
    one = OneWay()
    one.write(1)
    one.sent()
    # It lives, and says so, but the chunk does not arrive.
    now, pauses = 0.0, []
    while now < SILENCE_S - RESEND_S_MAX:
        due = one.way.deadline()
        one.way.handle_timeout(due)
        if (1, 1) in one.sent(due):
            pauses.append(due - now)
            now = due
    assert pauses == [pytest.approx(min(RESEND_S_MAX, RESEND_S * 2**number)) for number in range(len(pauses))]
    assert len(pauses) >= 3


def test_a_silent_side_is_asked_and_then_given_up() -> None:
    one = OneWay()
    assert one.way.deadline() == PROBE_S
    one.way.handle_timeout(PROBE_S)
    assert one.sent(PROBE_S) == [(PROBE, 1)]
    one.way.receive(NONE, 1, b"", PROBE_S + 1.0)
    assert one.way.deadline() == 2 * PROBE_S + 1.0, "it was heard"
    one.way.handle_timeout(PROBE_S + 1.0 + SILENCE_S)
    assert one.end.failure is not None
    assert "no progress through the ring" in one.end.failure.reason


def test_a_question_is_answered_at_once() -> None:
    one = OneWay()
    one.way.receive(PROBE, 1, b"", 0.5)
    assert one.sent(0.5) == [(NONE, 1)]


def test_an_acknowledgement_of_what_was_never_sent_is_none() -> None:
    one = OneWay()
    one.write(2)
    one.sent()
    one.way.receive(NONE, 4, b"", 0.1)  # of three
    one.way.receive(NONE, 1, b"", 0.1)
    one.way.handle_timeout(RESEND_S)
    assert one.sent(RESEND_S) == [(1, 1)], "both wait still"
