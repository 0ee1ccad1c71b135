"""Properties of the ends of a tunnel: what is taken is what was written, and nobody holds more than a window.

The machine knows what was written and taken. Whatever is written, taken, ended, stopped, and in whatever order chunks travel,
the peer takes a beginning of it, all of it after a clean end, and no end ever holds more than its window. Once over a way that
loses nothing, and once through a ring that loses, repeats and reorders.
"""

from __future__ import annotations

import random
from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.defaults import WINDOW_BYTES_MIN
from iris_py.link.pacing import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN
from iris_py.patterns.tunnel.duplex import PIECE_CHARGE, Way
from iris_py.patterns.tunnel.end import TunnelEnd, TunnelTerms
from iris_py.patterns.tunnel.ring_transport import HEADER, RESEND_S_MAX, RingWay
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_security import Keyring, Secret, TransportKeys

KEYS = Keyring(Secret(bytes(range(32))), network="test").cluster("cluster")
IDS = NodeId(bytes(16)), NodeId(bytes(15) + b"\x01")
DATA = random.Random(1).randbytes(1 << 20)
WINDOWS = st.sampled_from((WINDOW_BYTES_MIN, 10_000, 100_000, 500_000))
WHICH = st.sampled_from((0, 1))
SIZES = st.one_of(st.integers(0, 200), st.integers(0, 50_000), st.integers(0, 300_000))


class Side:
    """One end, and what the model knows of it."""

    def __init__(self, number: int, window_bytes: int, credit_bytes: int, way: Way[TunnelEnd]) -> None:
        group = Group("cluster", KEYS, IDS[number], 1)
        keys = TransportKeys(bytes((number,)) * 32, bytes((1 - number,)) * 32)
        peer = Peer(NodeInfo(IDS[1 - number], ()), None)
        self.window_bytes = window_bytes
        terms = TunnelTerms(group=group, peer=peer, keys=keys, window_bytes=window_bytes, credit_bytes=credit_bytes)
        self.end = TunnelEnd(7, terms, way=way, changed={})
        if isinstance(way, RingWay):
            way.end = self.end
        self.way = way
        self.written: list[bytes] = []  # messages that were written whole
        self.unwritten: bytes | None = None  # what is left of one
        self.partial = bytearray()  # what was taken of the next
        self.taken: list[bytes] = []
        self.is_stopped = False


class TunnelMachine(RuleBasedStateMachine):
    """Two ends and a way that loses nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ready: dict[Way[TunnelEnd], None] = {}
        self.wire: tuple[deque[bytes], deque[bytes]] = (deque(), deque())  # on the way to each side
        self.sides: list[Side] = []

    def way(self) -> Way[TunnelEnd]:
        return Way(self.ready)

    @precondition(lambda self: not self.sides)
    @rule(windows=st.tuples(WINDOWS, WINDOWS))
    def open(self, windows: tuple[int, int]) -> None:
        self.sides = [Side(each, windows[each], windows[1 - each], self.way()) for each in (0, 1)]

    # -- what applications do

    @precondition(lambda self: self.sides)
    @rule(which=WHICH, size=SIZES)
    def write(self, which: int, size: int) -> None:
        side = self.sides[which]
        if side.unwritten is None and not side.end.is_ended:
            side.unwritten = DATA[:size]
            side.written.append(side.unwritten)
        self.go_on(side)

    def go_on(self, side: Side) -> None:
        """Write as much of the present message as there is credit for."""
        if side.unwritten is None or side.end.is_ended:
            return
        credit = side.end.credit
        accepted = side.end.write(side.unwritten, is_last=True)
        assert accepted <= max(0, credit - PIECE_CHARGE)
        if accepted == len(side.unwritten):
            side.unwritten = None
        elif accepted > 0:
            side.unwritten = side.unwritten[accepted:]

    @precondition(lambda self: self.sides)
    @rule(which=WHICH, count=st.integers(1, 20))
    def take(self, which: int, count: int) -> None:
        side = self.sides[which]
        for _ in range(count):
            entry = side.end.take()
            if entry is None:
                break
            side.partial += entry[0]
            if entry[1]:
                side.taken.append(bytes(side.partial))
                side.partial.clear()

    @precondition(lambda self: self.sides)
    @rule(which=WHICH)
    def end(self, which: int) -> None:
        side = self.sides[which]
        if side.unwritten is None:
            side.end.end()

    @precondition(lambda self: self.sides)
    @rule(which=WHICH, seldom=st.integers(0, 9))
    def stop(self, which: int, seldom: int) -> None:
        if seldom == 0:
            self.sides[which].is_stopped = True
            self.sides[which].end.stop()

    # -- what the way does

    @precondition(lambda self: self.sides)
    @rule(which=WHICH, count=st.integers(1, 10))
    def carry(self, which: int, count: int) -> None:
        end = self.sides[which].end
        for _ in range(count):
            if end.is_ready:
                self.wire[1 - which].append(end.seal(end.next_chunk((CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)[count % 2])))

    @precondition(lambda self: self.sides)
    @rule(which=WHICH, count=st.integers(1, 10))
    def arrive(self, which: int, count: int) -> None:
        for _ in range(min(count, len(self.wire[which]))):
            self.sides[which].end.receive_sealed(self.wire[which].popleft())

    @precondition(lambda self: self.sides)
    @rule()
    def settle(self) -> None:
        """Everything arrives, and everything is taken: then all is said."""
        for _ in range(10_000):
            before = [(side.end.written, len(side.taken), len(side.partial), side.end.is_over) for side in self.sides]
            for which in (0, 1):
                self.go_on(self.sides[which])
                self.carry(which, 100)
                self.arrive(1 - which, 100)
                self.take(1 - which, 100)
                self.carry(1 - which, 100)
                self.arrive(which, 100)
            self.wait()
            after = [(side.end.written, len(side.taken), len(side.partial), side.end.is_over) for side in self.sides]
            if before == after and self.is_at_rest():
                break
        else:
            raise AssertionError("it does not come to rest")
        for side, other in (self.sides, self.sides[::-1]):
            if not other.is_stopped:
                assert other.taken == side.written
            if side.end.is_ended:
                assert other.end.is_stopped
                # A message of which nothing had left yet, for want of credit, was not sent: its sender is told so.
                is_begun = side.unwritten is not None and len(side.unwritten) < len(side.written[-1])
                written = side.written if side.unwritten is None or is_begun else side.written[:-1]
                assert side.end.is_taken == (other.taken == written and not is_begun)
            assert side.end.is_over == (side.end.is_ended and other.end.is_ended)

    def wait(self) -> None:
        """Let time pass."""

    def is_at_rest(self) -> bool:
        """Tell whether nothing is under way, and nothing is or can be sent."""
        can_write = any(
            side.unwritten is not None and not side.end.is_ended and side.end.credit >= PIECE_CHARGE + bool(side.unwritten)
            for side in self.sides
        )
        return not (can_write or any(self.wire) or any(side.end.is_ready for side in self.sides))

    # -- what holds at any time

    @invariant()
    def nothing_is_lost_or_made_up(self) -> None:
        for side, other in (self.sides, self.sides[::-1]) if self.sides else ():
            assert other.taken == side.written[: len(other.taken)]
            if other.partial:
                assert side.written[len(other.taken)].startswith(other.partial)

    @invariant()
    def nobody_holds_more_than_a_window(self) -> None:
        for side, other in (self.sides, self.sides[::-1]) if self.sides else ():
            end = side.end
            assert end.failure is None
            assert 0 <= end.credit <= other.window_bytes
            assert 0 <= end.buffered_bytes <= side.window_bytes
            headers = 5 * (end.queued_bytes // PIECE_CHARGE + 1)
            assert end.queued_bytes <= other.window_bytes + headers


class RingMachine(TunnelMachine):
    """Two ends and a ring that loses, repeats and reorders; nothing is lost for ever."""

    def way(self) -> Way[TunnelEnd]:
        return RingWay(self.ready, self.now)

    @precondition(lambda self: self.sides)
    @rule(which=WHICH, count=st.integers(1, 10))
    def carry(self, which: int, count: int) -> None:
        way = self.sides[which].way
        assert isinstance(way, RingWay)
        self.wire[1 - which].extend(way.packets_to_send(self.now))

    @precondition(lambda self: self.sides)
    @rule(which=WHICH, count=st.integers(1, 10))
    def arrive(self, which: int, count: int) -> None:
        way = self.sides[which].way
        assert isinstance(way, RingWay)
        for _ in range(min(count, len(self.wire[which]))):
            packet = self.wire[which].popleft()
            _kind, _id, number, expected = HEADER.unpack_from(packet)
            assert way.receive(number, expected, packet[HEADER.size :], self.now)

    @precondition(lambda self: any(self.wire))
    @rule(which=WHICH, at=st.integers(0, 20), fate=st.sampled_from(("lost", "repeated", "late")))
    def distort(self, which: int, at: int, fate: str) -> None:
        wire = self.wire[which]
        if not wire:
            return
        packet = wire[at % len(wire)]
        if fate != "repeated":
            wire.remove(packet)
        if fate != "lost":
            wire.append(packet)

    def wait(self) -> None:
        self.now += RESEND_S_MAX
        for side in self.sides:
            assert isinstance(side.way, RingWay)
            side.way.handle_timeout(self.now)

    def is_at_rest(self) -> bool:
        # What was lost comes again as long as it was not acknowledged.
        return super().is_at_rest() and not any(getattr(side.way, "_unacknowledged", ()) for side in self.sides)


TestTunnel = TunnelMachine.TestCase
TestTunnel.settings = settings(stateful_step_count=40, deadline=None)
TestRing = RingMachine.TestCase
TestRing.settings = settings(stateful_step_count=40, deadline=None)
