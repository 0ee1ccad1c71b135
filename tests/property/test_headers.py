"""Headers: what is given comes back, and garbage of a peer is a counted drop, whatever it is and wherever it stands."""

from __future__ import annotations

import random
from itertools import chain
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iris_py.node.inbound import Inbound
from iris_py.node.patterns import Patterns
from iris_py.observe.counts import BoundedCounts, CountTable
from iris_py.patterns.topic.deliveries import Deliveries
from iris_py.wire import packets
from iris_py.wire.headers import (
    HEADERS_BYTES_MAX,
    NAME_BYTES_MAX,
    NO_HEADERS,
    RESERVED_HEADERS,
    Headers,
    decode_headers,
    encode_headers,
)
from iris_py.wire.packets import MESSAGE, MESSAGE_BYTES

NAMES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=NAME_BYTES_MAX).filter(
    lambda name: not name.startswith(RESERVED_HEADERS)
)
VALUES = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
    | st.binary(max_size=50)
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.booleans()
)
HEADERS = st.dictionaries(NAMES, VALUES, max_size=20)


@given(headers=HEADERS)
def test_they_come_back_with_their_types(headers: dict[str, Any]) -> None:
    encoded = encode_headers(headers)
    assert len(encoded.encoded) <= HEADERS_BYTES_MAX
    decoded = decode_headers(encoded.encoded)
    assert decoded is not None
    assert {name: (type(value), value) for name, value in decoded.items()} == {
        name: (type(value), value) for name, value in headers.items()
    }


@given(head=st.binary(max_size=300), headers=HEADERS, cut=st.integers(0, 300), is_changed=st.booleans())
def test_garbage_never_raises(head: bytes, headers: dict[str, Any], cut: int, is_changed: bool) -> None:
    encoded = encode_headers(headers).encoded
    for each in (head, encoded[:cut], encoded + head, encoded[:cut] + head + encoded[cut + is_changed :]):
        decoded = decode_headers(each)
        if decoded is not None:  # then it can be read, and given to others
            assert encode_headers(dict(decoded), is_internal=True).keys() == decoded.keys()


class Receiver:
    """The receiving side of a node, with patterns that note which headers they are given."""

    def __init__(self) -> None:
        self.drops: dict[str, int] = {}
        self.given: list[object] = []
        pattern: Any = SimpleNamespace()
        for name in ("request", "request_once", "survey", "cancel", "answer", "broadcast", "reply", "failure", "rejection"):
            setattr(pattern, f"receive_{name}", self._note)
        for name in ("open", "accept", "pause", "resume", "cancel", "reservation"):
            setattr(pattern, f"receive_{name}", self._note)
        pattern.receive_requests = lambda _group, _peer, requests, _now: self._note(*chain(*requests))
        pattern.receive_replies = lambda _peer, _replies, _now: None
        pattern.receive = lambda message, _now: self._note(message.headers)
        pattern.count_drop = self._count_drop
        pattern.publisher = pattern
        pattern.deliveries = SimpleNamespace(
            receive=lambda *args: None, start_body=lambda *args: object(), receive_fetched=self._note
        )
        pattern.topic_of = lambda tag: ""
        self.inbound = Inbound(
            {},
            Patterns(pattern, pattern, pattern, pattern, pattern, lambda: pattern, lambda: pattern),
            pattern,
            lambda peer_id, message, now: None,
            random.Random(1).randbytes,
            pattern,
        )

    def receive(self, body: bytes) -> None:
        group: Any = SimpleNamespace(is_realm=True, is_late=lambda sender, sequence: False)
        peer: Any = SimpleNamespace(id=b"")
        self.inbound._receive_body(self.inbound.receivers, group, peer, body, 0, len(body), 0.0)

    def _note(self, *args: object) -> bool:
        self.given += [each for each in args if isinstance(each, Headers)]
        return True  # it has taken what it was given: a pause, a cancellation

    def _count_drop(self, reason: str, times: int = 1) -> int:
        self.drops[reason] = self.drops.get(reason, 0) + times
        return self.drops[reason]


@given(
    kind=st.integers(0, 255),
    flags=st.integers(0, 255),
    head=st.binary(max_size=60) | HEADERS.map(lambda headers: encode_headers(headers).encoded),
    payload=st.binary(max_size=40),
)
def test_any_head_of_any_kind_with_any_flags_is_taken_or_counted(kind: int, flags: int, head: bytes, payload: bytes) -> None:
    receiver = Receiver()
    message = MESSAGE.pack(kind, flags, len(head), len(payload), 1, 1) + head + payload
    receiver.receive(message * 2)
    if kind in packets.WITH_HEADERS:
        expected = decode_headers(head)
        is_short = kind == packets.REQUEST_ONCE and len(payload) < packets.IDENTITY_BYTES
        if expected is None:
            assert (receiver.drops, receiver.given) == ({"malformed_headers": 2}, [])
        elif not is_short:
            assert (receiver.drops, receiver.given) == ({}, [expected, expected])
    else:
        assert all(headers is NO_HEADERS for headers in receiver.given)
        assert not receiver.drops or receiver.drops.keys() <= {"unknown_kind", "malformed"}
    assert len(message) == MESSAGE_BYTES + len(head) + len(payload)


@given(flags=st.integers(0, 255), head=st.binary(max_size=60), payload=st.binary(max_size=10), number=st.integers(0, 3))
def test_any_head_of_a_publication_is_taken_or_counted(flags: int, head: bytes, payload: bytes, number: int) -> None:
    drops: dict[str, int] = {}

    def count_drop(reason: str, times: int = 1) -> int:
        drops[reason] = drops.get(reason, 0) + times
        return drops[reason]

    nobody: Any = None
    peer: Any = SimpleNamespace(id=b"", name="")
    deliveries = Deliveries(nobody, nobody, BoundedCounts(CountTable()), count_drop, [])
    sender = deliveries.start_body(nobody, peer, 0, 0, 0.0)
    deliveries.receive(sender, flags, 1, head, [payload] * (number + 1), 0.0)
    assert sum(drops.values()) == number + 1
    assert drops.keys() <= {"malformed", "malformed_headers", "publication_unwanted"}
