"""Tests of iris_py/wire/packets.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.wire import packets
from iris_py.wire.flows import MatchesBefore
from iris_py.wire.packets import FAILURE_TEXT_MAX, TIME_LEFT_MS_MAX, decode_failure, encode_failure, encode_time_left


def test_a_message_is_twenty_bytes_and_its_payload() -> None:
    assert packets.MESSAGE_BYTES == 20
    packed = packets.MESSAGE.pack(packets.REQUEST, 0, 0, 5, 7, 1500)
    assert packed.hex() == "01000000" + "00000005" + "0000000000000007" + "000005dc"


def test_kinds_index_a_table() -> None:
    answers = [packets.REPLY, packets.FAILURE, packets.REJECTION, packets.DECLINE]
    publishing = [*packets.PUBLICATIONS, packets.PAUSE, packets.RESUME]
    tunnels = [packets.TUNNEL_OPEN, packets.TUNNEL_ACCEPT]
    losses = [packets.LOSSES, packets.RESERVE]
    recalls = [packets.RECALL]
    flows = [packets.CAST, packets.FLOW, packets.FETCH, packets.FETCHED, packets.MOVED]
    kinds = [*packets.REQUESTS, packets.CANCEL, packets.BROADCAST, packets.SURVEY, *answers, *publishing, *tunnels, *losses]
    kinds += [*flows, *recalls]
    assert sorted(kinds) == [*range(1, 16), 18, 19, 21, 22, 24, 25, 26, 27]
    assert max(kinds) + 1 == packets.KINDS


def test_messages_of_requests_with_keys_keep_their_bytes() -> None:
    """Nodes of different versions read these messages, so a kind never changes its number."""
    losses = packets.MESSAGE.pack(packets.LOSSES, 0, 0, 33, 0, 0)
    reserve = packets.MESSAGE.pack(packets.RESERVE, 0, 0, 16, 7, 1500)
    assert losses.hex() == "18000000" + "00000021" + "0000000000000000" + "00000000"
    assert reserve.hex() == "19000000" + "00000010" + "0000000000000007" + "000005dc"


@pytest.mark.parametrize("reason", [0, *packets.Rejection])
@pytest.mark.parametrize("registrations", [1, 2, packets.SURVEYED_REGISTRATIONS_MAX])
def test_an_answer_says_how_many_there_are_and_why(registrations: int, reason: int) -> None:
    argument = packets.encode_answer(registrations, reason)
    assert argument <= 0xFFFF_FFFF
    assert packets.decode_answer(argument) == (registrations, reason)


def test_the_argument_of_other_answers_is_the_reason_alone() -> None:
    assert packets.encode_answer(0, packets.Rejection.EXPIRED) == packets.Rejection.EXPIRED
    assert packets.decode_answer(0) == (1, 0)


@given(st.text())
def test_any_text_of_a_failure_survives(text: str) -> None:
    type_, decoded = decode_failure(encode_failure(ValueError(text)))
    assert type_ == "ValueError"
    assert decoded == text[:FAILURE_TEXT_MAX]


@given(st.text(st.characters(min_codepoint=0xD7F0, max_codepoint=0xE010)))
def test_text_that_utf8_cannot_hold_is_escaped(text: str) -> None:
    """Python names files by half characters (PEP 383), so an OSError may hold some."""
    _type, decoded = decode_failure(encode_failure(OSError(2, "No such file", text)))
    assert "No such file" in decoded


def test_an_error_without_a_text() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    type_, text = decode_failure(encode_failure(SilentError()))
    assert type_.endswith("SilentError")
    assert text


def test_a_failure_is_bounded() -> None:
    _type, text = decode_failure(encode_failure(ValueError("\udc80" * 1_000_000)))
    assert len(text) == FAILURE_TEXT_MAX


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\x92\x01\x02",
        b"\x92\xa1a\xa1\xff",  # no UTF-8
        b"\x93\xa1a\xa1b" + b"\x91" * 100_000 + b"\xc0",  # deeper than any stack
        b"\xdd\xff\xff\xff\xff",
    ],
)
def test_a_malformed_failure_is_a_failure(payload: bytes) -> None:
    type_, text = decode_failure(payload)
    assert type_ == "UnknownError"
    assert "malformed" in text


@given(st.binary(max_size=100))
def test_no_failure_raises(payload: bytes) -> None:
    decode_failure(payload)


@given(st.floats(-1e9, 4e6))
def test_time_left_is_rounded_up(time_left_s: float) -> None:
    milliseconds = encode_time_left(time_left_s)
    assert 1 <= milliseconds <= TIME_LEFT_MS_MAX
    assert milliseconds >= time_left_s * 1000
    assert milliseconds <= max(1, time_left_s * 1000 + 1.001)


@pytest.mark.parametrize("time_left_s", [float("inf"), 1e300, TIME_LEFT_MS_MAX / 1000, TIME_LEFT_MS_MAX])
def test_longer_than_can_be_said(time_left_s: float) -> None:
    assert encode_time_left(time_left_s) == TIME_LEFT_MS_MAX


def test_a_run_of_publications_has_one_header() -> None:
    parts = packets.encode_run(b"t", [b"ab", b"", b"c"], 7)
    lengths = "0003" + "00000002" + "00000000" + "00000001"
    header = "09020001" + "00000011" + "0000000000000007" + "00000000"
    assert b"".join(parts).hex() == header + b"t".hex() + lengths + b"abc".hex()


def test_a_run_of_one_is_a_plain_message() -> None:
    assert (
        b"".join(packets.encode_run(b"t", [b"ab"], 7)).hex() == "09000001" + "00000002" + "0" * 15 + "7" + "00000000" + "746162"
    )


@given(st.lists(st.binary(max_size=50), min_size=2, max_size=50), st.binary(max_size=10), st.binary(max_size=10))
def test_a_run_survives_wherever_it_is_in_a_body(payloads: list[bytes], before: bytes, after: bytes) -> None:
    _header, _head, *content = packets.encode_run(b"topic", payloads, 1, 1)
    run = b"".join(content)
    assert packets.decode_run(before + run + after, len(before), len(before) + len(run)) == payloads


@given(st.binary(max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_whatever_is_no_run_is_none(body: bytes, start: int, size: int) -> None:
    start = min(start, len(body))
    stop = min(start + size, len(body))
    payloads = packets.decode_run(body, start, stop)
    if payloads is not None:
        assert payloads
        assert stop - start == packets.RUN_COUNT.size + sum(packets.RUN_MESSAGE_BYTES + len(payload) for payload in payloads)


@pytest.mark.parametrize("body", ["", "00", "0000", "0001", "000100000001", "00010000000161ff", "0002000000010000000161"])
def test_a_truncated_or_too_long_run_is_none(body: str) -> None:
    run = bytes.fromhex(body)
    assert packets.decode_run(run + b"more", 0, len(run)) is None


def test_behind_a_cast_there_may_be_several_messages_of_a_bounded_size() -> None:
    def body(first: int, *sizes: int) -> bytes:
        messages = [packets.MESSAGE.pack(packets.PUBLICATION, 0, 0, size, 1, 0) + bytes(size) for size in sizes]
        return packets.MESSAGE.pack(first, 0, 0, 0, 1, 0) + b"".join(messages)

    def is_sane(data: bytes) -> bool:
        return packets.is_body_sane(data, 0, len(data))

    most = packets.RUN_BODY_BYTES_MAX // 2 - packets.MESSAGE_BYTES
    assert is_sane(body(packets.CAST, most, most))
    assert not is_sane(body(packets.CAST, most, most + 1))
    assert is_sane(body(packets.CAST, 3 * most)), "one message may have any size"
    assert not is_sane(body(packets.FLOW, most, most))


def test_counts_behind_a_flow_leave_a_large_batch_its_size() -> None:
    count = MatchesBefore(1, 2, 3, 4).encode()
    flow = packets.MESSAGE.pack(packets.FLOW, 0, 0, 0, 1, 0)

    def is_sane(counts: int, run: bytes, each: bytes = count) -> bool:
        body = flow + each * counts + run
        return packets.is_body_sane(body, 0, len(body))

    run = b"".join(packets.encode_run(b"t", [bytes(1000)] * 200, 1))
    assert is_sane(0, run)
    assert is_sane(packets.NODE_COUNTED_MAX, run)
    assert not is_sane(packets.NODE_COUNTED_MAX + 1, run)
    longer = packets.MESSAGE.pack(packets.COUNT, 0, 0, packets.COUNT_BYTES + 1, 4, 0) + bytes(packets.COUNT_BYTES + 1)
    assert not is_sane(1, run, longer)
    assert not is_sane(1, run + b"x")
    small = packets.MESSAGE.pack(packets.PUBLICATION, 0, 0, 1000, 1, 0) + bytes(1000)
    most = (packets.SHARED_BODY_BYTES_MAX // len(small)) * small
    assert is_sane(packets.NODE_COUNTED_MAX, most), "several messages fill a body as without counts"
    assert not is_sane(1, most + small)


@pytest.mark.parametrize("count", [1, 2, 100])
def test_the_size_of_all_payloads_is_known_without_a_look_at_each(count: int) -> None:
    payloads = [bytes(size) for size in range(count)]
    start, head, *parts = packets.encode_run(b"topic", payloads, 7)
    _kind, flags, head_bytes, length, _number, _argument = packets.MESSAGE.unpack(start)
    assert head_bytes == len(head)
    assert length == sum(map(len, parts))
    assert length - packets.run_bytes(flags, payloads) == sum(range(count))
