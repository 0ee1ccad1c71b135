"""How much of what could be tried for ever is tried: examples of properties, and schedules of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark import ParameterSet

#: What a property tries that says nothing, in the default profile.
NORMAL = 100


def examples(count: int) -> int:
    """Return how many examples to try where the default profile tries so many: ``settings(max_examples=examples(count))``."""
    return count * settings().max_examples // NORMAL


def first_cases(count: int, cases: Iterable[object]) -> list[ParameterSet]:
    """Return cases for ``parametrize`` of which `make test` runs so many, and `make test-long` the others."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.long] * (number >= count))
        for number, case in enumerate(cases)
    ]
