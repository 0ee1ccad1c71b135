"""Properties of iris_py/link/link.py: nothing depends on how the bytes were cut, and the queue is counted exactly."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iris_py.link.events import CloseReason, LinkClosed
from iris_py.link.handshake import ProtocolError
from iris_py.link.lanes import CONTROL, FRAGMENT_BYTES, MULTICAST, UNICAST
from iris_py.link.link import RECORD_BYTES_MAX, Link, LinkState
from iris_py.testing.cores.pair import LinkPair
from iris_security import Keyring, Secret
from tests.profiles import examples

if TYPE_CHECKING:
    from iris_py.testing.cores.pair import End

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
GROUP, NONCE = b"g" * 16, b"n" * 12
SIZES = st.one_of(st.integers(16, 200), st.integers(FRAGMENT_BYTES - 40, FRAGMENT_BYTES + 10), st.integers(40_000, 150_000))
SENDS = st.lists(st.tuples(st.sampled_from((CONTROL, UNICAST, MULTICAST)), SIZES), max_size=12)


def send(link: Link, kind: int, size: int, mark: int) -> None:
    body = bytes((mark % 256,)) * size
    if kind == CONTROL:
        link.send_control(body)
    else:
        link.send_packet(kind, GROUP, NONCE, body)


@given(SENDS, st.lists(st.integers(1, 20_000), max_size=50), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_any_cuts_tell_the_same(sends: list[tuple[int, int]], cuts: list[int], closes: bool) -> None:
    def run(pair: LinkPair) -> LinkPair:
        pair.drive()
        for number, (kind, size) in enumerate(sends):
            send(pair.initiator.link if number % 3 else pair.responder.link, kind, size, number)
        if closes:
            pair.initiator.link.close(CloseReason.NORMAL, pair.now)
        pair.drive()
        return pair

    sizes = itertools.chain(cuts, itertools.repeat(5000))
    whole, cut = run(LinkPair(KEYRING)), run(LinkPair(KEYRING, chunk_bytes=lambda: next(sizes)))
    for one, other in ((whole.initiator, cut.initiator), (whole.responder, cut.responder)):
        assert one.events == other.events
        assert one.packets == other.packets
    assert sum(len(end.packets) for end in (cut.initiator, cut.responder)) == len(sends)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5), st.integers(0, 4))
@settings(max_examples=examples(200), deadline=None)
def test_garbage_at_any_time_only_ends_the_link(garbage: bytes, cuts: list[int], steps: int) -> None:
    """Whatever arrives, nothing raises, and who cannot authenticate hears nothing."""
    pair = LinkPair(KEYRING)
    for _ in range(steps):
        pair.step()
    for end in (pair.initiator, pair.responder):
        written = len(end.written)
        edges = [0, *sorted(cuts), len(garbage)]
        for start, stop in itertools.pairwise(edges):
            end.receive(garbage[start:stop], pair.now)
        end.take()
        if end.link.state is LinkState.CLOSED:
            assert not end.link.has_output()
            assert len(end.written) == written
            assert isinstance(end.events[-1], LinkClosed)


@given(st.binary(max_size=400))
@settings(max_examples=examples(300), deadline=None)
def test_any_record_of_an_authentic_peer_only_ends_the_link(plaintext: bytes) -> None:
    pair = LinkPair(KEYRING)
    pair.open()
    try:
        pair.responder.link._receive_record(plaintext, 0, pair.now)
    except ProtocolError:
        return
    pair.responder.take()
    assert pair.responder.link.state in (LinkState.OPEN, LinkState.CLOSING)


class LinkMachine(RuleBasedStateMachine):
    """Two links, any commands, against a dumb model: a list of what was sent, and its total size."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = LinkPair(KEYRING)
        self.pair.open()
        self.sent: dict[int, list[tuple[int, int, int]]] = {0: [], 1: []}
        self.closed = [False, False]
        self.number = 0

    def end(self, side: int) -> End:
        return self.pair.responder if side else self.pair.initiator

    @rule(side=st.integers(0, 1), kind=st.sampled_from((CONTROL, UNICAST, MULTICAST)), size=SIZES)
    def send(self, side: int, kind: int, size: int) -> None:
        self.number += 1
        link = self.end(side).link
        if link.state is LinkState.OPEN:
            self.sent[side].append((kind, size, self.number % 256))
        send(link, kind, size, self.number)

    @rule(side=st.integers(0, 1), budget=st.sampled_from((1, 40_000, 1 << 20)))
    def write(self, side: int, budget: int) -> None:
        end = self.end(side)
        announced = end.link.has_output()
        data = end.link.data_to_send(budget)
        assert bool(data) == announced
        assert all(len(record) <= RECORD_BYTES_MAX for record in data)
        assert sum(map(len, data)) < budget + RECORD_BYTES_MAX
        if data:
            self.pair.send(end, b"".join(data))

    @rule(side=st.integers(0, 1), count=st.integers(1, 3))
    def read(self, side: int, count: int) -> None:
        end = self.end(side)
        for _ in range(min(count, len(end.inbox))):
            end.receive(end.inbox.popleft()[1], self.pair.now)
            end.take()

    @precondition(lambda self: self.number > 3)
    @rule(side=st.integers(0, 1))
    def close(self, side: int) -> None:
        self.end(side).link.close(CloseReason.NORMAL, self.pair.now)

    @invariant()
    def counts_are_exact(self) -> None:
        for side in (0, 1):
            link = self.end(side).link
            lanes = link._lanes
            control = sum(len(body) for header, body in _pairs(lanes._control) if header[0] == CONTROL)
            full = sum(size for _parts, size in lanes._full)
            bulk = sum(len(piece) for _frame, piece, _kind, _after in lanes._bulk)
            assert link.queued_bytes == control + full + lanes._parts_bytes + bulk
            if not link.has_output():
                assert link.queued_bytes == 0

    def teardown(self) -> None:
        self.pair.drive()
        for side in (0, 1):
            far = self.end(1 - side)
            arrived = [
                (kind, len(content if kind == CONTROL else sealed), (content if kind == CONTROL else sealed)[0])
                for kind, content, _nonce, sealed in far.packets
            ]
            assert sorted(arrived) == sorted(self.sent[side])
            for kind in (CONTROL, MULTICAST):
                assert [each for each in arrived if each[0] == kind] == [each for each in self.sent[side] if each[0] == kind]
            assert self.end(side).link.queued_bytes == 0
            closings = [event for event in self.end(side).events if isinstance(event, LinkClosed)]
            assert all(event.clean for event in closings)
            assert len(closings) <= 1


def _pairs(frames: list[bytes | memoryview]) -> list[tuple[bytes | memoryview, bytes | memoryview]]:
    return list(zip(frames[::2], frames[1::2], strict=True))


TestLink = LinkMachine.TestCase
TestLink.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
