"""One end of a duplex that is passed on: DONE that is held back, signs of life, windows that grow, and turns."""

from __future__ import annotations

import struct

import pytest

from iris_py.defaults import WINDOW_BYTES_MAX, WINDOW_BYTES_MIN
from iris_py.link.pacing import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN
from iris_py.patterns.tunnel.duplex import (
    CREDIT,
    DONE,
    END,
    FRAME,
    LAST,
    PIECE_CHARGE,
    RESET,
    DuplexEnd,
    Failure,
    Way,
    bounded_window,
)

WINDOW_BYTES = 10_000


class Side:
    """An end, and a peer that sends what a test says."""

    def __init__(self) -> None:
        self.changed: dict[DuplexEnd, None] = {}
        self.end = DuplexEnd(1, window_bytes=WINDOW_BYTES, credit_bytes=WINDOW_BYTES, way=Way({}), changed=self.changed)

    def receive(self, *frames: tuple[int, bytes]) -> None:
        chunk = b"".join(FRAME.pack(kind, len(body)) + body for kind, body in frames)
        self.end.receive_frames(b"before" + chunk + b"behind", 6, 6 + len(chunk))

    def read(self) -> list[tuple[int, bytes]]:
        """Return the frames that the end has to send."""
        frames = []
        while self.end.is_ready:
            chunk, offset = b"".join(self.end.next_chunk(CHUNK_BYTES_MIN)), 0
            while offset < len(chunk):
                kind, length = FRAME.unpack_from(chunk, offset)
                offset += FRAME.size + length
                frames.append((kind, chunk[offset - length : offset]))
        return frames


def total(number: int) -> bytes:
    return struct.pack(">Q", number)


def holding() -> Side:
    """Return an end that has taken all there was, and holds DONE back."""
    side = Side()
    side.end.hold_done()
    side.receive((LAST, b"12345"), (END, b""))
    assert side.end.take() == (b"12345", True)
    return side


def test_a_piece_is_copied_unless_it_is_most_of_its_record() -> None:
    side = Side()
    side.receive((LAST, b"small"), (LAST, bytes(5000)))
    assert side.end.take() == (b"small", True)
    entry = side.end.take()
    assert entry is not None
    assert isinstance(entry[0], memoryview)
    assert bytes(entry[0]) == bytes(5000)
    side.receive((LAST, bytes(1000)), (LAST, bytes(1000)))
    assert [side.end.take(), side.end.take()] == [(bytes(1000), True)] * 2
    assert all(isinstance(entry[0], bytes) for entry in side.end._pieces)


# -- DONE


def test_done_is_held_back_until_it_is_released() -> None:
    side = holding()
    assert side.end.is_stopped
    assert side.read() == []
    side.changed.clear()
    side.end.release_done(is_taken=True)
    assert side.changed
    assert side.read() == [(DONE, total(5 + PIECE_CHARGE))]
    side.end.release_done(is_taken=False)
    assert side.read() == []


def test_a_stream_is_not_over_while_done_is_held_back() -> None:
    side = holding()
    side.end.end()
    side.receive((DONE, total(0)))
    assert [kind for kind, _body in side.read()] == []  # its END is of no use any more
    assert (side.end.is_over, side.end.is_finished) == (False, False)
    side.end.release_done(is_taken=True)
    assert (side.end.is_over, side.end.is_finished) == (True, False)
    assert side.read() == [(DONE, total(5 + PIECE_CHARGE))]
    assert (side.end.is_over, side.end.is_finished) == (True, True)


def test_done_says_that_nothing_was_taken_if_it_was_lost_further_on() -> None:
    side = holding()
    side.end.release_done(is_taken=False)
    assert side.read() == [(DONE, total(0))]


def test_done_that_is_released_early_is_sent_when_all_is_taken() -> None:
    side = Side()
    side.end.hold_done()
    side.end.release_done(is_taken=True)
    assert side.read() == []
    side.receive((END, b""))
    assert side.read() == [(DONE, total(0))]


def test_done_that_was_said_is_not_held_back_any_more() -> None:
    side = Side()
    side.end.end()
    side.receive((END, b""), (DONE, total(0)))
    side.end.hold_done()
    assert side.read() == [(DONE, total(0))]
    assert side.end.is_over
    side.end.tell_credit()
    side.end.release_done(is_taken=True)
    assert side.read() == []
    assert side.end.is_finished


def test_a_stream_that_holds_done_back_can_break() -> None:
    side = holding()
    side.end.fail(Failure("further on"), is_told=True, type="LookupError", text="oh")
    assert [kind for kind, _body in side.read()] == [RESET]
    side.end.release_done(is_taken=True)
    side.end.tell_credit()
    assert side.read() == []
    assert side.end.is_finished


# -- signs of life, and windows


def test_credit_is_given_after_the_end_too_so_that_who_waits_sees_something_move() -> None:
    side = Side()
    for _ in range(5):
        side.receive((LAST, bytes(1500)))
    side.receive((END, b""))
    kinds = []
    while side.end.take() is not None:
        kinds += [kind for kind, _body in side.read()]
    assert kinds == [CREDIT, CREDIT, DONE]


def test_credit_is_told_though_it_has_not_grown() -> None:
    side = Side()
    side.end.tell_credit()
    assert side.read() == [(CREDIT, total(WINDOW_BYTES))]


def test_a_window_grows_and_does_not_shrink() -> None:
    side = Side()
    side.end.grow_window(3 * WINDOW_BYTES)
    assert side.end.window_bytes == 3 * WINDOW_BYTES
    assert side.read() == [(CREDIT, total(3 * WINDOW_BYTES))]
    side.receive((LAST, bytes(2 * WINDOW_BYTES)))
    assert side.end.failure is None
    side.end.grow_window(WINDOW_BYTES)
    assert side.end.window_bytes == 3 * WINDOW_BYTES


def test_a_window_that_the_peer_has_not_been_told_of_does_not_count() -> None:
    side = Side()
    side.end.grow_window(3 * WINDOW_BYTES)
    side.receive((LAST, bytes(WINDOW_BYTES)))
    assert side.end.failure is not None


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [(0, WINDOW_BYTES_MIN), (WINDOW_BYTES_MIN + 1, WINDOW_BYTES_MIN + 1), (1 << 63, WINDOW_BYTES_MAX)],
)
def test_a_claimed_window_is_bounded(claimed: int, expected: int) -> None:
    assert bounded_window(claimed) == expected


# -- turns


@pytest.mark.parametrize("chunk_bytes", [CHUNK_BYTES_MIN, CHUNK_BYTES_MAX])
def test_ends_take_turns_of_as_many_bytes_however_their_chunks_are_filled(chunk_bytes: int) -> None:
    ready: dict[Way[DuplexEnd], None] = {}
    way: Way[DuplexEnd] = Way(ready)
    ends = [
        DuplexEnd(number, window_bytes=WINDOW_BYTES, credit_bytes=WINDOW_BYTES_MAX, way=way, changed={}) for number in (0, 1)
    ]
    sent = [0, 0]
    while sum(sent) < 100 * chunk_bytes:
        for end, size in zip(ends, (100, 20_000), strict=True):
            while end.queued_bytes < 4 * chunk_bytes:
                end.write(bytes(size), is_last=True)
        end, chunk, size = way.take_turn(chunk_bytes)
        assert size == sum(map(len, chunk)) <= chunk_bytes
        sent[end.id] += size
        assert abs(sent[0] - sent[1]) <= 2 * chunk_bytes or not (ends[0].is_ready and ends[1].is_ready)
    assert list(ready) == [way]
    while way.ready:
        way.take_turn(chunk_bytes)
    assert [end.is_ready for end in ends] == [False, False]
    assert all(end.allowance <= 0 for end in ends)
