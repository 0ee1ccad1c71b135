"""How many examples of a property Hypothesis tries: as many as the test says, times what the profile says."""

from __future__ import annotations

from hypothesis import settings

#: What a property tries that says nothing, in the default profile.
NORMAL = 100


def examples(count: int) -> int:
    """Return how many examples to try where the default profile tries so many: ``settings(max_examples=examples(count))``."""
    return count * settings().max_examples // NORMAL
