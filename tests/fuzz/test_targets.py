"""The targets of `make fuzz` take what a blind fuzzer makes of their seeds, and their oracles notice defects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from iris_overlay.detector.detector import Detector
from iris_overlay.errors import MessageError
from iris_overlay.groups.messages import Told, encode_group_message
from iris_overlay.ids import GroupId, NodeId
from tests.fuzz import machines_overlay, oracles
from tests.fuzz.blind import inputs
from tests.fuzz.table import TARGETS
from tests.fuzz.target import Kind

#: Inputs of each target beside its seeds: some seconds for all of them. Many more are for `make fuzz`.
COUNTS = {Kind.DECODER: 300, Kind.SIGNATURE: 60, Kind.MACHINE: 30, Kind.NODE: 10, Kind.PROPERTY: 20}


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_finds_nothing(name: str) -> None:
    target = TARGETS[name]
    for data in inputs(target, len(target.seeds) + COUNTS[target.kind]):
        target.run(data)


def finds(name: str, error: type[Exception], count: int = 500) -> None:
    """Look whether a blind fuzzer notices a defect that the test has made."""
    target = TARGETS[name]

    def run_all() -> None:
        for data in inputs(target, len(target.seeds) + count):
            target.run(data)

    with pytest.raises(error):
        run_all()


def test_an_error_that_is_not_declared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_overlay.groups.messages._DECODE_ERRORS", ())
    finds("group-message", msgspec.MsgspecError)


def test_a_field_that_is_lost_on_the_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.fuzz.decoders_overlay.encode_group_message",
        lambda message: encode_group_message(Told(GroupId(bytes(16)), 0)),
    )
    finds("group-message", AssertionError)


def test_a_machine_that_says_what_others_refuse_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Detector.datagrams_to_send
    monkeypatch.setattr(Detector, "datagrams_to_send", lambda detector: [*original(detector), (("10.0.0.1", 1), b"\xc0")])
    finds("detector", MessageError)


def test_a_machine_that_keeps_more_than_it_is_told_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Detector.receive_datagram

    def receive(detector: Detector, *arguments: Any) -> None:
        original(detector, *arguments)
        detector._relays[0] = ("10.0.0.1", 1), 0, NodeId(bytes(2 << 20)), 1e9

    monkeypatch.setattr(Detector, "receive_datagram", receive)
    finds("detector", oracles.TooLarge)


def test_a_turn_that_takes_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracles, "TURN_S_MAX", -1.0)
    finds("overlay", oracles.TooSlow)


def test_an_input_means_something_from_each_beginning_on() -> None:
    data = bytes(range(256)) * 4
    for length in range(0, len(data), 16):
        machines_overlay.run_detector(data[:length])
