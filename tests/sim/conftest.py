"""Checks after every simulation, whatever it is about."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.testing.clock import VirtualLoop
from iris_security.signature import verify

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent

#: A long simulation takes half a minute of the processor, and a machine that is busy with other things has less of it to give.
LONG_LIMIT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give long simulations more time: they see none of it, so that it only bounds one that never ends."""
    for item in items:
        is_long = "long" in item.keywords and item.path.is_relative_to(HERE)
        if is_long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_LIMIT_S))


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
