from __future__ import annotations

from iris_overlay.ids import NodeId
from iris_overlay.ring.memory import DEPARTED_MAX, NEVER, DepartedNodes

A, B = NodeId(b"a" * 16), NodeId(b"b" * 16)


def test_graves_are_kept_for_a_time_or_for_ever() -> None:
    departed = DepartedNodes()
    departed.add(A, 10.0)
    departed.add(B, NEVER)
    departed.add(B, 5.0)  # Does not shorten it.
    assert departed.has(A, 9.0)
    assert not departed.has(A, 10.0)
    assert A not in departed
    assert departed.has_left(B)
    departed.add(A, 20.0)
    departed.clear()
    assert A not in departed
    assert departed.has(B, 1e9)
    departed.discard(B)
    assert not departed.has_left(B)


def test_graves_are_bounded() -> None:
    departed = DepartedNodes()
    for number in range(DEPARTED_MAX + 10):
        departed.add(NodeId(number.to_bytes(16, "big")), 10.0)
    assert len(departed) == DEPARTED_MAX
    assert NodeId((9).to_bytes(16, "big")) not in departed
