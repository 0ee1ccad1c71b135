"""One detector by hand, for the tests of its parts."""

from __future__ import annotations

import random

from iris_overlay.detector.config import DetectorConfig
from iris_overlay.detector.detector import Detector
from iris_overlay.detector.events import Alive, Contact, DetectorEvent
from iris_overlay.detector.messages import (
    Ack,
    DetectorMessage,
    Ping,
    decode_detector_message,
    encode_detector_message,
)
from iris_overlay.ids import NodeId

CONFIG = DetectorConfig()


LOCAL = NodeId(b"l" * 16)


STRANGER = ("198.51.100.9", 9)
STRANGER_ID = NodeId(b"s" * 16)


def contact(number: int, *, dialled: bool = True) -> Contact:
    return Contact(NodeId(number.to_bytes(16, "big")), (f"10.0.{number >> 8}.{number & 255}", 7000) if dialled else None)


#: So long nothing was lost that a detector trusts the network.
QUIET_S = 30.0


class Harness:
    """One detector by hand, with neighbour 1 and others 2 to 9 by default."""

    def __init__(self, others: int = 8, *, neighbour: Contact | None = None, config: DetectorConfig = CONFIG) -> None:
        self.now = 100.0
        self.detector = Detector(LOCAL, config, random.Random(1))
        self.neighbour = neighbour or contact(1)
        self.others = [contact(number) for number in range(2, 2 + others)]
        self.detector.set_contacts(self.neighbour, self.others, self.now)
        self.events: list[DetectorEvent] = []
        self.silent: set[NodeId] = set()
        self.incarnations: dict[NodeId, int] = {}

    def take(self) -> list[tuple[tuple[str, int], DetectorMessage]]:
        self.events.extend(self.detector.events_received())
        return [(address, decode_detector_message(data)) for address, data in self.detector.datagrams_to_send()]

    def give(self, message: DetectorMessage, source: tuple[str, int] = STRANGER) -> None:
        sender = message.responder if isinstance(message, Ack) else message.sender
        self.detector.receive_datagram(sender, encode_detector_message(message), source, self.now)

    def answer(self, messages: list[tuple[tuple[str, int], DetectorMessage]]) -> None:
        for _, message in messages:
            if type(message) is Ping and message.target not in self.silent:
                incarnation = self.incarnations.get(message.target, 0)
                if message.accused is not None and message.accused >= incarnation:
                    incarnation = self.incarnations[message.target] = message.accused + 1
                self.give(Ack(message.sequence, message.target, incarnation))

    def run_until(self, end: float) -> list[tuple[float, tuple[str, int], DetectorMessage]]:
        """Keep every deadline and let the others answer at once; return what was sent."""
        sent: list[tuple[float, tuple[str, int], DetectorMessage]] = []
        while (due := self.detector.deadline()) is not None and due <= end:
            assert due >= self.now
            self.now = due
            self.detector.handle_timeout(due)
            while messages := self.take():
                sent.extend((self.now, address, message) for address, message in messages)
                self.answer(messages)
            self.take()
        self.now = end
        return sent

    def run_for(self, duration_s: float) -> list[tuple[float, tuple[str, int], DetectorMessage]]:
        return self.run_until(self.now + duration_s)

    def verdicts(self) -> list[DetectorEvent]:
        """Return all events but measured round trips."""
        return [event for event in self.events if type(event) is not Alive or event.rtt_s is None]
