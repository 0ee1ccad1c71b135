"""Bodies in fragments: however a peer cuts one, its messages are received as those of a body in one piece."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from iris_py.link.lanes import BODY, BODY_HEADER_BYTES, LARGE_BODY
from iris_py.node.inbound import Inbound
from iris_py.node.patterns import Patterns
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.wire import packets
from iris_py.wire.headers import Headers, encode_headers
from iris_py.wire.packets import COUNT, COUNT_BYTES, FLOW, MESSAGE

GROUP = bytes(range(BODY_HEADER_BYTES))
PEER: Any = SimpleNamespace(id=b"", name="", described="")


class Receiver:
    """The receiving side of a node, with patterns that note the bytes and headers that they are given, and the drops."""

    def __init__(self, *, is_proved: bool = True) -> None:
        self.noted: list[object] = []
        pattern: Any = SimpleNamespace(count_drop=lambda reason, times=1: self.noted.append(reason), topic_of=lambda tag: "")
        for name in ("request", "request_once", "survey", "cancel", "answer", "broadcast", "reply", "failure", "rejection"):
            setattr(pattern, f"receive_{name}", self._note)
        for name in ("open", "accept", "pause", "reservation", "requests", "replies", "recall", "taken"):
            setattr(pattern, f"receive_{name}", self._note)
        pattern.receive = pattern.receive_resume = pattern.receive_fetch = self._note
        pattern.publisher = pattern.shares = pattern
        pattern.deliveries = SimpleNamespace(
            receive=self._note,
            receive_headed=self._note,
            start_body=self._start,
            start_count=self._start,
            receive_moved=self._note,
            receive_fetched=self._note,
        )
        pattern.note_at = lambda *args, **values: None
        group: Any = SimpleNamespace(is_realm=True, realm=None)
        self._link: Any = SimpleNamespace(
            shared={GROUP} if is_proved else (), is_releasing=False, is_unsure=False, active_at=0.0, state=None
        )
        lazy = lambda: pattern  # noqa: E731
        self._inbound = Inbound(
            {GROUP: group},
            Patterns(pattern, pattern, pattern, pattern, pattern, lazy, lazy),
            pattern,
            lambda peer_id, message, now: None,
            random.Random(1).randbytes,
            pattern,
        )

    def receive(self, kind: int, key: bytes, data: bytes) -> list[object]:
        """Receive a packet; returns all that was noted."""
        self._inbound.receive_packets(self._link, PEER, [(kind, key, data, 0, len(data))], 0.0)
        return self.noted

    def _start(self, *args: object) -> object:
        self._note(*args)
        return SimpleNamespace()

    def _note(self, *args: object) -> bool:
        for each in args:
            if isinstance(each, PeerMessage):
                self._note(each.kind, each.payload, each.headers)
            elif isinstance(each, list | tuple):
                self._note(*each)
            elif (isinstance(each, bytes | Headers)) and each:
                self.noted.append(each)
        return True


HEADS = st.binary(max_size=40) | st.just(encode_headers({"name": "value"}).encoded)
MESSAGES = st.builds(
    lambda kind, flags, head, payload: MESSAGE.pack(kind, flags, len(head), len(payload), 1, 1) + head + payload,
    st.integers(1, packets.KINDS),
    st.sampled_from([0, packets.RUN, packets.HEADED]),
    HEADS,
    st.binary(max_size=60),
)
_FLOW = MESSAGE.pack(FLOW, 0, 0, 0, 1, 0)
_COUNT = MESSAGE.pack(COUNT, 0, 0, COUNT_BYTES, 1, 0) + bytes(COUNT_BYTES)
BEFORE = st.sampled_from([b"", _FLOW, _FLOW + _COUNT])


_HEADED = MESSAGE.pack(packets.PUBLICATION, packets.HEADED, 1, 2, 1, 1) + b"t" + b"ab"


@example(before=_FLOW, message=_HEADED, more=b"", cut=None)
@given(before=BEFORE, message=MESSAGES, more=st.binary(max_size=3), cut=st.none() | st.integers(0, 200))
def test_a_body_in_two_parts_is_received_as_one(before: bytes, message: bytes, more: bytes, cut: int | None) -> None:
    body = before + message + more
    if cut is None:  # where a sender cuts it
        cut = len(body) - MESSAGE.unpack_from(message)[3] - len(more)
    whole = Receiver().receive(BODY, GROUP, body)
    assert Receiver().receive(LARGE_BODY, GROUP + body[:cut], body[cut:]) == whole


def test_the_last_payload_is_not_copied() -> None:
    payload = bytes(100_000)
    flow = MESSAGE.pack(FLOW, 0, 0, 0, 1, 0)
    for kind in (packets.PUBLICATION, packets.REQUEST, packets.REPLY):
        head = GROUP + flow + MESSAGE.pack(kind, 0, 1, len(payload), 1, 1) + (b"t" if kind == packets.PUBLICATION else b"\x80")
        assert any(each is payload for each in Receiver().receive(LARGE_BODY, head, payload)), kind


def test_without_proof_of_the_key_nothing_is_received() -> None:
    head = GROUP + MESSAGE.pack(packets.REQUEST, 0, 0, 3, 1, 1)
    assert Receiver(is_proved=False).receive(LARGE_BODY, head, b"abc") == ["unproven"]
    assert Receiver().receive(LARGE_BODY, bytes(BODY_HEADER_BYTES) + head, b"abc") == ["unknown_group"]
