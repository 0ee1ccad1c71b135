"""The proofs of task and agent: who knows no key proves nothing, and what was said once counts once."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from spark_connector.errors import OrderRefused
from spark_connector.executors.challenge import NONCE_BYTES, OPENING_BYTES, PROOF_BYTES, AgentHello, Talk

KEY, OTHER = os.urandom(32), os.urandom(32)
HELLO = AgentHello("ab" * 16, False, bytes(NONCE_BYTES))
NONCE = b"\x01" * NONCE_BYTES


def test_both_sides_prove_that_they_know_the_key_and_none_shows_it() -> None:
    task, agent = Talk(KEY, HELLO, NONCE), Talk(KEY, HELLO, NONCE)
    opening = task.opening()
    proof = agent.answer(opening)

    assert task.is_proved_by(proof)
    assert task.session == agent.session
    assert (len(opening), len(proof), opening[:NONCE_BYTES]) == (OPENING_BYTES, PROOF_BYTES, NONCE)
    assert KEY not in opening + proof + HELLO.encode() + task.session.encode()
    assert len({opening[NONCE_BYTES:], proof, bytes.fromhex(task.session.removeprefix("local "))}) == 3


def test_who_knows_another_key_proves_nothing() -> None:
    task, agent = Talk(KEY, HELLO, NONCE), Talk(OTHER, HELLO, NONCE)
    with pytest.raises(OrderRefused, match="not from the driver"):
        agent.answer(task.opening())
    assert not task.is_proved_by(agent.answer(agent.opening()))
    assert not task.is_proved_by(b"")
    assert not task.is_proved_by(task.opening()[NONCE_BYTES:])  # its own, sent back


@pytest.mark.parametrize(
    "other",
    [
        Talk(KEY, replace(HELLO, nonce=b"\x02" * NONCE_BYTES), NONCE),
        Talk(KEY, replace(HELLO, agent="cd" * 16), NONCE),
        Talk(KEY, replace(HELLO, is_waiting=True), NONCE),
        Talk(KEY, HELLO, b"\x02" * NONCE_BYTES),
    ],
    ids=["another connection", "another agent", "another state", "another task"],
)
def test_what_was_said_once_counts_once(other: Talk) -> None:
    one = Talk(KEY, HELLO, NONCE)
    assert not other.is_proved_by(one.answer(one.opening()))
    assert other.session != one.session
    with pytest.raises(OrderRefused):
        other.answer(one.opening())


def test_a_hello_is_a_line() -> None:
    line = HELLO.encode()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert AgentHello.decode(line) == HELLO


@pytest.mark.parametrize(
    "fields",
    [
        [],
        1,
        None,
        {},
        {"agent": 1, "waiting": True, "nonce": ""},
        {"agent": "", "waiting": 1, "nonce": ""},
        {"agent": "", "waiting": True, "nonce": "x"},
        {"agent": "", "waiting": True, "nonce": 1},
    ],
)
def test_what_is_no_hello_is_refused(fields: object) -> None:
    with pytest.raises(ValueError, match=r"identify itself|hexadecimal"):
        AgentHello.decode(json.dumps(fields).encode())
    with pytest.raises(ValueError):  # noqa: PT011 - of JSON or of UTF-8
        AgentHello.decode(b"\xff\n")
