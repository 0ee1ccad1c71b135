"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("iris", deadline=None)
settings.load_profile("iris")

# A shell makes what it runs in the background ignore interrupts, and children inherit that; those of the tests must not.
signal.signal(signal.SIGINT, signal.default_int_handler)
