"""Fixtures of all tests."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

from hypothesis import settings

from tests.profiles import NORMAL

# How long an example takes says more about the machine than about the code. The same examples every time: what the tests say
# depends on the code alone, and new ones are for `make fuzz`, which tries many more.
settings.register_profile("iris", deadline=None, derandomize=True, max_examples=NORMAL)
settings.register_profile("random", deadline=None, derandomize=False, max_examples=20 * NORMAL, print_blob=True)
settings.load_profile("iris")

# A shell makes what it runs in the background ignore interrupts, and children inherit that; those of the tests must not.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of interpreters: each would compile all of Iris again where Python was told to write no bytecode.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parents[1] / "build" / "bytecode"))


def pytest_collection_finish() -> None:
    """Take what is there before the first test out of every garbage collection: Spark, pandas, and thousands of tests.

    Many tests collect at their end, so that what was forgotten says so, and that looked through all of it each time: 0.2 s.
    """
    gc.collect()
    gc.freeze()
