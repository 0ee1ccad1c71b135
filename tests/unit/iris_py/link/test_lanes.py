"""The frames of a link: what goes first, what shares a record, and what is counted."""

from __future__ import annotations

from itertools import chain

import pytest

from iris_py.link.lanes import (
    BODY,
    BULK_BYTES,
    BULK_EVERY,
    CALM_RECORDS,
    CLOSE,
    CONTROL,
    FRAGMENT,
    FRAGMENT_BYTES,
    FRAGMENT_END,
    FRAME,
    LARGE_BODY,
    LARGE_FRAGMENT_BYTES,
    LARGE_RECORD_BYTES,
    MULTICAST,
    PACKET_HEADER_BYTES,
    PONG,
    RECORD_BYTES,
    TAKEN,
    TUNNEL,
    UNICAST,
    Lanes,
)

GROUP, NONCE = bytes(16), bytes(12)
LARGE = 2 * FRAGMENT_BYTES + 10


def kinds(lanes: Lanes) -> list[int]:
    """Take a record; returns the kinds of its frames, and that they are whole is checked."""
    record, at, found = b"".join(lanes.take_record()), 0, []
    while at < len(record):
        kind, length = FRAME.unpack_from(record, at)
        found.append(kind)
        at += FRAME.size + length
    assert at == len(record)
    return found


def add(lanes: Lanes, size: int = 100, kind: int = UNICAST) -> None:
    lanes.add_packet(kind, GROUP, NONCE, bytes(size))


def counts(lanes: Lanes) -> tuple[int, int, int]:
    return lanes.queued_bytes, lanes.bulk_bytes, lanes.tunnel_bytes


def test_there_is_nothing_in_new_lanes() -> None:
    lanes = Lanes()
    assert not lanes.has_frames()
    assert lanes.take_record() == []
    assert not lanes.is_unanswered
    assert lanes.interactive_sent == 0


@pytest.mark.parametrize("kind", ["signal", "pong", "control", "packet", "full", "large", "chunk"])
def test_whatever_is_queued_is_taken_and_counts_no_more(kind: str) -> None:
    lanes = Lanes()
    match kind:
        case "signal":
            lanes.add_signal(PONG)
        case "pong":
            lanes.add_pong(b"")
        case "control":
            lanes.add_control(b"overlay")
        case "packet":
            add(lanes)
        case "full":
            add(lanes, RECORD_BYTES // 2)
            add(lanes, RECORD_BYTES // 2)
        case "large":
            add(lanes, LARGE)
        case "chunk":
            lanes.add_tunnel(TUNNEL, bytes(8), (b"chunk",), 13)
    is_traffic = kind in ("packet", "full", "large", "chunk")
    while lanes.has_frames():
        assert kinds(lanes)
    assert counts(lanes) == (0, 0, 0)
    assert lanes.is_unanswered == is_traffic
    assert kinds(lanes) == []


def test_what_waits_is_counted_by_lane_and_forgotten_with_it() -> None:
    lanes = Lanes()
    lanes.add_control(b"overlay")
    assert counts(lanes) == (7, 0, 0)
    lanes.add_tunnel(TUNNEL, bytes(8), (b"chunk",), 13)
    assert counts(lanes) == (7, 0, 13)
    add(lanes, 100)
    small = 7 + len(GROUP) + len(NONCE) + 100
    assert counts(lanes) == (small, 0, 13)
    add(lanes, LARGE)
    large = 1 + len(GROUP) + len(NONCE) + LARGE
    assert counts(lanes) == (small + large, large, 13)
    lanes.add_signal(CLOSE, b"x")  # a frame of the link itself is none of what waits
    lanes.add_pong(b"")
    assert lanes.queued_by_lane() == (7, small - 7, large, 13)
    assert sum(lanes.queued_by_lane()) == lanes.queued_bytes + lanes.tunnel_bytes
    lanes.clear()
    assert counts(lanes) == (0, 0, 0)
    assert lanes.queued_by_lane() == (0, 0, 0, 0)
    assert not lanes.has_frames()


def test_messages_of_the_overlay_go_first_and_only_the_last_pong_does() -> None:
    lanes = Lanes()
    add(lanes)
    lanes.add_control(b"overlay")
    lanes.add_pong(b"1")
    lanes.add_pong(b"2")
    record = b"".join(lanes.take_record())
    assert record.startswith(FRAME.pack(CONTROL, 7) + b"overlay" + FRAME.pack(PONG, 1) + b"2" + FRAME.pack(UNICAST, 128))
    assert not lanes.has_frames()


def test_of_what_was_read_of_tunnels_the_last_total_alone_is_told() -> None:
    """A peer that sends chunks and never reads would fill the lane otherwise."""
    lanes = Lanes()
    for total in (b"1", b"2", b"3"):
        lanes.add_taken(total)
        assert lanes.has_frames()
    assert b"".join(lanes.take_record()) == FRAME.pack(TAKEN, 1) + b"3"
    assert not lanes.has_frames()
    assert not lanes.take_record()
    lanes.add_taken(b"4")
    lanes.clear()
    assert not lanes.has_frames()


def test_many_messages_of_the_overlay_take_several_records() -> None:
    lanes = Lanes()
    for size in (FRAGMENT_BYTES, 10, FRAGMENT_BYTES, 20):
        lanes.add_control(bytes(size))
    add(lanes)
    assert [kinds(lanes) for _ in range(3)] == [[CONTROL], [CONTROL, CONTROL], [CONTROL, UNICAST]]
    assert counts(lanes) == (0, 0, 0)


def test_a_packet_that_fills_a_record_is_not_cut() -> None:
    lanes = Lanes()
    add(lanes, RECORD_BYTES - PACKET_HEADER_BYTES)
    assert lanes.bulk_bytes == 0
    assert kinds(lanes) == [UNICAST]
    add(lanes, RECORD_BYTES - PACKET_HEADER_BYTES + 1)
    assert lanes.bulk_bytes > RECORD_BYTES


def test_an_overlay_message_does_not_pass_a_large_one_before_it() -> None:
    lanes = Lanes()
    lanes.add_control(bytes(LARGE))
    lanes.add_control(b"after")
    assert [kinds(lanes) for _ in range(3)] == [[FRAGMENT] * 2, [FRAGMENT], [FRAGMENT_END, FRAGMENT, FRAGMENT_END]]
    lanes.add_control(b"then")
    assert kinds(lanes) == [CONTROL]


def test_a_small_multicast_passes_no_large_one_and_a_unicast_does() -> None:
    lanes = Lanes()
    add(lanes, LARGE, MULTICAST)
    add(lanes, kind=MULTICAST)
    add(lanes, kind=UNICAST)
    taken = []
    while lanes.has_frames():
        taken += kinds(lanes)
    assert taken == [UNICAST, *[FRAGMENT] * 3, FRAGMENT_END, FRAGMENT, FRAGMENT_END]
    add(lanes, kind=MULTICAST)
    assert kinds(lanes) == [MULTICAST]


def test_a_large_multicast_passes_no_small_one() -> None:
    lanes = Lanes()
    for _ in range(BULK_EVERY + 2):
        add(lanes, RECORD_BYTES // 2 + 1, MULTICAST)
    add(lanes, LARGE, MULTICAST)
    taken = []
    while lanes.has_frames():
        taken += kinds(lanes)
    assert taken == [*[MULTICAST] * (BULK_EVERY + 2), *[FRAGMENT] * 3, FRAGMENT_END]


def test_large_ones_get_a_record_after_so_many_full_ones_of_others() -> None:
    lanes = Lanes()
    add(lanes, LARGE)
    for _ in range(2 * BULK_EVERY):
        add(lanes, RECORD_BYTES // 2 + 1)
    taken = [kinds(lanes) for _ in range(2 * BULK_EVERY + 2)]
    others = [[UNICAST]] * BULK_EVERY
    assert taken == [*others, [FRAGMENT] * 2, *others, [FRAGMENT]]
    assert lanes.interactive_sent == 2 * BULK_EVERY


def test_chunks_and_large_ones_take_turns() -> None:
    lanes = Lanes()
    add(lanes, LARGE)
    for _ in range(3):
        lanes.add_tunnel(TUNNEL, bytes(8), (bytes(BULK_BYTES),), 8 + BULK_BYTES)
    assert [kinds(lanes) for _ in range(6)] == [[FRAGMENT] * 2, [TUNNEL], [FRAGMENT], [TUNNEL], [FRAGMENT_END, TUNNEL], []]


def test_small_chunks_share_a_record_with_small_packets() -> None:
    lanes = Lanes()
    add(lanes)
    for _ in range(3):
        lanes.add_tunnel(TUNNEL, bytes(8), (bytes(BULK_BYTES // 3),), 8 + BULK_BYTES // 3)
    assert kinds(lanes) == [UNICAST, TUNNEL, TUNNEL, TUNNEL]


def add_body(lanes: Lanes, size: int, *, is_ordered: bool = True, passes_large: bool = False) -> None:
    lanes.add_body(GROUP, [bytes(size // 2), bytes(size - size // 2)], size, is_ordered=is_ordered, passes_large=passes_large)


def test_a_large_body_of_small_messages_is_one_record_and_passes_what_is_large() -> None:
    lanes = Lanes()
    add_body(lanes, 100)
    add(lanes, LARGE, UNICAST)
    add_body(lanes, 240 * 1024, passes_large=True)
    add_body(lanes, 100)
    taken = [kinds(lanes) for _ in range(4)]
    assert taken == [
        [BODY, FRAGMENT, FRAGMENT],
        [BODY],
        [FRAGMENT],
        [BODY, FRAGMENT_END],
    ]  # it counts as four, then it is others' turn
    assert counts(lanes) == (0, 0, 0)


def test_a_large_record_stays_below_what_is_read_of_one() -> None:
    """Overlay messages may fill a record, too: then they have their own."""
    lanes = Lanes()
    lanes.add_control(bytes(60_000))
    add_body(lanes, LARGE_RECORD_BYTES - 16, passes_large=True)
    sizes = [len(b"".join(lanes.take_record())) for _ in range(3)]
    assert sizes[0] < RECORD_BYTES
    assert LARGE_RECORD_BYTES < sizes[1] < 4 * RECORD_BYTES - 16
    assert sizes[2] == 0
    add_body(lanes, LARGE_RECORD_BYTES - 15, passes_large=True)
    assert kinds(lanes) == [FRAGMENT] * 2


def test_a_body_keeps_its_order_among_multicasts() -> None:
    lanes = Lanes()
    add(lanes, LARGE, MULTICAST)
    add_body(lanes, 100)
    add_body(lanes, 100, is_ordered=False)
    add_body(lanes, 1000, passes_large=True)
    taken = [kinds(lanes) for _ in range(4)]
    assert taken[0] == [BODY, FRAGMENT, FRAGMENT]  # the one that has no order
    assert [*chain.from_iterable(taken)] == [BODY, *[FRAGMENT] * 3, *[FRAGMENT_END, FRAGMENT] * 2, FRAGMENT_END]
    assert counts(lanes) == (0, 0, 0)


def test_large_records_leave_as_much_to_the_bulk_lane_as_small_ones() -> None:
    lanes = Lanes()
    add(lanes, 40 * FRAGMENT_BYTES)
    for _ in range(20):
        add_body(lanes, 240 * 1024, passes_large=True)
    taken = [kinds(lanes) for _ in range(20)]
    assert [each for each in taken if each == [FRAGMENT]]
    assert abs(taken.count([FRAGMENT]) - taken.count([BODY])) <= 1


def test_fragments_are_large_while_nothing_else_uses_the_link() -> None:
    lanes = Lanes()
    add(lanes, 4 * LARGE_FRAGMENT_BYTES)
    sizes = [taken_bytes(lanes) for _ in range(CALM_RECORDS + 2)]
    assert sizes == [FRAGMENT_BYTES] * CALM_RECORDS + [LARGE_FRAGMENT_BYTES] * 2
    add(lanes)
    assert kinds(lanes) == [UNICAST, FRAGMENT]
    assert [taken_bytes(lanes) for _ in range(CALM_RECORDS)] == [FRAGMENT_BYTES] * (CALM_RECORDS - 1) + [LARGE_FRAGMENT_BYTES]
    lanes.add_tunnel(TUNNEL, bytes(8), (bytes(BULK_BYTES),), 8 + BULK_BYTES)
    assert taken_bytes(lanes) <= FRAGMENT_BYTES


def taken_bytes(lanes: Lanes) -> int:
    """Take a record; returns how many bytes of large frames are in it, to the next whole KiB below."""
    before = lanes.bulk_bytes
    assert lanes.take_record()
    return (before - lanes.bulk_bytes) // 1024 * 1024


def test_the_largest_payload_of_a_body_is_cut_where_it_lies() -> None:
    lanes = Lanes()
    head, payload = b"head", bytes(range(256)) * (RECORD_BYTES // 128)
    lanes.add_body(GROUP, [head, head, payload], 2 * len(head) + len(payload), is_ordered=False)
    parts = lanes.take_record()
    assert parts[1] == bytes((LARGE_BODY,)) + GROUP + 2 * head
    assert isinstance(parts[3], memoryview)
    assert parts[3].obj is payload
