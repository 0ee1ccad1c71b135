"""Checks after every simulation, whatever it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_py.testing.clock import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def no_error_reaches_the_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a simulation in which a callback or a forgotten task raised: the protocol heals, and nobody else would notice."""
    errors: list[dict[str, Any]] = []

    def note(loop: VirtualLoop, context: dict[str, Any]) -> None:
        errors.append(context)

    monkeypatch.setattr(VirtualLoop, "call_exception_handler", note)
    yield
    assert errors == []
