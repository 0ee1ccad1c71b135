"""One end of a tunnel against a peer that does what it likes."""

from __future__ import annotations

import struct

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.defaults import WINDOW_BYTES_MAX
from iris_py.link.pacing import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN
from iris_py.patterns.tunnel.duplex import (
    CREDIT,
    DONE,
    END,
    FRAME,
    LAST,
    MORE,
    PIECE_CHARGE,
    RESET,
    Failure,
    Way,
)
from iris_py.patterns.tunnel.end import TunnelEnd, TunnelTerms
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.wire import packets
from iris_security import AuthenticationError, Keyring, RecordOpener, RecordSealer, Secret, TransportKeys

GROUP = Group("cluster", Keyring(Secret(bytes(range(32))), network="test").cluster("cluster"), NodeId(bytes(16)), 1)
WINDOW_BYTES = 10_000
OURS, THEIRS = bytes(32), b"\x01" * 32


class Rogue:
    """An end, and a peer that holds the keys and seals whatever it likes."""

    def __init__(self) -> None:
        self.ready: dict[Way[TunnelEnd], None] = {}
        peer = Peer(NodeInfo(NodeId(bytes(15) + b"\x01"), ()), None)
        terms = TunnelTerms(
            group=GROUP,
            peer=peer,
            keys=TransportKeys(OURS, THEIRS),
            window_bytes=WINDOW_BYTES,
            credit_bytes=WINDOW_BYTES,
        )
        self.end = TunnelEnd(1, terms, way=Way(self.ready), changed={})
        self._sealer, self._opener = RecordSealer(THEIRS), RecordOpener(OURS)

    def send(self, *frames: tuple[int, bytes]) -> None:
        self.send_raw(b"".join(FRAME.pack(kind, len(body)) + body for kind, body in frames))

    def send_raw(self, chunk: bytes) -> None:
        self.end.receive_sealed(self._sealer.seal(chunk))

    def failure(self) -> Failure | None:
        return self.end.failure

    def read(self) -> list[tuple[int, bytes]]:
        """Return the frames that the end has to send."""
        frames = []
        while self.end.is_ready:
            chunk = self._opener.open(self.end.seal(self.end.next_chunk(CHUNK_BYTES_MIN)))
            offset = 0
            while offset < len(chunk):
                kind, length = FRAME.unpack_from(chunk, offset)
                offset += FRAME.size + length
                frames.append((kind, chunk[offset - length : offset]))
        return frames


def total(number: int) -> bytes:
    return struct.pack(">Q", number)


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([(LAST, bytes(5000)), (LAST, bytes(5000))], "more than its window"),
        ([(LAST, b"")] * (WINDOW_BYTES // PIECE_CHARGE + 1), "more than its window"),
        ([(MORE, bytes(100)), (END, b"")], "malformed"),
        ([(END, b""), (LAST, b"more")], "after its end"),
        ([(CREDIT, total(WINDOW_BYTES - 1))], "an invalid credit"),
        ([(CREDIT, total(WINDOW_BYTES_MAX + 1))], "an invalid credit"),
        ([(CREDIT, b"short")], "malformed"),
        ([(DONE, total(1))], "acknowledged more than it was sent"),
        ([(DONE, b"")], "malformed"),
        ([(6, b"")], "malformed"),
        ([(255, b"what?")], "malformed"),
    ],
)
def test_who_breaks_the_rules_breaks_the_tunnel_and_is_told(frames: list[tuple[int, bytes]], reason: str) -> None:
    rogue = Rogue()
    rogue.send(*frames)
    assert reason in getattr(rogue.failure(), "reason", "")
    ((kind, body),) = rogue.read()
    assert kind == RESET
    assert packets.decode_failure(body)[0] == "ProtocolError"
    assert rogue.end.is_finished
    rogue.send((LAST, b"more"))  # and nothing more is heard
    assert rogue.end.buffered_bytes <= WINDOW_BYTES + 5000


@pytest.mark.parametrize("chunk", [b"\x00", FRAME.pack(LAST, 1), FRAME.pack(LAST, 1 << 31), FRAME.pack(LAST, 1) + b"ab"])
def test_a_malformed_chunk_breaks_the_tunnel(chunk: bytes) -> None:
    rogue = Rogue()
    rogue.send_raw(chunk)
    assert rogue.failure() is not None


def test_a_chunk_that_is_not_the_next_one_changes_nothing() -> None:
    rogue = Rogue()
    with pytest.raises(AuthenticationError):
        rogue.end.receive_sealed(bytes(100))
    rogue.send((LAST, b"first"))
    assert rogue.end.take() == (b"first", True)


def test_an_empty_chunk_is_none() -> None:
    rogue = Rogue()
    rogue.send()
    assert rogue.failure() is None


def test_nonsense_about_a_failure_is_a_failure() -> None:
    rogue = Rogue()
    rogue.send((RESET, b"\xff\xff"))
    assert rogue.failure() == Failure(
        "the other side aborted it", "UnknownError", "the member's description of the failure was malformed"
    )
    assert not rogue.read()


def test_credit_is_given_as_pieces_are_taken_and_not_for_each() -> None:
    rogue = Rogue()
    for _ in range(10):
        rogue.send((LAST, bytes(900)))
    assert not rogue.read()
    for number in range(1, 4):
        assert rogue.end.take() is not None
        expected = [(CREDIT, total(WINDOW_BYTES + 3 * (900 + PIECE_CHARGE)))] if number == 3 else []
        assert rogue.read() == expected


@pytest.mark.parametrize(("chunk_bytes", "chunks"), [(CHUNK_BYTES_MIN, 12), (CHUNK_BYTES_MAX, 2)])
def test_small_messages_share_a_chunk_and_large_ones_are_cut(chunk_bytes: int, chunks: int) -> None:
    rogue = Rogue()
    rogue.send((CREDIT, total(1_000_000)))
    for _ in range(100):
        assert rogue.end.write(bytes(100), is_last=True) == 100
    assert sum(map(len, rogue.end.next_chunk(chunk_bytes))) == 100 * (100 + FRAME.size)
    assert rogue.end.write(bytes(350_000), is_last=True) == 350_000
    sizes = []
    while rogue.end.is_ready:
        sizes.append(sum(map(len, rogue.end.next_chunk(chunk_bytes))))
    assert len(sizes) == chunks
    assert max(sizes) <= chunk_bytes


def test_pieces_are_cut_for_smaller_chunks_and_cost_the_same() -> None:
    sent, received = Rogue(), Rogue()
    for rogue in (sent, received):
        rogue.end.grow_window(1_000_000)
        rogue.read()
        rogue.send((CREDIT, total(1_000_000)))
    messages = [bytes((number,)) * size for number, size in enumerate((100_000, 0, 1, 300_000, 31_739, 31_740, 200_000))]
    for message in messages:
        assert sent.end.write(message, is_last=True) == len(message)
    turn = 0
    while sent.end.is_ready:
        turn += 1
        received.send_raw(b"".join(sent.end.next_chunk(CHUNK_BYTES_MIN if turn % 3 else CHUNK_BYTES_MAX)))
    assert sent.end.written == received.end.received
    taken, message = [], b""
    while (entry := received.end.take()) is not None:
        message += entry[0]
        if entry[1]:
            taken.append(message)
            message = b""
    assert taken == messages
    assert received.end.buffered_bytes == 0


def test_what_waits_at_an_end_is_counted_until_it_is_gone() -> None:
    rogue = Rogue()
    assert (rogue.end.queued_bytes, rogue.end.buffered_bytes) == (0, 0)
    for _ in range(2):
        rogue.end.write(b"12345", is_last=True)
    assert rogue.end.queued_bytes == 2 * (FRAME.size + 5)
    rogue.read()
    assert rogue.end.queued_bytes == 0
    rogue.send((LAST, b"123"), (LAST, b"4"))
    assert rogue.end.buffered_bytes == 4 + 2 * PIECE_CHARGE
    rogue.end.take()
    assert rogue.end.buffered_bytes == 1 + PIECE_CHARGE
    rogue.end.stop()
    assert rogue.end.buffered_bytes == 0


def test_without_credit_nothing_is_written() -> None:
    rogue = Rogue()
    assert rogue.end.write(bytes(20_000), is_last=True) == WINDOW_BYTES - PIECE_CHARGE
    assert rogue.end.credit == 0
    assert rogue.end.write(b"", is_last=True) == -1
    rogue.send((CREDIT, total(WINDOW_BYTES + PIECE_CHARGE)))
    assert rogue.end.write(b"", is_last=True) == 0
    assert [kind for kind, _body in rogue.read()] == [MORE, LAST]


def test_what_was_written_before_a_failure_goes_before_it() -> None:
    rogue = Rogue()
    rogue.end.write(b"before", is_last=True)
    rogue.end.fail(Failure("ours"), is_told=True, type="LookupError", text="oh")
    assert rogue.read() == [(LAST, b"before"), (RESET, packets.encode_failure_of("LookupError", "oh"))]


def test_the_end_goes_behind_everything_and_what_nobody_takes_is_dropped() -> None:
    rogue = Rogue()
    rogue.end.write(bytes(9000), is_last=True)
    rogue.end.end()
    assert [kind for kind, _body in rogue.read()] == [LAST, END]
    rogue = Rogue()
    rogue.end.write(bytes(9000), is_last=True)
    rogue.end.end()
    rogue.send((DONE, total(0)))
    assert not [kind for kind, _body in rogue.read() if kind in (LAST, END)]
    assert rogue.end.is_ended
    assert not rogue.end.is_taken


def test_a_member_says_nothing_before_the_caller_has_shown_its_keys() -> None:
    rogue = Rogue()
    rogue.end.is_confirmed = False
    rogue.end.write(b"greeting", is_last=True)
    assert not rogue.ready
    rogue.send()
    assert list(rogue.ready) == [rogue.end.way]
    assert rogue.read() == [(LAST, b"greeting")]


def test_an_end_that_is_over_cannot_break() -> None:
    rogue = Rogue()
    rogue.end.end()
    rogue.send((END, b""), (DONE, total(0)))
    rogue.read()
    assert rogue.end.is_over
    assert rogue.end.is_finished
    rogue.end.fail(Failure("too late"), is_told=True)
    assert rogue.failure() is None
