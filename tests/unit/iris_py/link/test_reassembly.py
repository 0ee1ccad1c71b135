"""Tests of iris_py/link/lanes.py; tests of links send it what a hostile peer may cut."""

from __future__ import annotations

import pytest

from iris_py.link.handshake import ProtocolError
from iris_py.link.lanes import FRAGMENT_BYTES_MIN, PACKET_BYTES_MAX, Reassembler


def test_a_frame_is_whole_with_its_last_fragment_and_the_next_one_begins_anew() -> None:
    fragments = Reassembler()
    first = bytes(range(256)) * 16
    for end in (b"", b"end"):
        assert fragments.add(b"before" + first + b"behind", 6, 6 + len(first), is_last=False) is None
        assert fragments.pieces
        pieces = fragments.add(end, 0, len(end), is_last=True)
        assert pieces is not None
        assert b"".join(pieces) == first + end
        assert not fragments.pieces


def test_only_the_first_and_the_last_fragment_may_be_small() -> None:
    fragments = Reassembler()
    fragments.add(b"1", 0, 1, is_last=False)
    fragments.add(bytes(FRAGMENT_BYTES_MIN), 0, FRAGMENT_BYTES_MIN, is_last=False)
    with pytest.raises(ProtocolError, match="under the limit"):
        fragments.add(bytes(FRAGMENT_BYTES_MIN), 1, FRAGMENT_BYTES_MIN, is_last=False)


def test_a_frame_may_be_as_large_as_a_packet_and_no_larger() -> None:
    fragments = Reassembler()
    half = bytes(PACKET_BYTES_MAX // 2)
    for _ in range(2):  # what has been put together does not count for the next
        fragments.add(half, 0, len(half), is_last=False)
        pieces = fragments.add(half, 0, len(half), is_last=True)
        assert pieces is not None
        assert sum(map(len, pieces)) == PACKET_BYTES_MAX
    fragments.add(half, 0, len(half), is_last=False)
    fragments.add(half, 0, len(half), is_last=False)
    with pytest.raises(ProtocolError, match="over the limit"):
        fragments.add(b"1", 0, 1, is_last=True)


def test_what_is_dropped_is_no_part_of_the_next_frame() -> None:
    fragments = Reassembler()
    fragments.add(bytes(FRAGMENT_BYTES_MIN), 0, FRAGMENT_BYTES_MIN, is_last=False)
    fragments.clear()
    assert fragments.add(b"next", 0, 4, is_last=True) == [b"next"]
