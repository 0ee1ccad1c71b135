"""Whatever peers say, a failure detector says nothing that another one would refuse, and remembers no more than its bounds."""

from __future__ import annotations

import random
from typing import TypeAlias

from hypothesis import example, given, settings
from hypothesis import strategies as st

from iris_overlay.detector.config import CHECKS_MAX, RELAYS_MAX, DetectorConfig
from iris_overlay.detector.detector import Detector
from iris_overlay.detector.events import Contact
from iris_overlay.detector.messages import (
    INCARNATION_MAX,
    SEQUENCE_MAX,
    Ack,
    DetectorMessage,
    Ping,
    PingRequest,
    decode_detector_message,
    encode_detector_message,
    pack_address,
)
from iris_overlay.ids import NodeId
from tests.profiles import examples

LOCAL = NodeId(b"l" * 16)
CONTACTS = [Contact(NodeId(bytes((number,)) * 16), (f"10.0.0.{number}", 7000)) for number in range(1, 7)]
IDS = st.sampled_from([LOCAL, *(contact.id for contact in CONTACTS), NodeId(b"?" * 16)])
INCARNATIONS = st.sampled_from([0, 1, 2, 7, INCARNATION_MAX - 1, INCARNATION_MAX])
ACCUSED = st.none() | INCARNATIONS
ADDRESSES = st.sampled_from([None, ("10.0.0.1", 7000), ("0.0.0.0", 1), ("255.255.255.255", 65535), ("::1", 1)]).map(
    pack_address
)
#: A message, or a sequence that the detector has used: the liar was a helper, and knows it.
SEQUENCES = st.sampled_from([0, 1, SEQUENCE_MAX]) | st.none()

Step: TypeAlias = "tuple[str, NodeId, NodeId, int | None, int, int | None, tuple[bytes, int]]"
STEPS = st.tuples(st.sampled_from(["ping", "ack", "request", "wait"]), IDS, IDS, SEQUENCES, INCARNATIONS, ACCUSED, ADDRESSES)


class Listener:
    """An honest detector, and what it says."""

    def __init__(self) -> None:
        self.now = 100.0
        self.detector = Detector(LOCAL, DetectorConfig(), random.Random(1))
        self.detector.set_contacts(CONTACTS[0], CONTACTS[1:], self.now)
        self.used = [0]

    def hear(self, message: DetectorMessage) -> None:
        sender = message.responder if isinstance(message, Ack) else message.sender
        self.detector.receive_datagram(sender, encode_detector_message(message), ("198.51.100.9", 9), self.now)

    def answer(self, ping: Ping) -> Ack:
        """Return the answer to a ping; beside it the detector may probe who sent it."""
        self.hear(ping)
        said = [decode_detector_message(data) for _address, data in self.detector.datagrams_to_send()]
        (ack,) = (message for message in said if isinstance(message, Ack))
        return ack

    def take(self, step: Step) -> None:
        kind, sender, target, sequence, incarnation, accused, address = step
        number = self.used[-1] if sequence is None else sequence
        if kind == "ping":
            self.hear(Ping(number, sender, target, accused))
        elif kind == "ack":
            self.hear(Ack(number, sender, incarnation))
        elif kind == "request":
            self.hear(PingRequest(number, sender, target, *address, accused))
        else:
            due = self.detector.deadline()
            self.now = self.now + 0.1 if due is None else max(self.now, due)
            self.detector.handle_timeout(self.now)

    def check(self) -> None:
        self.detector.events_received()
        for _address, data in self.detector.datagrams_to_send():
            said = decode_detector_message(data)  # raises if anybody would refuse it
            self.used.append(said.sequence)
        assert len(self.detector._probing.watches) <= len(CONTACTS) + CHECKS_MAX
        assert len(self.detector._relays) <= RELAYS_MAX


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(STEPS, max_size=80))
def test_a_detector_says_nothing_that_others_refuse(steps: list[Step]) -> None:
    listener = Listener()
    for step in steps:
        listener.take(step)
        listener.check()


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(STEPS, max_size=60))
@example([("ping", CONTACTS[0].id, LOCAL, 0, 0, INCARNATION_MAX, pack_address(None))])
def test_a_node_that_was_lied_to_still_refutes_the_truth(steps: list[Step]) -> None:
    """Whatever was said before, an accusation in the incarnation that it lives in is answered with a higher one."""
    listener = Listener()
    for step in steps:
        listener.take(step)
    listener.check()
    before = listener.answer(Ping(5, CONTACTS[0].id, LOCAL, None))
    after = listener.answer(Ping(6, CONTACTS[0].id, LOCAL, before.incarnation))
    assert after.incarnation == before.incarnation + 1
