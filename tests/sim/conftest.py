"""Checks after every simulation, whatever it is about."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.testing.clock import VirtualLoop
from iris_security.signature import verify

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True, scope="session")
def each_signature_is_verified_once() -> Iterator[None]:
    """Verify each signature once for all nodes of a simulation: a beacon of one is the same for each of fifty others.

    Whether a signature holds depends on its bytes alone. It was a seventh of the time of simulations.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("iris_security.identity.verify", lru_cache(maxsize=4096)(verify))
        yield


@pytest.fixture(autouse=True)
def no_error_reaches_the_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a simulation in which a callback or a forgotten task raised: the protocol heals, and nobody else would notice."""
    errors: list[dict[str, Any]] = []

    def note(loop: VirtualLoop, context: dict[str, Any]) -> None:
        errors.append(context)

    monkeypatch.setattr(VirtualLoop, "call_exception_handler", note)
    yield
    assert errors == []
