from __future__ import annotations

from iris_overlay.graves import GRAVES_MAX, NEVER, Graves
from iris_overlay.ids import NodeId

A, B = NodeId(b"a" * 16), NodeId(b"b" * 16)


def test_graves_are_kept_for_a_time_or_for_ever() -> None:
    graves = Graves()
    graves.add(A, 10.0)
    graves.add(B, NEVER)
    graves.add(B, 5.0)  # Does not shorten it.
    assert graves.has(A, 9.0)
    assert not graves.has(A, 10.0)
    assert A not in graves
    assert graves.has_left(B)
    graves.add(A, 20.0)
    graves.clear()
    assert A not in graves
    assert graves.has(B, 1e9)
    graves.discard(B)
    assert not graves.has_left(B)


def test_graves_are_bounded() -> None:
    graves = Graves()
    for number in range(GRAVES_MAX + 10):
        graves.add(NodeId(number.to_bytes(16, "big")), 10.0)
    assert len(graves) == GRAVES_MAX
    assert NodeId((9).to_bytes(16, "big")) not in graves
