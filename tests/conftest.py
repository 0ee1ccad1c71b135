"""What all tests share."""

from __future__ import annotations

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
