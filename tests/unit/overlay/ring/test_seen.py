from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.ids import NodeId
from iris_overlay.ring import memory as seen_module
from iris_overlay.ring.memory import REMEMBERED_S, Arrivals

if TYPE_CHECKING:
    import pytest

A, B = NodeId(b"a" * 16), NodeId(b"b" * 16)


def test_an_arrival_is_new_once() -> None:
    seen = Arrivals()
    assert seen.is_new(A, 5, 0.0)
    assert not seen.is_new(A, 5, 1.0)
    assert seen.is_new(A, 3, 1.0)  # Older, but new here.
    assert seen.is_new(B, 5, 1.0)
    assert len(seen) == 3
    seen.purge(REMEMBERED_S + 0.5)
    assert len(seen) == 2
    assert seen.is_new(A, 5, REMEMBERED_S + 0.5)


def test_arrivals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "ARRIVALS_MAX", 3)
    seen = Arrivals()
    assert all(seen.is_new(A, number, 0.0) for number in range(10))
    assert len(seen) == 3
    assert not seen.is_new(A, 9, 0.0)
