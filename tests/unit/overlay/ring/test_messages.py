from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_overlay.errors import MessageError
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.ring.messages import (
    ACKNOWLEDGEMENTS_MAX,
    LEAVES_TOLD_MAX,
    PATH_LENGTH_MAX,
    PAYLOAD_BYTES_MAX,
    ROWS_TOLD_MAX,
    Direct,
    Got,
    JoinAnswer,
    JoinWaiting,
    LeafAck,
    LeafProbe,
    Leaving,
    MergeHint,
    Returned,
    RingMessage,
    Routed,
    RoutedKind,
    RowAnswer,
    RowAsk,
    decode_ring_message,
    encode_ring_message,
)

INFO = NodeInfo(NodeId(b"i" * 16), ("192.0.2.1:9000",), "eu/a")
KEY = b"k" * 16
MESSAGES: list[RingMessage] = [
    LeafProbe(INFO, [INFO], is_active=True),
    LeafAck(INFO, [INFO, INFO], is_active=True, is_whole=False),
    Routed(1, RoutedKind.PAYLOAD, KEY, INFO, 2, (INFO.id,), excludes=(), payload=b"p", nodes=[INFO]),
    Got([1, 2, 3]),
    Direct(INFO, b"p"),
    Returned((INFO.id,), INFO, b"p", INFO.id, 2, b"signature"),
    JoinAnswer(INFO, [INFO], [INFO]),
    JoinWaiting(INFO),
    RowAsk(INFO, 3),
    RowAnswer([INFO]),
    MergeHint(INFO, 1),
    Leaving(),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_round_trip(message: RingMessage) -> None:
    assert decode_ring_message(encode_ring_message(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_no_damage_raises_anything_else(message: RingMessage) -> None:
    data = encode_ring_message(message)
    for end in range(len(data)):
        with pytest.raises(MessageError):
            decode_ring_message(data[:end])
    for index in range(len(data)):
        for value in (0x00, 0x7F, 0x90, 0xC0, 0xFF):
            try:
                decode_ring_message(data[:index] + bytes([value]) + data[index + 1 :])
            except MessageError:
                pass


@given(st.binary(max_size=200))
def test_noise_raises_nothing_else(data: bytes) -> None:
    try:
        decode_ring_message(data)
    except MessageError:
        pass


@pytest.mark.parametrize(
    "message",
    [
        LeafProbe(INFO, [INFO] * (LEAVES_TOLD_MAX + 1), is_active=True),
        Routed(1, RoutedKind.JOIN, KEY, INFO, 2, (INFO.id,) * (PATH_LENGTH_MAX + 1), excludes=(INFO.id,), payload=b""),
        Routed(1, RoutedKind.JOIN, KEY, INFO, 2, (), excludes=(INFO.id,), payload=b""),
        Routed(
            1, RoutedKind.JOIN, KEY, INFO, 2, (INFO.id,), excludes=(INFO.id,), payload=b"", nodes=[INFO] * (ROWS_TOLD_MAX + 1)
        ),
        Routed(1, RoutedKind.JOIN, KEY[:-1], INFO, 2, (INFO.id,), excludes=(INFO.id,), payload=b""),
        Routed(-1, RoutedKind.JOIN, KEY, INFO, 2, (INFO.id,), excludes=(INFO.id,), payload=b""),
        Got([1] * (ACKNOWLEDGEMENTS_MAX + 1)),
        RowAsk(INFO, 32),
        RowAnswer([INFO] * 17),
        MergeHint(INFO, 3),
        JoinWaiting(NodeInfo(NodeId(b"short"), ())),
    ],
)
def test_bounds_are_checked(message: RingMessage) -> None:
    with pytest.raises(MessageError):
        decode_ring_message(msgspec.msgpack.encode(message))


def test_the_largest_payload_fits_even_wrapped() -> None:
    inner = encode_ring_message(Direct(INFO, bytes(PAYLOAD_BYTES_MAX)))
    outer = Routed(1, RoutedKind.RELAY, KEY, INFO, 2, (INFO.id,) * PATH_LENGTH_MAX, excludes=(), payload=inner)
    assert decode_ring_message(encode_ring_message(outer)) == outer
    with pytest.raises(MessageError):
        decode_ring_message(bytes(3 << 19))
