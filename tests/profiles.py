"""How much of what could be tried for ever is tried: examples of properties, and schedules of a simulation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark import ParameterSet

#: Examples of a property without a number of its own, in `make test-long`.
NORMAL = 100
#: The same in `make test`: the first ones of the same examples.
QUICK = 30


def examples(count: int) -> int:
    """Scale a number of examples to the profile; ``count`` is the number in `make test-long`."""
    return max(1, count * settings().max_examples // NORMAL)


def seeds(count: int) -> range:
    """Return the seeds of random schedules; `make schedules` sets another number than ``count``, that of `make test-long`."""
    return range(int(os.environ.get("IRIS_SEEDS") or count))


def first_cases(count: int, cases: Iterable[object]) -> list[ParameterSet]:
    """Return cases for ``parametrize`` of which `make test` runs so many, and `make test-long` the others."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.long] * (number >= count))
        for number, case in enumerate(cases)
    ]
