"""The outcomes of dials to seeds, and the texts made of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from iris_py.api.seeds import ENDS_MIN, Seeds
from iris_py.errors import NotConnected
from iris_py.link.events import HANDSHAKE_ENDED

if TYPE_CHECKING:
    import pytest

A, B = "a:1", "b:1"


def test_connections_that_end_are_a_proof_when_several_do_in_a_row() -> None:
    seeds = Seeds([A])
    for _ in range(ENDS_MIN - 1):
        seeds.refused(A, "it ended", is_end=True)
        assert seeds.is_in_doubt
        assert seeds.error is None
    seeds.refused(A, "it ended", is_end=True)
    assert not seeds.is_in_doubt
    assert seeds.error is not None
    assert (seeds.error.address, seeds.error.reason) == (A, "it ended")


def test_what_comes_between_takes_the_proof_away() -> None:
    seeds = Seeds([A])
    for is_reached in (False, True):
        for _ in range(ENDS_MIN - 1):
            seeds.refused(A, "it ended", is_end=True)
        if is_reached:
            seeds.reached(A)
        else:
            seeds.failed(A, "refuses connections")
        assert not seeds.is_in_doubt
        seeds.refused(A, "it ended", is_end=True)
        assert seeds.error is None
        seeds.reached(A)


def test_a_wrong_answer_is_a_proof_at_once() -> None:
    seeds = Seeds([A])
    seeds.refused(A, "not a node", is_end=False)
    assert str(seeds.error).startswith("a:1 is not a node of this network: not a node.")
    seeds.failed(A, "refuses connections")
    assert seeds.error is None


def test_one_seed_that_may_be_ours_is_enough() -> None:
    seeds = Seeds([A, B])
    seeds.refused(A, "not a node", is_end=False)
    states = [seeds.is_in_doubt]  # the other one says nothing yet
    seeds.refused(B, "it ended", is_end=True)
    states.append(seeds.is_in_doubt)
    seeds.failed(B, "is silent")
    assert [*states, seeds.is_in_doubt] == [False, True, False]
    assert seeds.error is None
    assert seeds.unreached == {A: "is not a node of this network: not a node", B: "is silent"}


def test_nobody_is_in_doubt_without_seeds() -> None:
    assert not Seeds([]).is_in_doubt
    assert Seeds([]).error is None


def test_a_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="iris_py")
    seeds = Seeds([A, B])
    assert seeds.unreached == {A: "has not answered yet", B: "has not answered yet"}
    seeds.reached(B)
    for _ in range(3):
        seeds.failed(A, "is silent")
    seeds.failed(A, "refuses connections")
    seeds.reached(A)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "the seed a:1 is silent. This node keeps dialling it."),
        ("WARNING", "the seed a:1 refuses connections. This node keeps dialling it."),
        ("INFO", "reached the seed a:1"),
    ]
    assert seeds.unreached == {}


def test_whether_somebody_is_there_is_unknown_until_surely_nobody_is_at_any_seed() -> None:
    seeds = Seeds([A, B])
    states = [seeds.is_unknown]
    seeds.failed(A, "refuses connections", is_absent=True)
    states.append(seeds.is_unknown)
    seeds.failed(B, "refuses connections", is_absent=True)
    assert [*states, seeds.is_unknown] == [True, True, False]


def test_a_seed_that_is_silent_or_ends_the_connection_may_be_alive() -> None:
    seeds = Seeds([A])
    states = []
    seeds.failed(A, "is silent")
    states.append(seeds.is_unknown)
    seeds.refused(A, "not a node", is_end=False)
    states.append(seeds.is_unknown)
    seeds.refused(A, "it ended", is_end=True)
    states.append(seeds.is_unknown)
    seeds.reached(A)
    assert [*states, seeds.is_unknown] == [True, False, True, False]
    assert not Seeds([]).is_unknown


def test_one_that_ends_the_handshake_beside_one_that_is_down_tells_of_the_secret() -> None:
    seeds = Seeds([A, B])
    seeds.failed(A, "refuses connections", is_absent=True)
    seeds.refused(B, HANDSHAKE_ENDED, is_end=True)
    assert seeds.error is None
    text = str(NotConnected("c", seeds.unreached))
    assert f"{B} may hold another secret: it ended the connection during the handshake" in text
    assert "holds the same secret" in text
